"""Average precision against numbers that were worked out by hand."""

import numpy as np
import pytest

from tests.truehalf.verification.detected import REFERENCE, detections, edited
from truehalf.io_spec.decode import Detections
from truehalf.verification.metrics.average_precision import average_precision, low_self_ap_drop, self_ap
from truehalf.verification.metrics.detections import kept_of


def test_average_precision_by_hand():
    # Three true boxes of one class; found by score: right, wrong, right. Precision at recall 1/3 is 1, at 2/3 is 2/3.
    # COCO reads the precision at recall 0, 0.01 ... 1: 34 points at 1, 33 at 2/3, 34 at 0.
    truth = detections((0, 0, 40, 40, 0, 1), (50, 0, 90, 40, 0, 1), (0, 50, 40, 90, 0, 1))
    found = detections((0, 0, 40, 40, 0, 0.9), (80, 80, 120, 120, 0, 0.8), (50, 0, 90, 40, 0, 0.7))
    expected = (34 * 1 + 33 * 2 / 3) / 101
    ap = average_precision([found], [truth], num_classes=1)
    assert ap["ap50"] == pytest.approx(expected, abs=1e-6) and ap["ap50_95"] == pytest.approx(expected, abs=1e-6)


def test_average_precision_counts_overlap():
    # IoU 0.72: right at 0.50 ... 0.70, wrong at 0.75 ... 0.95: five of ten thresholds
    truth, found = detections((0, 0, 100, 100, 0, 1)), detections((0, 0, 100, 72, 0, 0.9))
    ap = average_precision([found], [truth], num_classes=1)
    assert ap["ap50"] == pytest.approx(1.0) and ap["ap50_95"] == pytest.approx(0.5)


def test_what_lies_in_a_crowd_is_neither_right_nor_wrong():
    """As COCO does it: the second detection would be a false alarm of higher score than the hit."""
    found = detections((0, 0, 40, 40, 0, 0.8), (55, 5, 85, 35, 0, 0.9))
    crowded = detections((0, 0, 40, 40, 0, 1), (50, 0, 90, 40, 0, 0))
    assert average_precision([found], [crowded], num_classes=1)["ap50"] == pytest.approx(1)
    alone = detections((0, 0, 40, 40, 0, 1))
    assert average_precision([found], [alone], num_classes=1)["ap50"] == pytest.approx(0.5)


def test_self_ap_takes_the_reference_as_labels():
    assert self_ap([REFERENCE], [REFERENCE], 8, 0.5) == {
        "self_ap50_95": pytest.approx(1),
        "self_ap50": pytest.approx(1),
    }
    kept = Detections(REFERENCE.boxes_px[1:], REFERENCE.labels[1:], REFERENCE.scores[1:])
    # class 3 has lost its better one of two, class 7 is whole: precision 1 up to recall 0.5, 51 of 101 points
    assert self_ap([kept], [REFERENCE], 8, 0.5)["self_ap50_95"] == pytest.approx((1 + 51 / 101) / 2)
    assert self_ap([edited(1, label=4)], [REFERENCE], 8, 0.5)["self_ap50"] == pytest.approx(0.5)


def test_what_just_misses_the_threshold_is_neither_right_nor_wrong():
    near = detections((10, 10, 50, 60, 3, 0.501), (60, 20, 90, 50, 3, 0.499))
    turned = detections((10, 10, 50, 60, 3, 0.499), (60, 20, 90, 50, 3, 0.501))
    assert self_ap([turned], [near], 8, 0.5)["self_ap50_95"] == pytest.approx(1)


def test_low_scores_are_labels_too():
    reference = detections((10, 10, 50, 60, 3, 0.95), (60, 20, 90, 50, 3, 0.3), (5, 90, 30, 120, 3, 0.02))
    alone = detections((10, 10, 50, 60, 3, 0.95))
    assert low_self_ap_drop([reference], [reference], 8, 0.5) == 0.0
    assert self_ap([alone], [reference], 8, 0.5)["self_ap50_95"] == pytest.approx(1)
    left = 51 / 101  # half of the recall levels, and 0
    assert low_self_ap_drop([alone], [reference], 8, 0.5) == pytest.approx(1 - left)
    ghost = detections((10, 10, 50, 60, 3, 0.95), (60, 20, 90, 50, 3, 0.3), (90, 90, 120, 120, 3, 0.49))
    left = (51 + 50 * 2 / 3) / 101
    assert low_self_ap_drop([ghost], [reference], 8, 0.5) == pytest.approx(1 - left)


def test_labels_of_low_scores_lie_above_a_limit_inside_the_model():
    reference = detections((10, 10, 50, 60, 3, 0.95), (60, 20, 90, 50, 3, 0.251), (5, 90, 30, 120, 3, 0))
    assert low_self_ap_drop([detections((10, 10, 50, 60, 3, 0.95))], [reference], 8, 0.5) == 0.0


def test_more_than_a_hundred_labels_are_all_counted():
    many = detections(*((i * 10, 0, i * 10 + 9, 9, 3, 0.9 - i * 0.005) for i in range(130)))
    assert low_self_ap_drop([many], [many], 8, 0.5) == 0.0


def test_the_last_places_of_a_full_picture_are_neither_right_nor_wrong():
    rows = [(i * 10, 0, i * 10 + 9, 9, i % 3, 0.9 - i * 0.03) for i in range(26)]  # down to 0.15
    full, sparse = detections(*rows), detections((10, 10, 50, 60, 0, 0.95), (60, 20, 90, 50, 1, 0.3))
    other = detections(*rows[:-1], (500, 0, 509, 9, 2, 0.14))
    assert low_self_ap_drop([other, sparse], [full, sparse], 8, 0.5) == pytest.approx(0, abs=1e-9)
    assert low_self_ap_drop([detections(*rows[:-3]), sparse], [full, sparse], 8, 0.5) > 0.05
    assert low_self_ap_drop([full, detections((10, 10, 50, 60, 0, 0.95))], [full, sparse], 8, 0.5) > 0.03


def test_boxes_without_an_area_are_no_labels():
    empty = detections((10, 10, 10, 60, 3, 0.95), (10, 10, 5, 5, 3, 0.9))
    assert low_self_ap_drop([empty], [empty], 8, 0.5) is None
    assert low_self_ap_drop([detections()], [detections()], 8, 0.5) is None


def test_of_detections_that_overlap_the_best_of_a_class_is_kept():
    boxes = np.array([[0, 0, 10, 10], [0, 0, 10, 9], [0, 0, 10, 8], [0, 0, 10, 6], [50, 50, 60, 60]], np.float32)
    found = Detections(boxes, np.array([1, 1, 2, 1, 1]), np.array([0.9, 0.8, 0.7, 0.6, 0.5], np.float32))
    assert kept_of(found).tolist() == [True, False, True, True, True]
    assert kept_of(found, 0.95).all()
    assert len(kept_of(Detections(boxes[:0], found.labels[:0], found.scores[:0]))) == 0
