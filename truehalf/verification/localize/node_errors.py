"""Errors of every node of a candidate against the reference: local ones, and with what it inherits
(truehalf.verification.localize.side_by_side).

With d = x - t over the elements of a tensor t of the reference:

    relative error = max(rms(d) / rms(t), max|d| / max|t|)      1 where t is 0 all over and d is not

Reduced inside the graph, so that only scalars leave it. A t that is not finite, or whose squares are not (masks),
leaves the session as it is, in a second run: elements beyond 1e30 are masks there and do not count. Integers and bools
count as numbers. Where t is finite and x is not, the error is Inf. What is chosen by its values may be of another
size in each: the error is then 1.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from truehalf.calibration.instrument import InsertionPoint, Instrumented, ReportingSession, main_values
from truehalf.errors import StageError
from truehalf.verification.localize.side_by_side import Pair, SideBySide, branch, switched

_FLOAT = ir.DataType.FLOAT
_COUNTED = (_FLOAT, ir.DataType.INT64, ir.DataType.INT32, ir.DataType.BOOL)
_MASK = 1e30


@dataclass(frozen=True)
class Errors:
    """One run.

    Attributes:
        local_error: float64 [pairs]; relative error of the node on the reference's tensors; Inf: not finite.
        error: float64 [pairs]; relative error in the candidate's run; Inf: it is not finite.
        absmax: float64 [pairs]; largest |t| of the reference, masks left out.
        reference, candidate: the outputs of both, by name.
    """

    local_error: np.ndarray
    error: np.ndarray
    absmax: np.ndarray
    reference: dict[str, np.ndarray]
    candidate: dict[str, np.ndarray]


class Comparer:
    """A session over both graphs.

    Attributes:
        pairs: those that are compared: of floats, integers and bools.
    """

    def __init__(self, side: SideBySide) -> None:
        self._side = side
        values = main_values(side.model)
        self.pairs = [pair for pair in side.pairs if _is_counted(values[pair.reference])]
        self._outputs = [str(value.name) for value in side.model.graph.outputs]
        self._same_sizes = True  # until a run shows another one
        self._session: ReportingSession | None = None
        self._whole: tuple[set[int], ReportingSession | None] = set(), None

    def run(self, feeds: Mapping[str, np.ndarray]) -> Errors:
        """Errors on one batch.

        Raises:
            StageError: when the run fails.
        """
        values, columns = self._reported(feeds)
        nothing = np.zeros(0, np.float32)
        norms, largest = (columns.get(key, nothing).astype(np.float64).reshape(-1, 3).T for key in _KEYS)
        with np.errstate(all="ignore"):
            local_error, error = (_relative(norms[0], largest[0], norms[row], largest[row]) for row in (1, 2))
        absmax = largest[0]
        masked = [i for i in range(len(self.pairs)) if not np.isfinite(norms[0][i]) or not np.isfinite(absmax[i])]
        for i, exact in zip(masked, self._exactly(masked, feeds), strict=True):
            local_error[i], error[i], absmax[i] = exact
        count = len(self._side.outputs)
        candidate = {name: values[output] for name, output in self._side.outputs.items()}
        return Errors(local_error, error, absmax, {name: values[name] for name in self._outputs[:-count]}, candidate)

    def _reported(self, feeds: Mapping[str, np.ndarray]) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        try:
            if self._session is None:
                graph = Instrumented(self._side.model)
                for pair in self.pairs:
                    _report(graph, pair, self._same_sizes)
                self._session = graph.open(self._outputs)
            return self._session.run(feeds)
        except StageError:
            if not self._same_sizes:
                raise
            self._same_sizes, self._session = False, None
            return self._reported(feeds)

    def _exactly(self, masked: list[int], feeds: Mapping[str, np.ndarray]) -> list[tuple[float, float, float]]:
        """Local error, error and largest |t| of some pairs, whose tensors a separate session outputs."""
        if not masked:
            return []
        names = {i: [self.pairs[i].reference, self.pairs[i].local, self.pairs[i].accumulated] for i in masked}
        values = self._opened(set(masked)).run(feeds)[0]
        return [_exact(*(values[name].astype(np.float64) for name in names[i])) for i in masked]

    def _opened(self, masked: set[int]) -> ReportingSession:
        """The session that outputs the tensors of these pairs; opened again only where feeds ask for further ones."""
        known, session = self._whole
        if session is None or not masked <= known:
            known = known | masked
            pairs = [self.pairs[i] for i in sorted(known)]
            names = [name for pair in pairs for name in (pair.reference, pair.local, pair.accumulated)]
            session = Instrumented(self._side.model).open(names)
            self._whole = known, session
        return session


class Switched:
    """The reference in a session in which groups of nodes can be replaced by the candidate's."""

    def __init__(self, side: SideBySide, groups: list[list[Pair]]) -> None:
        model, self._switches = switched(side, groups)
        self._outputs = [str(value.name) for value in model.graph.outputs]
        self._names = list(side.model.graph.outputs[: len(self._outputs)])
        self._session = Instrumented(model).open(self._outputs)

    def run(self, feeds: Mapping[str, np.ndarray], groups: Collection[int]) -> dict[str, np.ndarray]:
        """The reference's outputs with the nodes of some groups as the candidate has them."""
        switches = {name: np.array(i in groups) for i, name in enumerate(self._switches)}
        values, _ = self._session.run({**feeds, **switches})
        return {str(old.name): values[new] for old, new in zip(self._names, self._outputs, strict=True)}


