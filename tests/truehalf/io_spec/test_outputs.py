"""The same objects, put out in each declared layout, are the same detections."""

import numpy as np
import pytest

from tests.messages import expect, raises
from truehalf.codes import codes_in
from truehalf.io_spec.decode import confident, decode
from truehalf.io_spec.outputs import check_spec, check_values, classes_of, picture_size, problem_of_classes, task_of
from truehalf.io_spec.spec import IoSpec

HEIGHT, WIDTH = 100, 200
IMAGES = {"name": "images", "shape": ["batch", 3, HEIGHT, WIDTH]}
LOGITS = {"name": "l", "kind": "logits", "activation": "sigmoid"}
BOXES = {"name": "b", "kind": "boxes", "format": "cxcywh", "normalized": True}
SCORES, LABELS = {"name": "s", "kind": "scores"}, {"name": "c", "kind": "labels"}
# one picture, three queries, two classes: query 1 is class 1 at 0.9, query 2 is class 0 at 0.6, query 0 nothing
PROBABILITIES = np.array([[[0.01, 0.02], [0.05, 0.9], [0.6, 0.1]]])
XYXY = np.array([[[0, 0, 10, 10], [20, 10, 60, 50], [100, 20, 180, 80]]], np.float32)


def spec(*outputs: dict, **more) -> IoSpec:
    return IoSpec.from_json({"inputs": [IMAGES], "outputs": list(outputs)} | more)


def boxes_as(box_format: str, normalized: bool) -> np.ndarray:
    values = XYXY / (np.array([WIDTH, HEIGHT, WIDTH, HEIGHT]) if normalized else 1)
    if box_format == "cxcywh":
        values = np.concatenate([(values[..., :2] + values[..., 2:]) / 2, values[..., 2:] - values[..., :2]], axis=-1)
    return values.astype(np.float32)


def logits_as(activation: str) -> np.ndarray:
    if activation == "sigmoid":
        return np.log(PROBABILITIES / (1 - PROBABILITIES)).astype(np.float32)
    rest = 1 - PROBABILITIES.sum(axis=2, keepdims=True)
    return (np.log(np.concatenate([PROBABILITIES, rest], axis=2)) + 7).astype(np.float32)


@pytest.mark.parametrize("box_format", ["cxcywh", "xyxy"])
@pytest.mark.parametrize("normalized", [True, False])
@pytest.mark.parametrize("activation", ["sigmoid", "softmax"])
def test_each_layout_of_queries(box_format: str, normalized: bool, activation: str) -> None:
    declared = spec(
        LOGITS | {"activation": activation} | ({"no_object": True} if activation == "softmax" else {}),
        BOXES | {"format": box_format, "normalized": normalized},
    )
    check_spec(declared, ["l", "b"])
    assert task_of(declared) == "detections"
    (found,) = decode({"l": logits_as(activation), "b": boxes_as(box_format, normalized)}, declared)
    assert len(found.scores) == 3
    np.testing.assert_array_equal(found.labels[:2], [1, 0])
    np.testing.assert_allclose(found.scores[:2], [0.9, 0.6], rtol=1e-5)
    np.testing.assert_allclose(found.boxes[:2], XYXY[0, [1, 2]], atol=1e-4)


def test_a_query_of_a_softmax_is_one_detection_and_of_a_sigmoid_several() -> None:
    both = np.array([[[2.0, 1.9]]], np.float32)
    box = np.array([[[0.5, 0.5, 0.2, 0.2]]], np.float32)
    (sigmoid,) = decode({"l": np.repeat(both, 2, axis=1), "b": np.repeat(box, 2, axis=1)}, spec(LOGITS, BOXES))
    assert sigmoid.labels.tolist() == [0, 0] and len(sigmoid.scores) == 2
    softmax = spec(LOGITS | {"activation": "softmax"}, BOXES)
    (found,) = decode({"l": both, "b": box}, softmax)
    assert found.labels.tolist() == [0] and found.scores[0] == pytest.approx(1 / (1 + np.exp(-0.1)))


def test_no_object_is_never_a_detection() -> None:
    declared = spec(LOGITS | {"activation": "softmax", "no_object": True}, BOXES)
    logits = np.array([[[0.0, 1.0, 9.0]]], np.float32)
    (found,) = decode({"l": logits, "b": np.full((1, 1, 4), 0.5, np.float32)}, declared)
    assert found.labels.tolist() == [1] and found.scores[0] < 0.001


@pytest.mark.parametrize(
    ("row", "score"),
    [([np.nan, 5], 0.0), ([np.inf, 5], 0.0), ([-np.inf, -np.inf], 0.0), ([-np.inf, 5], 1.0), ([8e4, 5], 1.0)],
)
def test_values_of_a_softmax_that_are_no_numbers(row: list[float], score: float) -> None:
    declared = spec(LOGITS | {"activation": "softmax"}, BOXES)
    logits = np.array([[row]], np.float32)
    (found,) = decode({"l": logits, "b": np.full((1, 1, 4), 0.5, np.float32)}, declared)
    assert found.scores.tolist() == [score]


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.float32])
def test_top_k_inside(dtype: type) -> None:
    declared = spec(SCORES, LABELS, BOXES | {"format": "xyxy", "normalized": False})
    check_spec(declared, ["s", "c", "b"])
    assert task_of(declared) == "detections"
    outputs = {"s": np.array([[0.6, 0.9, 0.1]]), "c": np.array([[0, 1, 0]], dtype), "b": XYXY[:, [2, 1, 0]]}
    (found,) = decode(outputs, declared)
    assert found.labels.tolist() == [1, 0, 0] and found.labels.dtype == np.int64
    np.testing.assert_array_equal(found.boxes, XYXY[0, [1, 2, 0]])


