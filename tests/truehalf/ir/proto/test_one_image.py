"""Inputs of one image, without an axis of images: worked on with one, written without, fed in either form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from PIL import Image

from tests.messages import raises
from truehalf import compare, convert
from truehalf.data.model_samples import model_samples
from truehalf.data.samples import Feeds
from truehalf.ir.model_file import load_model, save_model

SIZE = (24, 32)
WEIGHT = np.random.default_rng(0).normal(0, 0.2, (4, 3, 3, 3)).astype(np.float32)
SPEC = {
    "inputs": [{"name": "image", "dtype": "float32", "kind": "images", "layout": "NCHW", "range": [0, 1]}],
    "outputs": [
        {"name": "boxes", "kind": "boxes", "format": "xyxy", "normalized": False, "batched": False},
        {"name": "labels", "kind": "labels", "batched": False},
        {"name": "scores", "kind": "scores", "batched": False},
    ],
}


def detector(path: Path, opset: int = 17, shift: float = 0.0, sides: str = "3, 24, 32") -> Path:
    """Rows of an image by its content: a box, a label and a score for each column that is bright enough."""
    axes = "" if opset < 13 else ", axes0"
    attribute = "<axes = [0]>" if opset < 13 else ""
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": {opset}]>
        g (float[{sides}] image) => (float[M, 4] boxes, int64[M] labels, float[M] scores)
        <int64[1] axes0 = {{0}}, int64[1] flat = {{-1}}, int64[2] row = {{-1, 4}}, float least = {{0.52}},
         float shift = {{{shift}}}, float wide = {{40.0}}, int64[4] corners = {{0, 1, 2, 3}}> {{
            some = Unsqueeze{attribute}(image{axes})
            c = Conv<pads = [1, 1, 1, 1], strides = [4, 4]>(some, w)
            s = Sigmoid(c)
            all = Reshape(s, flat)
            enough = Greater(all, least)
            places = NonZero(enough)
            kept = Reshape(places, flat)
            found = Gather<axis = 0>(all, kept)
            scores = Sub(found, shift)
            labels = Mul(kept, none)
            at = Cast<to = 1>(kept)
            left = Mul(at, small)
            right = Add(left, wide)
            a = Unsqueeze{"<axes = [1]>" if opset < 13 else ""}(left{"" if opset < 13 else ", axes1"})
            b = Unsqueeze{"<axes = [1]>" if opset < 13 else ""}(right{"" if opset < 13 else ", axes1"})
            boxes = Concat<axis = 1>(a, a, b, b)
        }}"""
    )
    for name, value in (("w", WEIGHT), ("none", np.int64(0)), ("small", np.float32(0.01)), ("axes1", np.int64([1]))):
        model.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
    if opset < 13:
        kept = [each for each in model.graph.initializer if each.name != "axes1"]
        del model.graph.initializer[:]
        model.graph.initializer.extend(kept)
    onnx.save(model, path)
    return path


def images(count: int) -> np.ndarray:
    return np.random.default_rng(1).random((count, 3, *SIZE)).astype(np.float32)


def ran(path: Path, image: np.ndarray) -> list[Any]:
    return list(ort.InferenceSession(path).run(None, {"image": image}))


@pytest.mark.parametrize("opset", [11, 17])
def test_what_is_worked_on_has_an_axis_and_the_file_has_not(tmp_path: Path, opset: int) -> None:
    path = detector(tmp_path / "m.onnx", opset)
    model = load_model(path)
    assert list(model.graph.inputs[0].shape) == [1, 3, *SIZE]
    save_model(model, tmp_path / "again.onnx")
    assert list(model.graph.inputs[0].shape) == [1, 3, *SIZE], "the model stays as it was"
    first, again = (onnx.load(each) for each in (path, tmp_path / "again.onnx"))
    assert first.graph.input == again.graph.input and len(first.graph.node) == len(again.graph.node)
    for ours, theirs in zip(ran(path, images(1)[0]), ran(tmp_path / "again.onnx", images(1)[0]), strict=True):
        assert np.array_equal(ours, theirs)


@pytest.mark.parametrize("options", [{}, {"keep_io_types": False}], ids=["float32", "float16"])
def test_what_is_converted_takes_one_image(tmp_path: Path, options: dict[str, bool]) -> None:
    from truehalf import Precision

    path = detector(tmp_path / "m.onnx")
    precision = Precision(**options)
    convert(path, tmp_path / "out.onnx", samples={"image": images(3)}, precision=precision)
    (entry,) = onnx.load(tmp_path / "out.onnx").graph.input
    assert [side.dim_value for side in entry.type.tensor_type.shape.dim] == [3, *SIZE]
    assert compare(path, tmp_path / "out.onnx", samples={"image": images(4)}, spec=SPEC).verdict == "passed"


