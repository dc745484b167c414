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
from truehalf.runtime.ort import Session

# Session options of graphs that run once or twice: packing weights pays off in later runs only.
_FEW_RUNS: Mapping[str, Any] = {"optimize": False, "session.disable_prepacking": "1"}
Arrays = Mapping[str, np.ndarray]


class Graft:
    """A model that takes some of its tensors from outside and outputs others: a `Runner` of
    truehalf.verification.open_file, on the CPU provider, in emulation where the model holds FP16.
    """

    cpu_nodes: list[str] | None = None

    def __init__(
        self,
        model: ir.Model,
        shown: Sequence[str],
        given: Collection[str] = (),
        *,
        is_emulated: bool = False,
        pessimistic: bool = False,
    ) -> None:
        """Cut a copy of the model and open a session.

        Args:
            shown: tensors of the main graph to output, as the model computes them.
            given: tensors of the main graph that every run gives.
            is_emulated: the model is what truehalf.emulation.emulate makes of one, and runs as it stands.
            pessimistic: round the sums inside FP16 nodes, too.

        Raises:
            StageError: when the model cannot be emulated or loaded.
        """
        cut = grafted(model, shown, given)
        self._shown = list(dict.fromkeys(shown))
        self._inputs = {str(value.name).removesuffix(_GIVEN): value for value in cut.graph.inputs}
        self._session: Session | EmulatedSession
        if holds_fp16(cut) and not is_emulated:
            self._session = EmulatedSession(cut, pessimistic=pessimistic, **_FEW_RUNS)
        else:
            self._session = Session(cut, **_FEW_RUNS)
        self.provider, self.not_split = self._session.provider, self._session.not_split

    def run(self, feeds: Arrays) -> dict[str, np.ndarray]:
        """Return the shown tensors by name, floats as the session has them.

        Args:
            feeds: arrays by input and by given tensor. What is given is brought to the type of the tensor; what float16
                does not hold becomes +-65504, for an overflow is the error of the node that writes it.

        Raises:
            StageError: when the run fails.
        """
        arrays = {}
        for name, value in self._inputs.items():
            if name in feeds:
                is_given = str(value.name).endswith(_GIVEN)
                arrays[str(value.name)] = as_held(np.asarray(feeds[name]), value.dtype) if is_given else feeds[name]
        outputs = self._session.run(arrays)
        return {name: outputs[name] for name in self._shown}

    def close(self) -> None:
        """Free the session; it runs no more."""
        self._session.close()


_GIVEN = "/given"


def grafted(model: ir.Model, shown: Sequence[str], given: Collection[str] = ()) -> ir.Model:
    """Copy a model with tensors cut, each with an input `<name>/given`; keep the nodes that the shown tensors need."""
    copy = model.clone()
    InferTypes(missing=True)(copy)
    graph, values = copy.graph, main_values(copy)
    for name in dict.fromkeys(given):
        given_value = ir.Input(name + _GIVEN, type=values[name].type)
        graph.inputs.append(given_value)
        for node, index in list(values[name].uses()):
            node.replace_input_with(index, given_value)
    graph.outputs.clear()
    graph.outputs.extend(values[name] for name in dict.fromkeys(shown))
    common.RemoveUnusedNodesPass()(copy)
    for value in [value for value in graph.inputs if not value.uses() and not value.is_graph_output()]:
        graph.inputs.remove(value)
    return copy


def as_held(array: np.ndarray, dtype: ir.DataType | None) -> np.ndarray:
    """Convert an array to the type of a tensor, within the range of float16 where that is its type."""
    if dtype == ir.DataType.FLOAT16:
        array = np.clip(array, -MAX, MAX)
    return array if dtype is None else np.asarray(array, dtype.numpy())
