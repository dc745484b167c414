"""Which other decisions rounding explains.

    Choice     |x[o] - x[r]| <= margin * spread of x      x: the values that the reference chose from, or those
                                                          that a function which keeps their order made them of
                                                          r, o: the indices that the two files chose
                                                          spread: the largest along the axis, see spread_along
               TopK: so place by place, and no index is there twice
    Place      the same of two elements of one window
    Selection  see truehalf.verification.ties.selections
    Step       see truehalf.verification.ties.steps

Softmax and Sigmoid make a step of the logits as large as they like beside the spread of what they put out, or nothing
where they are flat: rounding explains either.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from truehalf.verification.ties.decided import Decided, as_first, largest_spread
from truehalf.verification.ties.decisions import Choice, Decision, Place, Selection
from truehalf.verification.ties.selections import is_selection
from truehalf.verification.ties.steps import explained_steps


def count_of(explained: np.ndarray, one: Decided, decision: Decision) -> int:
    """How many others are explained: elements, marks of Hardmax, rows of a selection."""
    r, o = one.reference, one.candidate
    if isinstance(decision, Selection):
        both = min(len(r), len(o))
        other = int((r[:both] != o[:both]).any(axis=1).sum()) + max(len(r), len(o)) - both
        return other if explained else 0
    return int((explained & (o > r)).sum() if isinstance(decision, Choice) and decision.marks else explained.sum())


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
        return _choices(decided, decision, margin)
    if isinstance(decision, Place):
        return _places(decided, decision, margin)
    if isinstance(decision, Selection):
        return _selections(decided, decision, margin)
    return explained_steps(decided, decision, margin)


# --- choices ----------------------------------------------------------------------------------------------------------


def _choices(decided: Sequence[Decided], choice: Choice, margin: float) -> list[np.ndarray]:
    explained = [np.zeros(np.shape(one.reference), bool) for one in decided]
    for source in choice.values:
        values = as_first(decided, choice.values, source)
        values = [-each for each in values] if choice.is_least else values
        most = margin * largest_spread(values, choice.axis)
        for one, x, found in zip(decided, values, explained, strict=True):
            if one.differs:
                found |= _explained(x, choice, one, most)
    return explained


def _explained(values: np.ndarray, choice: Choice, one: Decided, most: float) -> np.ndarray:
    """bool of the shape of the choice: another one, of a value as good as the reference's."""
    r, o = np.asarray(one.reference), np.asarray(one.candidate)
    if choice.marks:
        one_only = (np.isin(o, (0, 1)).all(axis=choice.axis)) & (o.sum(axis=choice.axis) == 1)
        indices = Decided(r.argmax(axis=choice.axis), o.argmax(axis=choice.axis), one.inside, {})
        rows = one_only & _explained(values, Choice(choice.values, choice.axis), indices, most)
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
        explained = valid[0] & valid[1] & (indices_of[0] != indices_of[1]) & (np.abs(a - b) <= most)
    if choice.many:
        ordered = np.sort(indices_of[1], axis=-1)
        explained &= (ordered[..., 1:] != ordered[..., :-1]).all(axis=-1, keepdims=True)
    return np.asarray(np.moveaxis(explained, -1, choice.axis).reshape(r.shape))


def _places(decided: Sequence[Decided], place: Place, margin: float) -> list[np.ndarray]:
    explained = [np.zeros(np.shape(one.reference), bool) for one in decided]
    for source in place.values:
        values = as_first(decided, place.values, source)
        planes = [each.reshape(*each.shape[:2], int(np.prod(each.shape[2:]))) for each in values]
        most = margin * largest_spread(planes, 2)
        for one, x, found in zip(decided, values, explained, strict=True):
            sides = [np.asarray(side, np.int64).reshape(len(x), -1) for side in (one.reference, one.candidate)]
            if not one.differs or any((side < 0).any() or (side >= x.size).any() for side in sides):
                continue
            size = x[0].size  # samples may have been counted in smaller runs
            within = [np.stack(np.unravel_index(side % size, x.shape[1:])) for side in sides]
            a, b = (np.take_along_axis(x.reshape(len(x), -1), side % size, 1) for side in sides)
            apart = np.abs(within[0] - within[1]) <= np.array([0, *place.reach])[:, None, None]
            same = apart.all(axis=0) & (sides[0] // size == sides[1] // size) & (sides[0] != sides[1])
            found |= (same & (np.abs(a - b) <= most)).reshape(found.shape)
    return explained


def _selections(decided: Sequence[Decided], selection: Selection, margin: float) -> list[np.ndarray]:
    scores = [np.asarray(one.inside[selection.values[0]], np.float64) for one in decided]
    most = margin * largest_spread(scores, 2)
    explained = []
    for one, score in zip(decided, scores, strict=True):
        given = [one.inside[each] if isinstance(each, str) else each for each in selection.limits]
        room, overlap, least = (
            default if each is None or not np.size(each) else float(np.ravel(each)[0])
            for each, default in zip(given, (0.0, 0.0, -np.inf), strict=True)
        )
        a, b = np.split(np.asarray(one.inside[selection.boxes], np.float64), 2, axis=2)
        a, b = (a - b / 2, a + b / 2) if selection.by_centre else (np.minimum(a, b), np.maximum(a, b))
        chosen, boxes = np.asarray(one.candidate, np.int64).reshape(-1, 3), np.concatenate([a, b], axis=2)
        explained.append(np.array(is_selection(chosen, boxes, score, (room, overlap, least), most)))
    return explained
