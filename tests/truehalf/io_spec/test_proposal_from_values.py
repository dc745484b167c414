"""Proposals of kinds, formats and ranges from a run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from truehalf.io_spec.checks import check_spec
from truehalf.io_spec.proposal import Proposal, proposal_from_values
from truehalf.io_spec.spec import InputSpec

RNG = np.random.default_rng(0)
IMAGES = RNG.random((4, 3, 32, 32), np.float32)
CENTRED = np.concatenate([RNG.uniform(0.3, 0.7, (4, 20, 2)), RNG.uniform(0.05, 0.2, (4, 20, 2))], -1)
CORNERS = np.concatenate([CENTRED[..., :2], CENTRED[..., :2] + CENTRED[..., 2:]], -1)
LOGITS = RNG.normal(-3, 2, (4, 20, 7))
NO_OBJECT = np.concatenate([LOGITS, RNG.normal(3, 1, (4, 20, 1))], -1)
MEAN, STD = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])


NAMES = tuple(f"class-{i}" for i in range(7))


def of_run(
    outputs: dict[str, np.ndarray], feeds: dict[str, np.ndarray] | None = None, names: tuple[str, ...] = ()
) -> Proposal:
    fed = {"images": IMAGES} if feeds is None else feeds
    inputs = [InputSpec(name, None, array.dtype.name, ("batch", *array.shape[1:])) for name, array in fed.items()]
    found = proposal_from_values(inputs, [fed], [outputs], names)
    if not any("boxes are to be read" in doubt for doubt in found.doubts):
        check_spec(found.spec, list(outputs))
    assert set(found.reasons) <= {each.name for each in found.spec.tensors}
    return found


def output(proposal: Proposal, name: str) -> tuple[Any, ...]:
    (found,) = (each for each in proposal.spec.outputs if each.name == name)
    return tuple(value for value in (found.kind, found.activation, found.format, found.normalized) if value is not None)


@pytest.mark.parametrize(
    ("boxes", "expected"),
    [
        (CENTRED, ("cxcywh", True)),
        (CORNERS, ("xyxy", True)),
        (CENTRED * 32, ("cxcywh", False)),
        (CORNERS * 32, ("xyxy", False)),
        (CENTRED.astype(np.float16), ("cxcywh", True)),
    ],
)
@pytest.mark.parametrize("name", ["boxes", "dets", "out1"])
def test_boxes(boxes: np.ndarray, name: str, expected: tuple[str, bool]) -> None:
    found = of_run({"logits": LOGITS, name: boxes})
    assert output(found, name) == ("boxes", *expected) and output(found, "logits") == ("logits", "sigmoid")


@pytest.mark.parametrize(
    ("logits", "expected"),
    [
        (LOGITS, ("sigmoid", None)),
        (NO_OBJECT, ("softmax", True)),
        (1 / (1 + np.exp(-LOGITS)), ("identity", None)),
        (LOGITS[..., :1], ("sigmoid", None)),
        (RNG.normal(0, 1, (4, 20, 4)), ("sigmoid", None)),  # as wide as boxes: the names tell
    ],
)
def test_logits(logits: np.ndarray, expected: tuple[str, bool | None]) -> None:
    found = of_run({"pred_logits": logits, "pred_boxes": CENTRED})
    (spec,) = (each for each in found.spec.outputs if each.kind == "logits")
    assert (spec.name, spec.activation, spec.no_object) == ("pred_logits", *expected)


def test_top_k_inside_the_model() -> None:
    labels = RNG.integers(0, 7, (4, 20))
    found = of_run({"labels": labels, "boxes": CORNERS * 32, "scores": RNG.random((4, 20)), "extra": LOGITS[:, :3]})
    kinds = {each.name: each.kind for each in found.spec.outputs}
    assert kinds == {"labels": "labels", "boxes": "boxes", "scores": "scores", "extra": None}


@pytest.mark.parametrize(
    ("outputs", "kind"),
    [
        ({"logits": RNG.normal(0, 1, (4, 10))}, "classes"),
        ({"anything": RNG.normal(0, 1, (4, 10))}, "classes"),
        ({"anything": RNG.normal(0, 1, (4, 10)), "other": LOGITS}, None),
        ({"depth": RNG.random((4, 1, 32, 32))}, "map"),
        ({"boxes": CENTRED}, None),  # without scores they are no detections
        ({"scores": RNG.random((4, 10)), "keypoints": RNG.random((4, 10, 17, 2))}, None),  # one for each of ten
        ({"probs": RNG.random((4, 7)), "masks": RNG.random((4, 7, 8, 8))}, None),
        ({"probs": RNG.random((4, 7)), "features": RNG.random((4, 64, 8, 8))}, "classes"),
    ],
)
def test_classes_and_other_tensors(outputs: dict[str, np.ndarray], kind: str | None) -> None:
    assert next(each.kind for each in of_run(outputs).spec.outputs) == kind


@pytest.mark.parametrize(
    ("images", "expected"),
    [
        (IMAGES, {"layout": "NCHW", "range": [0, 1]}),
        (IMAGES * 255, {"layout": "NCHW", "range": [0, 255]}),
        ((IMAGES * 255).astype(np.uint8), {"layout": "NCHW", "range": [0, 255]}),
        (np.moveaxis(IMAGES, 1, -1), {"layout": "NHWC", "range": [0, 1]}),
        (IMAGES * 20 - 10, {"layout": "NCHW"}),  # normalised, nobody knows how
    ],
)
def test_images(images: np.ndarray, expected: dict[str, Any]) -> None:
    (spec,) = of_run({"y": LOGITS}, {"x": images}).spec.inputs
    assert (spec.kind, spec.pixels) == ("images", expected)


UNIT = RNG.normal(0, 1, (4, 64))


@pytest.mark.parametrize(
    ("outputs", "kind", "doubts"),
    [
        ({"output": UNIT / np.linalg.norm(UNIT, axis=1, keepdims=True)}, "embedding", 0),
        ({"features": UNIT}, "embedding", 0),
        ({"image_embeds": UNIT}, "embedding", 0),
        ({"output": UNIT}, "classes", 1),  # or measures
        ({"Identity": np.exp(UNIT) / np.exp(UNIT).sum(1, keepdims=True)}, "probabilities", 0),
        ({"cls": UNIT / np.linalg.norm(UNIT, axis=1, keepdims=True)}, "classes", 0),
        ({"rotation": UNIT[:, :4], "translation": UNIT[:, :3]}, None, 0),
    ],
)
def test_vectors_are_classes_where_name_or_values_say_so(
    outputs: dict[str, np.ndarray], kind: str | None, doubts: int
) -> None:
    found = of_run({name: np.float32(array) for name, array in outputs.items()})
    assert found.spec.outputs[0].kind == kind and len(found.doubts) == doubts


PIXELS, SCORES = CENTRED * 32, 1 / (1 + np.exp(-LOGITS))
BEST = RNG.uniform(0.2, 0.7, (4, 20, 1))
ROWS = np.concatenate([PIXELS, SCORES], -1)


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (ROWS[..., :5], ("cxcywh", ("boxes", "scores"), 2)),
        (ROWS[..., :5].swapaxes(1, 2), ("cxcywh", ("boxes", "scores"), 1)),
        (
            np.concatenate([CORNERS * 32, BEST, RNG.integers(0, 80, (4, 20, 1))], -1),
            ("xyxy", ("boxes", "score", "label"), 2),
        ),
        (
            np.concatenate([CORNERS * 32, BEST, RNG.integers(0, 2, (4, 20, 1)), LOGITS], -1),
            ("xyxy", ("boxes", "score", "label", "others"), 2),
        ),
        (np.concatenate([CORNERS * 32, BEST], -1), ("xyxy", ("boxes", "scores"), 2)),
        (RNG.normal(0, 3, (4, 20, 64)), None),  # tokens
        (np.concatenate([PIXELS[..., :2], BEST], -1), None),  # points
        (SCORES, None),
        (np.abs(PIXELS), None),
        (np.concatenate([PIXELS, 0 * SCORES], -1), None),
        (np.concatenate([PIXELS, LOGITS], -1), None),
    ],
)
def test_boxes_and_scores_in_one_tensor(output: np.ndarray, expected: tuple[Any, ...] | None) -> None:
    found = of_run({"output0": output})
    (spec,) = found.spec.outputs
    assert (spec.kind, found.doubts) == (None if expected is None else "rows", [])
    assert expected is None or (spec.format, spec.columns, spec.axis) == expected


@pytest.mark.parametrize(
    ("others", "names", "is_clear"),
    [
        (RNG.normal(0, 1, (4, 20, 8)), 7, True),
        (RNG.normal(0, 1, (4, 20, 8)), 0, False),
        (RNG.normal(0, 1, (4, 20, 8)), 6, False),  # the first score may be objectness
        (np.zeros((4, 20, 0)), 7, True),
        (np.zeros((4, 20, 0)), 0, False),  # or it may here
        (np.zeros((4, 20, 0)), 5, False),
    ],
)
def test_columns_that_are_not_clear_are_to_be_declared(others: np.ndarray, names: int, is_clear: bool) -> None:
    found = of_run({"output0": np.concatenate([PIXELS, SCORES, others], -1)}, names=NAMES[:names])
    assert found.spec.outputs[0].kind == "rows"
    assert ["'output0'" in each for each in found.doubts if "columns" in each] == ([] if is_clear else [True])
    if is_clear:
        assert found.spec.outputs[0].columns == ("boxes", "scores", *(("others",) if others.size else ()))


def test_labels_beside_boxes_and_a_score_are_theirs() -> None:
    found = np.concatenate([CORNERS * 32, SCORES[..., :1]], -1)
    outputs = {"dets": found, "labels": RNG.integers(0, 80, (4, 20))}
    dets, labels = of_run(outputs).spec.outputs
    assert (dets.kind, dets.columns, labels.kind) == ("rows", ("boxes", "score"), "labels")
    dets, other = of_run(outputs | {"labels": outputs["labels"][:, :7]}).spec.outputs
    assert (dets.columns, other.kind) == (("boxes", "scores"), None)


@pytest.mark.parametrize(
    ("outputs", "names", "columns"),
    [
        ({"output0": ROWS}, NAMES, ("boxes", "scores")),
        ({"output0": ROWS}, NAMES[1:], ("boxes", "objectness", "scores")),
        ({"output0": ROWS}, (*NAMES, "dog"), None),
        ({"logits": LOGITS, "boxes": CENTRED}, NAMES, ()),
        ({"logits": LOGITS, "boxes": CENTRED}, NAMES[1:], None),
        ({"tokens": RNG.normal(0, 3, (4, 20, 64))}, NAMES, None),
    ],
)
def test_names_are_those_of_as_many_classes(
    outputs: dict[str, np.ndarray], names: tuple[str, ...], columns: tuple[str, ...] | None
) -> None:
    spec = of_run(outputs, names=names).spec
    assert spec.class_names == (() if columns is None else names)
    assert not columns or spec.outputs[0].columns == columns


def test_scores_that_are_none_are_said() -> None:
    outputs = {"labels": RNG.integers(0, 7, (4, 20)), "boxes": CORNERS, "scores": 100 * RNG.random((4, 20))}
    assert len(of_run(outputs).doubts) == 1 and not of_run(outputs | {"scores": RNG.random((4, 20))}).doubts


def test_pixels_around_zero() -> None:
    (spec,) = of_run({"y": LOGITS}, {"x": IMAGES * 2 - 1}).spec.inputs
    assert spec.normalization.mean == spec.normalization.std == (0.5, 0.5, 0.5)


def test_imagenets_normalization_is_recognised() -> None:
    normalised = (np.moveaxis(IMAGES, 1, -1) - MEAN) / STD
    (spec,) = of_run({"y": LOGITS}, {"x": np.moveaxis(normalised, -1, 1)}).spec.inputs
    assert spec.normalization.mean == tuple(MEAN.tolist()) and spec.normalization.std == tuple(STD.tolist())


def test_further_inputs() -> None:
    feeds = {"images": IMAGES, "orig_target_sizes": np.full((4, 2), 640), "state": RNG.random((4, 5))}
    feeds |= {"scale_factor": np.ones((4, 2), np.float32), "size": np.ones((4, 2), np.float32)}
    found = of_run({"logits": LOGITS, "boxes": CENTRED}, feeds)
    assert [each.kind for each in found.spec.inputs] == ["images", "picture_size", "tensor", "picture_size", "tensor"]


@pytest.mark.parametrize("shape", [(0, 3, 8, 8), (2, 3, 0, 8)])
def test_images_without_pixels_say_nothing_of_their_range(shape: tuple[int, ...]) -> None:
    found = of_run({"y": np.zeros((len(np.zeros(shape)), 5), np.float32)}, {"images": np.zeros(shape, np.float32)})
    assert found.spec.image_input.kind == "tensor"
