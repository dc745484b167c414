"""Runs of a file beside its reference, as if both had decided alike wherever a near tie explains that they did not.

    at an output      the candidate has the reference's decision
    inside            the reference takes the candidate's instead of its own, and what follows is computed anew: an FP32
                      run that decided otherwise among equals

Only decisions that differ are looked at: the reference then runs once more, with what was decided on as its outputs.
Where the candidate has these by the same names, it does, too: values that would not pass as outputs, also of a part of
far smaller scale, explain nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from truehalf.config.precision import FP16_MAX
from truehalf.errors import StageError
from truehalf.verification.judging.judge import is_beyond
from truehalf.verification.measured import Measured
from truehalf.verification.metrics.output_errors import output_errors
from truehalf.verification.metrics.plain_outputs import masked_in, moved_alike
from truehalf.verification.runs import Arrays, Run
from truehalf.verification.ties.decided import HELD, Decided, differ
from truehalf.verification.ties.decisions import Choice, Decision, Decisions, Step, read_by
from truehalf.verification.ties.near import count_of, explained_in, taken

Counts = dict[str, int]
_NOTHING = np.zeros(0)  # of no output's shape that differs


@dataclass(frozen=True)
class Inside:
    """What is inside the two files.

    Attributes:
        reference: tensors of the reference by name, of a run in which it takes given ones for its own.
        candidate: of the candidate, of a run; None: it shows none.
        names: those that the candidate has, each with the decision that it is.
    """

    reference: Callable[[Run, Sequence[str], Arrays], Arrays]
    candidate: Callable[[Run, Sequence[str]], Arrays] | None = None
    names: Mapping[str, Decision | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Margin:
    """What rounding explains: shares of the spread of what was decided on, and of the largest of an output."""

    ties: float
    tolerance: float


def without_ties(
    runs: Sequence[Run],
    decisions: Decisions,
    margin: Margin,
    inside: Inside,
    measure: Callable[[Sequence[Run], Counts], Measured],
) -> Measured:
    """What is measured of runs once near ties are settled, at outputs and, where an output or a gate of detections
    fails all the same, inside.

    Args:
        measure: of the settled runs, and by output or value how many decisions a near tie explains.
    """
    settled, ties = settled_at_outputs(runs, decisions.at_outputs, margin, inside)
    seen = measure(settled, ties)
    if not decisions.inside or not is_beyond(seen):
        return seen
    anew, counts, given = _settled_inside(runs, decisions, margin, inside)
    if not counts:
        return seen
    settled, ties = settled_at_outputs(anew, decisions.at_outputs, margin, inside, given)
    return measure(settled, {**counts, **ties})


def settled_at_outputs(
    runs: Sequence[Run],
    decisions: Mapping[str, Decision],
    margin: Margin,
    inside: Inside,
    given: Sequence[Arrays] | None = None,
) -> tuple[list[Run], Counts]:
    """Runs in which the candidate has the reference's decision wherever a near tie explains another one.

    Args:
        decisions: of the reference, see truehalf.verification.ties.decisions.
        given: by run, what the reference takes for its own.

    Returns:
        the runs, and by output how many a near tie explains, where there are any.
    """
    settled, counts = list(runs), {}
    given = given or [{} for _ in runs]
    for name, decision in decisions.items():
        both = [(run.reference[name], run.candidate.get(name, _NOTHING)) for run in runs]
        explained, count = _explained(runs, name, both, decision, margin, inside, given)
        if count:
            counts[name] = count
            for i, (each, (r, o)) in enumerate(zip(explained, both, strict=True)):
                candidate = {**settled[i].candidate, name: taken(each, r, o).astype(np.asarray(o).dtype)}
                settled[i] = replace(settled[i], candidate=candidate)
    return settled, counts


def _settled_inside(
    runs: Sequence[Run], decisions: Decisions, margin: Margin, inside: Inside
) -> tuple[list[Run], Counts, list[Arrays]]:
    """Runs whose reference has the candidate's decisions inside wherever a near tie explains another one; as they are
    where a file does not run with these as outputs.

    Returns:
        the runs; by value how many a near tie explains, where there are any; by run what the reference took.
    """
    given: list[dict[str, np.ndarray]] = [{} for _ in runs]
    counts: Counts = {}
    left = list(decisions.inside) if inside.candidate is not None else []
    try:
        theirs = [inside.candidate(run, left) for run in runs] if inside.candidate is not None and left else []
        while left:
            own = [inside.reference(run, left, more) for run, more in zip(runs, given, strict=True)]
            both = {name: [(r[name], o[name]) for r, o in zip(own, theirs, strict=True)] for name in left}
            name = next((name for name in left if any(map(differ, *zip(*both[name], strict=True)))), None)
            if name is None:
                break
            left = left[left.index(name) + 1 :]
            explained, count = _explained(runs, name, both[name], decisions.inside[name], margin, inside, given)
            if count:
                counts[name] = count
                for more, each, (r, o) in zip(given, explained, both[name], strict=True):
                    settled = taken(each, o, r).astype(np.asarray(r).dtype)
                    more.update(dict.fromkeys((name, *decisions.twins.get(name, ())), settled))
        if counts:
            anew = zip(runs, given, strict=True)
            runs = [replace(run, reference=inside.reference(run, list(run.reference), more)) for run, more in anew]
    except StageError:
        return list(runs), {}, [{} for _ in runs]
    return list(runs), counts, list(given)


def _explained(
    runs: Sequence[Run],
    name: str,
    both: Sequence[tuple[np.ndarray, np.ndarray]],
    decision: Decision,
    margin: Margin,
    inside: Inside,
    given: Sequence[Arrays],
) -> tuple[list[np.ndarray], int]:
    """By run which of another decision a near tie explains; and how many."""
    nothing = [np.zeros(np.shape(r), bool) for r, _ in both]
    if not any(map(differ, *zip(*both, strict=True))):
        return nothing, 0
    groups = read_by(decision)
    reads = [each for group in groups for each in group]
    values = [inside.reference(run, reads, more) for run, more in zip(runs, given, strict=True)]
    called = _names_in_candidate(reads, name, decision, inside)
    theirs = [
        inside.candidate(run, [*called.values()]) if inside.candidate is not None and called else {} for run in runs
    ]
    theirs = [{each: own[other] for each, other in called.items()} if own else {} for own in theirs]
    decided = [Decided(r, o, own, other) for (r, o), own, other in zip(both, values, theirs, strict=True)]
    if decision.operands and all({name, *decision.operands} <= {*each} for each in theirs):
        decided = [_following(*each, name, decision, inside) for each in zip(runs, decided, given, strict=True)]
    explained = explained_in(decided, decision, margin.ties)
    of_all = runs, decided
    if not any(each.any() for each in explained) or not all(
        _one_alike(*of_all, names, margin.tolerance, inside, given) for names in groups
    ):
        return nothing, 0
    return explained, sum(count_of(each, one, decision) for each, one in zip(explained, decided, strict=True))


def _names_in_candidate(reads: Sequence[str], name: str, decision: Decision, inside: Inside) -> dict[str, str]:
    """By name of a tensor of the reference what it is called in the candidate: operands that it has not by their place,
    as what was folded into them took their names along.
    """
    called = {each: each for each in (*reads, name) if each in inside.names}
    its_own = inside.names.get(name)
    operands = its_own.operands if its_own is not None and type(its_own) is type(decision) else ()
    if len(operands) == len(decision.operands) and not {*decision.operands} <= {*called}:
        called.update(zip(decision.operands, operands, strict=True))
    return called


def _following(run: Run, one: Decided, given: Arrays, name: str, decision: Decision, inside: Inside) -> Decided:
    """What was decided, with where the candidate follows the reference's rule."""
    asked = np.asarray(one.theirs[name])
    follows = np.zeros(np.shape(asked), bool)
    is_exact = isinstance(decision, Choice) or (isinstance(decision, Step) and decision.is_held)
    for by in (0.0, None, *(() if is_exact else (HELD, -HELD))):
        operands = {each: _moved(one.theirs[each], by) for each in decision.operands}
        made = np.asarray(inside.reference(run, [name], {**given, **operands})[name])
        follows |= (made == asked) if made.shape == asked.shape else False
        if follows.all():
            break
    return replace(one, follows=follows)


