"""What calibration knows of one tensor, sample by sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass, field

from truehalf.calibration.ranges import Counts, SmallCounts
from truehalf.calibration.ranges_form import Small, TensorRange
from truehalf.float16 import INTEGERS_MAX


@dataclass
class TensorFacts:
    """So far."""

    low: float | None = None
    high: float | None = None
    absmax: float | None = None
    sample: str | None = None
    elements: int = 0
    elements_of_one_run: int = 0
    suspect: bool = False
    nan: int = 0
    posinf: int = 0
    neginf: int = 0
    above: dict[float, int] = field(default_factory=dict)
    fractions: int | None = None
    small: SmallCounts | None = None
    small_share: tuple[float, float] = (0.0, 0.0)
    small_sample: str | None = None

    def widen(self, low: float, high: float, sample: str) -> None:
        self.low = low if self.low is None else min(self.low, low)
        self.high = high if self.high is None else max(self.high, high)
        absmax = max(abs(low), abs(high))
        if self.absmax is None or absmax > self.absmax:
            self.absmax, self.sample = absmax, sample

    def forget_extremes(self) -> None:
        self.low = self.high = self.absmax = self.sample = None

    def add(self, counts: Counts, sample: str) -> None:
        self.nan += counts.nan
        self.posinf += counts.posinf
        self.neginf += counts.neginf
        for rung, count in counts.above.items():
            self.above[rung] = self.above.get(rung, 0) + count
        if counts.low is not None and counts.high is not None:
            self.widen(counts.low, counts.high, sample)
        if counts.fractions is not None:
            self.fractions = (self.fractions or 0) + counts.fractions

    def add_small(self, small: SmallCounts, sample: str) -> None:
        share = _shares(small)
        if share > self.small_share:
            self.small_share, self.small_sample = share, sample
        known = astuple(self.small or SmallCounts(0, 0, 0))
        self.small = SmallCounts(*(sum(pair) for pair in zip(known, astuple(small), strict=True)))

    def range(self, ladder: Sequence[float]) -> TensorRange:
        large = self.absmax is not None and self.absmax > INTEGERS_MAX
        return TensorRange(
            min=self.low,
            max=self.high,
            absmax=self.absmax,
            sample=self.sample,
            elements=self.elements,
            nan=self.nan,
            posinf=self.posinf,
            neginf=self.neginf,
            above={rung: self.above.get(rung, 0) / self.elements if self.elements else 0.0 for rung in ladder},
            integral=self.fractions == 0 if large and self.fractions is not None else None,
            small=None if self.small is None else Small(*_shares(self.small), self.small_sample),
        )


def _shares(small: SmallCounts) -> tuple[float, float]:
    """zero, subnormal."""
    return (small.zero / small.nonzero, small.subnormal / small.nonzero) if small.nonzero else (0.0, 0.0)
