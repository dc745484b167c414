"""What two files decided, and what of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from truehalf.verification.metrics.scales import spread_along
from truehalf.verification.runs import Arrays


@dataclass(frozen=True)
class Decided:
    """What a decision of one run was.

    Attributes:
        reference, candidate: what the two files decided.
        inside: tensors of the reference by name, of which those that the decision reads.
        theirs: these of the candidate, as far as it has them.
    """

    reference: np.ndarray
    candidate: np.ndarray
    inside: Arrays
    theirs: Arrays

    @property
    def differs(self) -> bool:
        """Whether it was another, of one shape."""
        return np.shape(self.reference) == np.shape(self.candidate) and differ(self.reference, self.candidate)


def differ(reference: np.ndarray, candidate: np.ndarray) -> bool:
    """Whether another one was decided, of one number of axes."""
    return np.ndim(reference) == np.ndim(candidate) and not np.array_equal(reference, candidate)


def as_first(decided: Sequence[Decided], names: Sequence[str], name: str) -> list[np.ndarray]:
    """A tensor in the shape of the first one."""
    return [np.asarray(one.inside[name], np.float64).reshape(np.shape(one.inside[names[0]])) for one in decided]


def largest_spread(values: Sequence[np.ndarray], axis: int) -> float:
    """See spread_along; 0 of nothing."""
    return max((float(spread_along(each, axis).max()) for each in values if each.size), default=0.0)
