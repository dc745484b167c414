"""Judges tell a good twin of a result from a bad one, and post-processing reads what was drawn."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from tests.trained import judges, molecules, reading
from tests.trained.faults import SIZES, plant, turns
from tests.trained.judges import Objects
from tests.trained.tables import opinion, trained_table


def seen(*rows: tuple[float, ...]) -> list[Objects]:
    """One image; each row is left, top, right, bottom, score, label."""
    table = np.array(rows, np.float64).reshape(-1, 6)
    return [Objects(table[:, :4], table[:, 4], table[:, 5].astype(int))]


FACE, OTHER = (10, 10, 60, 60, 0.9, 0), (80, 20, 120, 70, 0.8, 1)
WEAK = (200, 200, 240, 240, 0.31, 0)


@pytest.mark.parametrize(
    ("candidate", "same"),
    [
        (seen((11, 10, 61, 60, 0.88, 0), OTHER, WEAK), True),
        (seen(OTHER, WEAK, FACE), True),  # in another order
        (seen(FACE, OTHER, (200, 200, 240, 240, 0.29, 0)), True),  # was within the margin of the threshold
        (seen(FACE, OTHER), True),
        (seen(FACE, WEAK), False),  # one is gone
        (seen(FACE, OTHER, WEAK, (300, 10, 340, 60, 0.7, 0)), False),  # one is new
        (seen(FACE, OTHER, WEAK, (10, 10, 60, 60, 0.7, 0)), False),  # one to one: the same face twice
        (seen(FACE, (80, 20, 120, 70, 0.8, 0), WEAK), False),  # another label
        (seen((25, 10, 75, 60, 0.9, 0), OTHER, WEAK), False),  # moved
        (seen(), False),
    ],
)
def test_objects_are_matched_one_to_one(candidate: list[Objects], same: bool) -> None:
    assert judges.objects(seen(FACE, OTHER, WEAK), candidate, threshold=0.3).same is same


def test_nothing_found_in_the_reference_is_no_evidence() -> None:
    assert not judges.objects(seen(), seen(), threshold=0.3).same
    assert not judges.texts([""], [""]).same
    assert not judges.spans([[]], [[]], slack=1).same


def test_texts_count_edits() -> None:
    line = "a line of text that is as long as a page of a book, or so one would think of it, a hundred characters"
    assert judges.texts([line], [line]).same
    assert judges.texts([line], [line.replace("book", "bo0k")]).figures["edits"] == 1
    assert judges.texts([line], [line.replace("book", "bo0k")]).same
    assert not judges.texts([line], [line.replace("a ", "the ")]).same
    assert not judges.texts(["short"], ["shor"]).same


def test_classes_may_turn_where_two_are_alike() -> None:
    reference = [np.array([[0.7, 0.2, 0.1]]), np.array([[0.41, 0.40, 0.19]])]
    assert judges.classes(reference, [np.array([[0.6, 0.3, 0.1]]), np.array([[0.39, 0.41, 0.2]])]).same
    assert not judges.classes(reference, [np.array([[0.3, 0.6, 0.1]]), reference[1]]).same
    assert not judges.classes(reference, [np.array([[0.7, 0.2, 0.1]]), np.array([[0.3, 0.3, 0.4]])]).same


def test_decisions_may_turn_near_the_threshold() -> None:
    reference = [np.array([0.9, 0.1, 0.51])]
    assert judges.decisions(reference, [np.array([0.6, 0.4, 0.49])]).same
    assert not judges.decisions(reference, [np.array([0.4, 0.1, 0.51])]).same


def test_spans_begin_and_end_within_the_slack() -> None:
    reference = [[(1.0, 2.0, "speech"), (4.0, 6.0, "speech")]]
    assert judges.spans(reference, [[(1.02, 2.0, "speech"), (4.0, 5.97, "speech")]], slack=0.033).same
    assert not judges.spans(reference, [[(1.0, 2.0, "speech")]], slack=0.033).same
    assert not judges.spans(reference, [[(1.0, 2.0, "speech"), (4.0, 6.5, "speech")]], slack=0.033).same
    assert not judges.spans(reference, [[(1.0, 2.0, "music"), (4.0, 6.0, "speech")]], slack=0.033).same


def test_points_and_values_have_a_scale() -> None:
    face = np.random.default_rng(0).uniform(0, 192, (468, 2))
    assert judges.points([face], [face + 0.5], size=192).same
    assert not judges.points([face], [face + 2], size=192).same
    assert judges.values([np.array([0.5])], [np.array([0.504])], spread=0.5).same
    assert not judges.values([np.array([0.5])], [np.array([0.51])], spread=0.5).same


# --- post-processing --------------------------------------------------------------------------------------------------


def test_yolo_rows_become_boxes_once() -> None:
    output = np.zeros((1, 6, 3), np.float32)
    output[0, :, 0] = (50, 50, 20, 40, 0.9, 0.1)
    output[0, :, 1] = (51, 50, 20, 40, 0.8, 0.1)  # the same object
    output[0, :, 2] = (90, 90, 10, 10, 0.1, 0.6)
    found = reading.yolov8(output, 0.25)
    assert found.boxes.tolist() == [[40, 30, 60, 70], [85, 85, 95, 95]]
    assert found.labels.tolist() == [0, 1]


def test_regions_of_text_are_connected_pixels() -> None:
    image = np.zeros((1, 1, 64, 96), np.float32)
    image[0, 0, 10:20, 10:60] = 0.9
    image[0, 0, 40:50, 30:80] = 0.35  # too weak on average
    found = reading.text_regions(image, 0.5)
    assert len(found.boxes) == 1
    assert found.boxes[0, 0] < 10 < found.boxes[0, 1] + 10 < found.boxes[0, 2]


def test_ctc_drops_repetitions_and_blanks() -> None:
    assert reading.ctc(np.array([0, 3, 3, 0, 3, 5, 5, 0]), 0) == [3, 3, 5]


def test_the_best_path_obeys_transitions() -> None:
    emissions, transitions = np.array([[1.0, 0], [0.4, 0.5], [1.0, 0]]), np.array([[0, -9.0], [0, 0]])
    assert reading.viterbi(emissions, transitions) == [0, 0, 0]


def test_speech_has_hysteresis() -> None:
    probabilities = np.array([0.1] * 5 + [0.8] * 20 + [0.4] * 3 + [0.8] * 10 + [0.1] * 10 + [0.9] * 2 + [0.0] * 10)
    assert reading.speech_spans(probabilities, 1 / 32) == [(5 / 32, 38 / 32, "speech")]


def test_molecules_are_read_from_smiles() -> None:
    elements, bonds = molecules.parsed("CC(=O)OC1=CC=CC=C1")
    assert elements == ["C", "C", "O", "O", *["C"] * 6]
    assert bonds[1, 2] == 2 and bonds[4, 9] == 1 and bonds[4, 5] == 2
    feeds, about = molecules.encoded("CO>>CO")
    assert feeds["atoms"].tolist() == [[0, 1, 8, 10, 1, 8, 10]]
    assert feeds["neighbors"].tolist() == [[0, 0, 6, 4, 0, 6, 4]]
    assert feeds["roles"].tolist() == [[1, 0, 2, 2, 0, 3, 3]]
    attention = np.zeros((7, 7))
    attention[5, 2] = attention[6, 3] = 1
    assert reading.atom_mapping(attention, about) == about["alike"][[2, 3]].tolist()
    ring = molecules.encoded("CC1=CC=CC=C1>>C")[1]["alike"][2:9].tolist()  # toluene: both ortho, both meta are alike
    assert ring[2] == ring[6] and ring[3] == ring[5] and len(set(ring)) == 5


# --- faults and tables ------------------------------------------------------------------------------------------------

MODEL = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[1, 4, 8, 8] x) => (float[1, 9, 8, 8] y)
<float[9, 4, 1, 1] w, float[9] b> { y = Conv(x, w, b) }
"""


