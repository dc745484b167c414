"""Running sums and averages in Loop and Scan: what a state loses that float16 rounds in every turn.

    s = r(s + x)          a term below half the last bit of s adds nothing; of n turns up to n 2^-12 of s is lost
    s = r(a s + b x)      as long as a s keeps: 1 / (1 - a) turns; of a matrix, by its largest eigenvalue

A state counts where the nodes from it to what the turn writes of it are sums, products, quotients and moves: others, as
Tanh, bind the error, and what is chosen by it is no rounding. What is measured is the state with these nodes in
float16, after each turn, beside that of the float32 run.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from truehalf.calibration.instrument import LARGEST
from truehalf.calibration.ranges_form import Rounding, RoundingStep, limit_of
from truehalf.errors import StageError
from truehalf.ir import ops
from truehalf.ir.facts import is_op, reached, subgraphs
from truehalf.ir.slots import is_float32
from truehalf.runtime.ort.session import Session

_SUMS = ops.with_trait(ops.Trait.CANCELS) & ops.with_trait(ops.Trait.ELEMENTWISE)
_LINEAR = (
    _SUMS
    | {
        name
        for name, row in ops.TABLE.items()
        if row.scaled or row.traits & (ops.Trait.LINEAR | ops.Trait.MATRIX_PRODUCT)
    }
    | (ops.MOVES & ops.with_trait(ops.Trait.NO_ARITHMETIC))
)
Feed = Mapping[str, np.ndarray]


class Recurrences:
    """Of one Loop or Scan.

    Args:
        node: in the model.
        model: its body, with the inputs of the subgraph first.
    """

    def __init__(self, node: ir.Node, model: ir.Model) -> None:
        self._node, self._model = str(node.name), model.clone()
        inputs, outputs = _states(node, model.graph)
        paths = {value: _path(value, after, model.graph) for value, after in zip(inputs, outputs, strict=False)}
        self._after = {str(value.name): str(after.name) for value, after in zip(inputs, outputs, strict=False)}
        self._paths = {str(value.name): [str(node.name) for node in path] for value, path in paths.items() if path}
        self._worst: dict[str, tuple[float, str]] = {}
        self._session: Session | None = None
        self._exact = model
        _round(self._model, {name for path in self._paths.values() for name in path})

    def add(self, turns: Sequence[Feed], sample: str) -> None:
        """What a body was fed in each turn of one run."""
        if self._paths and len(turns) > 1:
            try:
                self._add(turns, sample)
            except StageError:  # what does not run so has no error to be said; the body itself ran
                self._paths, self._worst = {}, {}

    def _add(self, turns: Sequence[Feed], sample: str) -> None:
        self._session = self._session or Session(self._model)
        half = {name: _rounded(turns[0][name]) for name in self._paths}
        names = [self._after[name] for name in self._paths]
        lost, size = dict.fromkeys(self._paths, 0.0), dict.fromkeys(self._paths, 0.0)
        for turn, feed in enumerate(turns):
            written = self._session.run({**feed, **half}, names)
            half = {name: _rounded(written[self._after[name]]) for name in self._paths}
            exact = turns[turn + 1] if turn + 1 < len(turns) else self._last(feed)
            for name, value in half.items():
                finite = np.isfinite(exact[name])
                difference = np.abs(np.where(finite, value - exact[name], 0), dtype=np.float64)
                lost[name] = max(lost[name], float(difference.max(initial=0.0)))
                size[name] = max(size[name], float(np.abs(exact[name][finite]).max(initial=0.0)))
        for name in self._paths:
            error = min(lost[name] / size[name], LARGEST) if size[name] else 0.0
            self._worst[name] = max(self._worst.get(name, (0.0, sample)), (error, sample))

    def _last(self, feed: Feed) -> dict[str, np.ndarray]:
        written = Session(self._exact).run(feed, [self._after[name] for name in self._paths])
        return {name: written[self._after[name]] for name in self._paths}

    def rounding(self) -> dict[str, Rounding]:
        """By name of the node, where a state loses more than the limit: it stays float32, with what computes those."""
        limit = limit_of("inner", True)
        beyond = {name: found for name, found in self._worst.items() if not found[0] <= limit}
        if not beyond:
            return {}
        nodes = dict.fromkeys([self._node, *(node for name in beyond for node in self._paths[name])])
        error, sample = max(beyond.values())
        return {self._node: Rounding("inner", error, limit, sample, (RoundingStep(0.0, tuple(nodes)),))}


def _states(node: ir.Node, body: ir.Graph) -> tuple[list[ir.Value], list[ir.Value]]:
    """Inputs and outputs of a body that hold its states, in their order."""
    if is_op(node, "Loop"):  # beside the turn and the condition
        count = len(node.inputs) - 2
        return list(body.inputs)[2 : 2 + count], list(body.outputs)[1 : 1 + count]
    count = len(node.inputs) - (node.attributes.get_int("num_scan_inputs", len(node.inputs)) or 0)
    return list(body.inputs)[:count], list(body.outputs)[:count]


def _path(before: ir.Value, after: ir.Value, body: ir.Graph) -> list[ir.Node]:
    """The nodes from a state to the next one; empty where not all of them are linear, or none adds up."""
    if not is_float32(before) or not is_float32(after):
        return []
    down = set(reached([before], lambda value: (out for node in value.consumers() for out in node.outputs)))
    up = set(reached([after], lambda value: node.inputs if (node := value.producer()) is not None else ()))
    path = [node for node in body if not down.isdisjoint(node.outputs) and not up.isdisjoint(node.outputs)]
    sound = all(node.name and is_op(node, *_LINEAR) and not subgraphs(node) for node in path)
    return path if sound and any(is_op(node, *_SUMS) for node in path) else []


def _round(model: ir.Model, names: Collection[str]) -> None:
    """Round to float16 what these nodes read."""
    for node in list(model.graph):
        for index, value in enumerate(node.inputs if node.name in names else ()):
            if value is not None and is_float32(value):
                half = ir.node("Cast", [value], {"to": int(ir.DataType.FLOAT16)})
                single = ir.node("Cast", half.outputs, {"to": int(ir.DataType.FLOAT)})
                for each, number in ((half, 16), (single, 32)):
                    each.outputs[0].name = f"{node.name}/{index}/float{number}"
                model.graph.insert_before(node, [half, single])
                node.replace_input_with(index, single.outputs[0])


def _rounded(array: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return array.astype(np.float16).astype(np.float32)
