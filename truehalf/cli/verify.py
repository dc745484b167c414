"""truehalf verify: comparison of an FP16 file with its FP32 reference."""

from __future__ import annotations

from typing import Any

import click

from truehalf.cli.form import (
    FAILED,
    FILE,
    NOT_VERIFIED,
    PASSED,
    SOURCE,
    Command,
    check_places,
    flags,
    guarded,
    image_options,
    option,
    options_of,
    output_of,
    output_options,
    preprocessing_of,
    with_flags,
)
from truehalf.config.verification import GatesConfig, VerifyConfig

_EXAMPLES = (
    "truehalf verify model.onnx model_fp16.onnx --samples images/",
    "truehalf verify a.onnx other_tools.onnx --samples feeds.npz --json result.json",
)
_LOCATE: dict[str, bool | str] = {"when-off": True, "always": "always", "never": False}
_VERDICTS = {"passed": PASSED, "failed": FAILED, "not verified": NOT_VERIFIED}
_COMPARISON = ("evaluation", "metrics", "batch", "score_threshold", "iou_threshold", "tie_margin")
_OF_LABELS = "ap50_95_drop_max"  # the gate that two files without labels cannot be held to


@click.command(cls=Command, examples=_EXAMPLES)
@click.argument("reference", type=FILE, metavar="fp32.onnx")
@click.argument("candidate", type=FILE, metavar="fp16.onnx")
@option(
    "--samples",
    type=SOURCE,
    required=True,
    metavar="SOURCE",
    help="folder of images, .npz or a folder of them, Polygraphy's JSON",
)
@option("--spec", type=SOURCE, metavar="FILE", help="I/O spec in YAML or JSON [of fp32.onnx, or proposed]")
@output_options
@option(
    "--locate",
    type=click.Choice(list(_LOCATE)),
    default="when-off",
    group="Comparison",
    help="search for the node that introduces the error [when-off]",
)
@flags(VerifyConfig, lambda name: "Comparison" if name in _COMPARISON else None)
@flags(GatesConfig, lambda name: None if name == _OF_LABELS else "Gates")
@image_options
def command(**given: Any) -> int:
    """Compare an FP16 file of any tool with its FP32 reference: matched detections, classes or tensors."""
    return guarded("verify", lambda: _verify(given))


def _verify(given: dict[str, Any]) -> int:
    from truehalf.api import compare
    from truehalf.report.terminal import terminal_width, wrapped
    from truehalf.report.text import SUSPECTS_SHOWN, report_text

    preprocessing, output = preprocessing_of(given), output_of(given)
    reference, candidate, spec = given["reference"], given["candidate"], given["spec"]
    models = {"fp32.onnx": reference, "fp16.onnx": candidate}
    check_places({"--json": output.file}, models, samples=given["samples"], spec=spec, preprocessing=preprocessing)
    gates = options_of(GatesConfig, given)
    options = options_of(VerifyConfig, given, gates=gates)
    report = compare(
        reference,
        candidate,
        given["samples"],
        spec=spec,
        preprocessing=preprocessing,
        locate=_LOCATE[given["locate"]],
        options=options,
    )
    width = 120 if output.is_verbose else terminal_width()
    lines = report_text(report, reference, candidate, width, with_flags).splitlines()
    others = [suspect.sentence for suspect in report.suspects[SUSPECTS_SHOWN:]]
    further = ["", "further suspected nodes:", *wrapped(others)] if others else []
    output.give(lines, report.to_json(), further)
    return _VERDICTS[report.verdict]
