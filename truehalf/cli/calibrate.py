"""truehalf calibrate: ranges inside a model, measured once for many conversions."""

from __future__ import annotations

from typing import Any

import click

from truehalf.cli.form import (
    EXITS_OF_WORK,
    FILE,
    SOURCE,
    Command,
    check_places,
    guarded,
    image_options,
    option,
    output_of,
    output_options,
    preprocessing_of,
)

_EXAMPLES = (
    "truehalf calibrate slim.onnx --samples images/ -o ranges.json",
    "truehalf convert slim.onnx --ranges ranges.json -o out.onnx --samples others/",
)


@click.command(cls=Command, examples=_EXAMPLES, exits=EXITS_OF_WORK)
@click.argument("model", type=FILE, metavar="model.onnx")
@option(
    "--samples",
    type=SOURCE,
    required=True,
    metavar="SOURCE",
    help="folder of images, .npz or a folder of them, Polygraphy's JSON",
)
@option("-o", "--out", type=FILE, required=True, metavar="FILE", help="JSON file to write")
@output_options
@image_options
def command(**given: Any) -> int:
    """Measure the range of every float tensor of an FP32 model on real samples."""
    return guarded("calibrate", lambda: _calibrate(given))


def _calibrate(given: dict[str, Any]) -> int:
    from truehalf.api import calibrate
    from truehalf.data.given import of_file
    from truehalf.files import write_json
    from truehalf.ir.model_forms import ModelFile

    model, out, preprocessing = ModelFile(given["model"]), given["out"], preprocessing_of(given)
    output = output_of(given)
    check_places(
        {"--out": out, "--json": output.file},
        {"model.onnx": model},
        samples=given["samples"],
        preprocessing=preprocessing,
    )
    ranges = calibrate(model, of_file(given["samples"], model, preprocessing, given["skip_corrupt"]))
    write_json(out, ranges)
    absmax = {name: entry["absmax"] for name, entry in ranges["tensors"].items() if entry["absmax"] is not None}
    largest = sorted(absmax.items(), key=lambda item: -item[1])
    note = f", largest |x| {largest[0][1]:.4g}" if largest else ""
    lines = [f"done: {out}: {len(ranges['tensors'])} tensors, {ranges['samples']} samples{note}"]
    lines += [f"warning: {warning}" for warning in ranges["warnings"]]
    content = {"out": str(out), "samples": ranges["samples"], "absmax": absmax, "warnings": ranges["warnings"]}
    output.give(lines, content, [f"{value:12.4g}  {name}" for name, value in largest])
    return 0
