"""truehalf export: a torch module as FP32 ONNX, compared with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from truehalf.cli import form
from truehalf.config.schema import Exporter
from truehalf.errors import StageError

_EXAMPLES = (
    "truehalf export detector:build -o model.onnx --samples batches.npz",
    "truehalf export detector:build -o model.onnx --shape images:1x3x640x640",
    "truehalf export detector:build -o m.onnx --samples x.npz --checkpoint w.pt",
)


@form.command(examples=_EXAMPLES)
@click.argument("module", metavar="MODULE:FUNCTION")
@form.file_option("-o", "--out", required=True, help="FP32 file to write")
@form.file_option("--samples", help=".npz or a folder of them: arrays by input name, with batch axis")
@form.option("--shape", multiple=True, metavar="NAME:1x3x64x64", help="instead: noise of this shape; may be repeated")
@form.file_option("--checkpoint", group="Export", help="weights to load: .safetensors, or a state dict")
@form.option(
    "--output",
    "outputs",
    multiple=True,
    metavar="NAME",
    group="Export",
    help="name of an output, in order; may be repeated",
)
@form.option(
    "--exporter", type=click.Choice([each.value for each in Exporter]), group="Export", help="of torch [torchscript]"
)
@form.option("--opset", type=int, metavar="N", group="Export", help="of the file [17]")
def command(output: form.Output, **given: Any) -> int:
    """Export the torch module that a function returns, and compare the file with it on every sample."""
    from dataclasses import replace

    from truehalf.api import export
    from truehalf.config.schema import TraceConfig
    from truehalf.exporting.trace import SPEC_FILE
    from truehalf.files import check_outputs

    options: dict[str, Any] = {} if given["opset"] is None else {"opset": given["opset"]}
    options |= {} if given["exporter"] is None else {"exporter": Exporter(given["exporter"])}
    module, weights = given["module"], []
    read = {"--samples": given["samples"], "--checkpoint": given["checkpoint"]}
    spec = given["out"].with_name(SPEC_FILE)
    check_outputs({"--out": given["out"], "the I/O spec": spec, "--json": output.file}, read)
    if given["checkpoint"] is not None:
        from truehalf.exporting.module import made
        from truehalf.models.weights import load_weights

        module = made(module, Path.cwd())
        weights.append(load_weights(module, given["checkpoint"], None, ""))
    result = export(
        module,
        given["out"],
        samples=_samples(given["samples"], given["shape"]),
        outputs=given["outputs"] or None,
        options=replace(TraceConfig(), **options),
    )
    report, parity = result.report, result.report.parity
    verified = parity["status"] == "verified"
    lines = [f"{'passed' if verified else 'not verified'}: {given['out']}: opset {report.opset}, "]
    lines[0] += f"compared with torch on {parity['samples']} samples"
    lines += [*([] if verified else [f"why: {parity['reason']}"]), *weights]
    lines += [f"note: {note}" for note in report.notes or []]
    further = [f"{report.exporter} exporter, {report.parameters} parameters"]
    further += [f"largest difference of {name}: {value:.3g}" for name, value in parity.get("max_abs", {}).items()]
    output.give(lines, report.to_json(), further)
    return form.PASSED if verified else form.NOT_VERIFIED


def _samples(source: Path | None, shapes: tuple[str, ...]) -> list[dict[str, Any]]:
    import numpy as np

    from truehalf.data.arrays import read_arrays
    from truehalf.io_spec.profile_shapes import named_shape

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
