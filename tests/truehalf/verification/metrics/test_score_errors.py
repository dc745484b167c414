import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from truehalf.io_spec.decode import RANK_FLOOR
from truehalf.verification.metrics.score_errors import all_but_one, rank_errors

SCORES = st.lists(st.floats(0, 1, width=32), max_size=12)


def test_scores_are_held_rank_by_rank() -> None:
    errors = rank_errors(np.array([0.9, 0.3, 0.6, 0.01]), np.array([0.61, 0.3, 0.9, 0.02]))
    assert errors == pytest.approx([0, 0.01, 0])


def test_what_one_side_does_not_have_scores_0() -> None:
    assert rank_errors(np.array([0.9, 0.4]), np.array([0.9])) == pytest.approx([0, 0.4])
    assert rank_errors(np.array([]), np.array([0.9])) == pytest.approx([0.9])
    assert rank_errors(np.array([]), np.array([])).size == 0


@given(SCORES, SCORES, st.randoms())
def test_ranks_know_no_order_and_no_side(a: list[float], b: list[float], random) -> None:
    errors = rank_errors(np.array(a), np.array(b))
    shuffled = [*a]
    random.shuffle(shuffled)
    assert np.array_equal(errors, rank_errors(np.array(b), np.array(shuffled)))
    assert not rank_errors(np.array(a), np.array(shuffled)).any()


@given(SCORES, st.floats(-0.02, 0.02))
def test_no_rank_is_off_by_more_than_the_scores_are(a: list[float], shift: float) -> None:
    moved = (np.array(a) + shift).clip(0, 1)
    assert rank_errors(np.array(a), moved).max(initial=0.0) <= 0.02 + 1e-9


def test_the_tail_does_not_count() -> None:
    assert rank_errors(np.full(300, RANK_FLOOR / 2), np.zeros(300)).size == 0


def test_one_error_is_left_out() -> None:
    assert all_but_one(np.array([0.1, 0.5, 0.2])) == pytest.approx([0.1, 0.2])
    assert all_but_one(np.array([0.5])) == pytest.approx([0.5])
