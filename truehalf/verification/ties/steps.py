"""Which other steps rounding explains.

|x - t| <= margin * spread of x - t, and what float16 moves the two by when it holds them: each at most LOST of the
                 spread, where there are values enough to tell it, as beyond it all of the steps are noise
                 t: the threshold between r and o; where whole numbers are made, that of r and the next one, and,
                 where it is not known what the candidate decided on, at most BESIDE of their distance away
not x = t        where it is not known what the candidate decided by: another operator, such as GreaterOrEqual for
                 Greater, decides all of these otherwise. But those that stand for others (the largest of a row is
                 x = t in Equal(x, ReduceMax(x))) where as many near ties of the row went the other way
as many          of a row on either side, but for equal ones, where the threshold is its k-th largest
x, t not whole   a neighbour among numbers that are whole by design, as places are, is another one
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from truehalf.verification.runs import Arrays
from truehalf.verification.ties.decided import Decided, as_first, bounds, near_enough
from truehalf.verification.ties.decisions import Step

BESIDE, CHANCE = 0.25, 1e-4
ROWS = 4  # that tell whether a threshold has one rank


def explained_steps(decided: Sequence[Decided], step: Step, margin: float) -> list[np.ndarray]:
    """Of each run bool of the shape of the step: another one, which a near tie explains."""
    sides = [_Sides.of(one, step) for one in decided]
    known = [each for each in sides if each is not None]
    if len(known) < len(sides):
        return [np.zeros(np.shape(one.reference), bool) for one in decided]
    for source in step.values:
        values = as_first(decided, step.values, source)
        is_first = source == step.values[0]
        from_threshold = is_first and step.threshold is not None
        spread_of = [x - one.threshold if from_threshold else x for x, one in zip(values, known, strict=True)]
        most = bounds(margin, [each.ravel() for each in spread_of], 0)
        made = None if is_first else _ordered(as_first(decided, step.values, step.values[0]), values)
        for x, one in zip(values, known, strict=True):
            one.note(x, most, made)
        if all((one.near & ~one.exact).all() for one in known):
            break
    found = [each.explained() & many for each, many in zip(known, _as_many(decided, step, known), strict=True)]
    return [each.reshape(np.shape(one.reference)) for each, one in zip(found, decided, strict=True)]


@dataclass(frozen=True)
class _Sides:
    """A step of one run, where another one was decided.

    Attributes:
        shape: of all.
        places: one-dimensional index by axis; the arrays without another shape are float64 of these places.
        r, o: what was decided.
        t: the threshold that parts r and o; NaN where none does.
        exact: bool, whether they are equal, as is what they are made of, or whole numbers, to be written to.
        threshold: of all; NaN where each has its own.
        row: axes of elements that may stand for each other; empty: none do.
        widest: how far a value may be from its threshold, whatever the spread.
        rounds: whether a whole number has no threshold at one (Round), and is one by design all the same.
        near: bool, where it is near enough, to be written to.
        guessed: whether it is not known what the candidate decided by.
    """

    shape: tuple[int, ...]
    places: tuple[np.ndarray, ...]
    r: np.ndarray
    o: np.ndarray
    t: np.ndarray
    exact: np.ndarray
    threshold: np.ndarray
    row: tuple[int, ...]
    widest: float
    rounds: bool
    near: np.ndarray
    guessed: bool

    @classmethod
    def of(cls, one: Decided, step: Step) -> _Sides | None:
        """None of integers, and where shapes do not fit."""
        values, threshold = _read(step, one.inside)
        try:
            shape = np.broadcast_shapes(values.shape, threshold.shape, (1,))
            sides = [np.asarray(side).reshape(shape) for side in (one.reference, one.candidate)]
        except ValueError:
            return None
        if values.dtype.kind != "f":
            return None
        places = np.nonzero(sides[0] != sides[1])

        def at(array: np.ndarray) -> np.ndarray:
            return np.broadcast_to(array, shape)[places].astype(np.float64)

        r, o = map(at, sides)
        t = np.where((o == 0) | (o == 1), at(threshold), np.nan)
        t = _parting(r, o, step.kind) if step.threshold is None else t
        widest = BESIDE if not one.is_shown and step.threshold is None and step.kind != "Sign" else np.inf
        guessed = not one.is_shown or not step.is_held
        row: tuple[int, ...] = ()
        if isinstance(step.threshold, str):
            lengths = (1,) * (len(shape) - threshold.ndim) + threshold.shape
            row = tuple(axis for axis, side in enumerate(lengths) if side < shape[axis]) or tuple(range(1, len(shape)))
        exact, near = np.ones(len(r), bool), np.zeros(len(r), bool)
        return cls(shape, places, r, o, t, exact, threshold, row, widest, step.kind == "Round", near, guessed)

    def note(self, values: np.ndarray, most: tuple[float, float], made: tuple[np.ndarray, np.ndarray] | None) -> None:
        """Where values are near enough to their threshold.

        Args:
            values: the values of all, or what they are made of.
            most: see bounds.
            made: of the latter, see `_ordered`.
        """
        x = np.broadcast_to(values, self.shape)[self.places]
        t = self.t if made is None else np.interp(self.t, *made, left=-np.inf, right=np.inf)
        whole = (x == np.rint(x)) & ((t == np.rint(t)) | (self.rounds and made is None))
        self.exact[:] &= whole | ((x == t) & self.guessed)
        with np.errstate(invalid="ignore"):
            self.near[:] |= np.abs(x - t) <= np.minimum(near_enough(x, t, *most), self.widest)

    def explained(self) -> np.ndarray:
        """bool of the shape of all."""
        exact, rises = self.exact.copy(), self.o > self.r
        if exact.sum() <= CHANCE * np.prod(self.shape):
            exact = np.zeros_like(exact)
        near = self.near & ~exact
        found = self._of_all(near)
        for way in (rises, ~rises) if self.row and exact.any() else ():
            for_others = self._of_all(exact & way)
            others = self._of_all(near & ~way).sum(axis=self.row, keepdims=True)
            found |= for_others & (for_others.sum(axis=self.row, keepdims=True) <= others)
        return found

    def _of_all(self, places: np.ndarray) -> np.ndarray:
        found = np.zeros(self.shape, bool)
        found[self.places] = places
        return found


def _as_many(decided: Sequence[Decided], step: Step, sides: Sequence[_Sides]) -> list[np.ndarray]:
    """By run where a row has as many values on either side of its threshold as the reference, but for equal ones: bool,
    of length 1 along rows. A threshold that has one rank in all rows is the k-th largest: rounding makes no other k.
    """
    both = [*zip(decided, sides, strict=True)]
    anywhere = [np.ones((), bool)] * len(both)
    names = (step.values[0], str(step.threshold))
    if not all(side.row and all(one.is_of_one_shape(name) for name in names) for one, side in both):
        return anywhere
    ranks, allowed, moved = [], [], []
    for one, side in both:
        read = [_read(step, tensors) for tensors in (one.inside, one.theirs)]
        equal = [np.equal(x, t).sum(axis=side.row, keepdims=True) for x, t in read]
        above = np.greater(*read[0]).sum(axis=side.row, keepdims=True)
        ranks.append(np.stack([above, above + equal[0]]).reshape(2, -1))
        allowed.append(sum(np.maximum(each - 1, 0) for each in equal))
        more = np.asarray(one.candidate, int) - np.asarray(one.reference, int)
        moved.append(np.abs(more.reshape(side.shape).sum(axis=side.row, keepdims=True)))
    least, most = np.concatenate(ranks, axis=1)
    if least.size < ROWS or least.max() >= most.min():
        return anywhere
    return [by <= ties for by, ties in zip(moved, allowed, strict=True)]


def _read(step: Step, tensors: Arrays) -> tuple[np.ndarray, np.ndarray]:
    """The values of a step, and what they are compared with; NaN where each has its own threshold."""
    threshold = tensors[step.threshold] if isinstance(step.threshold, str) else step.threshold
    return np.asarray(tensors[step.values[0]]), np.asarray(np.nan if threshold is None else threshold)


def _parting(r: np.ndarray, o: np.ndarray, kind: str) -> np.ndarray:
    """The threshold between two results; NaN where they are not next to each other: several steps are no near tie."""
    if kind == "Sign":
        return np.asarray(np.where(np.isin(o, (-1, 0, 1)), 0.0, np.nan))
    is_below = o < r
    match kind:
        case "Floor":
            parting = o + is_below
        case "Ceil":
            parting = o - 1 + is_below
        case "Cast":  # cuts what is behind the point
            parting = np.where(is_below, np.where(o >= 0, o + 1, o), np.where(o > 0, o, o - 1))
        case _:  # Round
            parting = o - 0.5 + is_below
    return np.asarray(np.where((np.abs(o - r) == 1) & (o == np.rint(o)), parting, np.nan))


def _ordered(first: Sequence[np.ndarray], values: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """What a function that keeps the order made, rising, and what of."""
    made, of = (np.concatenate([each.ravel() for each in both]) for both in (first, values))
    order = np.argsort(made)
    return made[order], of[order]
