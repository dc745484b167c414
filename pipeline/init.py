"""init: a configuration for a model of your own, proposed from a run on samples: conf/model/mine.yaml.

python -m pipeline.init model.onnx --samples images/
python -m pipeline.init detector:build --samples images/ --size 640x640 --checkpoint weights.pt
python -m pipeline model=mine data.folder=images/                 when the file is confirmed; init prints it

Every proposal has the reason beside it, in the file. They are those of `truehalf inspect --samples`; a torch module is
exported for it by `truehalf export`, and traced anew by the pipeline.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from pipeline.workspace import root
from truehalf.codes import coded, codes_in
from truehalf.files import write_text
from truehalf.report.terminal import parser_of, run_program

_PASSED, _NOT_VERIFIED = 0, 3  # exit codes of truehalf
_PIXELS = ("resize", "channels", "range", "mean", "std", "layout", "resample")
_OF_INPUT = {"images": ("name", "kind"), "picture_size": ("name", "kind", "dtype")}
_ASIDE = ("dtype", "shape", "batched")  # of outputs: the model has them, and the pipeline takes no unbatched ones
Json = Mapping[str, Any]


def main() -> None:
    parser = parser_of("pipeline.init", __doc__)
    parser.add_argument("model", help="an FP32 ONNX file, or package.module:function that returns a torch module")
    parser.add_argument("--samples", required=True, metavar="PATH", help="images, an .npz file, or a folder of them")
    parser.add_argument("--size", metavar="HxW", help="height and width of images, where the model does not fix them")
    parser.add_argument("--checkpoint", metavar="FILE", help="weights of the torch module")
    parser.add_argument("--name", default="mine", metavar="NAME", help="of the choice: model=NAME (default: mine)")
    parser.add_argument("--force", action="store_true", help="replace a file of this name")
    arguments = parser.parse_args()
    place = root() / "conf" / "model" / f"{arguments.name}.yaml"
    if not arguments.name.isidentifier():
        message = f"--name: expected letters, digits and _, got {arguments.name!r}"
        parser.error(coded("wrong-name", message))
    if place.exists() and not arguments.force:
        parser.error(coded("would-overwrite", f"{place} exists; --force replaces it, --name gives another"))
    if arguments.size is not None and _sides(arguments.size) is None:
        parser.error(coded("bad-syntax", f"--size: expected HEIGHTxWIDTH such as 640x640, got {arguments.size!r}"))
    proposed = _proposed(arguments)
    write_text(place, "\n".join(_lines(arguments, proposed)) + "\n")
    tensors = [*proposed["spec"]["inputs"], *proposed["spec"]["outputs"]]
    for each in proposed["unclear"]:
        print(f"not clear: {each}")
    kinds = ", ".join(f"{each['name']}: {each.get('kind', 'any tensor')}" for each in tensors)
    print(f"done: {place} ({kinds}). Confirm what it proposes, then:")
    first, *labelled = _next_commands(arguments)
    print(f"  {first}")
    for command in labelled:
        print(f"or, with COCO's labels, for average precision against the true boxes:\n  {command}")


def _next_commands(arguments: argparse.Namespace) -> list[str]:
    """Commands that run the pipeline on the same samples; of images a second one, with COCO's labels."""
    samples = Path(arguments.samples)
    if samples.suffix == ".npz" or any(samples.glob("*.npz")):
        data = [["data=npz", f"data.file={samples}"]]
    else:
        folder = f"data.folder={samples.parent if samples.is_file() else samples}"
        data = [[folder], ["data=coco", folder, "data.annotations=instances.json"]]
    return [shlex.join(["python", "-m", "pipeline", f"model={arguments.name}", *each]) for each in data]


def _is_module(arguments: argparse.Namespace) -> bool:
    return ":" in arguments.model and not Path(arguments.model).exists()


