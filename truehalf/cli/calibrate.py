"""truehalf calibrate: ranges inside a model, measured once for many conversions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from truehalf.cli.form import Command, check_files, guarded, image_options, option, preprocessing_of, show

_EXAMPLES = (
    "truehalf calibrate slim.onnx --samples images/ -o ranges.json",
    "truehalf convert slim.onnx --ranges ranges.json -o out.onnx --samples images/",
)


@click.command(cls=Command, examples=_EXAMPLES, exits="Exit codes: 0 done, 2 bad input, 130 stopped.")
@click.argument("model", type=click.Path(path_type=Path), metavar="model.onnx")
@option(
    "--samples", required=True, metavar="SOURCE", help="folder of images, .npz or a folder of them, Polygraphy's JSON"
)
@option("-o", "--out", type=click.Path(path_type=Path), required=True, metavar="FILE", help="JSON file to write")
@image_options
def command(**given: Any) -> int:
    """Measure the range of every float tensor of an FP32 model, over real samples."""
    return guarded("calibrate", lambda: _calibrate(given))


def _calibrate(given: dict[str, Any]) -> int:
    from truehalf.api import calibrate
    from truehalf.files import write_json

    preprocessing = preprocessing_of(given)
    read = {"model.onnx": given["model"], "--samples": given["samples"], "--preprocessing": preprocessing}
    check_files({"--out": given["out"]}, read, given["model"])
    ranges = calibrate(given["model"], given["samples"], preprocessing=preprocessing)
    write_json(given["out"], ranges)
    measured = [entry["absmax"] for entry in ranges["tensors"].values() if entry["absmax"] is not None]
    largest = f", largest |x| {max(measured):.4g}" if measured else ""
    show(f"done: {given['out']}: {len(ranges['tensors'])} tensors, {ranges['samples']} samples{largest}")
    for warning in ranges["warnings"]:
        show(f"warning: {warning}")
    return 0
