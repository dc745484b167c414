"""What two files decided, and what of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from truehalf.verification.metrics.scales import spread_along
from truehalf.verification.runs import Arrays

HELD = 2.0**-11  # of a number, that float16 is off by
LOST, ENOUGH = 2.0**-7, 32  # sixteen roundings; values


@dataclass(frozen=True)
class Decided:
    """What a decision of one run was.

    Attributes:
        reference, candidate: what the two files decided.
        inside: tensors of the reference by name, of which those that the decision reads.
        theirs: these of the candidate, as far as it has them.
        follows: bool of the shape of the candidate's, where the reference decides so, too, of the candidate's operands
            or of what float16 moves them by; None: not known.
        is_shown: whether it is the candidate's that follows, and not only what an emulation shows of it.
    """

    reference: np.ndarray
    candidate: np.ndarray
    inside: Arrays
    theirs: Arrays
    follows: np.ndarray | None = None
    is_shown: bool = False

    def is_of_one_shape(self, name: str) -> bool:
        """Whether a tensor is known of the candidate, and as large as the reference's."""
        return name in self.theirs and np.shape(self.theirs[name]) == np.shape(self.inside[name])


def differ(reference: np.ndarray, candidate: np.ndarray) -> bool:
    """Whether another one was decided, of one number of axes."""
    return np.ndim(reference) == np.ndim(candidate) and not np.array_equal(reference, candidate)


def as_first(decided: Sequence[Decided], names: Sequence[str], name: str) -> list[np.ndarray]:
    """A tensor in the shape of the first one."""
    return [np.asarray(one.inside[name], np.float64).reshape(np.shape(one.inside[names[0]])) for one in decided]


def bounds(margin: float, values: Sequence[np.ndarray], axis: int) -> tuple[float, float]:
    """How far apart two are near at least; and at most where float16 moves them so far, as beyond it all is noise.

    Args:
        margin: a share of the largest spread along the axis.
        values: of all runs.
    """
    spread = max((float(spread_along(each, axis).max()) for each in values if each.size), default=0.0)
    return margin * spread, LOST * spread if sum(each.size for each in values) >= ENOUGH else np.inf


def near_enough(a: np.ndarray, b: np.ndarray, least: float, most: float) -> np.ndarray:
    """How far apart two may be: `least`, and what float16 moves them by when it holds them, each at most by `most`."""
    return np.asarray(least + sum(np.minimum(HELD * np.abs(each), most) for each in (a, b)))
