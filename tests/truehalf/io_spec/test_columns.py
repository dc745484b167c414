"""Outputs that hold detections in the columns of one tensor: what they must declare, and what is taken of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.corpus.pairs.rows import FORMS, spec_of
from tests.messages import raises
from truehalf.io_spec.columns import apart, in_parts, left_out
from truehalf.io_spec.outputs import check_spec, plain_outputs, problem_of_classes, task_of
from truehalf.io_spec.spec import IoSpec

ROWS = np.random.default_rng(0).random((2, 7, 14)).astype(np.float32)
THREE = ["a", "b", "c"]


def declared(columns: Any, axis: Any = 2, names: list[str] | None = None, **more: Any) -> IoSpec:
    output = {"name": "out", "kind": "rows", "format": "cxcywh", "normalized": False}
    output |= {key: value for key, value in (("columns", columns), ("axis", axis)) if value is not None} | more
    return IoSpec.from_json({"outputs": [output], "class_names": names or []})


@pytest.mark.parametrize(
    ("columns", "width", "expected"),
    [
        (["boxes", "scores"], 14, {"boxes": (slice(0, 4), None), "scores": (slice(4, 14), None)}),
        (["boxes", "objectness", "scores"], 14, {"boxes": (slice(0, 4), None), "scores": (slice(5, 14), 4)}),
        (["boxes", "score", "label"], 6, {"boxes": (slice(0, 4), None), "score": (4, None), "label": (5, None)}),
        (
            ["boxes", "scores", "others"],
            14,
            {"boxes": (slice(0, 4), None), "scores": (slice(4, 7), None), "others": (slice(7, 14), None)},
        ),
        (
            ["boxes", "objectness", "scores", "others"],
            14,
            {"boxes": (slice(0, 4), None), "scores": (slice(5, 8), 4), "others": (slice(8, 14), None)},
        ),
    ],
)
@pytest.mark.parametrize("axis", [1, 2])
def test_columns_are_taken_apart(columns: list[str], width: int, expected: dict[str, Any], axis: int) -> None:
    rows = ROWS[..., :width]
    whole = rows if axis == 2 else rows.swapaxes(1, 2)
    spec = apart(declared(columns, axis, THREE, shape=["N", *whole.shape[1:]]))
    parts = in_parts({"out": whole, "other": ROWS}, spec)
    assert [*parts] == ["other", *(f"out.{name}" for name in expected)]
    for name, (place, factor) in expected.items():
        taken = rows[..., place] if factor is None else rows[..., place] * rows[..., factor, None]
        np.testing.assert_array_equal(parts[f"out.{name}"], taken)
    for output in spec.outputs:
        assert output.shape == ("N", *parts[output.name].shape[1:])
    assert task_of(spec) == "detections"


@pytest.mark.parametrize("form", FORMS)
def test_a_spec_survives_its_file(form: str) -> None:
    spec = IoSpec.from_json(spec_of(form))
    check_spec(spec, ["output0"])
    assert IoSpec.from_json(spec.to_json()) == spec and task_of(spec) == "detections"


@pytest.mark.parametrize(
    ("spec", "code", "facts"),
    [
        (declared(None), "missing-key", ["'out'", "columns"]),
        (declared(["boxes"]), "unknown-choice", ["columns", "[boxes]"]),
        (declared(["scores", "boxes"]), "unknown-choice", ["[scores, boxes]"]),
        (declared(["boxes", "others", "scores"]), "unknown-choice", ["[boxes, others, scores]"]),
        (declared(["boxes", "scores"], None), "missing-key", ["axis"]),
        (declared(["boxes", "scores"], 0), "unknown-choice", ["axis", 0]),
        (declared(["boxes", "scores"], format="xyzw"), "unknown-choice", ["format", "'xyzw'"]),
        (declared(["boxes", "scores", "others"]), "missing-key", ["names", "others"]),
        (declared(["boxes", "score"]), "in-conflict", ["boxes", "scores"]),
        (declared(["boxes", "score", "label"], shape=["N", 300, 7]), "wrong-shape", [6, ["N", 300, 7]]),
        (declared(["boxes", "scores"], 1, shape=["N", 4, 300]), "wrong-shape", [5, ["N", 4, 300]]),
        (declared(["boxes", "scores", "others"], names=THREE, shape=["N", 9, 6]), "wrong-shape", [7]),
        (declared(["boxes", "scores"], shape=["N", 300]), "wrong-shape", [["N", 300]]),
        (declared(["boxes", "scores"], -1), "unknown-choice", ["axis", "-1"]),
        (declared(["boxes", "scores"], 1, batched=False), "in-conflict", ["[boxes, scores]"]),
        (declared(["boxes", "score", "label"], 2, batched=False), "unknown-choice", ["axis", 1, 2]),
        (declared(["boxes", "score", "label"], 1, batched=False, shape=["N", 9, 6]), "wrong-shape", [["N", 9, 6]]),
        (declared(["boxes", "score", "label"], 1, batched=False, shape=["n", 7]), "wrong-shape", [6, ["n", 7]]),
    ],
)
def test_what_is_declared_wrong_is_refused(spec: IoSpec, code: str, facts: list[object]) -> None:
    with raises(code, *facts):
        check_spec(spec, ["out"])


@pytest.mark.parametrize(
    ("key", "value"),
    [("axis", "1"), ("axis", 1.0), ("axis", True), ("columns", "boxes scores"), ("columns", 5), ("batched", "no")],
)
def test_values_have_the_type_of_their_key(key: str, value: object) -> None:
    with raises("wrong-spec", f"outputs[0].{key}", repr(value)):
        declared(
            value if key == "columns" else ["boxes", "scores"],
            **{"axis": 2} | ({} if key == "columns" else {key: value}),
        )


def beside(form: str, kind: str, **more: Any) -> IoSpec:
    rows = spec_of(form)["outputs"][0] | more
    return IoSpec.from_json({"outputs": [rows, {"name": kind, "kind": kind, "shape": ["N", 300]}]})


def test_labels_may_be_another_output() -> None:
    spec = beside("rows", "labels", columns=["boxes", "score"], shape=["N", 300, 5])
    check_spec(spec, ["output0", "labels"])
    assert task_of(spec) == "detections"
    with raises("wrong-shape", "'output0.boxes'", 200, 300):
        check_spec(beside("rows", "labels", columns=["boxes", "score"], shape=["N", 200, 5]), ["output0", "labels"])


def test_no_column_is_there_twice() -> None:
    with raises("given-twice", "'scores'"):
        check_spec(beside("rows", "scores"), ["output0", "scores"])
    with raises("in-conflict", "logits", "labels"):
        check_spec(beside("anchors", "labels"), ["output0", "labels"])


def test_all_outputs_of_detections_are_batched_or_none() -> None:
    outputs: list[dict[str, Any]] = [{"name": kind, "kind": kind} for kind in ("boxes", "scores", "labels")]
    for each in outputs:
        each |= {"batched": False, "shape": ["n", 4] if each["kind"] == "boxes" else ["n"]}
    outputs[0] |= {"format": "xyxy", "normalized": False}
    names = [each["name"] for each in outputs]
    check_spec(IoSpec.from_json({"outputs": outputs}), names)
    with raises("wrong-shape", "'labels'", 1, [1, "n"]):
        check_spec(IoSpec.from_json({"outputs": [*outputs[:2], outputs[2] | {"shape": [1, "n"]}]}), names)
    with raises("in-conflict", "batched", "boxes", "labels"):
        check_spec(IoSpec.from_json({"outputs": [*outputs[:2], {"name": "labels", "kind": "labels"}]}), names)
    logits = {"name": "logits", "kind": "logits", "activation": "sigmoid", "batched": False}
    with raises("in-conflict", "'logits'", "batched"):
        check_spec(IoSpec.from_json({"outputs": [outputs[0], logits]}), ["boxes", "logits"])


def test_counts_and_what_has_a_row_for_each_detection_are_left_out() -> None:
    outputs = [{"name": "count", "kind": "counts"}, {"name": "masks", "batched": False}, {"name": "other"}]
    spec = apart(IoSpec.from_json({"outputs": outputs}))
    assert left_out(spec) == ["count", "masks"] and plain_outputs(spec) == ["other"]
    assert [*in_parts(dict.fromkeys(("count", "masks", "other"), ROWS), spec)] == ["other"]


def test_names_are_as_many_as_there_are_scores() -> None:
    spec = declared(["boxes", "objectness", "scores"], names=THREE, shape=["N", 300, 8])
    assert problem_of_classes(spec) is None
    assert problem_of_classes(declared(["boxes", "scores"], names=THREE, shape=["N", 300, 8]))


def test_an_array_of_two_axes_is_refused() -> None:
    with raises("wrong-shape", "'out'", [7, 14]):
        in_parts({"out": ROWS[0]}, apart(declared(["boxes", "scores"])))
