"""Runs of a file beside its reference, as if both had decided alike wherever a near tie explains that they did not.

    at an output      the candidate has the reference's decision
    inside            the reference takes the candidate's instead of its own, and what follows is computed anew: an FP32
                      run that decided otherwise among equals

Only decisions that differ are looked at: both files then run once more, with what they decided on as outputs. Values
that would not pass as outputs, also by what they spread over, explain nothing, nor do those of a part of far smaller
scale; nor a decision that the reference would not have made of the candidate's values: it runs on these, too. What a
candidate shows nothing of is no near tie. Of an engine, of which only outputs are known, the margin alone decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import onnx_ir as ir

from truehalf.config.verification import VerifyConfig
from truehalf.errors import StageError
from truehalf.float16 import MAX
from truehalf.verification.judging.judge import is_beyond
from truehalf.verification.measured import Measured
from truehalf.verification.metrics.output_errors import output_errors
from truehalf.verification.metrics.plain_outputs import masked_in
from truehalf.verification.metrics.scales import SLICES, spread_along
from truehalf.verification.open_file import OpenFile
from truehalf.verification.runs import Arrays, Run
from truehalf.verification.ties.decided import ENOUGH, HELD, Decided, differ
from truehalf.verification.ties.decisions import Choice, Decision, Decisions, Step, names_in, read_by
from truehalf.verification.ties.near import count_of, explained_in, taken

Counts = dict[str, int]
_NOTHING = np.zeros(0)  # of no output's shape that differs


@dataclass(frozen=True)
class Inside:
    """What is inside the two files.

    Attributes:
        model: the reference's.
        reference: opens it, once.
        candidate: opened; None: it shows nothing.
        outputs: of a file on what went into a run, and on tensors that it takes for its own.
    """

    model: ir.Model
    reference: Callable[[], OpenFile]
    candidate: OpenFile | None
    outputs: Callable[[OpenFile, Run, Arrays], Arrays]

    @cached_property
    def names(self) -> dict[str, Decision | None]:
        """Those of tensors that the candidate has, each with the decision that it is."""
        return {} if self.candidate is None else names_in(self.candidate.file.model)


def without_ties(
    runs: Sequence[Run],
    options: VerifyConfig,
    inside: Inside,
    measure: Callable[[Sequence[Run], Counts], Measured],
) -> Measured:
    """What is measured of runs once near ties are settled, at outputs and, where an output or a gate of detections
    fails all the same, inside; of runs as they are where verify.tie_margin is 0.

    Args:
        measure: of the settled runs, and by output or value how many decisions a near tie explains.
    """
    if not options.tie_margin:
        return measure(runs, {})
    decisions = Decisions.of(inside.model, inside.names)
    looked = _Looked(runs, options, inside, [{} for _ in runs])
    at_outputs = {name: each for name, each in decisions.at_outputs.items() if name in runs[0].reference}
    settled, ties = looked.settled_at_outputs(at_outputs)
    seen = measure(settled, ties)
    if not decisions.inside or not is_beyond(seen):
        return seen
    anew, counts = looked.settled_inside(decisions)
    if not counts:
        return seen
    settled, ties = anew.settled_at_outputs(at_outputs)
    return measure(settled, {**counts, **ties})


@dataclass(frozen=True)
class _Looked:
    """Runs that are looked into.

    Attributes:
        given: by run, what the reference takes for its own.
    """

    runs: Sequence[Run]
    options: VerifyConfig
    inside: Inside
    given: Sequence[Arrays]

    def settled_at_outputs(self, decisions: Mapping[str, Decision]) -> tuple[list[Run], Counts]:
        """Runs in which the candidate has the reference's decision wherever a near tie explains another one; and by
        output how many that are, where there are any.
        """
        settled, counts = list(self.runs), {}
        for name, decision in decisions.items():
            both = [(run.reference[name], run.candidate.get(name, _NOTHING)) for run in self.runs]
            try:
                explained, count = self._explained(name, decision, both)
            except StageError:  # a file does not run with these as outputs
                continue
            if count:
                counts[name] = count
                for i, (each, (r, o)) in enumerate(zip(explained, both, strict=True)):
                    candidate = {**settled[i].candidate, name: taken(each, r, o).astype(np.asarray(o).dtype)}
                    settled[i] = replace(settled[i], candidate=candidate)
        return settled, counts

    def settled_inside(self, decisions: Decisions) -> tuple[_Looked, Counts]:
        """Runs whose reference has the candidate's decisions inside wherever a near tie explains another one, and by
        value how many that are; none where a file does not run with these as outputs.
        """
        given: list[dict[str, np.ndarray]] = [{} for _ in self.runs]
        anew, counts = replace(self, given=given), dict[str, int]()
        left = list(decisions.inside) if self.inside.candidate is not None else []
        try:
            theirs = self._of_candidate(left)
            while left:
                own = anew._of_reference(left)
                both = {name: [(r[name], o[name]) for r, o in zip(own, theirs, strict=True)] for name in left}
                name = next((name for name in left if any(map(differ, *zip(*both[name], strict=True)))), None)
                if name is None:
                    break
                left = left[left.index(name) + 1 :]
                explained, count = anew._explained(name, decisions.inside[name], both[name])
                if count:
                    counts[name] = count
                    for more, each, (r, o) in zip(given, explained, both[name], strict=True):
                        settled = taken(each, o, r).astype(np.asarray(r).dtype)
                        more.update(dict.fromkeys((name, *decisions.twins.get(name, ())), settled))
            outputs = anew._of_reference(list(self.runs[0].reference)) if counts else []
        except StageError:
            return self, {}
        runs = (
            [replace(run, reference=own) for run, own in zip(self.runs, outputs, strict=True)] if counts else self.runs
        )
        return replace(anew, runs=runs), counts

    def _of_reference(self, names: Sequence[str], more: Sequence[Arrays] | None = None) -> list[Arrays]:
        """By run its tensors, where it takes `more` for its own, too."""
        more = more or [{} for _ in self.runs]
        given = [{**one, **other} for one, other in zip(self.given, more, strict=True)]
        own, outputs = self.inside.reference(), self.inside.outputs
        return [outputs(own.probing(names, each), run, each) for run, each in zip(self.runs, given, strict=True)]

    def _of_candidate(self, names: Sequence[str]) -> list[Arrays]:
        if self.inside.candidate is None or not names:
            return [{} for _ in self.runs]
        shown = self.inside.candidate.probing(list(dict.fromkeys(names)))
        return [self.inside.outputs(shown, run, {}) for run in self.runs]

    def _explained(
        self, name: str, decision: Decision, both: Sequence[tuple[np.ndarray, np.ndarray]]
    ) -> tuple[list[np.ndarray], int]:
        """By run which of another decision a near tie explains; and how many."""
        nothing = [np.zeros(np.shape(r), bool) for r, _ in both], 0
        if not any(map(differ, *zip(*both, strict=True))):
            return nothing
        groups = read_by(decision)
        values = self._of_reference([each for group in groups for each in group])
        decided = [Decided(r, o, own, {}) for (r, o), own in zip(both, values, strict=True)]
        if self.inside.candidate is not None:
            called = _names_in_candidate(values[0], name, decision, self.inside.names)
            if not {name, *decision.operands} <= {*called}:
                return nothing
            theirs = self._of_candidate([*called.values()])
            theirs = [{each: own[other] for each, other in called.items()} for own in theirs]
            follows = self._follow(name, decision, theirs)
            rows = zip(decided, theirs, follows, strict=True)
            decided = [
                replace(one, theirs=own, follows=each, is_shown=np.array_equal(own[name], one.candidate))
                for one, own, each in rows
            ]
        explained = explained_in(decided, decision, self.options.tie_margin)
        if not any(each.any() for each in explained) or not all(
            self._alike(decided, names, decision.operands) for names in groups
        ):
            return nothing
        return explained, sum(count_of(each, one, decision) for each, one in zip(explained, decided, strict=True))

    def _follow(self, name: str, decision: Decision, theirs: Sequence[Arrays]) -> list[np.ndarray]:
        """Where the candidate follows the reference's rule, see Decided."""
        follows = [np.zeros(np.shape(own[name]), bool) for own in theirs]
        is_exact = isinstance(decision, Choice) or (isinstance(decision, Step) and decision.is_held)
        for by in (0.0, None, *(() if is_exact else (HELD, -HELD))):
            made = self._of_reference(
                [name], [{each: _moved(own[each], by) for each in decision.operands} for own in theirs]
            )
            follows = [
                np.asarray(found | (one[name] == own[name])) if np.shape(one[name]) == found.shape else found
                for found, one, own in zip(follows, made, theirs, strict=True)
            ]
            if all(each.all() for each in follows):
                break
        return follows

    def _alike(self, decided: Sequence[Decided], names: Sequence[str], operands: Sequence[str]) -> bool:
        """Whether what was decided on, or what functions that keep the order made that of, is within the tensor rule,
        and so in each of its slices, as far as the candidate has it; and made by the same functions.
        """
        known = [name for name in names if all(one.is_of_one_shape(name) for one in decided)]
        pairs = {name: [_without_masks(one.inside[name], one.theirs[name]) for one in decided] for name in known}
        places, tolerance = [run.names[0] for run in self.runs], self.options.gates.tensor_error_max
        for name in known:
            sides = zip(self.runs, pairs[name], strict=True)
            beside = [replace(run, reference={name: r}, candidate={name: o}) for run, (r, o) in sides]
            is_off = output_errors(name, pairs[name], tolerance, places).passed is False
            is_off |= not _within_spread(decided, name, operands, tolerance)
            if is_off or masked_in(name, beside, tolerance, SLICES):
                continue
            first = known[0]
            if name == first:
                return True
            made = self._of_reference([first], [{name: one.theirs[name]} for one in decided])
            again = [_without_masks(r[first], one.theirs[first]) for r, one in zip(made, decided, strict=True)]
            return output_errors(first, again, tolerance, places).passed is not False
        return not any(name in one.theirs for name in names for one in decided)  # of another shape, it is another one


