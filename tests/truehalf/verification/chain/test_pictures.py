"""Which samples are drawn: all that differ, the worst, and the one with the largest error of a score."""

from dataclasses import replace

import pytest

from truehalf.verification.chain.pictures import chosen, differs
from truehalf.verification.samples import SampleFacts

SAME = SampleFacts("s", 3, 3, 0, 0, 0, 0.1, 0.001, 0.0, 0.0, 0.0, 0)


@pytest.mark.parametrize("fault", ["missed", "extra", "label_flips", "nonfinite"])
@pytest.mark.parametrize("count", [1, 3])
def test_all_that_differ_are_drawn(fault: str, count: int) -> None:
    rows = [replace(SAME, **{fault: 1}) if i % 4 == 2 else SAME for i in range(20)]
    assert {2, 6, 10, 14, 18} <= set(chosen(rows, count))
    assert [i for i, row in enumerate(rows) if differs(row)] == [2, 6, 10, 14, 18]


def test_the_largest_error_of_a_score_is_among_them() -> None:
    rows = [replace(SAME, box_error_px_max=float(i)) for i in range(10)]
    rows[0] = replace(rows[0], score_error_max=0.3)
    assert set(chosen(rows, 2)) == {9, 8, 0}


def test_many_that_differ_leave_out_the_mildest() -> None:
    rows = [replace(SAME, missed=1 + i) for i in range(100)]
    drawn = chosen(rows, 3)
    assert drawn[0] == 99 and drawn[1] == 98 and len(drawn) <= 25
