"""The frozen reference: finite, and its samples told apart."""

import numpy as np
import pytest

from stages.io import StageError
from stages.parity.reference import freeze
from tests.stages.parity.small_detector import LOGITS, SPEC, Detector, unlabelled


def test_a_reference_that_is_not_finite_is_an_error_at_once():
    broken = Detector(np.where(LOGITS > 0, np.nan, LOGITS))
    with pytest.raises(StageError, match="'logits' holds 3 NaN or Inf of 12 values on sample made/0"):
        freeze(broken, unlabelled(), SPEC, 5)


def test_reference_index_tells_samples_apart():
    index = freeze(Detector(), unlabelled(3), SPEC, 2).index
    assert [item["name"] for item in index] == ["made/0", "made/1", "made/2"]
    assert len({item["sha256"] for item in index}) == 3
    assert index == freeze(Detector(), unlabelled(3), SPEC, 3).index
