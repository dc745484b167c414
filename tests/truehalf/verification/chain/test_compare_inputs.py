"""What goes into both files: arrays, pictures, groups of samples."""

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from PIL import Image

from tests.messages import expect, raises
from tests.truehalf.verification.two_models import ADDED, CLASSES, PLAIN, X, constant, faults, held, model, options
from truehalf.codes import codes_in
from truehalf.verification.chain.compare import compare

# --- arrays -----------------------------------------------------------------------------------------------------------


def test_faults_of_inputs_are_named_with_what_was_expected(tmp_path: Path) -> None:
    lines = faults(tmp_path, PLAIN, PLAIN, {"x": X.astype(np.float64), "z": X})
    assert [codes_in(line) for line in lines] == [["wrong-feeds"], ["wrong-dtype"], ["wrong-name"]]
    expect(lines[1], None, "'x'", "float32 [N, 3]", "float64 [4, 3]")
    expect(lines[2], None, "'z'", "'x'")


def test_nan_in_the_inputs_is_refused_and_inf_is_not(tmp_path: Path) -> None:
    broken = np.stack([X, X])[:, None]
    broken[1, 0, 2, 1] = np.nan
    lines = faults(tmp_path, PLAIN.replace("N,3", "1,4,3"), PLAIN.replace("N,3", "1,4,3"), {"x": broken})
    first, line = lines
    expect(first, "not-finite", "NaN")
    expect(line, None, "'x'", "feed[1]:", "1 of 12")
    masked = X.copy()
    masked[0, 0] = -np.inf
    assert held(tmp_path, PLAIN.replace("Relu", "Neg"), PLAIN.replace("Relu", "Neg"), {"x": masked}).passed


def test_sides_that_only_the_candidate_fixes_are_named(tmp_path: Path) -> None:
    (line,) = faults(tmp_path, PLAIN.replace("N,3", "N,M"), PLAIN.replace("N,3", "1,3"))
    expect(line, "wrong-shape", "input 'x'", "candidate", "[1, 3]", "[4, 3]")


def test_a_spec_may_declare_an_input_of_unknown_rank(tmp_path: Path) -> None:
    made = model(tmp_path / "a.onnx", PLAIN)
    proto = onnx.load(made)
    proto.graph.input[0].type.tensor_type.ClearField("shape")
    onnx.save(proto, made)
    spec = {"inputs": [{"name": "x", "shape": ["N", 3]}], "outputs": [{"name": "y"}]}
    assert compare(made, made, {"x": X}, spec=spec).passed


def test_files_and_folders_of_arrays(tmp_path: Path) -> None:
    np.savez(tmp_path / "s.npz", x=X)
    (tmp_path / "folder").mkdir()
    for name in "ab":
        np.savez(tmp_path / "folder" / f"{name}.npz", x=X[:2])
    assert held(tmp_path / "m", PLAIN, PLAIN, tmp_path / "s.npz").samples == 1
    report = held(tmp_path / "m", PLAIN, PLAIN.replace("Relu", "Neg"), str(tmp_path / "folder"))
    assert report.samples == 2 and report.worst_sample == "a"


# --- groups of samples ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [1, 2, 3, 25])
def test_samples_are_run_in_groups(tmp_path: Path, batch: int) -> None:
    a = model(tmp_path / "a.onnx", ADDED, CLASSES, **constant(0, 0, 0))
    b = model(tmp_path / "b.onnx", ADDED, CLASSES, **constant(0.001, 0, 0))
    report = compare(a, b, {"x": X}, options=options(batch=batch))
    whole = compare(a, b, {"x": X})
    assert report.samples == 4 and report.outputs == whole.outputs and report.worst_sample == whole.worst_sample
    sizes = {1: "1", 2: "2", 3: "1, 3", 25: "4"}[batch]
    (said,) = [item for item in report.not_verified if "batch" in item]
    assert re.findall(r"\d+", said) == sizes.split(", ")


def test_without_kinds_a_feed_runs_as_it_stands(tmp_path: Path) -> None:
    over_samples = "(float[N,3] x) => (float[N,3] y) { y = Softmax <axis = 0> (x) }"
    assert held(tmp_path, over_samples, over_samples, batch=1).passed
    report = held(tmp_path, over_samples, over_samples.replace("axis = 0", "axis = 1"), batch=1)
    assert report.verdict == "failed" and report.samples == 1


# --- pictures ---------------------------------------------------------------------------------------------------------


MEANS = "(float[N,3,8,8] images) => (float[N,3] y) { y = ReduceMean <axes = [2, 3], keepdims = 0> (images) }"
PIXELS = {"inputs": [{"name": "images", "layout": "NCHW", "channels": "RGB", "range": [0, 1]}]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pictures").mkdir()
    for i in range(3):
        Image.new("RGB", (20, 10), (i * 80, 0, 255)).save(tmp_path / "pictures" / f"{i}.png")
    return tmp_path / "pictures"


def test_a_folder_of_pictures(tmp_path: Path, folder: Path) -> None:
    a = model(tmp_path / "a.onnx", MEANS, PIXELS)
    report = compare(a, a, folder, options=options(batch=2))
    assert report.passed and report.samples == 3
    assert report.preprocessing is not None and report.preprocessing["size"] == [8, 8]
    report = compare(a, a, str(folder), preprocessing={"range": [0, 255]})
    assert report.passed and report.preprocessing is not None and report.preprocessing["range"] == [0, 255]


def test_pictures_without_a_preprocessing_or_beside_arrays_are_refused(tmp_path: Path, folder: Path) -> None:
    a = model(tmp_path / "a.onnx", MEANS)
    with raises("needs-value", folder, *("size", "mean", "std", "channels", "range", "resize", "layout")):
        compare(a, a, folder)
    np.savez(folder / "x.npz", images=np.zeros((1, 3, 8, 8), np.float32))
    with raises("in-conflict", folder, ".npz"):
        compare(a, a, folder, preprocessing={})
    (tmp_path / "empty").mkdir()
    with raises("file-missing", tmp_path / "empty", ".npz"):
        compare(a, a, tmp_path / "empty", preprocessing={})
    with raises("in-conflict", "preprocessing:"):
        compare(a, a, {"images": np.zeros((1, 3, 8, 8), np.float32)}, preprocessing={})


def test_a_corrupt_picture_is_named(tmp_path: Path, folder: Path) -> None:
    a = model(tmp_path / "a.onnx", MEANS, PIXELS)
    (folder / "1.png").write_bytes(b"no picture")
    with raises("file-unreadable", folder / "1.png"):
        compare(a, a, folder)