def _proposed(arguments: argparse.Namespace) -> Json:
    """What `truehalf inspect` proposes; exits with its code where it fails."""
    size = [] if arguments.size is None else ["--size", arguments.size]
    with tempfile.TemporaryDirectory() as folder:
        model, found, left_out = arguments.model, Path(folder) / "found.json", []
        if _is_module(arguments):
            model = str(Path(folder) / "model.onnx")
            weights = [] if arguments.checkpoint is None else ["--checkpoint", arguments.checkpoint]
            # images are read by inspect; the trace takes noise of their size
            feeds = ["--shape", f"images:1x3x{arguments.size}"] if size else ["--samples", arguments.samples]
            _truehalf("export", arguments.model, "-o", model, *feeds, *weights, "--json", str(found))
            # what is empty in noise may not be in images, on which inspect says it
            left_out = [note for note in json.loads(found.read_text())["notes"] if not codes_in(note)]
        _truehalf("inspect", model, "--samples", arguments.samples, *size, "--json", str(found))
        content: Json = json.loads(found.read_text())["proposed"]
    return {**content, "unclear": [*left_out, *content["unclear"]]}


def _truehalf(*words: str) -> None:
    done = subprocess.run([sys.executable, "-m", "truehalf", *words], stdout=subprocess.DEVNULL, check=False)
    if done.returncode not in (_PASSED, _NOT_VERIFIED):
        sys.exit(done.returncode)


def _lines(arguments: argparse.Namespace, proposed: Json) -> Iterator[str]:
    """The configuration, proposals with their reasons as comments."""
    spec, reasons = proposed["spec"], proposed["reasons"]

    def line(key: str, value: Any, name: str = "") -> str:
        return f"{key}{_flow(value)}" + (f" # {reasons[name]}" if name in reasons else "")

    is_module = _is_module(arguments)
    weights = arguments.checkpoint if is_module else arguments.model
    images = next((each for each in spec["inputs"] if each.get("kind") == "images"), None)
    yield f"# Proposed by python -m pipeline.init from {arguments.samples}; confirm every line that has a reason."
    yield f"# Use:  {_next_commands(arguments)[0]}"
    yield from ("defaults:", f"  - {'torch' if is_module else 'onnx'}", "  - _self_", f"name: {arguments.name}")
    if weights is not None:
        file = Path(weights).resolve()
        yield line("checkpoint: ", str(file.relative_to(root()) if file.is_relative_to(root()) else file))
    if images is None:
        yield line("image_size: ", [None, None])
    elif arguments.size is not None:
        yield line("image_size: ", _sides(arguments.size))
    if is_module:
        yield line("options: ", {"factory": arguments.model})
    if images is not None:
        known = images | (images.get("normalization") or {})
        yield line("preprocessing: ", {key: known[key] for key in _PIXELS if key in known}, images["name"])
    yield "inputs:"
    for each in spec["inputs"]:
        keys = _OF_INPUT.get(each["kind"], ("name", "kind", "dtype"))
        keys += ("dtype",) * (each["dtype"] == "uint8" and "dtype" not in keys)  # images are else float32
        shape = {} if each["kind"] in _OF_INPUT else {"shape": each["shape"][1:]}
        yield line("  - ", {key: each[key] for key in keys} | shape, each["name"])
    yield from (f"# not clear: {each}" for each in proposed["unclear"])
    yield "outputs:"
    for each in spec["outputs"]:
        yield line("  - ", {key: value for key, value in each.items() if key not in _ASIDE}, each["name"])
    yield line("classes: ", spec["class_names"] or None) + " # names, in the order of the model's classes"


def _sides(text: str) -> list[int] | None:
    """Of "HEIGHTxWIDTH"; None: it is no such text."""
    sides = text.split("x")
    return [int(side) for side in sides] if len(sides) == 2 and all(side.isdigit() for side in sides) else None


def _flow(value: Any) -> str:
    return yaml.safe_dump(value, default_flow_style=True, width=10_000, sort_keys=False).removesuffix("\n...\n").strip()


if __name__ == "__main__":
    run_program(main)
