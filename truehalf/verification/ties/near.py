"""Which other decisions rounding explains.

    Choice     |x[o] - x[r]| <= margin * spread of x, and what float16 moves the two by when it holds them
                                                          x: the values that the reference chose from, or those
                                                          that a function which keeps their order made them of
                                                          r, o: the indices that the two files chose
                                                          spread: the largest along the axis, see spread_along
               TopK: so place by place, and no index is there twice
    Step       see truehalf.verification.ties.steps
    Other      where the candidate's operands are known, and near the reference's but for _FEW

Where they are known, a decision has to be what the reference makes of them: rounding makes no other rule.
Softmax and Sigmoid make a step of the logits as large as they like beside the spread of what they put out, or nothing
where they are flat: rounding explains either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from truehalf.verification.ties.decided import Decided, as_first, bounds, near_enough
from truehalf.verification.ties.decisions import Choice, Decision, Other, Step
from truehalf.verification.ties.steps import explained_steps

_FEW = 0.01  # of values


def count_of(explained: np.ndarray, one: Decided, decision: Decision) -> int:
    """How many others are explained: elements, marks of Hardmax; of rows that are not as many, 1."""
    is_marked = isinstance(decision, Choice) and decision.marks
    return int((explained & (one.candidate > one.reference)).sum() if is_marked else explained.sum())


def taken(explained: np.ndarray, one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """One decision where it is explained, else the other."""
    if not explained.ndim:
        return np.asarray(one if explained else other)
    return np.where(explained, one, other)


def explained_in(decided: Sequence[Decided], decision: Decision, margin: float) -> list[np.ndarray]:
    """Of each run bool of the shape of the decision, or of all of it []: another one, which a near tie explains.

    Args:
        margin: 0 or more, a share of the spread of the values in all runs.
    """
    if isinstance(decision, Choice):
        found = _choices(decided, decision, margin)
    elif isinstance(decision, Step):
        found = explained_steps(decided, decision, margin)
    else:
        found = _others(decided, decision, margin)
    return [
        each & one.follows if each.ndim and each.any() and one.follows is not None else each
        for each, one in zip(found, decided, strict=True)
    ]


def _others(decided: Sequence[Decided], other: Other, margin: float) -> list[np.ndarray]:
    near = all(_are_near(decided, name, margin) for name in other.operands)
    follow = [near and one.is_shown and one.follows is not None and bool(one.follows.all()) for one in decided]
    return [
        _others_than(one.reference, one.candidate) & each
        if np.shape(one.reference) == np.shape(one.candidate)
        else np.array(each)
        for one, each in zip(decided, follow, strict=True)
    ]


def _others_than(reference: np.ndarray, candidate: np.ndarray) -> np.ndarray:
    """Where they differ; what a division leaves by as much as a divisor."""
    if reference.dtype.kind != "f":
        return np.asarray(reference != candidate)
    return np.asarray(np.abs(reference - candidate) > np.abs(reference).max(initial=0) / 2)


def _are_near(decided: Sequence[Decided], name: str, margin: float) -> bool:
    """Whether all but a few of the values that were decided on are."""
    if not all(one.is_of_one_shape(name) for one in decided):
        return False
    pairs = [[np.ravel(side[name]).astype(np.float64) for side in (one.inside, one.theirs)] for one in decided]
    most = bounds(margin, [r for r, _ in pairs], 0)
    with np.errstate(invalid="ignore"):
        far = np.concatenate([np.abs(r - o) > near_enough(r, o, *most) for r, o in pairs])
    return bool(far.sum() <= _FEW * far.size)


# --- choices ----------------------------------------------------------------------------------------------------------


def _choices(decided: Sequence[Decided], choice: Choice, margin: float) -> list[np.ndarray]:
    explained = [np.zeros(np.shape(one.reference), bool) for one in decided]
    for source in choice.values:
        values = as_first(decided, choice.values, source)
        values = [-each for each in values] if choice.is_least else values
        most = bounds(margin, values, choice.axis)
        for one, x, found in zip(decided, values, explained, strict=True):
            if np.shape(one.reference) == np.shape(one.candidate):
                found |= _explained(x, choice, one, most)
    return explained


def _explained(values: np.ndarray, choice: Choice, one: Decided, most: tuple[float, float]) -> np.ndarray:
    """bool of the shape of the choice: another one, of a value as good as the reference's."""
    r, o = np.asarray(one.reference), np.asarray(one.candidate)
    if choice.marks:
        one_only = (np.isin(o, (0, 1)).all(axis=choice.axis)) & (o.sum(axis=choice.axis) == 1)
        indices = Decided(r.argmax(axis=choice.axis), o.argmax(axis=choice.axis), one.inside, {})
        rows = one_only & _explained(values, replace(choice, marks=False), indices, most)
        return np.asarray((r != o) & np.expand_dims(rows, choice.axis))
    x = np.moveaxis(values, choice.axis, -1)
    places = x.shape[:-1]
    count = r.size // max(int(np.prod(places)), 1)
    if r.size != count * int(np.prod(places)) or x.shape[-1] == 0:
        return np.zeros(r.shape, bool)
    back = (*values.shape[: choice.axis % values.ndim], count, *values.shape[choice.axis % values.ndim + 1 :])
    chosen = [np.moveaxis(np.asarray(each, np.float64).reshape(back), choice.axis, -1) for each in (r, o)]
    valid = [(each == np.rint(each)) & (each >= 0) & (each < x.shape[-1]) for each in chosen]
    indices_of = [np.where(ok, each, 0).astype(np.int64) for each, ok in zip(chosen, valid, strict=True)]
    a, b = (np.take_along_axis(x, each, -1) for each in indices_of)
    with np.errstate(invalid="ignore"):
        is_near = np.abs(a - b) <= near_enough(a, b, *most)
    explained = valid[0] & valid[1] & (indices_of[0] != indices_of[1]) & is_near
    if choice.many:
        ordered = np.sort(indices_of[1], axis=-1)
        explained &= (ordered[..., 1:] != ordered[..., :-1]).all(axis=-1, keepdims=True)
    return np.asarray(np.moveaxis(explained, -1, choice.axis).reshape(r.shape))
