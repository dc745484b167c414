"""Classification: do two files name the same classes, and how far apart are their distributions?

p = softmax(reference), q = softmax(other), of one sample each:

    top-1 agreement   the best class of the other is that of the reference
    top-5 agreement   the best class of the reference is among the five best of the other (as top-5 accuracy, with the
                      reference's class as the label)
    KL(p || q)        sum of p log(p / q), in nats; 0 when equal
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypedDict

import numpy as np

from truehalf.errors import StageError
from truehalf.verification.metrics.yardstick import FLOOR, SLACK, spread_of

_TOP = 5


class ClassAgreement(TypedDict, total=False):
    """Agreement of class logits (see `classification_metrics`), p = softmax(r), q = softmax(o).

    Attributes:
        top1_agreement: share of samples with the same best class.
        top5_agreement: share where r's best class is among o's five best; None with five classes or fewer.
        label_flips: samples with another best class, near ties left out.
        near_ties: samples whose two best classes half a step of the input moves past each other.
        kl_mean, kl_max: of KL(p, q) = sum p log(p / q), nats.
    """

    samples: int
    top1_agreement: float | None
    top5_agreement: float | None
    label_flips: int
    near_ties: int
    kl_mean: float | None
    kl_max: float | None


def classification_metrics(
    reference: np.ndarray, other: np.ndarray, draws: Callable[[], Sequence[np.ndarray]] = tuple
) -> ClassAgreement:
    """How far the class logits of two files agree.

    Args:
        reference, other: [samples, classes], before the softmax.
        draws: gives the reference on inputs moved by half a step, as often as it was drawn; asked where a best class is
            another, see near_choices.

    Returns:
        samples; top1_agreement, top5_agreement: 0..1; label_flips: samples without top-1 agreement, but for near_ties;
        kl_mean, kl_max: nats. A sample with a NaN or +Inf on either side, or nothing above -Inf, agrees in nothing, and
        its KL is infinite. With five classes or fewer top5_agreement is None: it could not fail. Without samples all
        but `samples` and `label_flips` are None.

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
    samples, classes = reference.shape
    if not samples:
        nothing: ClassAgreement = {"top1_agreement": None, "top5_agreement": None, "kl_mean": None, "kl_max": None}
        return {"samples": 0, "label_flips": 0, "near_ties": 0, **nothing}
    usable = _usable(reference) & _usable(other)
    best = np.where(usable, reference.argmax(axis=1), 0)  # the first of equal ones
    same = usable & (other.argmax(axis=1) == best)
    near = usable & ~same & near_choices(reference, other, draws)
    order = np.argsort(-other, axis=1, kind="stable")[:, :_TOP]
    among = usable & (order == best[:, None]).any(axis=1)
    divergence = np.where(usable, _divergence(reference, other, usable), np.inf)
    return {
        "samples": samples,
        "top1_agreement": float(same.mean()),
        "top5_agreement": float(among.mean()) if classes > _TOP else None,
        "label_flips": int((~same & ~near).sum()),
        "near_ties": int(near.sum()),
        "kl_mean": float(divergence.mean()),
        "kl_max": float(divergence.max()),
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


def _divergence(reference: np.ndarray, other: np.ndarray, usable: np.ndarray) -> np.ndarray:
    """KL(p || q) of each sample, float64 [samples]; anything where not usable."""
    p, q = (_log_softmax(np.where(usable[:, None], each, 0.0)) for each in (reference, other))
    weights = np.exp(p)
    with np.errstate(invalid="ignore"):
        terms = np.where(weights == 0, 0.0, weights * (p - q))  # 0 log 0 = 0, also where exp(p) underflows
    return np.asarray(np.maximum(terms.sum(axis=1), 0.0))


def _log_softmax(x: np.ndarray) -> np.ndarray:
    shifted = x - x.max(axis=1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))