def _moved(values: np.ndarray, by: float | None) -> np.ndarray:
    """By a share of themselves; None: to where float16 holds them."""
    if values.dtype.kind != "f" or by == 0:
        return np.asarray(values)
    with np.errstate(over="ignore"):
        moved = values.astype(np.float16) if by is None else values * (1 + by)
    return np.asarray(moved, values.dtype)


def _without_masks(r: np.ndarray, o: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Values, 0 where one is not finite or both are masks beyond what float16 holds."""
    if np.shape(r) != np.shape(o):
        return r, o
    kept = np.isfinite(r) & np.isfinite(o) & ~((r <= -FP16_MAX / 2) & (o <= -FP16_MAX / 2))
    return np.where(kept, r, 0), np.where(kept, o, 0)


def _one_alike(
    runs: Sequence[Run],
    decided: Sequence[Decided],
    names: Sequence[str],
    tolerance: float,
    inside: Inside,
    given: Sequence[Arrays],
) -> bool:
    """Whether what was decided on, or what functions that keep the order made that of, is within the tensor rule, and
    so in each of its slices, as far as the candidate has it; none of it moved alike; and made by the same functions.
    """
    shown = [name for name in names if all(name in one.theirs for one in decided)]
    known = [each for each in shown if all(np.shape(one.theirs[each]) == np.shape(one.inside[each]) for one in decided)]
    pairs = {name: [_without_masks(one.inside[name], one.theirs[name]) for one in decided] for name in known}
    places = [run.names[0] for run in runs]
    if any(moved_alike(name, pairs[name]) for name in known):
        return False
    for name in known:
        sides = zip(runs, pairs[name], strict=True)
        beside = [replace(run, reference={name: r}, candidate={name: o}) for run, (r, o) in sides]
        is_off = output_errors(name, pairs[name], tolerance, places).passed is False
        if is_off or masked_in(name, beside, tolerance, clusters=False):
            continue
        if name == known[0]:
            return True
        replaced = [{**more, name: one.theirs[name]} for more, one in zip(given, decided, strict=True)]
        made = [inside.reference(run, known[:1], more)[known[0]] for run, more in zip(runs, replaced, strict=True)]
        again = [_without_masks(r, one.theirs[known[0]]) for r, one in zip(made, decided, strict=True)]
        return output_errors(known[0], again, tolerance, places).passed is not False
    return not known
