"""The same objects, put out in each declared layout, are the same detections."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.messages import raises
from truehalf.io_spec.decode import confident, decode, image_size
from truehalf.io_spec.outputs import with_other_columns
from truehalf.io_spec.spec import IoSpec

HEIGHT, WIDTH = 100, 200
IMAGES = {"name": "images", "shape": ["batch", 3, HEIGHT, WIDTH]}
LOGITS = {"name": "l", "kind": "logits", "activation": "sigmoid"}
BOXES = {"name": "b", "kind": "boxes", "format": "xyxy", "normalized": False}
SCORES, LABELS = {"name": "s", "kind": "scores"}, {"name": "c", "kind": "labels"}
# one picture, three queries, two classes: query 1 is class 1 at 0.9, query 2 is class 0 at 0.6, query 0 nothing
PROBABILITIES = np.array([[[0.01, 0.02], [0.05, 0.9], [0.6, 0.1]]], np.float32)
XYXY = np.array([[[0, 0, 10, 10], [20, 10, 60, 50], [100, 20, 180, 80]]], np.float32)
OF_CLASS, LABEL = PROBABILITIES.max(axis=2, keepdims=True), PROBABILITIES.argmax(axis=2)[..., None]
OTHERS = np.arange(6, dtype=np.float32).reshape(1, 3, 2)
COLUMNS = {
    "boxes": XYXY,
    "scores": PROBABILITIES,
    "objectness": np.full((1, 3, 1), 0.5, np.float32),
    "score": OF_CLASS,
    "label": LABEL,
    "image": np.zeros((1, 3, 1), np.float32),
    "others": OTHERS,
}


def spec(*outputs: dict[str, Any], **more: Any) -> IoSpec:
    return IoSpec.from_json({"inputs": [IMAGES], "outputs": list(outputs), "class_names": ["ant", "bee"]} | more)


def boxes_as(box_format: str, normalized: bool) -> np.ndarray:
    values = XYXY / (np.array([WIDTH, HEIGHT, WIDTH, HEIGHT]) if normalized else 1)
    low, high = values[..., :2], values[..., 2:]
    if box_format == "cxcywh":
        values = np.concatenate([(low + high) / 2, high - low], axis=-1)
    elif box_format == "xywh":
        values = np.concatenate([low, high - low], axis=-1)
    return (values[..., [1, 0, 3, 2]] if box_format == "yxyx" else values).astype(np.float32)


def logits_as(activation: str) -> np.ndarray:
    if activation == "sigmoid":
        return np.log(PROBABILITIES / (1 - PROBABILITIES))
    rest = 1 - PROBABILITIES.sum(axis=2, keepdims=True)
    return np.log(np.concatenate([PROBABILITIES, rest], axis=2)) + np.float32(7)


def of_queries(activation: str, **more: Any) -> tuple[dict[str, np.ndarray], IoSpec]:
    logits = PROBABILITIES if activation == "identity" else logits_as(activation)
    return {"l": logits, "b": XYXY}, spec(LOGITS | {"activation": activation} | more, BOXES)


def in_one(columns: str, axis: int = 2, **more: Any) -> tuple[dict[str, np.ndarray], IoSpec]:
    order = columns.split()
    rows = np.concatenate(
        [COLUMNS[column] / (0.5 if "objectness" in order and column == "scores" else 1) for column in order], 2
    )
    values = {1: rows.swapaxes(1, 2), 2: rows}[axis].astype(np.float32)
    declared = BOXES | {"kind": "rows", "columns": order, "axis": axis} | more
    return {"b": values[0] if "batched" in more else values}, spec(
        declared | ({"axis": 1} if "batched" in more else {})
    )


def of_top_k(dtype: type, **more: Any) -> tuple[dict[str, np.ndarray], IoSpec]:
    outputs = {"s": OF_CLASS[..., 0], "c": LABEL[..., 0].astype(dtype), "b": XYXY}
    if more:
        outputs = {name: array[0] for name, array in outputs.items()}
    return outputs, spec(*(each | more for each in (SCORES, LABELS, BOXES)))


LAYOUTS = {
    "sigmoid": of_queries("sigmoid"),
    "softmax": of_queries("softmax", no_object=True),
    "scores of queries": of_queries("identity"),
    "top-k": of_top_k(np.int64),
    "labels as floats": of_top_k(np.float32),
    "top-k of one image": of_top_k(np.int32, batched=False),
    "YOLOv8": in_one("boxes scores", 1),
    "YOLOv5": in_one("boxes objectness scores"),
    "YOLOv5 with masks": in_one("boxes objectness scores others"),
    "YOLOv8 with masks": in_one("boxes scores others", 1),
    "YOLOv10": in_one("boxes score label"),
    "YOLO26 with masks": in_one("boxes score label others"),
    "EfficientDet": in_one("image boxes score label"),
    "YOLOv7 of one image": in_one("image boxes label score", batched=False),
    "PaddleDetection": in_one("label score boxes", batched=False),
}
dets, one = in_one("boxes score")[0], of_queries("sigmoid")[0]
LAYOUTS["MMDetection"] = (
    dets | {"c": LABEL[..., 0]},
    spec(BOXES | {"kind": "rows", "columns": ["boxes", "score"], "axis": 2}, LABELS),
)
LAYOUTS["YOLOv4"] = {"l": PROBABILITIES, "b": XYXY[:, :, None]}, of_queries("identity")[1]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_layout(layout: str) -> None:
    outputs, declared = LAYOUTS[layout]
    (found,) = decode(outputs, declared)
    assert len(found.scores) == 3 and found.labels.dtype == np.int64
    np.testing.assert_array_equal(found.labels[:2], [1, 0])
    np.testing.assert_allclose(found.scores[:2], [0.9, 0.6], rtol=1e-5)
    np.testing.assert_allclose(found.boxes_px[:2], XYXY[0, [1, 2]], atol=1e-4)
    assert confident(outputs, declared, 0.7).tolist() == [[False, True, False]]
    added = with_other_columns(outputs, declared)
    assert added.keys() - outputs.keys() == ({"b.others"} if "masks" in layout else set())
    np.testing.assert_array_equal(added.get("b.others", OTHERS), OTHERS)


@pytest.mark.parametrize("box_format", ["cxcywh", "xyxy", "xywh", "yxyx"])
@pytest.mark.parametrize("normalized", [True, False])
def test_each_format_of_boxes(box_format: str, normalized: bool) -> None:
    declared = spec(LOGITS, BOXES | {"format": box_format, "normalized": normalized})
    (found,) = decode({"l": logits_as("sigmoid"), "b": boxes_as(box_format, normalized)}, declared)
    np.testing.assert_allclose(found.boxes_px[:2], XYXY[0, [1, 2]], atol=1e-4)


def test_an_output_of_other_axes_is_refused() -> None:
    outputs, declared = LAYOUTS["YOLOv8"]
    with raises("wrong-shape", "'b'", [6, 3]):
        decode({"b": outputs["b"][0]}, declared)


def test_a_query_of_a_softmax_is_one_detection_and_of_a_sigmoid_several() -> None:
    both, box = np.array([[[2.0, 1.9]]], np.float32), np.full((1, 1, 4), 0.5, np.float32)
    (sigmoid,) = decode({"l": np.repeat(both, 2, axis=1), "b": np.repeat(box, 2, axis=1)}, spec(LOGITS, BOXES))
    assert sigmoid.labels.tolist() == [0, 0] and len(sigmoid.scores) == 2
    (found,) = decode({"l": both, "b": box}, spec(LOGITS | {"activation": "softmax"}, BOXES))
    assert found.labels.tolist() == [0] and found.scores[0] == pytest.approx(1 / (1 + np.exp(-0.1)))


@pytest.mark.parametrize(("no_object", "label"), [(True, 1), ("first", 1)])
def test_no_object_is_never_a_detection(no_object: bool | str, label: int) -> None:
    declared = spec(LOGITS | {"activation": "softmax", "no_object": no_object}, BOXES)
    logits = np.array([[[0.0, 1.0, 9.0] if no_object is True else [9.0, 0.0, 1.0]]], np.float32)
    (found,) = decode({"l": logits, "b": np.full((1, 1, 4), 0.5, np.float32)}, declared)
    assert found.labels.tolist() == [label] and found.scores[0] < 0.001


@pytest.mark.parametrize(
    ("row", "score"),
    [([np.nan, 5], 0.0), ([np.inf, 5], 0.0), ([-np.inf, -np.inf], 0.0), ([-np.inf, 5], 1.0), ([8e4, 5], 1.0)],
)
def test_values_of_a_softmax_that_are_no_numbers(row: list[float], score: float) -> None:
    declared = spec(LOGITS | {"activation": "softmax"}, BOXES)
    (found,) = decode({"l": np.array([[row]], np.float32), "b": np.full((1, 1, 4), 0.5, np.float32)}, declared)
    assert found.scores.tolist() == [score]


def test_top_k_inside_with_values_that_are_no_numbers() -> None:
    nan = float("nan")
    outputs = {"s": np.array([[nan, 0.9]]), "c": np.array([[1, nan]]), "b": np.full((1, 2, 4), nan)}
    (found,) = decode(outputs, spec(SCORES, LABELS, BOXES))
    assert found.scores.tolist() == pytest.approx([0.9, 0.0]) and found.labels.tolist() == [-1, 1]
    assert not found.boxes_px.any()


def test_normalised_boxes_need_the_size_of_the_image() -> None:
    outputs, free = {"l": logits_as("sigmoid"), "b": boxes_as("xyxy", True)}, ["n", 3, "h", "w"]
    declared = spec(LOGITS, BOXES | {"normalized": True}, inputs=[{"name": "images", "shape": free}])
    (found,) = decode(outputs, declared, size=(50, 100))
    np.testing.assert_allclose(found.boxes_px[0], XYXY[0, 1] / 2, atol=1e-4)
    with raises("needs-value", free):
        decode(outputs, declared)


@pytest.mark.parametrize(
    ("entry", "given", "size"),
    [
        ({"shape": ["batch", 3, "height", "width"]}, None, None),
        ({"shape": ["batch", 3, "height", "width"], "size": [64, 96]}, None, (64, 96)),
        ({"shape": ["batch", 3, "height", "width"], "size": [64, 96]}, (32, 32), (32, 32)),
        ({"shape": ["batch", 3, 48, 80]}, None, (48, 80)),
        ({"shape": [1, 48, 80, 3], "layout": "NHWC"}, None, (48, 80)),
    ],
)
def test_the_size_of_an_image(
    entry: dict[str, Any], given: tuple[int, int] | None, size: tuple[int, int] | None
) -> None:
    assert image_size(spec(inputs=[{"name": "images"} | entry]), given) == size
