"""truehalf autocast: the command line of NVIDIA AutoCast (nvidia-modelopt 0.47.0), carried out with its rules and our
placement of Casts. Its users paste what they have; what is not done here is refused by name.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import click

from truehalf.cli.form import BAD_INPUT, Command, guarded, show
from truehalf.config.precision import Precision
from truehalf.errors import StageError

_EXAMPLES = (
    "truehalf autocast --onnx_path model.onnx --output_path out.onnx -d calibration.npz",
    "truehalf autocast --onnx_path model.onnx -ope Softmax Exp -ne '/decoder/.*' --keep_io_types",
)
_OPSET_MIN = 13


@click.command(
    cls=Command,
    examples=_EXAMPLES,
    exits="Exit codes: 0 converted (AutoCast verifies nothing: truehalf verify), 2 bad input, 130 stopped.",
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []},
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(arguments: tuple[str, ...]) -> int:
    """Convert with NVIDIA AutoCast's arguments, rules and defaults (float16 inputs and outputs among them)."""
    try:
        given = parser().parse_args(list(arguments))
    except SystemExit as end:  # argparse has said why
        return BAD_INPUT if end.code else 0
    return guarded("autocast", lambda: _autocast(given))


def parser() -> argparse.ArgumentParser:
    """AutoCast's arguments, by its names, short forms and defaults."""
    found = argparse.ArgumentParser(
        prog="truehalf autocast", description="NVIDIA AutoCast's command line, with minimum-cut placement of Casts."
    )
    add = found.add_argument
    add("--onnx_path", required=True, help="FP32 model")
    add("--output_path", help="file to write; by default <model>.fp16.onnx beside it")
    add("--low_precision_type", "-t", choices=("fp16", "bf16"), default="fp16", help="fp16; bf16 is refused")
    add("--calibration_data", "-d", help=".npz or Polygraphy's JSON; without it, rules on ranges judge nothing")
    add("--nodes_to_exclude", "-ne", nargs="*", default=[], help="regular expressions of node names that stay FP32")
    add("--op_types_to_exclude", "-ope", nargs="*", default=[], help="op types that stay FP32")
    add(
        "--nodes_to_include",
        "-ni",
        nargs="*",
        default=[],
        help="regular expressions of names that go FP16 all the same",
    )
    add("--op_types_to_include", "-opi", nargs="*", default=[], help="op types that go FP16 all the same")
    add("--data_max", type=float, default=512.0, help="largest |x| that a node may read or write in FP16")
    add("--init_max", type=float, default=65504.0, help="largest |w| of a node in FP16")
    add("--init_conversion_max_bytes", type=int, help="larger weights are cast at run time")
    add("--max_depth_of_reduction", type=int, help="nodes that accumulate more terms stay FP32")
    add(
        "--keep_io_types",
        action="store_true",
        help="inputs and outputs keep their types; by default they become float16",
    )
    add("--log_level", default="INFO", choices=("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"), help="no effect")
    add("--providers", nargs="+", default=["cpu"], help="cpu; others are refused")
    add("--trt_plugins", nargs="+", default=[], help="refused where given")
    add("--trt_plugins_precision", nargs="+", default=[], help="refused where given")
    add("--opset", type=int, help=f"raise the model to this opset; at least {_OPSET_MIN}, which is also the default")
    add("--use_local_type_inference", action="store_true", help="no effect: types are inferred here in any case")
    return found


def _autocast(given: argparse.Namespace) -> int:
    from truehalf.api import convert
    from truehalf.ir.model_file import load_model

    _refuse(given)
    source = Path(given.onnx_path)
    out = Path(given.output_path or f"{given.onnx_path.removesuffix('.onnx')}.{given.low_precision_type}.onnx")
    version = load_model(source).graph.opset_imports.get("", 0)
    opset = max(given.opset or _OPSET_MIN, version)
    precision = Precision(
        rules="autocast",
        keep_io_types=given.keep_io_types,
        opset=opset if opset > version else None,
        data_max=min(given.data_max, 65504.0),
        init_max=min(given.init_max, 65504.0),
        init_conversion_max_bytes=given.init_conversion_max_bytes,
        reduction_depth_max=given.max_depth_of_reduction,
        node_block_list=given.nodes_to_exclude,
        op_block_list=given.op_types_to_exclude,
        node_include_list=given.nodes_to_include,
        op_include_list=given.op_types_to_include,
    )
    report = convert(source, out, samples=given.calibration_data, slim=False, precision=precision).report
    fp16 = report["fp16"]
    show(
        f"converted: {out}: {report['cast_cleanup']['casts_after']} casts, {fp16.get('fp32_nodes_total', 0)} FP32 nodes"
    )
    for line in [*fp16["not_done"], *fp16["warnings"]]:
        show(f"warning: {line}")
    show(f"nothing was compared: truehalf verify {source} {out} --samples ...")
    return 0


def _refuse(given: argparse.Namespace) -> None:
    """Raise StageError, naming everything that AutoCast does and this command does not."""
    faults = []
    if given.low_precision_type == "bf16":
        faults.append(
            "--low_precision_type bf16: FP16 alone is made here; detectors lose accuracy with 8 bits of mantissa"
        )
    if given.providers != ["cpu"]:
        faults.append(f"--providers {' '.join(given.providers)}: ranges are measured on the CPU; leave it out, or cpu")
    for name in ("trt_plugins", "trt_plugins_precision"):
        if getattr(given, name):
            faults.append(f"--{name}: ranges are measured by ONNX Runtime, which has no TensorRT plugin; leave it out")
    if faults:
        raise StageError("not-supported", "autocast: not done here:\n" + "\n".join(f"  - {fault}" for fault in faults))