def _names_in_candidate(
    reads: Iterable[str], name: str, decision: Decision, names: Mapping[str, Decision | None]
) -> dict[str, str]:
    """By name of a tensor of the reference what it is called in the candidate: operands that it has not by their place,
    as what was folded into them took their names along.
    """
    called = {each: each for each in (*reads, name) if each in names}
    its_own = names.get(name)
    if type(its_own) is type(decision) and not {*decision.operands} <= {*called}:
        called.update(zip(decision.operands, its_own.operands, strict=False))
    return called


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
    kept = np.isfinite(r) & np.isfinite(o) & ~((r <= -MAX / 2) & (o <= -MAX / 2))
    return np.where(kept, r, 0), np.where(kept, o, 0)


def _within_spread(decided: Sequence[Decided], name: str, operands: Sequence[str], tolerance: float) -> bool:
    """Whether errors are within the tolerance of what values, and what they are compared with, spread over, and not
    only beside an offset that all have; less what float16 moves them by.
    """
    compared = operands if name in operands else (name,)
    values = np.concatenate([np.ravel(one.inside[each]) for one in decided for each in compared])
    most = tolerance * float(spread_along(values, 0)) if len(values) >= ENOUGH else np.inf
    pairs = [_without_masks(one.inside[name], one.theirs[name]) for one in decided]
    return all(bool((np.abs(r - o) <= most + HELD * np.abs(r)).all()) for r, o in pairs)