def test_top_k_inside_with_values_that_are_no_numbers() -> None:
    declared = spec(SCORES, LABELS, BOXES | {"format": "xyxy", "normalized": False})
    nan = float("nan")
    outputs = {"s": np.array([[nan, 0.9]]), "c": np.array([[1, nan]]), "b": np.full((1, 2, 4), nan)}
    (found,) = decode(outputs, declared)
    assert found.scores.tolist() == pytest.approx([0.9, 0.0]) and found.labels.tolist() == [-1, 1]
    assert not found.boxes.any()


def test_the_size_may_come_with_the_outputs_and_is_needed_for_normalised_boxes() -> None:
    outputs = {"l": logits_as("sigmoid"), "b": boxes_as("xyxy", True)}
    declared = spec(LOGITS, BOXES | {"format": "xyxy"}, inputs=[{"name": "images", "shape": ["n", 3, "h", "w"]}])
    (found,) = decode(outputs, declared, size=(50, 100))
    np.testing.assert_allclose(found.boxes[0], XYXY[0, 1] / 2, atol=1e-4)
    with raises("needs-value", "['n', 3, 'h', 'w']"):
        decode(outputs, declared)
    declared = spec(LOGITS, BOXES | {"format": "xyxy", "normalized": False})
    assert decode({"l": outputs["l"], "b": XYXY}, declared)[0].boxes[0].tolist() == XYXY[0, 1].tolist()


def test_where_height_and_width_vary_the_size_is_that_of_the_samples() -> None:
    entry = {"name": "images", "shape": ["batch", 3, "height", "width"]}
    assert picture_size(spec(inputs=[entry])) is None
    assert picture_size(spec(inputs=[entry | {"size": [64, 96]}])) == (64, 96)
    assert picture_size(spec(inputs=[entry | {"size": [64, 96]}]), (32, 32)) == (32, 32)
    assert picture_size(spec(inputs=[entry | {"shape": ["batch", 3, 48, 80], "size": None}])) == (48, 80)


def test_nhwc_inputs_name_their_size_elsewhere() -> None:
    inputs = [{"name": "images", "layout": "NHWC", "shape": [1, HEIGHT, WIDTH, 3]}]
    declared = spec(LOGITS, BOXES | {"format": "xyxy"}, inputs=inputs)
    (found,) = decode({"l": logits_as("sigmoid"), "b": boxes_as("xyxy", True)}, declared)
    np.testing.assert_allclose(found.boxes[0], XYXY[0, 1], atol=1e-4)


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


@pytest.mark.parametrize("inputs", ["images", ["images"], [{"shape": [1]}]])
def test_inputs_of_a_spec_are_named_mappings(inputs: object) -> None:
    with raises("wrong-spec") as error:
        IoSpec.from_json({"inputs": inputs, "outputs": []})
    (line,) = str(error.value).splitlines()[1:]
    expect(line, None, "inputs")


@pytest.mark.parametrize(
    ("content", "facts"),
    [
        ({"class_names": 3}, ["class_names", 3]),
        ({"class_names": "cat"}, ["class_names", "'cat'"]),
        ({"outputs": [{"name": "y", "shape": 5}]}, ["outputs[0].shape", 5]),
        ({"inputs": [{"name": "x", "size": 5}]}, ["inputs[0].size", 5]),
        ({"inputs": [{"name": "x", "normalization": "imagenet"}]}, ["inputs[0].normalization", "'imagenet'"]),
        ({"trained": "no"}, ["trained", "'no'"]),
    ],
)
def test_values_of_a_spec_have_their_form(content: dict[str, object], facts: list[object]) -> None:
    with raises("wrong-spec", "wrong-type", *facts):
        IoSpec.from_json(content)


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
    ("entry", "facts"),
    [
        ({"inputs": [{"name": "x", "rang": [0, 255]}]}, ["inputs[0].rang:", "did you mean range?"]),
        ({"inputs": [{"name": "x", "mean": [0.5, 0.5, 0.5]}]}, ["inputs[0].mean:", "normalization"]),
        ({"outputs": [LOGITS | {"no_objet": True}, BOXES]}, ["outputs[0].no_objet:", "did you mean no_object?"]),
        ({"outputs": [LOGITS, BOXES | {"normalised": True}]}, ["outputs[1].normalised:", "mean normalized?"]),
        ({"class_name": ["a"]}, ["class_name:", "did you mean class_names?"]),
    ],
)
def test_keys_that_nothing_reads_are_named(entry: dict, facts: list[object]) -> None:
    with raises("wrong-spec") as error:
        IoSpec.from_json({"outputs": [LOGITS, BOXES]} | entry)
    (line,) = str(error.value).splitlines()[1:]
    expect(line, "unknown-key", *facts)


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
        (LOGITS | {"shape": ["n", 9, 3]}, 0, None),
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


def test_confident_queries_reach_the_threshold() -> None:
    values = {"l": logits_as("sigmoid")}
    assert confident(values, spec(LOGITS, BOXES), 0.5).tolist() == [[False, True, True]]
    softmax = spec(LOGITS | {"activation": "softmax", "no_object": True}, BOXES)
    assert confident({"l": logits_as("softmax")}, softmax, 0.7).tolist() == [[False, True, False]]


def test_all_faults_are_listed() -> None:
    with raises("wrong-spec") as error:
        check_spec(spec({"name": "l", "kind": "logits"}, {"name": "b", "kind": "boxes"}), ["l"])
    lines = str(error.value).splitlines()[1:]
    assert sorted(code for line in lines for code in codes_in(line)) == [
        *["missing-key"] * 3,
        "wrong-name",
    ]
