"""Ranges against numpy on a graph whose every tensor is an output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

from stages.calibrate import LADDER, calibrate, report
from stages.io import StageError, load_model
from stages.ort.session import Session

# Attention-like: a mask of finfo.max, one of -Inf, merged axes, integers beside floats.
TEXT = """g (float[batch,4,6] x) => (float[batch,4,6] y)
<
    float[6,6] w = {%s},
    float[1,4,1] mask = {0.0, 340282346638528859811704183484516925440.0, 0.0, 0.0},
    float[1,4,1] inf_mask = {0.0, 0.0, -inf, 0.0},
    float[1] thousand = {1000.0},
    int64[2] flat = {-1, 6},
    int64[1] big = {100000}
>
{
    m = MatMul(x, w)
    scaled = Mul(m, thousand)
    masked = Add(x, mask)
    scores = Add(x, inf_mask)
    t = Transpose<perm = [0, 2, 1]>(scores)
    p = Softmax(t)
    back = Transpose<perm = [0, 2, 1]>(p)
    rows = Reshape(scaled, flat)
    shape = Shape(x)
    index = Mul(shape, big)
    sum = Add(back, m)
    y = Relu(sum)
}"""


def write(path: Path, text: str) -> Path:
    proto = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 17]>\n{text}')
    onnx.checker.check_model(proto, full_check=True)
    onnx.save(proto, path)
    return path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    weights = np.random.default_rng(1).standard_normal(36).astype(np.float32)
    return write(tmp_path / "model.onnx", TEXT % ", ".join(f"{w:.6f}" for w in weights))


def every_tensor(path: Path) -> onnx.ModelProto:
    proto = onnx.shape_inference.infer_shapes(onnx.load(path))
    proto.graph.output.extend(value for value in proto.graph.value_info)
    return proto


def samples(count: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((count, 4, 6)).astype(np.float32)


def expected_entry(values: list[np.ndarray], names: list[str]) -> dict[str, Any]:
    everything = np.concatenate([value.ravel() for value in values])
    finite = everything[np.isfinite(everything)]
    peaks = [np.abs(v[np.isfinite(v)]).max(initial=-1) for v in values]
    return {
        "min": finite.min(),
        "max": finite.max(),
        "absmax": np.abs(finite).max(),
        "sample": names[int(np.argmax(peaks))],
        "elements": everything.size,
        "nan": np.isnan(everything).sum(),
        "posinf": np.isposinf(everything).sum(),
        "neginf": np.isneginf(everything).sum(),
        "above": {f"{rung:g}": (np.abs(finite) > rung).sum() / everything.size for rung in LADDER},
    }


def test_ranges_are_those_of_numpy(model: Path) -> None:
    x, names = samples(7), [f"sample {i}" for i in range(7)]
    batches = [{"x": x[:3]}, {"x": x[3:6]}, {"x": x[6:]}]
    ranges = calibrate(model, batches, names=names)
    reference = Session(every_tensor(model).SerializeToString())
    runs = [reference.run({"x": x[i : i + 1]}) | {"x": x[i : i + 1]} for i in range(7)]
    floats = ["x", "m", "scaled", "masked", "scores", "t", "p", "back", "rows", "sum", "y"]
    assert list(ranges["tensors"]) == floats
    assert (ranges["samples"], ranges["ladder"]) == (7, list(LADDER))
    for name in floats:
        expected = expected_entry([run[name] for run in runs], names)
        actual = ranges["tensors"][name]
        for key in ("sample", "elements", "nan", "posinf", "neginf", "above"):
            assert actual[key] == expected[key], (name, key)
        for key in ("min", "max", "absmax"):  # two graphs, fused differently
            assert actual[key] == pytest.approx(expected[key], rel=1e-6), (name, key)
    assert ranges["tensors"]["scaled"]["above"]["512"] > 0
    assert ranges["tensors"]["scores"]["neginf"] == 7 * 6
    json.dumps(ranges, allow_nan=False)


def test_the_sample_of_the_maximum_is_the_true_one(model: Path) -> None:
    """Also where the batch axis is merged with another, and whatever batch the samples came in."""
    for place in range(6):
        x = samples(6) * 0.1
        x[place, 1, 2] = 50
        for size in (1, 4, 6):
            batches = [{"x": x[i : i + size]} for i in range(0, 6, size)]
            tensors = calibrate(model, batches, names=[str(i) for i in range(6)])["tensors"]
            assert {tensors[name]["sample"] for name in ("x", "m", "rows", "y")} == {str(place)}


def test_a_fixed_batch_is_filled_with_one_sample(tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx", "g (float[3,2] x) => (float[3,2] y) { y = Mul(x, x) }")
    x = np.float32([[1, 2], [-9, 3], [0, 600], [4, 4]])
    entry = calibrate(path, [{"x": x}], names=list("abcd"))["tensors"]["y"]
    assert (entry["absmax"], entry["sample"], entry["min"], entry["elements"]) == (360000, "c", 0, 24)
    assert entry["above"]["65504"] == 1 / 8


@pytest.mark.parametrize("position", range(12))
def test_nan_is_counted_wherever_it_stands(tmp_path: Path, position: int) -> None:
    path = write(
        tmp_path / "m.onnx",
        """g (float[N,12] x) => (bool[N,12] y) <float[1] one = {1.0}>
        { r = Sqrt(x)  n = Mul(r, one)  y = Greater(n, one) }""",
    )
    x = np.full((2, 12), 4, np.float32)
    x[0, position] = -1
    x[1, 3] = 9
    entry = calibrate(path, [{"x": x}], names=["a", "b"])["tensors"]["n"]
    assert (entry["nan"], entry["absmax"], entry["min"], entry["sample"]) == (1, 3, 2, "b")


def test_a_tensor_with_nothing_finite_has_no_range(tmp_path: Path) -> None:
    path = write(
        tmp_path / "m.onnx",
        "g (float[N,2] x) => (bool[N,2] y) { l = Sqrt(x)  y = IsNaN(l) }",
    )
    ranges = calibrate(path, [{"x": -np.ones((2, 2), np.float32)}], names=["a", "b"])
    entry = ranges["tensors"]["l"]
    assert (entry["min"], entry["max"], entry["absmax"], entry["sample"], entry["nan"]) == (None, None, None, None, 4)
    assert report(ranges, load_model(path))["tensors_nonfinite"] == 1


def test_an_output_that_is_not_finite_names_output_sample_and_node(tmp_path: Path) -> None:
    path = write(
        tmp_path / "m.onnx",
        """g (float[N,2] x) => (float[N,2] ok, float[N,2] bad)
        <float[2] mask = {-inf, 0.0}>
        { m = Add(x, mask)  s = Softmax(m)  ok = Relu(x)  [root] r = Sqrt(x)  bad = Mul(r, s) }""",
    )
    with pytest.raises(StageError, match=r"'bad' .* sample 'b': 1 NaN and 0 Inf among 2 values; .*'root' \(Sqrt\)"):
        calibrate(path, [{"x": np.float32([[1, 2], [3, -4], [5, 6]])}], names=["a", "b", "c"])
    with pytest.raises(StageError, match=r"sample 'a': .* begins in input 'x'"):
        calibrate(path, [{"x": np.float32([[1, np.nan]])}], names=["a"])


def test_bad_arguments_are_refused(model: Path) -> None:
    x = samples(2)
    with pytest.raises(StageError, match="one-shot iterator"):
        calibrate(model, iter([{"x": x}]), names=["a", "b"])
    with pytest.raises(StageError, match="expected 3 samples, one for each name, got 2"):
        calibrate(model, [{"x": x}], names=["a", "b", "c"])
    with pytest.raises(StageError, match="expected 1 samples, one for each name, got more"):
        calibrate(model, [{"x": x}], names=["a"])
    with pytest.raises(StageError, match=r"as many samples in every input, got \{'x': 2, 'z': 1\}"):
        calibrate(model, [{"x": x, "z": x[:1]}], names=["a", "b"])


def test_report(model: Path) -> None:
    ranges = calibrate(model, [{"x": samples(3)}], names=["a", "b", "c"])
    content = report(ranges, load_model(model))
    assert (content["samples"], content["tensors"], content["tensors_nonfinite"]) == (3, 11, 2)
    above_512 = {name for name, entry in ranges["tensors"].items() if entry["absmax"] > 512}
    assert content["tensors_above_512"] == len(above_512) == 3  # masked, scaled, rows
    assert content["tensors_above_65504"] == 1
    assert content["largest"][0]["tensor"] == "masked"
    assert len(content["largest"]) == 10
    absmax = [item["absmax"] for item in content["largest"]]
    assert absmax == sorted(absmax, reverse=True)
