"""Pairs of detectors that put out what non-maximum suppression leaves of an image, without an axis of images: the
changes of tests/corpus/pairs/detections.py, in the forms of YOLOv7, PaddleDetection and torchvision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.corpus.pairs import Pair, numbers, replayed
from tests.corpus.pairs.detections import FAILED, PASSED, Scene, as_top_k, lowered, noisy, permuted, relabelled, scene
from tests.corpus.pairs.rows import spec_of, with_image, with_top_k

LEAST = 0.004  # of the scores that are put out: rows vary from image to image
XYXY = {"format": "xyxy", "normalized": False}
ROWS = {"name": "found", "kind": "rows", "axis": 1, "batched": False} | XYXY


def of_one_image(arrays: Mapping[str, np.ndarray], scores: np.ndarray, count: str | None = None) -> onnx.ModelProto:
    """A model that outputs the rows of each array that score enough, [rows, ...]; of several images one after the
    other.

    Args:
        arrays: by output name, [pictures, rows, ...].
        scores: [pictures, rows].
        count: the name of an output that says how many, int32 [1].
    """
    model = replayed({f"all_{name}": values for name, values in (arrays | {"scores_": scores}).items()})
    graph = model.graph
    graph.initializer.append(numpy_helper.from_array(np.float32(LEAST), "least"))
    graph.initializer.append(numpy_helper.from_array(np.int64([-1]), "flat"))
    graph.node.extend(
        [
            helper.make_node("Reshape", ["all_scores_", "flat"], ["each"]),
            helper.make_node("Greater", ["each", "least"], ["enough"]),
            helper.make_node("NonZero", ["enough"], ["places"]),
            helper.make_node("Reshape", ["places", "flat"], ["kept"]),
        ]
    )
    del graph.output[:]
    for name, values in arrays.items():
        shape = numpy_helper.from_array(np.int64([-1, *values.shape[2:]]), f"shape_{name}")
        graph.initializer.append(shape)
        graph.node.append(helper.make_node("Reshape", [f"all_{name}", shape.name], [f"rows_{name}"]))
        graph.node.append(helper.make_node("Gather", [f"rows_{name}", "kept"], [name], axis=0))
        element = helper.np_dtype_to_tensor_dtype(values.dtype)
        graph.output.append(helper.make_tensor_value_info(name, element, ["rows", *values.shape[2:]]))
    if count is not None:
        graph.node.append(helper.make_node("Shape", ["kept"], ["counted"]))
        graph.node.append(helper.make_node("Cast", ["counted"], [count], to=TensorProto.INT32))
        graph.output.append(helper.make_tensor_value_info(count, TensorProto.INT32, [1]))
    return model


def yolov7(s: Scene) -> onnx.ModelProto:
    rows = with_image(s)[..., [0, 1, 2, 3, 4, 6, 5]]
    return of_one_image({"found": rows}, rows[..., 6])


def paddle(s: Scene) -> onnx.ModelProto:
    rows = with_top_k(s)[..., [5, 4, 0, 1, 2, 3]]
    return of_one_image({"found": rows}, rows[..., 1], "bbox_num")


def torchvision(s: Scene) -> onnx.ModelProto:
    found = as_top_k(s)
    return of_one_image(found, found["scores"])


FORMS: Mapping[str, tuple[Callable[[Scene], onnx.ModelProto], list[dict[str, Any]]]] = {
    "yolov7": (yolov7, [ROWS | {"columns": ["image", "boxes", "label", "score"]}]),
    "paddle": (paddle, [ROWS | {"columns": ["label", "score", "boxes"]}, {"name": "bbox_num", "kind": "counts"}]),
    "torchvision": (
        torchvision,
        [{"name": "boxes", "kind": "boxes", "batched": False} | XYXY]
        + [{"name": kind, "kind": kind, "batched": False} for kind in ("scores", "labels")],
    ),
}


def spec(form: str) -> dict[str, Any]:
    return spec_of("rows") | {"outputs": FORMS[form][1]}


def pairs() -> Iterator[Pair]:
    for form, (written, _) in FORMS.items():
        for change, expected in ((noisy, PASSED), (permuted, PASSED), (lowered, FAILED), (relabelled, FAILED)):
            files = [written(each) for each in (scene(), change(scene(), np.random.default_rng(0)))]
            yield Pair(f"{form}-{change.__name__}", *files, {"x": numbers(12)}, expected, spec(form))
