"""Classification: do two files name the same classes, and how far apart are their distributions?

p = softmax(reference), q = softmax(other), of one sample each:

    top-1 agreement   the best class of the other is that of the reference
    top-5 agreement   the best class of the reference is among the five best of the other (as top-5 accuracy, with the
                      reference's class as the label)
    KL(p || q)        sum of p log(p / q), in nats; 0 when equal
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import TypedDict

import numpy as np

from truehalf.errors import StageError
from truehalf.verification.metrics.scales import spread_along

_TOP = 5
_OF_ONE = 1e-3  # that probabilities may be off in FP32


class ClassAgreement(TypedDict, total=False):
    """Agreement of class logits (see `classification_metrics`), p = softmax(r), q = softmax(o).

    Attributes:
        top1_agreement: share of samples with the same best class.
        top5_agreement: share where r's best class is among o's five best; None with five classes or fewer.
        label_flips: samples with another best class, near ties left out.
        near_ties: see verify.tie_margin.
        kl_mean, kl_max: of KL(p, q) = sum p log(p / q), nats.
    """

    samples: int
    top1_agreement: float | None
    top5_agreement: float | None
    label_flips: int
    near_ties: int
    kl_mean: float | None
    kl_max: float | None


def classification_metrics(reference: np.ndarray, other: np.ndarray, tie_margin: float = 0.0) -> ClassAgreement:
    """How far the class logits of two files agree.

    Args:
        reference, other: [samples, classes], before the softmax.
        tie_margin: 0 or more; a share of the largest spread of a sample's logits in the reference, see `spread_along`.

    Returns:
        samples; top1_agreement, top5_agreement: 0..1; label_flips: samples without top-1 agreement, but for near_ties:
        those in which the reference's logit of the other's best class is within the margin; kl_mean, kl_max: nats. A
        sample with a NaN or +Inf on either side, or nothing above -Inf, agrees in nothing, and its KL is infinite. With
        five classes or fewer top5_agreement is None: it could not fail. Without samples all but `samples` and
        `label_flips` are None.

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
    margins = [_margins(each, other, usable) for each in _logits(reference, usable)]
    near = usable & ~same & (np.min(margins, axis=0) <= tie_margin)
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


def _logits(reference: np.ndarray, usable: np.ndarray) -> Iterator[np.ndarray]:
    """As they are; of a softmax, whose steps are as large as the probabilities, also what it was made of, less a
    number.
    """
    yield reference
    rows = reference[usable]
    if rows.size and (rows >= 0).all() and np.allclose(rows.sum(axis=1), 1.0, atol=_OF_ONE):
        with np.errstate(divide="ignore", invalid="ignore"):
            yield np.log(reference)


def _margins(reference: np.ndarray, other: np.ndarray, usable: np.ndarray) -> np.ndarray:
    """float64 [samples]: how far the other's best class is below the best one in the reference, as a share of the
    spread.
    """
    finite = np.where(np.isfinite(reference) & usable[:, None], reference, np.nan)
    spread = float(spread_along(finite, 1).max(initial=0.0))
    with np.errstate(invalid="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # rows without a number
        below = np.nanmax(finite, axis=1) - np.take_along_axis(finite, other.argmax(axis=1)[:, None], axis=1)[:, 0]
    return np.asarray(np.where(below == 0, 0.0, below / spread if spread > 0 else np.inf))


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
