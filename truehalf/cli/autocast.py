"""truehalf autocast: the command line of NVIDIA AutoCast (nvidia-modelopt 0.47.0), with its rules and defaults, and
minimum-cut placement of Casts. What is not supported here is refused by name.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from truehalf.cli.form import BAD_INPUT, FILE_OF_JSON, QUIET, VERBOSE, Output, check_places, guarded
from truehalf.config.precision import Precision
from truehalf.errors import StageError, refuse
from truehalf.float16 import MAX

_DESCRIPTION = """NVIDIA AutoCast's arguments, rules and defaults (float16 inputs and outputs
among them), with minimum-cut placement of Casts.

Examples:
  truehalf autocast --onnx_path model.onnx --output_path out.onnx -d data.npz
  truehalf autocast --onnx_path m.onnx -ope Softmax Exp --keep_io_types
"""
_EXITS = "Exit codes: 0 converted (not verified), 2 bad input,\n70 defect of truehalf, 130 stopped."
_OPSET_MIN = 13
_DRAWN = (
    "no --calibration_data: ranges are those of one random input, uniform in [-1, 1] as AutoCast draws it, not "
    "those of real inputs"
)


class _Command(click.Command):
    """A command whose arguments argparse reads; only completion needs to know them."""

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        names = [name for action in parser()._actions for name in action.option_strings]
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


@click.command(
    cls=_Command, context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(arguments: tuple[str, ...]) -> int:
    """Convert with NVIDIA AutoCast's arguments."""
    try:
        given = parser().parse_args(list(arguments))
    except SystemExit as end:  # argparse has printed why
        return BAD_INPUT if end.code else 0
    return guarded("autocast", lambda: _autocast(given))


