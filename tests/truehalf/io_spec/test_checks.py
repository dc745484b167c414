"""An I/O spec that does not fit its model, shapes, arrays or names: each problem is told with its code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.corpus.pairs.rows import FORMS, spec_of
from tests.messages import expect, raises
from truehalf.codes import codes_in
from truehalf.io_spec.checks import check_spec, check_values, problem_of_classes
from truehalf.io_spec.outputs import classes_of, plain_outputs, skipped_outputs, task_of
from truehalf.io_spec.spec import IoSpec

LOGITS = {"name": "l", "kind": "logits", "activation": "sigmoid"}
BOXES = {"name": "b", "kind": "boxes", "format": "cxcywh", "normalized": True}
SCORES, LABELS = {"name": "s", "kind": "scores"}, {"name": "c", "kind": "labels"}
THREE = ["a", "b", "c"]


def spec(*outputs: Any, **more: Any) -> IoSpec:
    return IoSpec.from_json({"outputs": list(outputs)} | more)


def test_tasks() -> None:
    assert task_of(IoSpec()) == task_of(spec({"name": "features"})) == task_of(spec(BOXES)) == "tensors"
    declared = spec({"name": "y", "kind": "classes"}, {"name": "features"})
    assert task_of(declared) == "classification" and classes_of(declared) == "y"
    check_spec(declared, ["y", "features"])


@pytest.mark.parametrize(
    ("outputs", "names", "code", "facts"),
    [
        ([LOGITS, BOXES], ["l", "x"], "wrong-name", ["output 'b'", "'l', 'x'"]),
        (
            [{"name": "y", "kind": "masks"}],
            ["y"],
            "unknown-choice",
            ["output 'y'", "logits, boxes, scores, labels, classes, probabilities", "rows, counts", "'masks'"],
        ),
        (
            [{"name": "l", "kind": "logits"}, BOXES],
            ["l", "b"],
            "missing-key",
            ["output 'l'", "'logits'", "activation sigmoid", "softmax", "identity"],
        ),
        (
            [LOGITS, BOXES | {"format": "xyzw"}],
            ["l", "b"],
            "unknown-choice",
            ["output 'b'", "'boxes'", "format cxcywh", "xyxy", "xywh", "yxyx", "'xyzw'"],
        ),
        (
            [LOGITS | {"no_object": True}, BOXES],
            ["l", "b"],
            "in-conflict",
            ["output 'l'", "no_object", "activation softmax", "'sigmoid'"],
        ),
        (
            [LOGITS | {"shape": [1, 2]}, BOXES],
            ["l", "b"],
            "wrong-shape",
            ["output 'l'", "'logits'", "[N, queries, classes]", "[1, 2]"],
        ),
        (
            [LOGITS, BOXES | {"shape": ["n", 2, 5]}],
            ["l", "b"],
            "wrong-shape",
            ["output 'b'", "'boxes'", "[N, boxes, 4]", "['n', 2, 5]"],
        ),
        (
            [LOGITS | {"shape": ["n", 9, 2]}, BOXES | {"shape": ["n", 8, 4]}],
            ["l", "b"],
            "wrong-shape",
            ["{'l': ['n', 9], 'b': ['n', 8]}"],
        ),
        (
            [SCORES | {"shape": ["n", 9]}, LABELS | {"shape": ["n", 8]}, BOXES | {"shape": ["n", "k", 4]}],
            ["s", "c", "b"],
            "wrong-shape",
            ["{'s': ['n', 9], 'c': ['n', 8], 'b': ['n', 'k']}"],
        ),
        ([LOGITS], ["l"], "in-conflict", ["kinds:", "logits", "scores", "labels", "boxes", "classes"]),
        ([SCORES, BOXES], ["s", "b"], "in-conflict", ["kinds:", "scores, boxes"]),
        ([LOGITS, BOXES, LOGITS | {"name": "m"}], ["l", "b", "m"], "given-twice", ["kind 'logits'", 2]),
        ([LOGITS, BOXES | {"normalized": "yes"}], ["l", "b"], "wrong-type", ["outputs[1].normalized:", "'yes'"]),
        (["l"], ["l"], "wrong-type", ["outputs[0]:", "'l'"]),
    ],
)
def test_faults_of_a_spec(outputs: list, names: list[str], code: str, facts: list[object]) -> None:
    with raises("wrong-spec") as error:
        check_spec(spec(*outputs), names)
    first, *_ = [line for line in str(error.value).splitlines()[1:] if codes_in(line) == [code]]
    expect(first, code, *facts)


def test_all_faults_are_listed() -> None:
    with raises("wrong-spec") as error:
        check_spec(spec({"name": "l", "kind": "logits"}, {"name": "b", "kind": "boxes"}), ["l"])
    lines = str(error.value).splitlines()[1:]
    assert sorted(code for line in lines for code in codes_in(line)) == [
        *["missing-key"] * 3,
        "wrong-name",
    ]


def declared(columns: Any, axis: Any = 2, names: list[str] | None = None, **more: Any) -> IoSpec:
    output = {"name": "out", "kind": "rows", "format": "cxcywh", "normalized": False}
    output |= {key: value for key, value in (("columns", columns), ("axis", axis)) if value is not None} | more
    return IoSpec.from_json({"outputs": [output], "class_names": names or []})


@pytest.mark.parametrize("form", FORMS)
def test_a_spec_survives_its_file(form: str) -> None:
    spec = IoSpec.from_json(spec_of(form))
    check_spec(spec, ["output0"])
    assert IoSpec.from_json(spec.to_json()) == spec and task_of(spec) == "detections"


@pytest.mark.parametrize(
    ("spec", "code", "facts"),
    [
        (declared(None), "missing-key", ["'out'", "columns"]),
        (declared(["scores", "boxes"]), "unknown-choice", ["[scores, boxes]"]),
        (declared(["boxes", "others", "scores"]), "unknown-choice", ["[boxes, others, scores]"]),
        (declared(["boxes", "scores"], None), "missing-key", ["axis"]),
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


def beside(form: str, kind: str, **more: Any) -> IoSpec:
    rows = spec_of(form)["outputs"][0] | more
    return IoSpec.from_json({"outputs": [rows, {"name": kind, "kind": kind, "shape": ["N", 300]}]})


def test_labels_may_be_another_output() -> None:
    spec = beside("rows", "labels", columns=["boxes", "score"], shape=["N", 300, 5])
    check_spec(spec, ["output0", "labels"])
    assert task_of(spec) == "detections"
    with raises("wrong-shape", "'output0'", 200, 300):
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
    spec = IoSpec.from_json({"outputs": outputs})
    assert skipped_outputs(spec) == ["count", "masks"] and plain_outputs(spec) == ["other"]


def test_arrays_are_held_against_their_kinds() -> None:
    declared, outputs = spec(LOGITS, BOXES), {"l": np.zeros((2, 3, 4)), "b": np.zeros((2, 3, 4))}
    check_values(outputs, declared)
    for wrong, facts in (
        ({"b": np.zeros((2, 3, 5))}, ["output 'b'", "'boxes'", "[N, boxes, 4]", "[2, 3, 5]"]),
        ({"l": np.zeros((2, 3))}, ["output 'l'", "'logits'", "[N, queries, classes]", "[2, 3]"]),
        ({"b": np.zeros((2, 5, 4))}, ["{'l': [2, 3], 'b': [2, 5]}"]),
        ({"b": np.zeros((1, 3, 4))}, ["{'l': [2, 3], 'b': [1, 3]}"]),
    ):
        with raises("wrong-shape", *facts):
            check_values(outputs | wrong, declared)


@pytest.mark.parametrize(
    ("output", "names", "facts"),
    [
        (LOGITS | {"shape": ["n", 9, 3]}, 3, None),
        (LOGITS | {"shape": ["n", 9, "k"]}, 2, None),
        (LOGITS | {"shape": ["n", 9, 3]}, 2, ["output 'l'", 3, 2]),
        (LOGITS | {"shape": ["n", 9, 3], "activation": "softmax", "no_object": True}, 2, None),
        (
            LOGITS | {"shape": ["n", 9, 3], "activation": "softmax", "no_object": True},
            3,
            ["output 'l'", 2, "no_object", 3],
        ),
        ({"name": "y", "kind": "classes", "shape": ["n", 5]}, 6, ["output 'y'", 5, 6]),
        (SCORES | {"shape": ["n", 9]}, 2, None),
    ],
)
def test_there_are_as_many_names_as_classes(output: dict, names: int, facts: list[object] | None) -> None:
    fault = problem_of_classes(spec(output, class_names=[str(i) for i in range(names)]))
    if facts is None:
        assert fault is None
    else:
        expect(str(fault), None, *facts)
        assert ("no_object" in str(fault)) is ("no_object" in facts)


def test_names_are_as_many_as_there_are_scores() -> None:
    spec = declared(["boxes", "objectness", "scores"], names=THREE, shape=["N", 300, 8])
    assert problem_of_classes(spec) is None
    assert problem_of_classes(declared(["boxes", "scores"], names=THREE, shape=["N", 300, 8]))


def test_inputs_are_held_against_the_model() -> None:
    entry = {"name": "x", "shape": ["batch", 3, 64, 64]}
    check_spec(spec(inputs=[entry]), [], {"x": [None, 3, None, 64]})
    wrong = spec(inputs=[entry, {"name": "z"}])
    with raises("wrong-spec") as error:
        check_spec(wrong, [], {"x": [None, 3, 32, 32]})
    shape, name = str(error.value).splitlines()[1:]
    expect(shape, "wrong-shape", "input 'x'", "3, 32, 32]", "['batch', 3, 64, 64]")
    expect(name, "wrong-name", "input 'z'", "'x'")


@pytest.mark.parametrize(
    ("content", "facts"),
    [
        ({"class_names": "cat"}, ["class_names", "'cat'"]),
        ({"inputs": [{"name": "x", "normalization": "imagenet"}]}, ["inputs[0].normalization", "'imagenet'"]),
    ],
)
def test_values_of_a_spec_have_their_form(content: dict[str, object], facts: list[object]) -> None:
    with raises("wrong-spec", "wrong-type", *facts):
        IoSpec.from_json(content)


@pytest.mark.parametrize(
    ("entry", "facts"),
    [
        ({"inputs": [{"name": "x", "rang": [0, 255]}]}, ["inputs[0].rang:", "did you mean range?"]),
        ({"outputs": [LOGITS | {"no_objet": True}, BOXES]}, ["outputs[0].no_objet:", "did you mean no_object?"]),
        ({"outputs": [LOGITS, BOXES | {"normalised": True}]}, ["outputs[1].normalised:", "mean normalized?"]),
    ],
)
def test_keys_that_nothing_reads_are_named(entry: dict, facts: list[object]) -> None:
    with raises("wrong-spec") as error:
        IoSpec.from_json({"outputs": [LOGITS, BOXES]} | entry)
    (line,) = str(error.value).splitlines()[1:]
    expect(line, "unknown-key", *facts)