@pytest.mark.parametrize("kind", SIZES)
def test_a_planted_fault_changes_one_thing(kind: str) -> None:
    model = onnx.parser.parse_model(MODEL)
    rng = np.random.default_rng(0)
    arrays = {"w": rng.normal(size=(9, 4, 1, 1)), "b": rng.normal(size=9)}
    del model.graph.initializer[:]
    for name, array in arrays.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(array.astype(np.float32), name))
    feeds = {"x": rng.normal(size=(1, 4, 8, 8)).astype(np.float32)}
    before = ReferenceEvaluator(model).run(None, feeds)[0]
    size = SIZES[kind][0]
    assert plant(model, kind, size, ("y", (slice(None), slice(0, 1))), {"y": before})
    onnx.checker.check_model(model, full_check=True)
    after = ReferenceEvaluator(model).run(None, feeds)[0]
    bias = arrays["b"].astype(np.float32)[None, :, None, None]
    if kind == "weight scaled":
        expected = (before - bias) * np.float32(size) + bias
    elif kind == "bias shrunk":
        expected = before - bias * np.float32(1 - size)
    elif kind == "scores shifted":
        expected = before.copy()
        expected[:, :1] += np.float32(size)
    else:
        order = np.argsort((arrays["w"] ** 2).sum((1, 2, 3)))
        swapped = np.arange(9)
        swapped[order[-2:]] = order[-2:][::-1]
        expected = (before - bias)[:, swapped] + bias
    np.testing.assert_allclose(after, expected, rtol=1e-4, atol=1e-5)


def test_where_a_verdict_turns() -> None:
    def of(*steps: tuple[bool, str]) -> str:
        named = [{"size": i, "same": same, "verdict": verdict} for i, (same, verdict) in enumerate(steps)]
        return str(turns(named)["turns"])

    assert of((True, "passed"), (False, "failed")) == "together"
    assert of((True, "failed"), (False, "failed")) == "early"
    assert of((False, "passed"), (False, "not verified")) == "late"
    assert of((False, "passed")) == "late"
    assert of((True, "passed")) == "neither"


def test_the_table_says_what_is_wrong() -> None:
    row = {"model": "m", "task": "faces", "valid": "yes", "codes": [], "check": None, "fp16": None, "figures": {}}
    rows = [row | {"same": same, "verdict": verdict} for same in (True, False) for verdict in ("passed", "failed")]
    assert [opinion(each) for each in rows] == ["right", "false alarm", "missed", "right"]
    table = trained_table([*rows, {"model": "n", "skipped": "offline"}])
    assert "4 models: 1 false alarm, 1 missed, 2 right." in table
    assert "Not measured: n." in table
    json.dumps(rows)
