"""What calibration knows of one tensor, sample by sample."""

from __future__ import annotations

from dataclasses import dataclass

from truehalf.calibration.ranges import Counts
from truehalf.calibration.ranges_form import TensorRange


@dataclass
class TensorFacts:
    """So far."""

    low: float | None = None
    high: float | None = None
    absmax: float | None = None
    sample: str | None = None
    elements: int = 0
    suspect: bool = False
    nan: int = 0
    posinf: int = 0
    neginf: int = 0

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
        if counts.low is not None and counts.high is not None:
            self.widen(counts.low, counts.high, sample)

    def range(self) -> TensorRange:
        return TensorRange(
            min=self.low,
            max=self.high,
            absmax=self.absmax,
            sample=self.sample,
            elements=self.elements,
            nan=self.nan,
            posinf=self.posinf,
            neginf=self.neginf,
        )
