"""Ranges against numpy on a graph whose every tensor is an output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

from tests.messages import expect, raises
from truehalf.calibration.calibrate import calibrate
from truehalf.calibration.ranges_form import read_ranges
from truehalf.data.model_samples import model_samples
from truehalf.data.samples import Feeds
from truehalf.ir.model_file import load_model
from truehalf.runtime.ort import Session

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


def write(path: Path, text: str, opset: int = 17) -> Path:
    proto = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : {opset}]>\n{text}')
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


def each(x: np.ndarray) -> list[dict[str, np.ndarray]]:
    """Rows as feeds of one sample."""
    return [{"x": row[np.newaxis]} for row in x]


class Named(list[dict[str, np.ndarray]]):
    """Feeds with names, as truehalf.data.samples.Feeds."""

    def __init__(self, feeds: list[dict[str, np.ndarray]], names: list[str]) -> None:
        super().__init__(feeds)
        self.names = names


def expected_entry(values: list[np.ndarray], names: list[str]) -> dict[str, Any]:
    finite = [value for value in values if np.isfinite(value).all()]
    peaks = [np.abs(value).max() if np.isfinite(value).all() else -1 for value in values]
    return {
        "min": min((value.min() for value in finite), default=None),
        "max": max((value.max() for value in finite), default=None),
        "absmax": max((np.abs(value).max() for value in finite), default=None),
        "sample": names[int(np.argmax(peaks))],
        "elements": sum(value.size for value in values),
        "nonfinite": len(values) - len(finite),
    }


def test_ranges_are_those_of_numpy(model: Path) -> None:
    x, names = samples(7), [f"sample {i}" for i in range(7)]
    ranges = calibrate(model, Named(each(x), names))
    reference = Session(every_tensor(model).SerializeToString())
    runs = [reference.run({"x": x[i : i + 1]}) | {"x": x[i : i + 1]} for i in range(7)]
    floats = ["x", "m", "scaled", "masked", "scores", "t", "p", "back", "rows", "sum", "y"]
    assert list(ranges["tensors"]) == floats
    assert ranges["samples"] == 7
    for name in floats:
        expected = expected_entry([run[name] for run in runs], names)
        actual = ranges["tensors"][name]
        for key in ("sample", "elements", "nonfinite"):
            assert actual[key] == expected[key], (name, key)
        for key in ("min", "max", "absmax") if expected["absmax"] is not None else ():  # two graphs, fused differently
            assert actual[key] == pytest.approx(expected[key], rel=1e-6), (name, key)
    assert ranges["tensors"]["scores"]["nonfinite"] == 7
    json.dumps(ranges, allow_nan=False)


def test_the_sample_of_the_maximum_is_the_true_one(model: Path) -> None:
    """Also where the batch axis is merged with another."""
    for place in range(6):
        x = samples(6) * 0.1
        x[place, 1, 2] = 50
        tensors = calibrate(model, each(x))["tensors"]
        assert {tensors[name]["sample"] for name in ("x", "m", "rows", "y")} == {str(place)}


@pytest.mark.parametrize("position", range(12))
def test_nan_is_seen_wherever_it_stands(tmp_path: Path, position: int) -> None:
    path = write(
        tmp_path / "m.onnx",
        """g (float[N,12] x) => (bool[N,12] y) <float[1] one = {1.0}>
        { r = Sqrt(x)  n = Mul(r, one)  y = Greater(n, one) }""",
    )
    x = np.full((2, 12), 4, np.float32)
    x[0, position] = -1
    x[1, 3] = 9
    entry = calibrate(path, Named(each(x), ["a", "b"]))["tensors"]["n"]
    assert (entry["nonfinite"], entry["absmax"], entry["min"], entry["sample"]) == (1, 3, 2, "b")


def test_a_tensor_with_nothing_finite_has_no_range(tmp_path: Path) -> None:
    path = write(
        tmp_path / "m.onnx",
        "g (float[N,2] x) => (bool[N,2] y) { l = Sqrt(x)  y = IsNaN(l) }",
    )
    ranges = calibrate(path, Named(each(-np.ones((2, 2), np.float32)), ["a", "b"]))
    entry = ranges["tensors"]["l"]
    assert (entry["min"], entry["max"], entry["absmax"], entry["sample"]) == (None, None, None, "a")
    assert (entry["nonfinite"], entry["elements"]) == (2, 4)


def test_an_output_that_is_not_finite_names_output_sample_and_node(tmp_path: Path) -> None:
    path = write(
        tmp_path / "m.onnx",
        """g (float[N,2] x) => (float[N,2] ok, float[N,2] bad)
        <float[2] mask = {-inf, 0.0}>
        { m = Add(x, mask)  s = Softmax(m)  ok = Relu(x)  [root] r = Sqrt(x)  bad = Mul(r, s) }""",
    )
    with raises("not-finite", "'bad'", "'b'", "1 NaN", "0 Inf", 2, "'root'", "Sqrt"):
        calibrate(path, Named(each(np.float32([[1, 2], [3, -4], [5, 6]])), ["a", "b", "c"]))
    with raises("not-finite", "'a'", "'x'") as caught:
        calibrate(path, Named(each(np.float32([[1, np.nan]])), ["a"]))
    assert "'root'" not in str(caught.value), "it begins before"
    x = np.float32([[-1, 2], [3, -4], [5, 6]])
    ranges = calibrate(path, Named(each(x), ["a", "b", "c"]), nonfinite_outputs="warn")
    (warning,) = ranges["warnings"]
    expect(warning, None, "'bad'", "'a'", "1 NaN", "'root'", "Sqrt")
    assert ranges["tensors"]["bad"]["nonfinite"] == 2
    assert ranges["tensors"]["ok"]["absmax"] == 6


def test_no_sample_is_refused(model: Path) -> None:
    with raises("too-few-samples"):
        calibrate(model, [])


def test_names_come_from_the_feeds(model: Path) -> None:
    x = samples(2)
    x[1] = 9
    feeds = Feeds(model_samples({"x": x}, load_model(model)), 1)
    assert calibrate(model, feeds)["tensors"]["x"]["sample"] == "feed[1]"
    assert calibrate(model, list(feeds))["tensors"]["x"]["sample"] == "1"


def test_a_model_in_memory_is_left_as_it_is(model: Path) -> None:

    loaded = load_model(model)
    before = ir.to_proto(loaded).graph
    assert calibrate(loaded, each(samples(1))) == calibrate(model, each(samples(1)))
    after = ir.to_proto(loaded).graph
    for part in ("input", "output", "initializer", "node"):
        assert getattr(after, part) == getattr(before, part)


HAZARDS = """g (float[N,64] x, float[N,2] p) => (float[N,64] y, float[N,2] l, float[N,1] m)
<float[64] one = {%s}, float lo = {1e-9}, float big = {4000.0}, int64[2] swap = {2, -1}>
{
    scaled = Mul(x, big)
    whole = Floor(scaled)
    turned = Transpose<perm = [1, 0]>(whole)
    back = Transpose<perm = [1, 0]>(turned)
    [norm] y = LayerNormalization(back, one)
    [quiet] u = LayerNormalization(x, one)
    [mean] m = ReduceMean<axes = [1]>(scaled)
    c = Max(p, lo)
    l = Log(c)
}"""


def test_hazards_are_measured(tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx", HAZARDS % ", ".join(["1.0"] * 64))
    x = np.random.default_rng(0).standard_normal((2, 64)).astype(np.float32)
    x[1] *= 3
    p = np.float32([[0.5, 1e-9], [2**-20, 0]])
    feeds = [{"x": x[i : i + 1], "p": p[i : i + 1]} for i in range(2)]
    ranges = calibrate(path, Named(feeds, ["a", "b"]))
    tensors, whole = ranges["tensors"], np.floor(x * np.float32(4000))
    assert tensors["turned"] == tensors["whole"]
    assert list(ranges["inner"]) == ["norm", "quiet", "mean"]
    assert ranges["inner"]["norm"]["value"] == pytest.approx(whole.astype(np.float64).var(axis=1).max(), rel=1e-5)
    assert ranges["inner"]["mean"]["value"] == pytest.approx(np.abs(x * 4000).sum(axis=1).max(), rel=1e-5)
    assert {(entry["quantity"], entry["sample"]) for entry in ranges["inner"].values()} == {
        ("mean_square", "b"),
        ("sum", "b"),
    }
    json.dumps(ranges, allow_nan=False)


def test_nodes_without_names_are_named_as_normalize_does(tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx", "g (float[N,2] x) => (float[1,1] y) { y = ReduceSum(x) }")
    inner = calibrate(path, [{"x": np.full((1, 2), 5000, np.float32)}])["inner"]
    assert inner == {"ReduceSum_y": {"quantity": "sum", "value": 10000.0, "sample": "0"}}


@pytest.mark.parametrize("opset", [6, 7, 9])
def test_old_opsets(opset: int, tmp_path: Path) -> None:
    path = write(
        tmp_path / "m.onnx",
        """g (float[1,4] x, float[1,4] v) => (float[1,4] y, float[1,1] s)
        { a = Mul(x, v)  r = Sqrt(a)  b = Relu(a)  [sum] s = ReduceSum(b)  e = Log(x)  y = Sigmoid(r) }""",
        opset,
    )
    x = np.float32([[1, 2, 3, -4]])
    ranges = calibrate(path, [{"x": x, "v": x * 0 + 9000}], nonfinite_outputs="warn")
    tensors = ranges["tensors"]
    assert list(tensors) == ["x", "v", "a", "r", "b", "s", "e", "y"]
    assert (tensors["a"]["min"], tensors["a"]["max"]) == (-36000, 27000)
    assert (tensors["r"]["nonfinite"], tensors["r"]["absmax"]) == (1, None)
    assert ranges["inner"]["sum"]["value"] == 54000


def test_an_old_opset_that_cannot_be_raised_is_refused(tmp_path: Path) -> None:
    """The old broadcasting of Mul can be restated only where shapes are known."""
    path = write(tmp_path / "m.onnx", "g (float[N,4] x) => (float[N,4] y) { y = Mul(x, x) }", 6)
    with raises("wrong-opset", 9, 6):
        calibrate(path, [{"x": np.ones((1, 4), np.float32)}])


def test_scalars_and_empty_arrays(tmp_path: Path) -> None:
    path = write(
        tmp_path / "m.onnx",
        "g (float x, float[K,3] e) => (float y, float[K,1] r) { y = Neg(x)  r = ReduceSumSquare<axes = [1]>(e) }",
    )
    ranges = calibrate(path, [{"x": np.array(70000, np.float32), "e": np.zeros((0, 3), np.float32)}])
    tensors = ranges["tensors"]
    assert tensors["y"]["min"] == -70000
    assert (tensors["e"]["elements"], tensors["e"]["absmax"], tensors["e"]["sample"]) == (0, None, None)
    assert ranges["inner"] == {}


def test_tensors_of_unknown_type_are_left_out_and_said(tmp_path: Path) -> None:
    """The type of ONNX Runtime's MurmurHash3 follows from an attribute, which no schema says."""
    text = """<ir_version: 9, opset_import: ["" : 17, "com.microsoft" : 1]>
        g (float[1,4] x) => (float[1,4] y) { a = com.microsoft.MurmurHash3(x)  b = Cast<to = 1>(a)  y = Add(b, x) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    ranges = calibrate(tmp_path / "m.onnx", [{"x": np.ones((1, 4), np.float32)}])
    assert {"x", "y"} <= set(ranges["tensors"]) and "a" not in ranges["tensors"]
    (warning,) = ranges["warnings"]
    expect(warning, None, 1, "'a'", "value_info")


def test_nothing_to_measure(tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx", "g (int64[2] x) => (int64[2] y) { y = Neg(x) }")
    ranges = calibrate(path, [{"x": np.array([1, 2])}])
    assert (ranges["tensors"], ranges["inner"], ranges["samples"]) == ({}, {}, 1)


def test_an_empty_sample_measures_nothing_and_refuses_nothing(model: Path) -> None:
    whole = each(samples(1))
    ranges = calibrate(model, [*whole, {"x": np.zeros((0, 4, 6), np.float32)}])
    assert (ranges["samples"], ranges["tensors"]) == (2, calibrate(model, whole)["tensors"])


def test_an_input_may_be_empty_where_others_are_measured(tmp_path: Path) -> None:
    text = "g (float[n,4] x, float[m,4] past) => (float[k,4] y) { y = Concat<axis = 0>(past, x) }"
    feed = {"x": np.ones((2, 4), np.float32), "past": np.ones((0, 4), np.float32)}
    assert calibrate(write(tmp_path / "m.onnx", text), [feed])["tensors"]["y"]["absmax"] == 1


@pytest.mark.parametrize(
    ("key", "entry", "facts"),
    [
        ("tensors", {"absmax": 10**400}, ["float"]),
        ("inner", {"quantity": "sum", "value": 10**400}, ["float"]),
        ("tensors", {"absmax": "1"}, ["absmax", "'1'"]),
        ("tensors", {"absmax": 1.0, "min": 3, "max": -3}, ["min", "max", 3.0, -3.0]),
        ("tensors", {"absmax": 1.0, "elements": -1}, ["elements", -1]),
        ("tensors", {"absmax": 1.0, "nonfinite": "many"}, ["nonfinite", "'many'"]),
        ("tensors", None, [None]),
        ("inner", {"quantity": "sum", "value": -1}, ["value", -1]),
    ],
)
def test_ranges_of_another_form_are_refused(key: str, entry: Any, facts: list[str]) -> None:
    ranges: Any = {"samples": 1, "tensors": {"t": {"absmax": 1.0}}}
    ranges[key] = ranges.get(key, {}) | {"named": entry}
    with raises("file-unreadable", key, "'named'", *facts):
        read_ranges(ranges)
