"""truehalf verify: does an FP16 file compute what its FP32 file computes?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from truehalf.cli.form import (
    FAILED,
    NOT_VERIFIED,
    PASSED,
    Command,
    guarded,
    image_options,
    option,
    preprocessing_of,
    save_json,
    show,
    terminal_width,
)
from truehalf.config.schema import Evaluation, VerifyConfig

_EXAMPLES = (
    "truehalf verify model.onnx model_fp16.onnx --samples images/",
    "truehalf verify fp32.onnx any_tools_fp16.onnx --samples feeds.npz --json result.json",
)
_LOCATE: dict[str, bool | str] = {"when-off": True, "always": "always", "never": False}
_VERDICTS = {"passed": PASSED, "failed": FAILED, "not verified": NOT_VERIFIED}
_DEFAULTS = VerifyConfig()


@click.command(cls=Command, examples=_EXAMPLES)
@click.argument("reference", type=click.Path(path_type=Path), metavar="fp32.onnx")
@click.argument("candidate", type=click.Path(path_type=Path), metavar="fp16.onnx")
@option(
    "--samples", required=True, metavar="SOURCE", help="folder of images, .npz or a folder of them, Polygraphy's JSON"
)
@option("--spec", metavar="FILE", help="I/O spec in YAML or JSON; by default the one in fp32.onnx")
@option("--json", "json_path", type=click.Path(path_type=Path), metavar="FILE", help="the whole report, for machines")
@option("--quiet", is_flag=True, help="the verdict alone")
@option("--evaluation", type=click.Choice([each.value for each in Evaluation]), group="Comparison")
@option("--tolerance", type=float, metavar="NUMBER", group="Comparison", help="max |d| / max |reference| [0.01]")
@option("--batch", type=int, metavar="NUMBER", group="Comparison", help=f"samples a run, at most [{_DEFAULTS.batch}]")
@option("--score-threshold", type=float, metavar="NUMBER", group="Comparison", help="detections that count [0.5]")
@option("--iou-threshold", type=float, metavar="NUMBER", group="Comparison", help="overlap of a match [0.9]")
@option("--locate", type=click.Choice(list(_LOCATE)), default="when-off", group="Comparison", help="the node at fault")
@option("--skip-corrupt", is_flag=True, group="Images", help="leave out images that cannot be read, and name them")
@image_options
def command(**given: Any) -> int:
    """Compare an FP16 file, of any tool, with its FP32 reference: matched detections, classes or tensors."""
    return guarded("verify", lambda: _verify(given))


def _verify(given: dict[str, Any]) -> int:
    from truehalf.api import compare
    from truehalf.ir.model_file import load_model, source_weights
    from truehalf.output_paths import check_outputs
    from truehalf.report.text import report_text

    preprocessing, json_path = preprocessing_of(given), given["json_path"]
    reference, candidate, spec = given["reference"], given["candidate"], given["spec"]
    if json_path is not None:
        models = (reference, candidate) if json_path.exists() else ()
        weights = [file for model in models for file in source_weights(load_model(model))]
        read = {"fp32.onnx": reference, "fp16.onnx": candidate, "--samples": given["samples"], "--spec": spec}
        check_outputs({"--json": json_path}, read, weights)
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
    text = report_text(report, reference, candidate, terminal_width())
    show(text.splitlines()[0] if given["quiet"] else text)
    return _VERDICTS[report.verdict]
