"""The verifier is tested with outputs that are known to be bad: each must show in the metric that is there for it."""

import numpy as np
import pytest

from tests.truehalf.verification.detected import REFERENCE, detections, edited
from truehalf.io_spec.decode import Detections
from truehalf.verification.metrics.detections import box_iou, match, rank_errors, summarize

SIZE = 128


def joined(a: Detections, b: Detections) -> Detections:
    return Detections(*(np.concatenate([getattr(a, n), getattr(b, n)]) for n in ("boxes_px", "labels", "scores")))


def test_iou_of_known_boxes():
    a = np.array([[0, 0, 10, 10], [0, 0, 0, 0]], np.float32)
    b = np.array([[0, 0, 10, 10], [5, 0, 15, 10], [20, 20, 30, 30]], np.float32)
    np.testing.assert_allclose(box_iou(a, b), [[1, 1 / 3, 0], [0, 0, 0]])


def test_one_swapped_label_is_a_miss_an_extra_and_a_flip():
    result = summarize([match(REFERENCE, edited(1, label=4))])
    assert (result["missed"], result["label_flips"], result["extra"]) == (1, 1, 1)
    assert result["matched_fraction"] == pytest.approx(2 / 3)


def test_small_box_shifted_by_two_pixels_is_missed_as_moved():
    found = match(REFERENCE, edited(1, shift=2.0))  # 30 px wide: IoU (28 * 28) / (2 * 900 - 784) = 0.77
    assert found.absent == [1] and found.missed == 1 and found.extra == [1]


def test_large_box_shifted_by_two_pixels_shows_in_the_box_error():
    large = detections((0, 0, 120, 120, 3, 0.9))
    shifted = Detections(large.boxes_px + np.float32(2), large.labels, large.scores)
    result = summarize([match(large, shifted)])
    assert result["missed"] == 0 and result["box_error_px"]["max"] == pytest.approx(2.0)


def test_duplicates_of_the_reference_must_be_found_twice():
    result = summarize([match(joined(REFERENCE, REFERENCE), REFERENCE)])
    assert result["reference"] == 6 and result["missed"] == 3


def test_scores_on_either_side_of_the_threshold_are_no_miss_and_no_extra():
    above, below = edited(2, score=0.501), edited(2, score=0.499)
    for reference, candidate in ((above, below), (below, above)):
        result = summarize([match(reference, candidate)])
        assert result["missed"] == 0 and result["extra"] == 0
    assert summarize([match(above, below)])["score_error"]["max"] == pytest.approx(0.002, abs=1e-6)


def test_a_score_that_falls_through_the_threshold_is_a_miss_and_one_that_rises_an_extra():
    high, low = edited(0, score=0.95), edited(0, score=0.46)
    assert match(high, low).absent == [0]
    assert match(low, high).extra == [0]
    assert match(edited(0, score=0.53), edited(0, score=0.49)).missed == 0
    assert match(edited(0, score=0.56), edited(0, score=0.49)).absent == [0]


def test_scores_are_compared_rank_by_rank():
    errors = rank_errors(np.array([0.9, 0.3, 0.6, 0.01]), np.array([0.61, 0.3, 0.9, 0.02]))
    assert errors == pytest.approx([0, 0.01, 0]), "of the tail none counts"
    assert rank_errors(np.array([0.9, 0.4]), np.array([0.9])) == pytest.approx([0, 0.4])
    assert rank_errors(np.array([]), np.array([])).size == 0


def test_counts_of_the_reference_are_its_own():
    """A reference that decides on the candidate's operands finds one object less."""
    found = [match(edited(1, score=0.3), edited(1, score=0.3))]
    assert summarize(found)["reference"] == 2
    result = summarize(found, 3)
    assert (result["reference"], result["matched"], result["matched_fraction"]) == (3, 3, 1.0)


def test_assignment_is_by_likeness_not_by_order():
    # two of one class over each other, written in the other order: the nearer box wins
    a = detections((10, 10, 110, 110, 3, 0.9), (12, 10, 112, 110, 3, 0.8))
    b = detections((12, 10, 112, 110, 3, 0.8), (10, 10, 110, 110, 3, 0.9))
    found = match(a, b)
    assert found.pairs.tolist() == [[0, 1], [1, 0]] and found.box_error_px.max() == 0


def test_as_many_pairs_as_possible():
    # the best single pair (0 with 0) would leave 1 without partner; both can be found again
    a = detections((0, 0, 100, 100, 3, 0.9), (0, 0, 100, 92, 3, 0.9))
    b = detections((0, 0, 100, 100, 3, 0.9), (0, 0, 100, 108, 3, 0.9))
    assert match(a, b).missed == 0


def test_scores_below_the_threshold_are_held_against_the_nearest_of_their_kind():
    low = edited(2, score=0.4)
    both = joined(low, detections((70, 80, 120, 120, 3, 0.15)))  # a double of it
    found = match(both, both)
    assert len(found.low_score_error) == 3 and not found.low_score_error.any()
    exchanged = Detections(low.boxes_px, low.labels, low.scores[[0, 1, 3, 2]])
    assert sorted(match(low, exchanged).low_score_error) == pytest.approx([0.3, 0.3])
    result = summarize([match(low, exchanged)] * 2)
    assert result["score_error"]["max"] == 0.0 and result["rank_error"]["max"] == 0.0
    assert result["low_score_error"]["p99"] == pytest.approx(0.3)
    assert match(low, edited(2, score=0.4, shift=30.0)).low_score_error.size == 1, "what is elsewhere is no score error"
    assert match(low, edited(2, score=0.04)).low_score_error.size == 1, "nor is what has no score"
