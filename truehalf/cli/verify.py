"""truehalf verify: comparison of an FP16 file with its FP32 reference."""

from __future__ import annotations

from dataclasses import replace
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
    guarded,
    image_options,
    option,
    preprocessing_of,
    save_json,
    show_lines,
    terminal_width,
    wrapped,
)
from truehalf.config.schema import Evaluation, VerifyConfig

_EXAMPLES = (
    "truehalf verify model.onnx model_fp16.onnx --samples images/",
    "truehalf verify a.onnx other_tools.onnx --samples feeds.npz --json result.json",
)
_LOCATE: dict[str, bool | str] = {"when-off": True, "always": "always", "never": False}
_VERDICTS = {"passed": PASSED, "failed": FAILED, "not verified": NOT_VERIFIED}
_DEFAULTS = VerifyConfig()


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
@option("--spec", type=SOURCE, metavar="FILE", help="I/O spec in YAML or JSON [the one in fp32.onnx]")
@option("--json", "json_path", type=FILE, metavar="FILE", help="write the whole report, for machines")
@option("--quiet", is_flag=True, help="print only the verdict")
@option("--verbose", is_flag=True, help="print all columns and every suspected node")
@option(
    "--evaluation",
    type=click.Choice([each.value for each in Evaluation]),
    group="Comparison",
    help=f"how FP16 is computed [{_DEFAULTS.evaluation.value}]",
)
@option("--tolerance", type=float, metavar="X", group="Comparison", help="of plain tensors: max |d| / max |ref| [0.01]")
@option("--batch", type=int, metavar="N", group="Comparison", help=f"samples in one run, at most [{_DEFAULTS.batch}]")
@option("--score-threshold", type=float, metavar="X", group="Comparison", help="lowest score of a detection [0.5]")
@option("--iou-threshold", type=float, metavar="X", group="Comparison", help="lowest IoU of a match [0.9]")
@option(
    "--locate",
    type=click.Choice(list(_LOCATE)),
    default="when-off",
    group="Comparison",
    help="search for the node that introduces the error [when-off]",
)
@image_options
def command(**given: Any) -> int:
    """Compare an FP16 file of any tool with its FP32 reference: matched detections, classes or tensors."""
    return guarded("verify", lambda: _verify(given))


def _verify(given: dict[str, Any]) -> int:
    from truehalf.api import compare
    from truehalf.report.text import SUSPECTS_SHOWN, report_text

    preprocessing, json_path = preprocessing_of(given), given["json_path"]
    reference, candidate, spec = given["reference"], given["candidate"], given["spec"]
    models = {"fp32.onnx": reference, "fp16.onnx": candidate}
    check_places({"--json": json_path}, models, samples=given["samples"], spec=spec, preprocessing=preprocessing)
    changed = ("batch", "score_threshold", "iou_threshold", "skip_corrupt")
    changes = {name: given[name] for name in changed if given[name] is not None}
    if given["evaluation"] is not None:
        changes["evaluation"] = Evaluation(given["evaluation"])
    if given["tolerance"] is not None:
        changes["gates"] = replace(_DEFAULTS.gates, tensor_error_max=given["tolerance"])
    report = compare(
        reference,
        candidate,
        given["samples"],
        spec=spec,
        preprocessing=preprocessing,
        locate=_LOCATE[given["locate"]],
        options=replace(_DEFAULTS, **changes),
    )
    save_json(json_path, report.as_dict())
    lines = report_text(report, reference, candidate, 120 if given["verbose"] else terminal_width()).splitlines()
    if given["verbose"] and len(report.suspects) > SUSPECTS_SHOWN:
        further = (suspect.sentence for suspect in report.suspects[SUSPECTS_SHOWN:])
        lines += ["", "further suspected nodes:", *wrapped(further)]
    show_lines(lines, given["quiet"])
    return _VERDICTS[report.verdict]