def _exact(t: np.ndarray, local: np.ndarray, accumulated: np.ndarray) -> tuple[float, float, float]:
    with np.errstate(all="ignore"):
        t, local, accumulated = (np.ravel(each if each.size == t.size else 2 * t) for each in (t, local, accumulated))
        counts = np.abs(t) < _MASK
        t, local, accumulated = t[counts], local[counts], accumulated[counts]
        norms = [[np.linalg.norm(x), np.abs(x).max(initial=0)] for x in (t, local - t, accumulated - t)]
        local_error, error = (_relative(*np.array([*norms[0], *norms[k]])) for k in (1, 2))
    return float(local_error), float(error), float(norms[0][1])


def _is_counted(value: ir.Value) -> bool:
    return isinstance(value.type, ir.TensorType) and value.dtype in _COUNTED


_KEYS = ("norms", "largest")  # of t, local - t, accumulated - t


def _report(graph: Instrumented, pair: Pair, same_sizes: bool) -> None:
    place = graph.after(pair.local)
    values = [graph.value(name) for name in (pair.reference, pair.local, pair.accumulated)]
    ranks = {None if value.shape is None else len(value.shape) for value in values}
    stacks = len(ranks) == 1 and not ranks & {None, 0}
    found = [v if v.dtype == _FLOAT else place.node("Cast", [v], {"to": int(_FLOAT)}) for v in values]
    if not stacks or not same_sizes:
        found = [place.flat(value) for value in found]
    if not same_sizes:
        found[1:] = [_as_long_as(place, found[0], other) for other in found[1:]]
    t, *others = found
    stacked = place.node("Concat", [t, *(place.node("Sub", [other, t]) for other in others)], {"axis": 0})
    rows = place.node("Reshape", [stacked, place.graph.constant([3, -1])])
    for key, op_type, read in zip(_KEYS, ("ReduceL2", "ReduceMax"), (rows, place.node("Abs", [rows])), strict=True):
        place.report(key, op_type, read, [1])


def _as_long_as(place: InsertionPoint, t: ir.Value, other: ir.Value) -> ir.Value:
    """A vector; 2 t where it is of another length."""
    same = place.node("Equal", [place.node("Size", [t]), place.node("Size", [other])])
    bodies = (
        branch("Identity", [other], _FLOAT, f"{same.name}/then"),
        branch("Add", [t, t], _FLOAT, f"{same.name}/else"),
    )
    return place.node("If", [same], {"then_branch": bodies[0], "else_branch": bodies[1]})


def _relative(t2: np.ndarray, t: np.ndarray, d2: np.ndarray, d: np.ndarray) -> np.ndarray:
    """The larger of both quotients; 0 for 0/0, 1 for x/0, Inf where d is not finite."""
    larger: np.ndarray = np.maximum(*(_quotient(part, norm) for part, norm in ((d2, t2), (d, t))))
    return np.where(np.isfinite(d2) & np.isfinite(d), larger, np.inf)


def _quotient(part: np.ndarray, norm: np.ndarray) -> np.ndarray:
    return np.where(norm == 0, np.sign(part), part / np.where(norm == 0, 1, norm))
