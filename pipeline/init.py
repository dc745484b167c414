"""init: a configuration for a model of your own, proposed from a run on samples: conf/model/mine.yaml.

python -m pipeline.init model.onnx --samples images/
python -m pipeline.init detector:build --samples images/ --size 640x640 --checkpoint weights.pt
python -m pipeline model=mine data.folder=images/                 when the file is confirmed

Every proposal has the reason beside it, in the file. A module is traced for the proposal; the pipeline traces it anew.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from pipeline.workspace import root
from truehalf.errors import StageError
from truehalf.exporting.spec_of_file import propose_spec
from truehalf.io_spec.proposed import Proposal
from truehalf.io_spec.spec import InputSpec, OutputSpec
from truehalf.output_files import write_text

_PIXELS = ("resize", "channels", "range", "mean", "std", "layout", "resample")
_OUTPUT_KEYS = ("activation", "format", "normalized", "no_object")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m pipeline.init", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", help="an FP32 ONNX file, or package.module:function that returns a torch module")
    parser.add_argument("--samples", type=Path, required=True, metavar="PATH", help="images, .npz, or a folder of them")
    parser.add_argument("--size", metavar="HxW", help="height and width of images, where the model does not fix them")
    parser.add_argument("--checkpoint", type=Path, metavar="FILE", help="weights of the torch module")
    parser.add_argument("--name", default="mine", metavar="NAME", help="of the choice: model=NAME (default: mine)")
    parser.add_argument("--force", action="store_true", help="replace a file of this name")
    arguments = parser.parse_args()
    place = root() / "conf" / "model" / f"{arguments.name}.yaml"
    try:
        if not arguments.name.isidentifier():
            raise StageError("wrong-name", f"--name: expected letters, digits and _, got {arguments.name!r}")
        if place.exists() and not arguments.force:
            raise StageError("would-overwrite", f"{place} exists; --force replaces it, --name gives another")
        size = _size(arguments.size)
        proposal = _proposed(arguments.model, arguments.samples, size, arguments.checkpoint)
        write_text(place, "\n".join(_lines(arguments, size, proposal)) + "\n")
    except StageError as error:
        sys.exit(f"init: {error}")
    kinds = ", ".join(f"{each.name}: {each.kind or 'any tensor'}" for each in proposal.spec.tensors)
    print(f"done: {place} ({kinds}). Confirm what it proposes, then:")
    print(f"  python -m pipeline model={arguments.name} data.folder={arguments.samples}")


def _size(text: str | None) -> list[int] | None:
    if text is None:
        return None
    sides = text.split("x")
    if len(sides) != 2 or not all(side.isdigit() and int(side) > 0 for side in sides):
        raise StageError("wrong-number", f"--size: expected HEIGHTxWIDTH in pixels, such as 640x640, got {text!r}")
    return [int(side) for side in sides]


def _proposed(model: str, samples: Path, size: list[int] | None, checkpoint: Path | None) -> Proposal:
    preprocessing = None if size is None else {"size": size}
    if ":" not in model or Path(model).is_file():
        return propose_spec(model, samples, preprocessing)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        _traced(model, path, (samples, size, checkpoint))
        return propose_spec(path, samples, preprocessing)


def _traced(factory: str, path: Path, given: tuple[Path, list[int] | None, Path | None]) -> None:
    from truehalf.api import export
    from truehalf.data.arrays import read_arrays
    from truehalf.data.images import images_under
    from truehalf.data.preprocessing import preprocessing_of
    from truehalf.exporting.module import made
    from truehalf.models.weights import load_weights

    samples, size, checkpoint = given
    module: Any = made(factory, root())
    if checkpoint is not None:
        load_weights(module, checkpoint, None, "")
    images = images_under(samples)[:2] if samples.is_dir() else []
    if images and size is None:
        raise StageError("needs-value", "--size: expected HEIGHTxWIDTH beside images and a torch module")
    read = preprocessing_of({"size": size})
    feeds = [{"images": read.read(image)[None]} for image in images]
    files = sorted(samples.glob("*.npz"))[:2] if samples.is_dir() else [samples]
    export(module, path, samples=feeds or [read_arrays(file) for file in files])


def _lines(arguments: argparse.Namespace, size: list[int] | None, proposal: Proposal) -> Iterator[str]:
    """The configuration, proposals with their reasons as comments."""
    is_file = ":" not in arguments.model or Path(arguments.model).is_file()
    source = "onnx" if is_file else "torch"
    checkpoint = Path(arguments.model) if is_file else arguments.checkpoint
    images = next((each for each in proposal.spec.inputs if each.kind == "images"), None)
    yield f"# Proposed by python -m pipeline.init from {arguments.samples}; confirm every line that has a reason."
    yield f"# Use:  python -m pipeline model={arguments.name} data.folder={arguments.samples}"
    yield "defaults:"
    yield f"  - {source}"
    yield "  - _self_"
    yield f"name: {arguments.name}"
    if checkpoint is not None:
        yield f"checkpoint: {_plain(str(checkpoint.resolve()))}"
    if size is not None or images is None:
        yield f"image_size: {_plain(size or [None, None])}"
    if not is_file:
        yield f"options: {_plain({'factory': arguments.model})}"
    if images is not None:
        yield f"preprocessing: {_plain(_pixels(images))}{_why(images.name, proposal)}"
    yield "inputs:"
    yield from (f"  - {_plain(_input(each))}{_why(each.name, proposal)}" for each in proposal.spec.inputs)
    yield "outputs:"
    yield from (f"  - {_plain(_output(each))}{_why(each.name, proposal)}" for each in proposal.spec.outputs)
    yield "classes: null # names, in the order of the model's classes"


def _pixels(images: InputSpec) -> dict[str, Any]:
    known = dict(images.pixels) | dict(images.pixels.get("normalization") or {})
    return {key: known[key] for key in _PIXELS if key in known}


def _input(given: InputSpec) -> dict[str, Any]:
    found: dict[str, Any] = {"name": given.name, "kind": given.kind}
    if given.kind == "tensor":
        found |= {"dtype": given.dtype, "shape": list(given.sides[1:])}
    return found


def _output(given: OutputSpec) -> dict[str, Any]:
    stated = {key: value for key in _OUTPUT_KEYS if (value := getattr(given, key)) is not None}
    return {"name": given.name, **({"kind": given.kind} if given.kind else {}), **stated}


def _plain(value: Any) -> str:
    return yaml.safe_dump(value, default_flow_style=True, width=10_000, sort_keys=False).removesuffix("\n...\n").strip()


def _why(name: str, proposal: Proposal) -> str:
    reason = proposal.reasons.get(name)
    return f" # {reason}" if reason else ""


if __name__ == "__main__":
    main()
