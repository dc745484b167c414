"""Which nodes must stay FP32, and why: the first rule that holds, in this order.

    no_fp16_kernel   no float slot of the operator can be float16 (stages.graph.slots); nothing overrides this
    subgraph         a node with subgraphs (If, Loop, Scan), and every node inside one
    quantized        QuantizeLinear, DequantizeLinear: their scales stay as they are
    op_block_list    operator type listed
    node_block_list  a listed regular expression is found in the node's name
    init_max         a constant that the node reads or holds has a finite |w| > init_max
    data_max         a float tensor that the node reads or writes had a finite |x| > data_max on calibration samples

Every other node is free. So is a node that takes either type as it stands (`any_type`): Shape, Size, a Cast of float32.
An Inf in a constant counts nowhere: float16 has it, exactly.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
import onnx_ir as ir

from stages.graph.facts import all_nodes
from stages.graph.selectors import Selection, select, selectors
from stages.graph.slots import half_slots, is_float32, schema_of, takes_any_type

_QUANTIZED = {"QuantizeLinear", "DequantizeLinear"}


class Verdict(Enum):
    """fp32: pinned. fp16: wanted. free: whatever is cheaper."""

    fp32 = "fp32"
    fp16 = "fp16"
    free = "free"


@dataclass(frozen=True)
class Rules:
    """What pins a node; None switches a rule off."""

    op_block_list: tuple[str, ...] = ()
    node_block_list: tuple[str, ...] = ()
    data_max: float | None = None
    init_max: float | None = None


@dataclass(frozen=True)
class Decision:
    """A verdict and its evidence.

    Attributes:
        rule: see the module's docstring; "none" for a free node that no rule speaks of.
        value, threshold: the numbers that were compared, where the rule compares.
        tensor: name of the tensor or constant that `value` is of.
        sample: calibration sample that `value` comes from.
        reason: one line.
    """

    verdict: Verdict
    rule: str
    reason: str
    value: float | None = None
    threshold: float | None = None
    tensor: str | None = None
    sample: str | None = None


def decide(model: ir.Model, ranges: Mapping[str, Any] | None, rules: Rules) -> dict[ir.Node, Decision]:
    """Verdicts for every node that has a float32 input or output, in graph order; subgraphs included.

    Args:
        model: normalized (names, types known).
        ranges: content of ranges.json; None: data_max judges nothing.
        rules: thresholds and lists.

    Raises:
        StageError: when a regular expression is none.
    """
    nodes = [node for node in all_nodes(model) if _is_judged(node)]
    blocked = blocked_nodes(model, rules)
    judge = _Judge(model, _finite_ranges(ranges), rules, blocked)
    return {node: judge.decision(node) for node in nodes}


def blocked_nodes(model: ir.Model, rules: Rules) -> Selection:
    """What the block lists match, among all nodes of a model."""
    return select(all_nodes(model), selectors(rules.op_block_list, rules.node_block_list))


@dataclass
class _Judge:
    model: ir.Model
    ranges: dict[str, tuple[float, str | None]]
    rules: Rules
    blocked: Selection
    constants: dict[ir.Value, float] = field(default_factory=dict)

    def decision(self, node: ir.Node) -> Decision:
        if structural := self._structure(node):
            return structural
        if selector := self.blocked.nodes.get(node):
            return Decision(Verdict.fp32, selector.list_name, f"listed in {selector}")
        return self._constant(node) or self._range(node) or Decision(Verdict.free, "none", "no rule keeps it FP32")

    def _structure(self, node: ir.Node) -> Decision | None:
        if node.graph is not self.model.graph:
            return Decision(Verdict.fp32, "subgraph", "inside a subgraph: bodies of If, Loop and Scan stay FP32")
        if any(attribute.type in _GRAPHS for attribute in node.attributes.values()):
            return Decision(Verdict.fp32, "subgraph", f"{node.op_type} holds subgraphs, which stay FP32")
        if takes_any_type(node) and not any(is_float32(value) for value in node.outputs):
            return Decision(Verdict.free, "any_type", f"{node.op_type} takes either type without a cast")
        if schema_of(node) is None:
            reason = f"operator {node.domain or 'ai.onnx'}::{node.op_type} is not known to onnx"
            return Decision(Verdict.fp32, "no_fp16_kernel", reason)
        if odd := next((value for value in _values(node) if _is_odd(value)), None):
            reason = f"{odd.name!r} is no tensor of known type, so nothing around it can change type"
            return Decision(Verdict.fp32, "no_fp16_kernel", reason, tensor=odd.name)
        if not half_slots(node):
            return Decision(Verdict.fp32, "no_fp16_kernel", f"{node.op_type} has no float16 kernel")
        if node.op_type in _QUANTIZED:
            return Decision(Verdict.fp32, "quantized", "scales of a quantized part stay as they are")
        return None

    def _constant(self, node: ir.Node) -> Decision | None:
        limit = self.rules.init_max
        if limit is None:
            return None
        largest = max(self._constants(node), default=(0.0, ""))
        if largest[0] <= limit:
            return None
        value, name = largest
        reason = f"constant {name!r} holds |w| = {value:.4g} > init_max {limit:g}"
        return Decision(Verdict.fp32, "init_max", reason, value=value, threshold=limit, tensor=name)

    def _range(self, node: ir.Node) -> Decision | None:
        limit = self.rules.data_max
        if limit is None:
            return None
        names = [value.name for value in _values(node) if is_float32(value) and value.name in self.ranges]
        name = max(names, key=lambda name: self.ranges[name or ""][0], default=None)
        if name is None or self.ranges[name][0] <= limit:
            return None
        value, sample = self.ranges[name]
        reason = f"{name!r} reaches |x| = {value:.4g} > data_max {limit:g}" + (f" on sample {sample}" if sample else "")
        return Decision(Verdict.fp32, "data_max", reason, value=value, threshold=limit, tensor=name, sample=sample)

    def _constants(self, node: ir.Node) -> Iterator[tuple[float, str]]:
        """Largest finite |w| and name of each float constant that a node reads or holds."""
        for value in node.inputs:
            if (
                value is not None
                and is_float32(value)
                and (tensor := ir.convenience.get_const_tensor(value)) is not None
            ):
                if value not in self.constants:
                    self.constants[value] = finite_absmax(tensor.numpy())
                yield self.constants[value], value.name or ""
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.TENSOR and attribute.as_tensor().dtype == ir.DataType.FLOAT:
                yield finite_absmax(attribute.as_tensor().numpy()), f"{node.name}.{attribute.name}"


_GRAPHS = {ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS}


def finite_absmax(array: np.ndarray[Any, Any]) -> float:
    """Largest |x| among the finite elements; 0 when there are none."""
    if not array.size:
        return 0.0
    low, high = float(np.min(array)), float(np.max(array))
    if not (np.isfinite(low) and np.isfinite(high)):
        finite = array[np.isfinite(array)]
        low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    return max(abs(low), abs(high))


def _finite_ranges(ranges: Mapping[str, Any] | None) -> dict[str, tuple[float, str | None]]:
    """Tensor name -> (largest finite |x|, its sample); tensors with no finite element are left out."""
    tensors: Mapping[str, Any] = ranges["tensors"] if ranges is not None else {}
    found = {}
    for name, statistics in tensors.items():
        absmax = statistics.get("absmax")
        if isinstance(absmax, (int, float)) and np.isfinite(absmax):
            found[name] = (float(absmax), statistics.get("sample"))
    return found


def _values(node: ir.Node) -> Iterator[ir.Value]:
    """Inputs and outputs that are there (an omitted one is None or has an empty name)."""
    slots: Iterable[ir.Value | None] = itertools.chain(node.inputs, node.outputs)
    yield from (value for value in slots if value is not None and value.name)


def _is_judged(node: ir.Node) -> bool:
    return node.op_type != "Constant" and any(is_float32(value) or _is_odd(value) for value in _values(node))


def _is_odd(value: ir.Value) -> bool:
    """Of unknown type, or a sequence or optional of float32."""
    return value.dtype is None or (value.dtype == ir.DataType.FLOAT and not is_float32(value))
