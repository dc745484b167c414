"""Whether two files have the same plugins, and the same nodes that depend on them: nothing here runs these, so whatever
differs, but for casts and weights within float16's rounding, is open.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
import onnx_ir as ir

from truehalf.codes import coded
from truehalf.ir.facts import is_op, label_of
from truehalf.ir.proto.plugins import BEHIND
from truehalf.verification.findings import NOT_VERIFIED, Finding

_Key: TypeAlias = tuple[Any, ...]
_RELATIVE, _ABSOLUTE = 2.0**-10, 2.0**-24  # of float16


def behind_plugins(reference: ir.Model, candidate: ir.Model) -> list[Finding]:
    """A finding that decides, where what is not run is another, or computes in float16 in the candidate."""
    ours, theirs = (model.meta.get(BEHIND) for model in (reference, candidate))
    said = None
    if ours is None or theirs is None:
        said = None if ours is theirs else "one of the files has no plugins"
    elif (said := next(_differences(ours, theirs), None)) is None and (half := _in_float16(theirs) - _in_float16(ours)):
        said = f"behind plugins {', '.join(sorted(half)[:3])} are float16 in the candidate alone"
    reason = coded("plugin-not-run", f"{said}; nothing here runs plugins and what depends on them")
    return [] if said is None else [Finding("", NOT_VERIFIED, reason, no_node=True, explains=True)]


def _differences(ours: ir.Model, theirs: ir.Model) -> Iterator[str]:
    known: list[dict[ir.Value, _Key]] = []
    for model in (ours, theirs):
        read = [value for value in model.graph.inputs if value.uses() or value.is_graph_output()]
        known.append({value: ("entering", place) for place, value in enumerate(read)})
    nodes = [[node for node in model.graph if not _is_transparent(node)] for model in (ours, theirs)]
    if len(nodes[0]) != len(nodes[1]):
        yield f"{len(nodes[0])} nodes are plugins or depend on them in the reference, {len(nodes[1])} in the candidate"
        return
    for place, (one, other) in enumerate(zip(*nodes, strict=True)):
        if (one.domain, one.op_type) != (other.domain, other.op_type) or _attributes(one) != _attributes(other):
            yield f"{label_of(one)!r} ({one.op_type}) is another operator in the candidate, or has other attributes"
        pairs = list(zip(one.inputs, other.inputs, strict=False))
        if len(one.inputs) != len(other.inputs) or not all(_same(a, b, known) for a, b in pairs):
            yield f"{label_of(one)!r} ({one.op_type}) reads other values in the candidate"
        for index, values in enumerate(zip(one.outputs, other.outputs, strict=False)):
            for value, keys in zip(values, known, strict=True):
                keys[value] = ("node", place, index)
    for one, other in zip(ours.graph.outputs, theirs.graph.outputs, strict=False):
        if not _same(one, other, known):
            yield f"output {one.name!r} is another value in the candidate"


def _is_transparent(node: ir.Node) -> bool:
    return is_op(node, "Cast", "Identity", "Constant")


def _source(value: ir.Value | None) -> ir.Value | None:
    """What casts hand on."""
    while value is not None and (node := value.producer()) is not None and is_op(node, "Cast", "Identity"):
        value = node.inputs[0]
    return value


def _same(one: ir.Value | None, other: ir.Value | None, known: list[dict[ir.Value, _Key]]) -> bool:
    a, b = _source(one), _source(other)
    if a is None or b is None:
        return a is b
    if a in known[0] or b in known[1]:
        return known[0].get(a) == known[1].get(b)
    first, second = (ir.convenience.get_const_tensor(value) for value in (a, b))
    if first is None or second is None or first.shape != second.shape:
        return False
    x, y = first.numpy(), second.numpy()
    if x.dtype.kind != "f":
        return bool(np.array_equal(x, y))
    return bool(np.allclose(y.astype(np.float64), x.astype(np.float64), _RELATIVE, _ABSOLUTE, equal_nan=True))


def _attributes(node: ir.Node) -> dict[str, str]:
    return {name: _told(attribute) for name, attribute in node.attributes.items()}


def _told(attribute: ir.Attr) -> str:
    if attribute.type == ir.AttributeType.TENSOR and not attribute.is_ref():
        return repr(attribute.as_tensor().numpy().tolist())
    if attribute.type == ir.AttributeType.GRAPH and not attribute.is_ref():
        return repr([(node.op_type, _attributes(node)) for node in attribute.as_graph()])
    return repr(attribute.value)


def _in_float16(model: ir.Model) -> set[str]:
    """What nodes read in float16, as labels of casts to it and names of weights."""
    half = ir.DataType.FLOAT16
    casts = (node for node in model.graph if is_op(node, "Cast") and node.attributes.get_int("to", 0) == half)
    weights = model.graph.initializers.items()
    named = {name for name, value in weights if value.const_value and value.const_value.dtype == half}
    return named | {label_of(node) for node in casts if node.outputs[0].uses()}
