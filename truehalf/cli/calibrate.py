"""truehalf calibrate: ranges inside a model, measured once for many conversions."""

from __future__ import annotations

from typing import Any

import click

from truehalf.cli import form

_EXAMPLES = (
    "truehalf calibrate slim.onnx --samples images/ --size 640x640 -o ranges.json",
    "truehalf convert slim.onnx --ranges ranges.json -o o.onnx --samples others.npz",
)


@form.command(examples=_EXAMPLES, exits=form.EXITS_OF_WORK)
@click.argument("model", type=form.MODEL, metavar="model.onnx")
@form.samples_option(required=True)
@form.file_option("-o", "--out", required=True, is_output=True, help="JSON file to write")
@form.image_options
def command(output: form.Output, **given: Any) -> None:
    """Measure the range of every float tensor of an FP32 model on real samples."""
    from truehalf.api import calibrate
    from truehalf.data.model_samples import model_samples
    from truehalf.files import write_json
    from truehalf.io_spec.in_file import spec_inside
    from truehalf.ir.model_forms import ModelFile

    model, out, preprocessing = ModelFile(given["model"]), given["out"], form.preprocessing_of(given)
    entry = spec_inside(model.model).image_input
    samples = model_samples(given["samples"], model.model, entry, preprocessing)
    ranges = calibrate(model, samples.only(range(len(samples))))  # one at a time, also of one feed
    write_json(out, ranges)
    absmax = {name: entry["absmax"] for name, entry in ranges["tensors"].items() if entry["absmax"] is not None}
    largest = sorted(absmax.items(), key=lambda item: -item[1])
    note = f", largest |x| {largest[0][1]:.4g}" if largest else ""
    lines = [f"done: {out}: {len(ranges['tensors'])} tensors, {ranges['samples']} samples{note}"]
    lines += [f"warning: {warning}" for warning in ranges["warnings"]]
    content = {"out": str(out), "samples": ranges["samples"], "absmax": absmax, "warnings": ranges["warnings"]}
    output.give(lines, content, [f"{value:12.4g}  {name}" for name, value in largest])
