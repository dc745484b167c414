"""A folder gives the same samples at every front door; what is wrong with one is a sentence with a code there."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from PIL import Image

from tests.cases.doors import truehalf
from tests.configurations import composed
from tests.messages import expect
from truehalf.codes import CODES, codes_in
from truehalf.config.typed import ConfigErrors
from truehalf.config.validate import validate
from truehalf.data.fitting import fitted
from truehalf.data.model_samples import model_samples
from truehalf.data.run_samples import TRACE_SAMPLES, run_sources
from truehalf.data.samples import Sample
from truehalf.errors import StageError
from truehalf.io_spec.in_file import SPEC_KEY, spec_inside
from truehalf.ir.model_file import load_model
from truehalf.provenance.fingerprints import fingerprint_data

COUNT = TRACE_SAMPLES + 6
SPEC = {
    "inputs": [
        {"name": "x", "kind": "images", "shape": ["n", 3, 8, 16], "range": [0, 255], "resize": "letterbox"},
        {"name": "size", "kind": "picture_size", "dtype": "int64", "shape": ["n", 2]},
    ],
    "outputs": [{"name": "l", "kind": "logits", "activation": "sigmoid"}, {"name": "b", "kind": "boxes"}],
    "class_names": ["a"],
}
SPEC["inputs"][0]["size"] = [8, 16]  # type: ignore[index]
SPEC["outputs"][1] |= {"format": "cxcywh", "normalized": True}  # type: ignore[operator]
TEXT = """<ir_version: 8, opset_import: ["": 17]>
g (float[n,3,8,16] x, int64[n,2] size) => (float[n,6,1] l, float[n,6,4] b)
<int64[3] rows = {0, 6, 64}, int64[1] zero = {0}, int64[1] one = {1}, int64[1] four = {4}, int64[1] two = {2}>
{ r = Reshape(x, rows) t = Tanh(r) l = Slice(t, zero, one, two) b = Slice(t, zero, four, two) }"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with an I/O spec, images behind a link, their annotations, and arrays of the same samples."""
    monkeypatch.chdir(tmp_path)
    model = onnx.parser.parse_model(TEXT)
    model.metadata_props.add(key=SPEC_KEY, value=json.dumps(SPEC))
    onnx.save(model, "model.onnx")
    Path("elsewhere/inner").mkdir(parents=True)
    Path("images").mkdir()
    for number in range(COUNT):
        pixels = np.random.default_rng(number).integers(0, 256, (30, 20, 3), np.uint8)
        Image.fromarray(pixels).save(f"elsewhere/inner/{number:02}.png")
    Path("images/train").symlink_to(tmp_path / "elsewhere")
    names = [f"train/inner/{number:02}.png" for number in range(COUNT)]
    labels = {
        "images": [{"id": i, "file_name": name, "width": 20, "height": 30} for i, name in enumerate(names)],
        "annotations": [{"id": i, "image_id": i, "category_id": 1, "bbox": [1, 2, 3, 4]} for i in range(COUNT)],
        "categories": [{"id": 1, "name": "a"}],
    }
    Path("labels.json").write_text(json.dumps(labels))
    return tmp_path


def alike(one: Sample, other: Sample) -> bool:
    return (
        one.name == other.name
        and one.arrays.keys() == other.arrays.keys()
        and all(
            np.array_equal(array, other.arrays[name]) and array.dtype == other.arrays[name].dtype
            for name, array in one.arrays.items()
        )
    )


@pytest.mark.parametrize("source", ["images", "coco"])
def test_the_same_folder_gives_the_same_samples(source: str, folder: Path) -> None:
    model = load_model(folder / "model.onnx")
    spec = spec_inside(model)
    of_command = {sample.name: sample for sample in model_samples(folder / "images", model, spec.image_input)}
    labels = ["data.annotations=labels.json"] if source == "coco" else []
    sources = run_sources(validate(composed(f"data={source}", "data.folder=images", *labels)), folder)
    of_run = [sample for source in sources.values() for sample in fitted(source, spec)]
    assert {sample.name for sample in of_run} == {*of_command} and len(of_command) == COUNT
    assert all(alike(sample, of_command[sample.name]) for sample in of_run)


def test_arrays_of_the_same_samples_are_the_same(folder: Path) -> None:
    model = load_model(folder / "model.onnx")
    spec = spec_inside(model)
    images = model_samples(folder / "images", model, spec.image_input)
    stacked = {name: np.stack([sample.arrays[name] for sample in images]) for name in ("x", "size")}
    np.savez(folder / "all.npz", **stacked)
    rows = {sample.name: sample for sample in model_samples(folder / "all.npz", model)}
    sources = run_sources(validate(composed("data=npz", "data.file=all.npz")), folder)
    of_run = [sample for purpose in ("calibration", "verification") for sample in fitted(sources[purpose], spec)]
    assert all(alike(sample, rows[sample.name]) for sample in of_run) and len(of_run) == COUNT


