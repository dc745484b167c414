"""Which other decisions rounding explains.

    Choice     |x[o] - x[r]| <= margin * spread of x      x: the values that the reference chose from, or those
                                                          that a function which keeps their order made them of
                                                          r, o: the indices that the two files chose
                                                          spread: the largest along the axis, see spread_along
               TopK: so place by place, and no index is there twice
    Place      the same of two elements of one window
    Selection  see truehalf.verification.ties.selections
    Step       |x - t| <= margin * spread of x - t, or what float16 moves the two by when it holds them
                                                          t: the threshold between r and o; where whole numbers are
                                                          made, that of r and the next one, and at most BESIDE of their
                                                          distance away
               x = t is no near tie: another operator, such as GreaterOrEqual for Greater, decides all of these
               otherwise. Those that stand for others (the largest of a row is x = t in Equal(x, ReduceMax(x))) are
               where as many near ties of the row went the other way
               Where the candidate's x is known, it lies beyond t, or float16 holds it no further from t

Softmax and Sigmoid make a step of the logits as large as they like beside the spread of what they put out, or nothing
where they are flat: rounding explains either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from truehalf.verification.metrics.scales import spread_along
from truehalf.verification.runs import Arrays
from truehalf.verification.ties.decisions import Choice, Decision, Place, Selection, Step
from truehalf.verification.ties.selections import is_selection

BESIDE = 0.25
_HELD = 2.0**-11  # of a number, that float16 is off by
_BETWEEN = {"Round": 0.5, "Floor": 1.0, "Ceil": 0.0}  # from the lesser of two results to the threshold between them


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
    return _steps(decided, decision, margin)


# --- choices ----------------------------------------------------------------------------------------------------------


def _choices(decided: Sequence[Decided], choice: Choice, margin: float) -> list[np.ndarray]:
    explained = [np.zeros(np.shape(one.reference), bool) for one in decided]
    for source in choice.values:
        values = _as_first(decided, choice.values, source)
        values = [-each for each in values] if choice.is_least else values
        most = margin * max(float(spread_along(each, choice.axis).max(initial=0.0)) for each in values)
        for one, x, found in zip(decided, values, explained, strict=True):
            if one.differs:
                found |= _explained(x, choice, one, most)
    return explained


def _as_first(decided: Sequence[Decided], names: Sequence[str], name: str) -> list[np.ndarray]:
    """A tensor in the shape of the first one."""
    return [np.asarray(one.inside[name], np.float64).reshape(np.shape(one.inside[names[0]])) for one in decided]


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
        values = _as_first(decided, place.values, source)
        planes = [each.reshape(*each.shape[:2], -1) for each in values]
        most = margin * max(float(spread_along(each, 2).max(initial=0.0)) for each in planes)
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
    most = margin * max(float(spread_along(each, 2).max(initial=0.0)) for each in scores)
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


# --- steps ------------------------------------------------------------------------------------------------------------


def _steps(decided: Sequence[Decided], step: Step, margin: float) -> list[np.ndarray]:
    explained = [np.zeros(np.shape(one.reference), bool) for one in decided]
    sides = [_Sides.of(one, step) for one in decided]
    known = [each for each in sides if each is not None]
    if len(known) < len(sides):
        return explained
    for source in step.values:
        shaped = zip(_as_first(decided, step.values, source), known, strict=True)
        values = [np.broadcast_to(each, one.r.shape) for each, one in shaped]
        is_first = source == step.values[0]
        from_threshold = is_first and step.threshold is not None
        spread_of = [x - one.t if from_threshold else x for x, one in zip(values, known, strict=True)]
        spread = max(float(spread_along(each.ravel(), 0)) for each in spread_of)
        made = None if is_first else _ordered(values, known)
        for x, one in zip(values, known, strict=True):
            one.note(x, margin * spread, made)
    for one, found in zip(known, explained, strict=True):
        found |= one.explained().reshape(found.shape)
    return explained


@dataclass(frozen=True)
class _Sides:
    """A step of one run, float64 of one shape.

    Attributes:
        r, o: what was decided.
        x, t: the values, and the threshold that parts r and o; NaN where none does.
        row: axes of elements that may stand for each other; empty: none do.
        widest: how far a value may be from its threshold, whatever the spread.
        possible: where another one was decided, and the candidate's value does not contradict that.
        near: where it is near enough, to be written to.
    """

    r: np.ndarray
    o: np.ndarray
    x: np.ndarray
    t: np.ndarray
    row: tuple[int, ...]
    widest: float
    possible: np.ndarray
    near: np.ndarray

    @classmethod
    def of(cls, one: Decided, step: Step) -> _Sides | None:
        """None of integers, and where shapes do not fit."""
        x, threshold = _read(step, one.inside)
        try:
            shape = np.broadcast_shapes(x.shape, threshold.shape)
            r, o = (np.asarray(side, np.float64).reshape(shape) for side in (one.reference, one.candidate))
        except ValueError:
            return None
        if one.inside[step.values[0]].dtype.kind != "f":
            return None
        row: tuple[int, ...] = ()
        if isinstance(step.threshold, str):
            sides = (1,) * (len(shape) - threshold.ndim) + threshold.shape
            row = tuple(axis for axis, side in enumerate(sides) if side < shape[axis]) or tuple(range(1, len(shape)))
        t = _parting(r, o, step.kind) if step.threshold is None else np.where((o == 0) | (o == 1), threshold, np.nan)
        x = np.broadcast_to(x, shape)
        possible = np.array(r != o)
        theirs, theirs_t = _read(step, {**one.inside, **one.theirs})
        if step.values[0] in one.theirs and theirs.shape == one.inside[step.values[0]].shape:
            beyond = (
                np.broadcast_to(theirs, shape),
                np.where(np.isnan(t), t, theirs_t if step.threshold is not None else t),
            )
            with np.errstate(invalid="ignore"):
                possible &= ((x - t) * (beyond[0] - beyond[1]) <= 0) | (_apart(*beyond) <= _held(*beyond))
        widest = BESIDE if step.threshold is None and step.kind != "Sign" else np.inf
        return cls(r, o, x, t, row, widest, possible, np.zeros(shape, bool))

    def note(self, x: np.ndarray, most: float, made: tuple[np.ndarray, np.ndarray] | None) -> None:
        """Where values are near enough to their threshold.

        Args:
            x: the values, or what they are made of.
            most: how far from the threshold is near, at least.
            made: of the latter, see `_ordered`.
        """
        x, t = x[self.possible], self.t[self.possible]
        t = t if made is None else np.interp(t, *made, left=-np.inf, right=np.inf)
        with np.errstate(invalid="ignore"):
            self.near[self.possible] |= _apart(x, t) <= np.minimum(np.maximum(most, _held(x, t)), self.widest)

    def explained(self) -> np.ndarray:
        """bool of the shape of all."""
        exact = self.possible & (self.x == self.t)
        near = self.near & ~exact
        found = near.copy()
        rises = self.o > self.r
        for way in (rises, ~rises) if self.row else ():
            for_others = exact & way
            others = (near & ~way).sum(axis=self.row, keepdims=True)
            balanced = for_others.sum(axis=self.row, keepdims=True) <= others
            found |= for_others & balanced
        return np.asarray(found)


def _read(step: Step, tensors: Arrays) -> tuple[np.ndarray, np.ndarray]:
    """float64: the values of a step, and what they are compared with; NaN where that is no number alike for all."""
    threshold = tensors[step.threshold] if isinstance(step.threshold, str) else step.threshold
    return np.asarray(tensors[step.values[0]], np.float64), np.asarray(
        np.nan if threshold is None else threshold, np.float64
    )


def _apart(x: np.ndarray, t: np.ndarray) -> np.ndarray:
    return np.asarray(np.abs(x - t))


def _held(x: np.ndarray, t: np.ndarray) -> np.ndarray:
    """What float16 moves two numbers by when it holds them."""
    return np.asarray(_HELD * (np.abs(x) + np.abs(t)))


def _parting(r: np.ndarray, o: np.ndarray, kind: str) -> np.ndarray:
    """The threshold between two results; NaN where they are not next to each other."""
    if kind == "Sign":
        return np.asarray(np.where(np.isin(o, (-1, 0, 1)), 0.0, np.nan))
    least, most = np.minimum(r, o), np.maximum(r, o)
    cuts = kind == "Cast"  # what is behind the point
    parting = np.where(most > 0, most, least) if cuts else least + _BETWEEN[kind]
    return np.asarray(np.where((most - least == 1) & (r == np.rint(r)), parting, np.nan))


def _ordered(values: Sequence[np.ndarray], sides: Sequence[_Sides]) -> tuple[np.ndarray, np.ndarray]:
    """What a function that keeps the order made, rising, and what of."""
    made, of = (np.concatenate([each.ravel() for each in all_]) for all_ in ([one.x for one in sides], values))
    order = np.argsort(made)
    return made[order], of[order]
