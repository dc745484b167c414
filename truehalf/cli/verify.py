"""truehalf verify: comparison of an FP16 file with its FP32 reference."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from truehalf.cli import form
from truehalf.config.verification import GatesConfig, VerifyConfig
from truehalf.errors import StageError

if TYPE_CHECKING:
    from truehalf.emulation.by_layers import ByLayers

_EXAMPLES = (
    "truehalf verify model.onnx model_fp16.onnx --samples images/ --size 640x640",
    "truehalf verify a.onnx other_tools.onnx --samples feeds.npz --json result.json",
)
_LOCATE: dict[str, bool | str] = {"when-off": True, "always": "always", "never": False}
_COMPARISON = ("evaluation", "metrics", "batch", "score_threshold", "iou_threshold", "tie_margin")
_OF_LABELS = "ap50_95_drop_max"  # the gate that two files without labels cannot be held to


@form.command(examples=_EXAMPLES)
@click.argument("reference", type=form.FILE, metavar="fp32.onnx")
@click.argument("candidate", type=form.FILE, metavar="fp16.onnx")
@form.samples_option(required=True)
@form.file_option("--spec", type=form.SOURCE, help="I/O spec in YAML or JSON [of fp32.onnx, or proposed]")
@form.option(
    "--locate",
    type=click.Choice(list(_LOCATE)),
    default="when-off",
    group="Comparison",
    help="search for the node that introduces the error [when-off]",
)
@form.flags(VerifyConfig, lambda name: "Comparison" if name in _COMPARISON else None)
@form.flags(GatesConfig, lambda name: None if name == _OF_LABELS else "Gates (rounding: what good files measure)")
@form.file_option(
    "--layers",
    metavar="ENGINE.JSON",
    group="Comparison",
    help="report of fp16.onnx's engine: FP16 is rounded where its layers end, and not after each node",
)
@form.image_options
def command(output: form.Output, **given: Any) -> int:
    """Compare an FP16 file of any tool with its FP32 reference: matched detections, classes or tensors."""
    from truehalf.api import compare
    from truehalf.report.terminal import terminal_width, wrapped
    from truehalf.report.text import ITEMS, SUSPECTS_SHOWN, report_text

    preprocessing = form.preprocessing_of(given)
    reference, candidate, spec = given["reference"], given["candidate"], given["spec"]
    models = {"fp32.onnx": reference, "fp16.onnx": candidate}
    sources = {"samples": given["samples"], "spec": spec, "layers": given["layers"], "preprocessing": preprocessing}
    form.check_places({"--json": output.file}, models, **sources)
    gates = form.options_of(GatesConfig, given)
    options = form.options_of(VerifyConfig, given, gates=gates)
    merged = None if given["layers"] is None else _by_layers(candidate, given["layers"])
    report = compare(
        reference,
        candidate if merged is None else merged.model,
        given["samples"],
        spec=spec,
        preprocessing=preprocessing,
        locate=_LOCATE[given["locate"]],
        options=options,
    )
    width, items = (120, None) if output.is_verbose else (terminal_width(), ITEMS)
    lines = report_text(report, reference, candidate, width, form.with_flags, items).splitlines()
    others = [suspect.sentence for suspect in report.suspects[SUSPECTS_SHOWN:]]
    further = ["", "further suspected nodes:", *wrapped(others)] if others else []
    content = {"model": str(reference), "out": str(candidate), **report.to_json()}
    if merged is not None:
        lines += ["", *wrapped([_rounded(merged)])]
        content["layers"] = merged.counts()
    output.give(lines, content, further)
    return form.VERDICTS[report.verdict]


def _by_layers(candidate: Path, report: Path) -> ByLayers:
    """The candidate as the layers of its engine round it."""
    from truehalf.emulation.by_layers import by_layers
    from truehalf.files import read_json
    from truehalf.ir.model_file import load_model

    content = read_json(report)
    table = content.get("layer_table") if isinstance(content, dict) else None
    if not isinstance(table, list):
        expected = "expected the JSON of `truehalf engine`, or reports/engine.json of a compiled engine"
        raise StageError("wrong-file", f"--layers: {report} has no layer_table; {expected}")
    return by_layers(load_model(candidate), table)


def _rounded(merged: ByLayers) -> str:
    return (
        f"rounded where {merged.layers} layers of the engine end: {merged.not_rounded} FP16 values of the file are "
        f"not, {merged.rounded} FP32 ones are; {merged.without_layer} nodes in no layer round as the file states. "
        "Whether this or rounding by node is nearer to a running engine is not known"
    )
