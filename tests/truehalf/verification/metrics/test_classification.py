import numpy as np
import pytest

from tests.messages import raises
from truehalf.verification.metrics.classification import classification_metrics

LOGITS = np.random.default_rng(0).normal(0, 2, (8, 10)).astype(np.float32)


def test_equal_logits_agree_fully() -> None:
    assert classification_metrics(LOGITS, LOGITS) == {
        "samples": 8,
        "top1_agreement": 1.0,
        "top5_agreement": 1.0,
        "label_flips": 0,
        "near_ties": 0,
        "kl_mean": 0.0,
        "kl_max": 0.0,
    }


def test_a_constant_changes_nothing() -> None:
    result = classification_metrics(LOGITS, LOGITS + 3)
    assert result["top1_agreement"] == 1.0 and result["kl_max"] < 1e-6


def test_one_flip_among_eight() -> None:
    other = LOGITS.copy()
    first, second = np.argsort(-other[2])[:2]
    other[2, [first, second]] = other[2, [second, first]]
    result = classification_metrics(LOGITS, other)
    assert result["label_flips"] == 1 and result["top1_agreement"] == 7 / 8 and result["top5_agreement"] == 1.0


def test_top5_fails_when_the_best_class_falls_to_the_sixth_place() -> None:
    reference = np.arange(10.0)[None, ::-1].copy()
    fifth, sixth = reference.copy(), reference.copy()
    fifth[0, 0], sixth[0, 0] = 4.5, 3.5
    assert classification_metrics(reference, fifth)["top5_agreement"] == 1.0
    assert classification_metrics(reference, sixth)["top5_agreement"] == 0.0


def test_divergence_by_hand() -> None:
    p, q = np.array([0.5, 0.5]), np.array([0.9, 0.1])
    expected = (p * np.log(p / q)).sum()
    result = classification_metrics(np.log(p)[None], np.log(q)[None])
    assert result["kl_mean"] == pytest.approx(expected) and result["kl_max"] == pytest.approx(expected)
    assert result["top5_agreement"] is None, "with two classes it could not fail"


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_sample_that_is_no_distribution_agrees_in_nothing(value: float) -> None:
    broken = LOGITS.copy()
    broken[0, int(LOGITS[0].argmax())] = value  # argmax of either would still find it
    for pair in ((LOGITS, broken), (broken, LOGITS), (broken, broken)):
        result = classification_metrics(*pair)
        assert result["label_flips"] == 1 and result["kl_max"] == np.inf and result["top5_agreement"] == 7 / 8


def test_a_class_that_cannot_be() -> None:
    never = LOGITS.copy()
    never[:, 3] = -np.inf
    assert classification_metrics(never, never)["kl_max"] == 0.0
    assert classification_metrics(LOGITS, never)["kl_max"] == np.inf


def test_a_class_too_unlikely_for_a_number_adds_nothing() -> None:
    """exp(-800) is 0, and 0 * Inf would be NaN."""
    result = classification_metrics(np.array([[0.0, -800.0]]), np.array([[0.0, -np.inf]]))
    assert result["kl_mean"] == result["kl_max"] == 0.0


def test_no_sample_and_wrong_shapes() -> None:
    empty = classification_metrics(LOGITS[:0], LOGITS[:0])
    assert empty["samples"] == 0 and empty["top1_agreement"] is None
    with raises("wrong-shape", "[samples, classes]", "[8, 10]", "[8, 9]"):
        classification_metrics(LOGITS, LOGITS[:, :9])