# --- fifteen that are wrong -------------------------------------------------------------------------------------------


def broken_image(folder: Path) -> None:
    for path in folder.glob("elsewhere/inner/*"):
        path.write_bytes(path.read_bytes()[:60])


def sixteen_bits(folder: Path) -> None:
    Image.fromarray(np.zeros((30, 20), np.uint16)).save(folder / "elsewhere/inner/00.png")


def no_images(folder: Path) -> None:
    (folder / "images/train").unlink()


def changed(**edits: Any) -> Callable[[Path], None]:
    """Labels with another value at "annotations__bbox" and the like, of the first entry."""

    def change(folder: Path) -> None:
        content = json.loads((folder / "labels.json").read_text())
        for place, value in edits.items():
            kind, _, key = place.partition("__")
            if key:
                content[kind][0][key] = value
            else:
                del content[kind]
        (folder / "labels.json").write_text(json.dumps(content))

    return change


def no_json(folder: Path) -> None:
    (folder / "labels.json").write_text("{")


BAD_FOLDERS: dict[str, tuple[Callable[[Path], None], str]] = {
    "a file that breaks off": (broken_image, "file-unreadable"),
    "16 bits a channel": (sixteen_bits, "file-unreadable"),
    "an empty folder": (no_images, "file-missing"),
}
BAD_LABELS: dict[str, tuple[Callable[[Path], None], str]] = {
    "no JSON": (no_json, "file-unreadable"),
    "no categories": (changed(categories=None), "file-unreadable"),
    "a box of three numbers": (changed(annotations__bbox=[1, 2, 3]), "wrong-type"),
    "an unknown category": (changed(annotations__category_id=7), "wrong-name"),
    "an image that is not there": (changed(images__file_name="gone.png"), "file-missing"),
    "a path out of the folder": (changed(images__file_name="../x.png"), "wrong-name"),
    "an id twice": (changed(images__id=1), "given-twice"),
}
BAD_SPECS: dict[str, tuple[Any, str]] = {
    "no mapping": ([1], "wrong-spec"),
    "a key misspelt": ({"outputs": [{"name": "l", "kind": "logits", "activations": "sigmoid"}]}, "unknown-key"),
    "an output that is not there": ({"outputs": [{"name": "z"}]}, "wrong-name"),
    "a kind that is none": ({"outputs": [{"name": "l", "kind": "masks"}]}, "unknown-choice"),
    "logits without boxes": ({"outputs": [SPEC["outputs"][0]]}, "in-conflict"),  # type: ignore[index]
    "a shape of another rank": ({"outputs": [{"name": "l", "kind": "map"}]}, "wrong-shape"),
    "boxes without a format": ({"outputs": [SPEC["outputs"][0], {"name": "b", "kind": "boxes"}]}, "missing-key"),  # type: ignore[index]
}


@pytest.mark.parametrize("fault", BAD_FOLDERS)
def test_a_bad_folder_is_a_sentence_at_the_command(fault: str, folder: Path) -> None:
    spoil, code = BAD_FOLDERS[fault]
    spoil(folder)
    exit_code, printed = truehalf("verify", "model.onnx", "model.onnx", "--samples", "images")
    assert exit_code == 2 and "Traceback" not in printed
    assert code in codes_in(printed)


@pytest.mark.parametrize("fault", BAD_LABELS)
def test_bad_labels_are_a_sentence_in_the_first_stage(fault: str, folder: Path) -> None:
    spoil, code = BAD_LABELS[fault]
    spoil(folder)
    config = validate(composed("data=coco", "data.folder=images", "data.annotations=labels.json"))
    with pytest.raises((StageError, ConfigErrors)) as error:
        fingerprint_data(config, folder)
    assert code in codes_in(str(error.value)), error.value


@pytest.mark.parametrize("fault", BAD_SPECS)
def test_a_bad_spec_is_a_sentence_at_the_command(fault: str, folder: Path) -> None:
    content, code = BAD_SPECS[fault]
    (folder / "spec.json").write_text(json.dumps(content))
    arguments = ("--samples", "images", "--spec", "spec.json", "--size", "8x16")
    exit_code, printed = truehalf("verify", "model.onnx", "model.onnx", *arguments)
    assert exit_code == 2 and "Traceback" not in printed
    assert code in codes_in(printed), printed
    assert {*codes_in(printed)} <= {*CODES}
    expect(printed, code)