def parser() -> argparse.ArgumentParser:
    """AutoCast's arguments, by its names, short forms and defaults."""
    found = argparse.ArgumentParser(
        prog="truehalf autocast",
        usage="truehalf autocast --onnx_path MODEL [options]",
        description=_DESCRIPTION,
        epilog=_EXITS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    main, lists, rules, output, other = (
        found.add_argument_group(title)
        for title in ("files", "nodes", "rules", "output of truehalf", "accepted without effect, or refused")
    )
    add = main.add_argument
    add("--onnx_path", required=True, metavar="MODEL", help="FP32 model")
    add("--output_path", metavar="FILE", help="file to write [<model>.fp16.onnx beside it]")
    add(
        "--calibration_data",
        "-d",
        metavar="FILE",
        help=".npz or Polygraphy's JSON; without it, one input is drawn, uniform in [-1, 1]",
    )
    add(
        "--keep_io_types",
        action="store_true",
        help="keep the types of inputs and outputs, which become float16 otherwise",
    )
    add("--opset", type=int, metavar="N", help=f"raise the model to this opset, {_OPSET_MIN} or more [{_OPSET_MIN}]")
    add = output.add_argument
    add("--json", type=Path, metavar="FILE", help=FILE_OF_JSON)
    add("--quiet", action="store_true", help=QUIET)
    add("--verbose", action="store_true", help=VERBOSE)
    add = lists.add_argument
    add("--nodes_to_exclude", "-ne", nargs="*", default=[], metavar="REGEX", help="names of nodes that stay FP32")
    add("--op_types_to_exclude", "-ope", nargs="*", default=[], metavar="OP", help="op types that stay FP32")
    add(
        "--nodes_to_include",
        "-ni",
        nargs="*",
        default=[],
        metavar="REGEX",
        help="names of nodes that run in FP16 anyway",
    )
    add("--op_types_to_include", "-opi", nargs="*", default=[], metavar="OP", help="op types that run in FP16 anyway")
    add = rules.add_argument
    add("--data_max", type=float, default=512.0, metavar="X", help="largest |x| of a node in FP16 [512]")
    add("--init_max", type=float, default=65504.0, metavar="X", help="largest |w| of a node in FP16 [65504]")
    add("--init_conversion_max_bytes", type=int, metavar="N", help="larger weights are cast at run time")
    add("--max_depth_of_reduction", type=int, metavar="N", help="longest sum of a node in FP16 [no limit]")
    add = other.add_argument
    add("--low_precision_type", "-t", choices=("fp16", "bf16"), default="fp16", help="bf16 is refused")
    add("--providers", nargs="+", default=["cpu"], metavar="EP", help="all but cpu are refused")
    add("--trt_plugins", nargs="+", default=[], metavar="SO", help="refused")
    add("--trt_plugins_precision", nargs="+", default=[], metavar="OP:TYPE", help="refused")
    add("--use_standalone_type_inference", action="store_true", help="no effect: types are always inferred here")
    add("--log_level", default="INFO", choices=("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"), help="no effect")
    return found


def _limit(name: str, value: float) -> float | None:
    """Of a rule on magnitudes; None, without the rule, for inf."""
    if value == math.inf:
        return None
    if not 0 < value <= MAX:
        message = f"--{name}: expected a number above 0, at most {MAX:g}, or inf, got {value:g}"
        raise StageError("out-of-range", message)
    return value


def _from_the_start(patterns: Sequence[str]) -> list[str]:
    """AutoCast matches names from their first character on (re.match)."""
    return [f"^(?:{pattern})" for pattern in patterns]


def _autocast(given: argparse.Namespace) -> int:
    from truehalf.api import convert
    from truehalf.data.noise import feed_of_noise
    from truehalf.ir.model_file import load_model
    from truehalf.report.text import kept_in_fp32

    _refuse(given)
    output = Output(given.json, given.quiet, given.verbose)
    source = Path(given.onnx_path)
    out = Path(given.output_path or f"{given.onnx_path.removesuffix('.onnx')}.{given.low_precision_type}.onnx")
    samples: Any = given.calibration_data
    check_places({"--output_path": out, "--json": output.file}, {"--onnx_path": source}, calibration_data=samples)
    model = load_model(source)
    opset = _opset(given.opset, model.graph.opset_imports.get("", 0))
    precision = Precision(
        rules="autocast",
        keep_io_types=given.keep_io_types,
        opset=opset,
        data_max=_limit("data_max", given.data_max),
        init_max=_limit("init_max", given.init_max),
        init_conversion_max_bytes=given.init_conversion_max_bytes,
        reduction_depth_max=given.max_depth_of_reduction,
        node_block_list=_from_the_start(given.nodes_to_exclude),
        op_block_list=given.op_types_to_exclude,
        node_include_list=_from_the_start(given.nodes_to_include),
        op_include_list=given.op_types_to_include,
    )
    if samples is None and model.graph.inputs:
        samples = [feed_of_noise(model)]
        print(f"truehalf autocast: {_DRAWN}", file=sys.stderr)
    result = convert(source, out, samples=samples, skip=("slim", "check"), precision=precision)
    fp16 = result.report.fp16
    casts, kept = result.report.cast_cleanup.casts_after, fp16.get("fp32_nodes_total", 0)
    lines = [f"converted: {out}: {casts} casts, {kept} FP32 nodes"]
    lines += [f"warning: {line}" for line in [*fp16["not_done"], *fp16["warnings"]]]
    lines.append(f"not verified: to compare it, truehalf verify {source} {out} --samples ...")
    content = {
        "model": str(source),
        "out": str(out),
        "conversion": result.report.to_json(),
        "decisions": result.decisions,
    }
    output.give(lines, content, [f"FP32: {line}" for line in kept_in_fp32(result.decisions)])
    return 0


def _opset(asked: int | None, current: int) -> int | None:
    """The opset to raise a model to; None: it stays.

    Raises:
        StageError: one below AutoCast's least, or below the model's.
    """
    least = max(_OPSET_MIN, current)
    if asked is not None and asked < least:
        why = "FP16 needs that" if least == _OPSET_MIN else f"the model has {current}, and models are only raised"
        raise StageError("wrong-opset", f"--opset: expected {least} or more ({why}), got {asked}")
    return asked if asked is not None or current >= _OPSET_MIN else _OPSET_MIN


def _refuse(given: argparse.Namespace) -> None:
    """Raise StageError, naming every argument that asks for what is not supported here."""
    problems = []
    if given.low_precision_type == "bf16":
        problems.append("--low_precision_type bf16: only fp16 is supported; bf16 has 8 bits of mantissa")
    if given.providers != ["cpu"]:
        problems.append(f"--providers {' '.join(given.providers)}: ranges are measured on the CPU: leave it out or cpu")
    for name in ("trt_plugins", "trt_plugins_precision"):
        if getattr(given, name):
            problems.append(f"--{name}: ONNX Runtime, which has no TensorRT plugin, measures ranges; leave it out")
    refuse("not-supported", "autocast: not supported", problems)
