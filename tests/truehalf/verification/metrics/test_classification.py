import numpy as np
import pytest

from truehalf.verification.metrics.kinds import classification_metrics

LOGITS = np.random.default_rng(0).normal(0, 2, (8, 10)).astype(np.float32)


def test_one_flip_among_eight() -> None:
    other = LOGITS.copy()
    first, second = np.argsort(-other[2])[:2]
    other[2, [first, second]] = other[2, [second, first]]
    result = classification_metrics(LOGITS, other)
    assert result["label_flips"] == 1 and result["top1_agreement"] == 7 / 8


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_sample_that_is_no_distribution_agrees_in_nothing(value: float) -> None:
    broken = LOGITS.copy()
    broken[0, int(LOGITS[0].argmax())] = value  # argmax of either would still find it
    for pair in ((LOGITS, broken), (broken, LOGITS), (broken, broken)):
        assert classification_metrics(*pair)["label_flips"] == 1


def test_a_class_that_cannot_be_is_never_the_best() -> None:
    never = LOGITS.copy()
    never[:, LOGITS[0].argmin()] = -np.inf
    assert classification_metrics(never, never)["top1_agreement"] == 1.0
