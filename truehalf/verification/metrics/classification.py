"""Classification: does another file name the best class of each sample?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypedDict

import numpy as np

from truehalf.errors import StageError
from truehalf.verification.metrics.yardstick import FLOOR, SLACK, spread_of


class ClassAgreement(TypedDict):
    """Agreement of class logits (see `classification_metrics`).

    Attributes:
        samples: how many.
        top1_agreement: share of samples with the same best class; None without samples.
        label_flips: samples with another best class, near ties left out.
        near_ties: samples whose two best classes half a step of the input moves past each other.
    """

    samples: int
    top1_agreement: float | None
    label_flips: int
    near_ties: int


def classification_metrics(
    reference: np.ndarray, other: np.ndarray, draws: Callable[[], Sequence[np.ndarray]] = tuple
) -> ClassAgreement:
    """How far the class logits of two files agree; a sample with a NaN or +Inf on either side, or nothing above -Inf,
    agrees in nothing.

    Args:
        reference, other: [samples, classes], before the softmax.
        draws: gives the reference on inputs moved by half a step, as often as it was drawn; asked where a best class is
            another, see near_choices.

    Raises:
        StageError: when the shapes differ or are not [samples, classes].
    """
    reference, other = (np.asarray(each, np.float64) for each in (reference, other))
    if reference.shape != other.shape or reference.ndim != 2 or not reference.shape[1]:
        raise StageError(
            "wrong-shape",
            f"class logits: expected two arrays [samples, classes] of one shape, got {list(reference.shape)} and "
            f"{list(other.shape)}",
        )
    if not len(reference):
        return {"samples": 0, "top1_agreement": None, "label_flips": 0, "near_ties": 0}
    usable = _usable(reference) & _usable(other)
    same = usable & (other.argmax(axis=1) == reference.argmax(axis=1))  # the first of equal ones
    with np.errstate(invalid="ignore"):
        near = usable & ~same & near_choices(reference, other, draws)
    return {
        "samples": len(reference),
        "top1_agreement": float(same.mean()),
        "label_flips": int((~same & ~near).sum()),
        "near_ties": int(near.sum()),
    }


def near_choices(reference: np.ndarray, other: np.ndarray, draws: Callable[[], Sequence[np.ndarray]]) -> np.ndarray:
    """bool [rows]: the other's best column is nearly as good as the best one in the reference.

    That is so within FLOOR of the spread of all values, or within SLACK times what half a step of the input moves
    the one beside the other.

    Args:
        reference, other: [rows, columns].
        draws: see classification_metrics.
    """
    rows = np.arange(len(reference))
    best, chosen = reference.argmax(axis=1), other.argmax(axis=1)
    gap = reference[rows, best] - reference[rows, chosen]
    reach = np.full(len(rows), FLOOR * spread_of(reference))
    if (gap > reach).any():
        for draw in draws():
            moved_gap = draw[rows, best] - draw[rows, chosen]
            reach = np.maximum(reach, np.nan_to_num(SLACK * np.abs(moved_gap - gap), nan=0.0, posinf=0.0))
    return np.asarray(gap <= reach)


def _usable(logits: np.ndarray) -> np.ndarray:
    """bool [samples]: there is a distribution; -Inf is a class that cannot be."""
    wrong = np.isnan(logits) | np.isposinf(logits)
    return np.asarray(~wrong.any(axis=1) & np.isfinite(logits).any(axis=1))