def test_it_stays_one_image_where_slimming_loses_the_shapes_of_outputs(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[3, H, W] image) => (float[M, 1] y)
        <int64[2] both = {-1, 1}, int64[1] one = {1}, int64[1] three = {3}> {
            r = Relu(image)  t = Shape(image)  sides = Slice(t, one, three)  are = Cast<to = 9>(sides)
            shape = Compress<axis = 0>(both, are)  d = Add(r, r)  y = Reshape(d, shape)
        }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    made = convert(tmp_path / "m.onnx", tmp_path / "out.onnx", samples={"image": images(2)})
    assert made.report.slim.simplified
    assert [each.shape for each in ran(tmp_path / "out.onnx", images(1)[0])] == [(3 * 24 * 32, 1)]


@pytest.mark.parametrize(("shift", "verdict"), [(0.0, "passed"), (0.2, "failed")])
def test_detections_of_one_image_are_compared(tmp_path: Path, shift: float, verdict: str) -> None:
    path, other = detector(tmp_path / "m.onnx"), detector(tmp_path / "other.onnx", shift=shift)
    assert compare(path, other, samples={"image": images(4)}, spec=SPEC).verdict == verdict
    alone = [{"image": image} for image in images(4)]
    assert compare(path, other, samples=alone, spec=SPEC).verdict == verdict


def test_a_folder_of_images_feeds_it(tmp_path: Path) -> None:
    path = detector(tmp_path / "m.onnx", sides="3, H, W")
    (tmp_path / "images").mkdir()
    for i, pixels in enumerate((images(3) * 255).astype(np.uint8)):
        Image.fromarray(pixels.transpose(1, 2, 0)).save(tmp_path / f"images/{i}.png")
    samples, size = tmp_path / "images", {"size": list(SIZE)}
    assert compare(path, path, samples=samples, spec=SPEC, preprocessing=size).verdict == "passed"


def test_arrays_of_one_image_and_of_several(tmp_path: Path) -> None:
    model = load_model(detector(tmp_path / "m.onnx"))
    for array, count in ((images(1)[0], 1), (images(1), 1), (images(3), 3)):
        feeds = list(Feeds(model_samples({"image": array}, model), 1))
        assert [feed["image"].shape for feed in feeds] == [(1, 3, *SIZE)] * count
        assert np.array_equal(np.concatenate([feed["image"] for feed in feeds]).reshape(array.shape), array)
    with raises("wrong-feeds", "'image'", "[1, 3, 24, 31]"):
        model_samples({"image": images(1)[0][..., 1:]}, model)


@pytest.mark.parametrize(("declared", "given", "fed"), [("1, 2", (3, 2), (1, 2)), ("2", (2,), (2,))])
def test_images_beside_another_input(
    tmp_path: Path, declared: str, given: tuple[int, ...], fed: tuple[int, ...]
) -> None:
    text = f"g (float[3, 24, 32] x, float[{declared}] size) => (int64[M, L] y) {{ c = Mul(x, x)  y = NonZero(c) }}"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}')
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    count = given[0] if len(given) > 1 else 1
    arrays = {"x": images(count), "size": np.arange(np.prod(given), dtype=np.float32).reshape(given)}
    feeds = list(Feeds(model_samples(arrays, load_model(tmp_path / "m.onnx")), 1))
    assert [(feed["x"].shape, feed["size"].shape) for feed in feeds] == [((1, 3, *SIZE), fed)] * count
    assert np.array_equal(np.concatenate([feed["x"] for feed in feeds]), arrays["x"])
    assert np.array_equal(np.concatenate([feed["size"].ravel() for feed in feeds]), arrays["size"].ravel())


def test_names_that_the_file_has_stay(tmp_path: Path) -> None:
    path = detector(tmp_path / "m.onnx")
    model = onnx.load(path)
    renames = {"some": "image/alone", "axes0": "image/axes"}
    for node in model.graph.node:
        for names in (node.input, node.output):
            names[:] = [renames.get(name, name) for name in names]
    for tensor in model.graph.initializer:
        tensor.name = renames.get(tensor.name, tensor.name)
    onnx.save(model, path)
    save_model(load_model(path), tmp_path / "again.onnx")
    again = onnx.load(tmp_path / "again.onnx")
    assert {tensor.name for tensor in again.graph.initializer} == {tensor.name for tensor in model.graph.initializer}
    for old, new in zip(ran(path, images(1)[0]), ran(tmp_path / "again.onnx", images(1)[0]), strict=True):
        assert np.array_equal(old, new)


@pytest.mark.parametrize(
    "signature",
    [
        "(float[3, 24, 32] x) => (float[3, 24] y)",  # three samples
        "(float[3, 4, 32] x) => (float[M, 4] y)",  # a small matrix
        "(float[1, 24, 32] x) => (float[M, 4] y)",
        "(float[3, 24, 32] x, float[3, 24, 32] z) => (float[M, 4] y)",
        "(int64[3, 24, 32] x) => (float[M, 4] y)",
    ],
)
def test_other_inputs_of_three_axes_stay(tmp_path: Path, signature: str) -> None:
    text = f'<ir_version: 8, opset_import: ["": 17]> g {signature} {{ c = Cast<to = 1>(x)  y = Identity(c) }}'
    model = onnx.parser.parse_model(text)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    assert len(load_model(tmp_path / "m.onnx").graph.inputs[0].shape or ()) == 3
