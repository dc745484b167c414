"""Errors of float16 at nodes that amplify them, over samples, and how much must stay in float32 to avoid them.

Every neighbourhood (truehalf.calibration.rounding.neighbourhoods) is replayed wholly in float16 on each sample. Where
the error exceeds its limit, it is replayed once more with more and more of it in float32, on the worst sample of
each, and on the first few: another sample may lose more by what is left.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from truehalf.calibration.ranges import Counter
from truehalf.calibration.ranges_form import Rounding, RoundingStep, limit_of
from truehalf.calibration.rounding.expectations import error_at_a_tie
from truehalf.calibration.rounding.neighbourhoods import MADE_BY, MOVES, Neighbourhood, computed_by, neighbourhoods
from truehalf.calibration.rounding.replays import Replay, steps
from truehalf.calibration.samples import Samples
from truehalf.ir.facts import reached, subgraphs, upstream, values_read, with_subgraphs
from truehalf.ir.inlining import OUTPUT_OF
from truehalf.ir.ops import Trait, has
from truehalf.ir.slots import is_float32

_SAMPLES = 8  # that steps are measured on, beside the worst

AbsMax = Callable[[ir.Value], float | None]


class RoundingErrors:
    """The largest error of each neighbourhood of a model so far.

    Attributes:
        always: replays of what may amplify in any model.
        cancelling: of sums that do, by the sizes of their terms; none until these are known.
    """

    def __init__(self, model: ir.Model) -> None:
        self._model = model
        self._absmax: AbsMax = lambda value: None
        self._worst: dict[ir.Node, tuple[float, str, str]] = {}
        self.always = self._replays()
        self.cancelling: list[Replay] = []

    def find_cancelling(self, absmax: AbsMax) -> None:
        """`absmax`: largest |x| that was measured of a value; None: it is not known."""
        self._absmax = absmax
        known = {replay.around.end for replay in self.always}
        self.cancelling = [replay for replay in self._replays() if replay.around.end not in known]

    def _replays(self) -> list[Replay]:
        self._around = neighbourhoods(self._model, self._absmax)
        return [Replay(each) for each in self._around if all(node.name for node in each.depths)]

    def add(self, replays: Sequence[Replay], errors: Sequence[float], sample: str) -> None:
        """Errors of replays on a sample."""
        for replay, error in zip(replays, errors, strict=True):
            end, kind = replay.around.end, replay.around.kind
            if error > max(replay.around.limit, self._worst.get(end, (0.0,))[0]):
                self._worst[end] = error, sample, kind

    def measured(self, samples: Samples, kept: Sequence[Mapping[str, np.ndarray]]) -> dict[str, Rounding]:
        """By name of the node."""
        return self._replayed(samples, kept) | self._at_ties() if self._worst else self._at_ties()

    def _at_ties(self) -> dict[str, Rounding]:
        """Of expectations, whatever the samples showed of them: those, and what writes the logits, in float32."""
        found = {}
        limit = limit_of("cancellation", True)
        for around in self._around:
            error = error_at_a_tie(around.end, self._absmax)
            if error > limit and all(node.name for node in around.depths):
                nodes = [_name(node) for node in around.depths]
                nodes += [name for leaf in around.leaves for name in _written_by(leaf, self._model)]
                steps = (RoundingStep(0.0, tuple(dict.fromkeys(nodes))),)
                found[str(around.end.name)] = Rounding(around.kind, error, limit, None, steps)
        return found

    def _replayed(self, samples: Samples, kept: Sequence[Mapping[str, np.ndarray]]) -> dict[str, Rounding]:
        noted = [each for each in neighbourhoods(self._model, self._absmax, deep=True) if each.end in self._worst]
        planned = {around.end: steps(around) for around in noted}
        replays = [step for around in noted for step in planned[around.end]]
        suspects = {str(value.name) for around in noted for value in around.end.outputs}
        wanted = {sample for _, sample, _ in self._worst.values()}
        largest: dict[ir.Node, list[float]] = {}
        given: list[str] | None = None
        started = zip(samples, itertools.chain(kept, itertools.repeat({})), strict=False)
        for index, ((name, feeds), start) in enumerate(started):
            if name not in wanted and index >= _SAMPLES:
                continue
            if given != list(start):
                given = list(start)
                counter = Counter(self._model, {}, suspects, replays=replays, given=given)
            errors = iter(counter.measure({**feeds, **start})[2])
            for around in noted:
                lost = [next(errors) for _ in planned[around.end]]
                largest[around.end] = list(map(max, lost, largest.get(around.end, lost)))
        return {str(around.end.name): self._rounding(around, largest[around.end]) for around in noted}

    def _rounding(self, around: Neighbourhood, errors: Sequence[float]) -> Rounding:
        error, sample, kind = self._worst[around.end]
        return Rounding(kind, error, around.limit, sample, tuple(_steps(around, errors, self._model)))


def _steps(around: Neighbourhood, errors: Sequence[float], model: ir.Model) -> list[RoundingStep]:
    """By depth; then all of it, with the producers of more and more leaves, the worst first."""
    deepest = max(around.depths.values())
    by_depth = [
        RoundingStep(error, tuple(_name(node) for node, each in around.depths.items() if each <= depth))
        for depth, error in zip(range(1, deepest + 1), errors, strict=False)
    ]
    by_leaf: Mapping[ir.Value, float] = dict(zip(around.leaves, errors[deepest:], strict=True))
    nodes, left = by_depth[-1].nodes, sum(by_leaf.values())
    for leaf, error in sorted(by_leaf.items(), key=lambda pair: -pair[1]):
        nodes = tuple(dict.fromkeys((*nodes, *_written_by(leaf, model))))
        left = max(left - error, 0.0)
        by_depth.append(RoundingStep(left, nodes))
    return by_depth


def _written_by(leaf: ir.Value, model: ir.Model) -> list[str]:
    """The nodes that must be float32 for a leaf to be: what computes it, and the moves and choices from there; of what
    If, Loop and Scan write, all that leads to it in their bodies, and what computes what is read there; of what a body
    reads from outside, what is said there of it.
    """
    found: dict[str, None] = {}
    for value in upstream(leaf, lambda node: has(node, Trait.EXACT) or (node.domain == "" and node.op_type in MOVES)):
        found |= dict.fromkeys(value.meta.get(MADE_BY, ()))
        node = value.producer()
        if node is None or not is_float32(value):
            continue
        found[_name(node)] = None
        for body in subgraphs(node):
            for each in _leading_to(body, node, value.index() or 0):
                made_by = each.producer()
                if made_by is None or made_by.graph is not body:
                    found |= dict.fromkeys(computed_by(each, model))
                else:
                    found |= dict.fromkeys(_name(inner) for inner in with_subgraphs(made_by))
    return list(found)


def _leading_to(body: ir.Graph, node: ir.Node, index: int) -> Iterator[ir.Value]:
    """The float32 values that an output of an If, Loop or Scan is computed from, in any turn: inside and around."""
    first = len(body.outputs) - len(node.outputs)  # a Loop writes no condition; its body reads a turn, too
    count = len(node.inputs) - (2 * first or node.attributes.get_int("num_scan_inputs", len(node.inputs)) or 0)
    states = list(body.inputs)[2 * first :][:count]
    turns = dict(
        zip(states, zip(list(body.outputs)[first:], list(node.inputs)[2 * first :], strict=False), strict=False)
    )

    def before(value: ir.Value) -> Iterable[ir.Value | None]:
        made_by = value.producer()
        if made_by is None or made_by.graph is not body:
            return turns.get(value, ())
        return filter(is_float32, values_read(made_by))

    yield from reached([body.outputs[first + index]], before)


def _name(node: ir.Node) -> str:
    return str(node.meta.get(OUTPUT_OF, node.name))
