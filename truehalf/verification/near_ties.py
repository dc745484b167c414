"""Near ties inside a model: decisions that differ between two files because rounding moves what they are made of.

The reference decides once more, on the candidate's operands of all decisions (which element is the largest, on which
side of a threshold a value is) in place of its own, and runs with these decisions. If the operands are near its own,
and the candidate's outputs are then those of the reference, the candidate has decided as the reference does, among
values that are nearly equal. Only decisions are taken over: of h - floor(h) floor is, and h stays the reference's.

An operand is traced back through functions that keep the order, as far as both files have a tensor of that name: a
Sigmoid makes a step between logits as small as it likes. Operands are near if the yardstick passes them beside their
spread, less what two roundings do, and no single value is off by more than OFF of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial

import numpy as np
import onnx_ir as ir

from truehalf.errors import StageError
from truehalf.ir.facts import is_op
from truehalf.ir.ops import Trait, has, row_of
from truehalf.verification.comparison import Comparison
from truehalf.verification.graft import Graft
from truehalf.verification.metrics.yardstick import FLOOR, MASK, compared_places, deviations, spread_of
from truehalf.verification.open_file import OpenFile, is_pessimistic
from truehalf.verification.rerun import Rerun
from truehalf.verification.runs import Arrays, Part, Run, UnevenShapes, part_of

OFF = 0.04  # of the spread
ROUNDED = 2.0**-10  # of a value: two roundings to float16, which are no error
MOST_ROUNDED = 2.0**-6  # ... up to this share of the spread: beside an offset it is one, and among whole numbers
_SELECT = ("TopK", "MaxPool")  # decisions whose values are decided on again


def without_near_ties(
    runs: Sequence[Run], rerun: Rerun | None, measure: Callable[[Sequence[Run], int], Comparison]
) -> Comparison:
    """Measure runs; where an output or a gate fails, beside a reference that has decided on the candidate's operands.

    Args:
        measure: of runs, and how many tensors of the candidate the reference was given.
    """
    seen = measure(runs, 0)
    if rerun is None or rerun.candidate is None or not seen.may_be_ties:
        return seen
    reference, candidate = rerun.reference(), rerun.candidate
    known = {str(value.name) for node in candidate.file.model.graph for value in node.outputs if value.name}
    names, choices = operands(reference.file.model, known)
    if not names:
        return seen
    try:
        theirs = [
            {name: np.asarray(value, np.float32) for name, value in rerun.outputs(shown, run).items()}
            for shown in [_grafted(candidate, names)]
            for run in runs
        ]
        deciding = _grafted(reference, list(dict.fromkeys([*names, *choices])), names)
        decided = [
            rerun.outputs(deciding, run, _part_of(arrays, run)) for run, arrays in zip(runs, theirs, strict=True)
        ]
        if not _are_near(names, decided, theirs, runs, rerun):
            return seen
        made = [{name: arrays[name] for name in choices} for arrays in decided]
        if outputs := [name for name in runs[0].reference if name not in choices]:
            forced = _grafted(reference, outputs, choices)
            made = [
                {**arrays, **rerun.outputs(forced, run, _part_of(arrays, run))}
                for run, arrays in zip(runs, made, strict=True)
            ]
    except StageError:  # a file does not run with these as outputs
        return seen
    again = [
        replace(run, reference={name: arrays[name] for name in run.reference})
        for run, arrays in zip(runs, made, strict=True)
    ]
    return measure(again, len(names))


def operands(model: ir.Model, known: Collection[str]) -> tuple[list[str], list[str]]:
    """List the float tensors that decisions of the main graph are made of, each as far back as its order is kept; and
    the tensors that hold these decisions.

    Args:
        known: names of the tensors that the other file has.
    """
    operand_names: dict[str, None] = {}
    choices: dict[str, None] = {}
    for node in model.graph:
        for value in node.inputs if _decides(node) else ():
            if value is None or value.const_value is not None or value.producer() is None or value.name not in known:
                continue
            if value.dtype is not None and not value.dtype.is_floating_point():
                continue
            origin = _origin(value, known)
            producer = origin.producer()
            if producer is not None and (not _decides(producer) or is_op(producer, *_SELECT)):
                operand_names.setdefault(str(origin.name))
                choices |= dict.fromkeys(str(each.name) for each in _choices(node) if each.name)
    return list(operand_names), list(choices)


def _choices(decision: ir.Node) -> Sequence[ir.Value]:
    """Outputs of a decision that say what was decided; of a TopK no values."""
    place = row_of(decision).choice
    return decision.outputs[:1] if place is None else decision.outputs[place : place + 1]


def _decides(node: ir.Node) -> bool:
    if node.op_type == "Cast":
        to = ir.DataType(node.attributes.get_int("to", 0))
        return to.is_integer() or to == ir.DataType.BOOL
    chooses = row_of(node).choice is not None or is_op(node, "Hardmax", "QuantizeLinear")
    return chooses or has(node, Trait.STEPS)


def _origin(value: ir.Value, known: Collection[str]) -> ir.Value:
    """The first tensor of both files that functions which keep the order make a value of."""
    origin = value
    current: ir.Value | None = value
    while current is not None and (node := current.producer()) is not None and node.inputs:
        keeps_order = has(node, Trait.VIEW) or has(node, Trait.RISES)
        if not keeps_order and not is_op(node, "Cast", "Identity", "Softmax", "LogSoftmax"):
            break
        current = node.inputs[0]
        if current is None or current.const_value is not None or current.producer() is None:
            break
        if current.name in known and (current.dtype is None or current.dtype.is_floating_point()):
            origin = current
    return origin


class _GraftRunner:
    """A graft as what runs a file."""

    provider = "CPUExecutionProvider"

    def __init__(self, graft: Graft, given: Collection[str]) -> None:
        self.graft, self.given = graft, given
        self.cpu_nodes: list[str] | None = None
        self.not_split: dict[str, str] = {}

    def run(self, feed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return self.graft.run(feed, {name: feed[name] for name in self.given})

    def close(self) -> None:
        self.graft.close()


def _grafted(file: OpenFile, shown: Sequence[str], given: Collection[str] = ()) -> OpenFile:
    """A file that shows inner tensors, and takes some with its inputs, under their names."""
    graft = Graft(file.file.model, shown, given, pessimistic=is_pessimistic(file.evaluation))
    return OpenFile(file.file, file.evaluation, _GraftRunner(graft, given))


def _part_of(given: Arrays, run: Run) -> Callable[[Part], Arrays]:
    """What a part of a run is given of arrays of the whole run."""

    def of(part: Part) -> Arrays:
        if part.rows in (0, run.rows):
            return given
        if uneven := [name for name, array in given.items() if array.shape[:1] != (run.rows,)]:
            raise UnevenShapes("wrong-shape", f"{', '.join(uneven)}: axis 0 does not count samples")
        return part_of(given, part.start, part.rows)

    return of


def _are_near(
    names: Sequence[str],
    made: Sequence[Arrays],
    given: Sequence[Arrays],
    runs: Sequence[Run],
    rerun: Rerun,
) -> bool:
    """True if the candidate's operands are what the reference computes, but for what rounding or half a step does."""
    moved = _Moved(names, runs, rerun)
    places = [run.names[: max(run.rows, 1)] for run in runs]
    for name in names:
        computed, theirs = ([np.asarray(each[name], np.float64) for each in side] for side in (made, given))
        if any(r.shape != c.shape for r, c in zip(computed, theirs, strict=True)):
            return False
        kept = [compared_places(r, c) for r, c in zip(computed, theirs, strict=True)]
        values = np.concatenate([r[where] for r, where in zip(computed, kept, strict=True)])
        offset, spread = (float(np.median(values)), spread_of(values)) if values.size else (0.0, 0.0)
        most = np.inf if values.size == 1 else 0.0 if (np.rint(values) == values).all() else spread * MOST_ROUNDED
        centred, errors = [], []
        for r, c, where in zip(computed, theirs, kept, strict=True):
            same = (r == c) | (np.isnan(r) & np.isnan(c)) | ((r <= MASK) & (c <= MASK))
            if not (same | where).all():
                return False
            value, error = np.where(where, r, 0), np.where(where, c - np.where(where, r, 0), 0)
            beyond = np.maximum(np.abs(error) - np.minimum(ROUNDED * np.abs(value), most), 0)
            if (beyond > OFF * spread).any():
                return False
            centred.append(np.where(where, value - offset, 0))
            errors.append(np.sign(error) * beyond)
        others = [value + error for value, error in zip(centred, errors, strict=True)]
        parts = deviations(centred, others, places, FLOOR, partial(moved.draws, name, centred))
        if not all(each.passed for each in parts):
            return False
    return True


class _Moved:
    """Operands of the reference, and how half a step of the input moves them; run when they are asked for."""

    def __init__(self, names: Sequence[str], runs: Sequence[Run], rerun: Rerun) -> None:
        self._names, self._runs, self._rerun = names, runs, rerun

    @cached_property
    def _shown(self) -> tuple[list[Arrays], list[list[Arrays]]]:
        plain = _grafted(self._rerun.reference(), self._names)
        own = [self._rerun.outputs(plain, run) for run in self._runs]
        return own, self._rerun.shown_on_moved_inputs(plain, self._runs)

    def draws(self, name: str, operands: Sequence[np.ndarray]) -> list[list[np.ndarray]]:
        """By draw and run, these operands, moved as the reference's own move."""
        own, draws = self._shown
        return [
            [value + (after[name] - before[name]) for value, before, after in zip(operands, own, draw, strict=True)]
            for draw in draws
        ]
