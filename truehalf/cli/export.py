"""truehalf export: a torch module as FP32 ONNX, compared with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from truehalf.cli import form
from truehalf.config.schema import TraceConfig
from truehalf.errors import StageError

_EXAMPLES = (
    "truehalf export detector:build -o model.onnx --samples batches.npz",
    "truehalf export detector:build -o model.onnx --shape images:1x3x640x640",
    "truehalf export detector:build -o m.onnx --samples x.npz --checkpoint w.pt",
)
_OUTPUT = "name of an output, in order; may be repeated"


@form.command(examples=_EXAMPLES)
@click.argument("module", metavar="MODULE:FUNCTION")
@form.file_option("-o", "--out", required=True, is_output=True, help="FP32 file to write")
@form.file_option("--samples", help=".npz or a folder of them: arrays by input name, with batch axis")
@form.option("--shape", multiple=True, metavar="NAME:1x3x64x64", help="instead: noise of this shape; may be repeated")
@form.file_option("--checkpoint", group="Export", help="weights to load: .safetensors, or a state dict")
@form.option("--output", "outputs", multiple=True, metavar="NAME", group="Export", help=_OUTPUT)
@form.flags(TraceConfig, lambda name: "Export" if name in ("exporter", "opset") else None)
def command(output: form.Output, **given: Any) -> int:
    """Export the torch module that a function returns, and compare the file with it on every sample."""
    from truehalf.api import export
    from truehalf.exporting.module import made
    from truehalf.models.weights import load_weights

    options = form.options_of(TraceConfig, given)
    out, checkpoint = given["out"], given["checkpoint"]
    module = made(given["module"], Path.cwd())
    loaded = [] if checkpoint is None else [load_weights(module, checkpoint, None, "")]
    samples = _samples(given["samples"], given["shape"])
    report = export(module, out, samples=samples, outputs=given["outputs"] or None, options=options).report
    parity = report.parity
    verdict = "passed" if parity["status"] == "verified" else "not verified"
    lines = [f"{verdict}: {out}: opset {report.opset}, compared with torch on {parity['samples']} samples"]
    lines += [f"why: {parity['reason']}"] if verdict != "passed" else []
    lines += [*loaded, *(f"note: {note}" for note in report.notes)]
    further = [f"{report.exporter} exporter, {report.parameters} parameters"]
    further += [f"largest difference of {name}: {value:.3g}" for name, value in parity.get("max_abs", {}).items()]
    output.give(lines, report.to_json(), further)
    return form.VERDICTS[verdict]


def _samples(source: Path | None, shapes: tuple[str, ...]) -> list[dict[str, Any]]:
    """Arrays of a file or folder, or two draws of noise of the given shapes."""
    import numpy as np

    from truehalf.data.arrays import read_arrays
    from truehalf.io_spec.profiles import named_shape

    if (source is None) == (not shapes):
        got = "both" if shapes else "neither"
        raise StageError("needs-value", f"expected --samples or --shape, got {got}")
    if source is None:
        rng = np.random.default_rng(0)
        named = [named_shape(text, "--shape") for text in shapes]
        return [{name: rng.random(shape, np.float32) for name, shape in named} for _ in range(2)]
    files = sorted(source.glob("*.npz")) if source.is_dir() else [source]
    if not files or not all(file.is_file() for file in files):
        raise StageError("file-missing", f"--samples {source}: expected an .npz file, or a folder of them")
    return [read_arrays(file) for file in files]
