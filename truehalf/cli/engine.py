"""truehalf engine: engine of a file, built or compiled on this machine."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from truehalf.cli.form import FAILED, MODEL, NOT_VERIFIED, PASSED, Output, decorated, file_option, option
from truehalf.cli.form import command as command_of
from truehalf.config.engine import KINDS, ComputeCapability
from truehalf.errors import StageError
from truehalf.report.text import WHOLE_WORDS, Screen

if TYPE_CHECKING:
    from truehalf.engines.engine_report import EngineReport
    from truehalf.ir.model_forms import ModelFile

_EXAMPLES = (
    "truehalf engine model_fp16.onnx --target sm86",
    "truehalf engine m.onnx --min-shape x:1x3x640x640 --max-shape x:8x3x640x640",
)
_EXITS = (
    "Exit codes: 0 built, or compiled where this machine cannot build it, 1 failed, 2 bad input, 3 not verified: none "
    "was made, or a gate is open, 70 defect of truehalf, 130 stopped."
)
ENGINE = "Engine (default of a model: 1 to 8 samples)"


def engine_options(command: Any) -> Any:
    """Decorator of commands that make an engine of a model: --target, shapes of the profile, --no-gates."""
    of = partial(option, group=ENGINE)
    shape = partial(of, multiple=True, metavar="NAME:SHAPE")
    target_help = "GPU that it is compiled for without one, such as sm86 [Ampere and later]; may be repeated"
    options = (
        of("--target", multiple=True, type=click.Choice(ComputeCapability), metavar="GPU", help=target_help),
        shape("--min-shape", help="smallest [--opt-shape]"),
        shape("--opt-shape", help="optimised for [--max-shape]"),
        shape("--max-shape", help="largest [--opt-shape]"),
        of("--no-gates", is_flag=True, help="neither the share of Half nor attentions that are not fused count"),
    )
    return decorated(command, options)


@command_of(examples=_EXAMPLES, exits=_EXITS)
@click.argument("file", type=MODEL, metavar="model.onnx")
@file_option("--out", metavar="FOLDER", help="folder for the engine, plan.json and engine.json [<model>_engine]")
@engine_options
def command(output: Output, **given: Any) -> int:
    """Build the engine of an ONNX file, verify it, and write engine.json, the whole report.

    Without a GPU the file is compiled by TensorRT for RTX (pip install 'truehalf[rtx]'), and nothing is executed. One
    that TensorRT would refuse, too, fails.
    """
    file = given["file"]
    out = given["out"] or default_folder(file)
    report = engine_of_model(file, out, given)
    findings = [f"{each['severity']} {each['rule']}: {each['message']}" for each in report.lint]
    further = output.screen.listed("lint:", findings)
    output.give(engine_lines(report, out, output.screen), report.to_json(), further)
    return FAILED if report.status == "failed" else NOT_VERIFIED if report.has_open_gate else PASSED


def given_shapes(given: Mapping[str, Any]) -> dict[str, dict[str, list[int]]]:
    """{"min" | "opt" | "max": {input: shape}} of the flags.

    Raises:
        StageError: a shape that cannot be read.
    """
    from truehalf.io_spec.profiles import named_shape

    return {kind: dict(named_shape(text, f"--{kind}-shape") for text in given[f"{kind}_shape"]) for kind in KINDS}


def check_engine(file: ModelFile, given: Mapping[str, Any], is_made: bool) -> None:
    """Refuse flags of an engine that do not fit the model, or that nothing reads, before the work.

    Raises:
        StageError: flags of an engine where none is made, shapes that do not fit or are missing.
    """
    from truehalf.io_spec.profiles import profile_of

    names = ("target", "no_gates", *(f"{kind}_shape" for kind in KINDS))
    stated = [f"--{name.replace('_', '-')}" for name in names if given[name]]
    if is_made:
        profile_of(file.written, given_shapes(given))
    elif stated:
        raise StageError("needs-value", f"{', '.join(stated)}: of an engine, and none is asked for; add --engine")


def default_folder(file: Path) -> Path:
    """Return the default folder of a file's engine."""
    return file.parent / f"{file.stem}_engine"


def engine_of_model(file: Path, out: Path, given: Mapping[str, Any]) -> EngineReport:
    """Engine of an ONNX file as the flags of `engine_options` say; see truehalf.engines.build."""
    from truehalf.config.engine import NO_GATES, EngineConfig, EngineGates, TargetConfig
    from truehalf.engines.build import engine_of_file

    gates = NO_GATES if given["no_gates"] else EngineGates()
    options = EngineConfig(timing_cache=None, gates=gates)
    return engine_of_file(file, out, given_shapes(given), TargetConfig(given["target"]), options)


def engine_lines(report: EngineReport, folder: Path, screen: Screen) -> list[str]:
    """The state of the engine, its facts and latency, and what was not verified.

    Args:
        folder: holds the engine and its report.
    """
    from truehalf.engines.build import REPORT_FILE
    from truehalf.report.engine import fact_rows, point_text

    shown = f"{report.status}: {report.reason or folder / (report.engine or '')}".splitlines()
    lines = [line for part in shown for line in textwrap.wrap(part, screen.width, **WHOLE_WORDS)]
    if report.plan is None:  # there was nothing to build
        return lines
    rows = [
        ("report", str(folder / REPORT_FILE)),
        *([("engine", str(folder / report.engine))] if report.engine else []),
    ]
    rows += fact_rows(report)
    for row in report.latency:
        rows.append(("latency", f"{point_text(row)}: p50 {row['p50_ms']:.3g} ms, p99 {row['p99_ms']:.3g} ms"))
    return [*lines, "", *(screen.labelled(*row) for row in rows), *screen.listed("not verified:", report.not_verified)]
