"""truehalf verify: comparison of an FP16 file with its FP32 reference."""

from __future__ import annotations

from typing import Any

import click

from truehalf.cli import form
from truehalf.config.verification import GatesConfig, VerifyConfig

_EXAMPLES = (
    "truehalf verify model.onnx model_fp16.onnx --samples images/ --size 640x640",
    "truehalf verify a.onnx other_tools.onnx --samples feeds.npz --json result.json",
)
_LOCATE: dict[str, bool | str] = {"when-off": True, "always": "always", "never": False}
_COMPARISON = ("evaluation", "metrics", "batch", "score_threshold", "iou_threshold")
_OF_LABELS = "ap50_95_drop_max"  # the gate that two files without labels cannot be held to


@form.command(examples=_EXAMPLES)
@click.argument("reference", type=form.MODEL, metavar="fp32.onnx")
@click.argument("candidate", type=form.MODEL, metavar="fp16.onnx")
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
@form.image_options
def command(output: form.Output, **given: Any) -> int:
    """Compare an FP16 file of any tool with its FP32 reference: matched detections, classes or tensors."""
    from truehalf.api import compare
    from truehalf.report.text import comparison_lines

    preprocessing = form.preprocessing_of(given)
    reference, candidate, spec = given["reference"], given["candidate"], given["spec"]
    gates = form.options_of(GatesConfig, given)
    options = form.options_of(VerifyConfig, given, gates=gates)
    report = compare(
        reference,
        candidate,
        given["samples"],
        spec=spec,
        preprocessing=preprocessing,
        locate=_LOCATE[given["locate"]],
        options=options,
    )
    lines = [f"{report.verdict}: {candidate} against {reference}", *comparison_lines(report, output.screen)]
    content = {"model": str(reference), "out": str(candidate), **report.to_json()}
    output.give(lines, content)
    return form.VERDICTS[report.verdict]
