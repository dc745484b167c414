"""Graft: a model with some tensors given from outside and others shown.

One primitive answers what a comparison of two files asks of their insides:

    near tie or wrong?           the reference, given the candidate's operands of decisions; shows what it outputs
    error that a node makes      the candidate, given the reference's tensors everywhere; shows what it computes of each
    effect of a node             the reference, given that node's value in the candidate; shows what it outputs
    where NaN arises             as the error of a node: the first tensor that is not finite
    errors behind a TopK         the candidate, given the indices that the reference chooses

A given tensor is cut: its readers read what is given, and what the model itself computes of it can be shown beside.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import common

from truehalf.calibration.instrument import main_values
from truehalf.emulation.sessions import EmulatedSession
from truehalf.float16 import MAX
from truehalf.ir.facts import holds_fp16
from truehalf.ir.normalize import InferTypes
from truehalf.ir.opset import ToOpset
from truehalf.runtime.ort import Session

_WHERE_FROM = 9  # opset
# Session options of graphs that run once or twice: packing weights pays off in later runs only.
_FEW_RUNS: Mapping[str, Any] = {"optimize": False, "session.disable_prepacking": "1"}
Arrays = Mapping[str, np.ndarray]


class Graft:
    """A session of a model that takes some of its tensors from outside, and outputs others.

    Attributes:
        model: the model of the session; an input `<name>/given` for each given tensor.
    """

    def __init__(
        self,
        model: ir.Model,
        shown: Sequence[str],
        given: Collection[str] = (),
        *,
        optional: Collection[str] = (),
        is_emulated: bool = False,
        pessimistic: bool = False,
    ) -> None:
        """Cut the model and open a session.

        Args:
            model: FP32 runs on the CPU provider; a model that holds FP16 in emulation. It is left as it is.
            shown: tensors of the main graph to output, as the model computes them.
            given: tensors of the main graph that every run gives.
            optional: tensors of the main graph that a run may give, each of the shape that the model computes.
            is_emulated: the model is what truehalf.emulation.emulate makes of one, and runs as it stands.
            pessimistic: round the sums inside FP16 nodes, too.

        Raises:
            StageError: when the model cannot be emulated or loaded.
        """
        self.model = grafted(model, shown, given, optional)
        self._shown, self._optional = list(dict.fromkeys(shown)), list(dict.fromkeys(optional))
        self._inputs = {str(value.name): value for value in self.model.graph.inputs}
        self._session: Session | EmulatedSession
        if holds_fp16(self.model) and not is_emulated:
            self._session = EmulatedSession(self.model, pessimistic=pessimistic, **_FEW_RUNS)
        else:
            self._session = Session(self.model, **_FEW_RUNS)

    def run(self, feeds: Arrays, given: Arrays | None = None) -> dict[str, np.ndarray]:
        """Return the shown tensors by name, floats as the session has them.

        Args:
            feeds: arrays by graph input.
            given: arrays by given or optional tensor. Float arrays are brought to the type of the tensor; what float16
                does not hold becomes +-65504, for an overflow is the error of the node that writes it.

        Raises:
            StageError: when the run fails.
        """
        arrays = {name: array for name, array in feeds.items() if name in self._inputs}
        for name, array in (given or {}).items():
            if (value := self._inputs.get(_given(name))) is not None:
                arrays[_given(name)] = as_held(np.asarray(array), value.dtype)
        for name in self._optional:
            if _flag(name) in self._inputs:
                arrays[_flag(name)] = np.array(_given(name) in arrays)
                kind = self._inputs[_given(name)].dtype
                arrays.setdefault(_given(name), np.zeros((), kind.numpy() if kind else np.float32))
        outputs = self._session.run(arrays)
        return {name: outputs[name] for name in self._shown}

    def close(self) -> None:
        """Free the session; it runs no more."""
        self._session.close()


def grafted(
    model: ir.Model, shown: Sequence[str], given: Collection[str] = (), optional: Collection[str] = ()
) -> ir.Model:
    """Copy a model with tensors cut, and keep the nodes that the shown tensors need.

    See `Graft`. An optional tensor has a BOOL input `<name>/is_given` beside.
    """
    copy = model.clone()
    InferTypes(missing=True)(copy)
    if optional and copy.graph.opset_imports.get("", _WHERE_FROM) < _WHERE_FROM:
        ToOpset(_WHERE_FROM)(copy)
    graph, values = copy.graph, main_values(copy)
    for name in dict.fromkeys([*given, *optional]):
        computed, uses = values[name], list(values[name].uses())
        if not uses:
            continue
        given_value = ir.Input(_given(name), type=computed.type)
        graph.inputs.append(given_value)
        read = _chosen(graph, computed, given_value, name) if name in optional else given_value
        for node, index in uses:
            node.replace_input_with(index, read)
    graph.outputs.clear()
    graph.outputs.extend(values[name] for name in dict.fromkeys(shown))
    common.RemoveUnusedNodesPass()(copy)
    unused = [value for value in graph.inputs if not value.uses() and not value.is_graph_output()]
    for value in unused:
        graph.inputs.remove(value)
    return copy


def _chosen(graph: ir.Graph, computed: ir.Value, given: ir.Value, name: str) -> ir.Value:
    """Add nodes that choose a given tensor where its flag is set; return what they write."""
    flag = ir.Input(_flag(name), shape=ir.Shape([]), type=ir.TensorType(ir.DataType.BOOL))
    graph.inputs.append(flag)
    sides = [given, computed]
    nodes = []
    if computed.dtype == ir.DataType.BOOL:  # ONNX Runtime's Where takes no booleans
        nodes = [ir.node("Cast", [side], {"to": int(ir.DataType.INT32)}) for side in sides]
        sides = [node.outputs[0] for node in nodes]
    nodes.append(ir.node("Where", [flag, *sides]))
    if computed.dtype == ir.DataType.BOOL:
        nodes.append(ir.node("Cast", [nodes[-1].outputs[0]], {"to": int(ir.DataType.BOOL)}))
    for number, node in enumerate(nodes):
        node.name = node.outputs[0].name = f"{name}/choice/{number}"
    chosen: ir.Value = nodes[-1].outputs[0]
    chosen.type, chosen.shape = computed.type, computed.shape
    producer = computed.producer()
    if producer is None:
        graph.insert_before(graph[0], nodes)
    else:
        graph.insert_after(producer, nodes)
    return chosen


def _given(name: str) -> str:
    return f"{name}/given"


def _flag(name: str) -> str:
    return f"{name}/is_given"


def as_held(array: np.ndarray, dtype: ir.DataType | None) -> np.ndarray:
    """The array in the type of a tensor, within the range of float16 where that is its type."""
    if dtype == ir.DataType.FLOAT16:
        array = np.clip(array, -MAX, MAX)
    return array if dtype is None else np.asarray(array, dtype.numpy())
