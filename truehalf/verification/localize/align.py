"""Alignment of the tensors of a candidate with those of the reference.

    by name       the same name, where names mean the same in both files: four of five shared ones have one operator
    by suffix     the candidate's name without what converters hang on (_cast_to_fp16, _output_cast0, _fp16, ...)
    by structure  the same operator on aligned inputs, or the same operator or name before aligned readers; what
                  several nodes fit is distinguished by the weights, then by the order of the file

Casts and Identities say nothing: operators, inputs and readers are compared without them. Tensors of the main graph
only.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from truehalf.ir.ops import Trait, has

_TRUSTED = 0.8  # of the shared names
_SUFFIX = re.compile(
    r"(?:[_/.](?:(?:in|out)put)?_?(?:cast(?:ed)?\d*|to|fp16|fp32|float16|float32|half|float|\d))+$", re.I
)
_LARGEST_COMPARED = 1 << 22  # elements of a weight


def align(reference: ir.Model, candidate: ir.Model) -> dict[str, str]:
    """Candidate tensor by reference tensor: inputs and what nodes compute, in the order of the reference.

    Each candidate tensor stands for one reference tensor at most. Constants are not in it.
    """
    return _Alignment(_Side(reference), _Side(candidate)).run()


def source_node(value: ir.Value) -> ir.Node | None:
    """The node that a tensor comes from, Casts and Identities passed over; the first Cast where nothing else is."""
    nodes = [node for each in uncast(value) if (node := each.producer()) is not None]
    return nodes[-1] if nodes else None


def uncast(value: ir.Value) -> Iterator[ir.Value]:
    """A tensor, and what Casts and Identities make it of, one behind the other."""
    source: ir.Value | None = value
    while source is not None:
        yield source
        node = source.producer()
        source = node.inputs[0] if node is not None and has(node, Trait.SAME) else None


@dataclass
class _Side:
    """One of the two graphs.

    Attributes:
        values: inputs and what nodes compute, by name.
        names: what each tensor is called in the reference, as far as it is aligned; of both sides alike.
    """

    model: ir.Model
    values: dict[str, ir.Value] = field(init=False)
    names: dict[ir.Value, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        graph = self.model.graph
        inputs = [value for value in graph.inputs if not value.is_initializer()]
        computed = [out for node in graph if node.op_type != "Constant" for out in node.outputs if out.name]
        self.values = {str(value.name): value for value in [*inputs, *computed]}

    def open_nodes(self) -> Iterator[ir.Node]:
        """Nodes that compute something and are not aligned."""
        for node in self.model.graph:
            if not has(node, Trait.SAME) and node.op_type != "Constant":
                outputs = [output for output in node.outputs if output.name]
                if outputs and not any(output in self.names for output in outputs):
                    yield node

    def called(self, value: ir.Value) -> str | None:
        """The reference's name for a tensor, looked for through Casts and Identities."""
        return next((self.names[each] for each in uncast(value) if each in self.names), None)


class _Alignment:
    def __init__(self, reference: _Side, candidate: _Side) -> None:
        self.reference, self.candidate = reference, candidate

    def run(self) -> dict[str, str]:
        self._by_name()
        self._by_suffix()
        while self._forward() or self._backward():
            pass
        found = {name: str(value.name) for value, name in self.candidate.names.items()}
        return {name: found[name] for name in self.reference.values if name in found}

    def _pair(self, ours: ir.Value, theirs: ir.Value) -> bool:
        """Align two tensors; whether that was possible and new."""
        if ours in self.reference.names or theirs in self.candidate.names:
            return False
        self.reference.names[ours] = self.candidate.names[theirs] = str(ours.name)
        return True

    def _pair_nodes(self, ours: ir.Node, theirs: ir.Node) -> bool:
        outputs = [(a, b) for a, b in zip(ours.outputs, theirs.outputs, strict=False) if a.name and b.name]
        return sum(self._pair(a, b) for a, b in outputs) > 0

    # --- names --------------------------------------------------------------------------------------------------------

    def _by_name(self) -> None:
        shared = [name for name in self.reference.values if name in self.candidate.values]
        pairs = [(self.reference.values[name], self.candidate.values[name]) for name in shared]
        same = [_operator(a) == _operator(b) for a, b in pairs]
        trusted = sum(same) >= _TRUSTED * len(same)
        outputs = {id(value) for value in self.reference.model.graph.outputs}
        for (ours, theirs), alike in zip(pairs, same, strict=True):
            fixed = ours.producer() is None or id(ours) in outputs  # inputs and outputs are named by contract
            may_differ = alike and trusted  # a node of the same name and operator that computes another shape
            if (alike or trusted or fixed) and (may_differ or _shapes_agree(ours, theirs)):
                self._pair(ours, theirs)

    def _by_suffix(self) -> None:
        for name, theirs in self.candidate.values.items():
            stem = _SUFFIX.sub("", name)
            ours = self.reference.values.get(stem) if stem != name else None
            if ours is not None and _operator(ours) == _operator(theirs) and _shapes_agree(ours, theirs):
                self._pair(ours, theirs)

    # --- structure ----------------------------------------------------------------------------------------------------

    def _forward(self) -> bool:
        """Align nodes of the same operator on the same aligned inputs."""
        groups: list[dict[object, list[ir.Node]]] = []
        for side in (self.reference, self.candidate):
            found: dict[object, list[ir.Node]] = defaultdict(list)
            for node in side.open_nodes():
                if (key := _key(node, side)) is not None:
                    found[key].append(node)
            groups.append(found)
        changed = False
        for key, ours in groups[0].items():
            for a, b in _told_apart(ours, groups[1].get(key, [])):
                changed |= self._pair_nodes(a, b)
        return changed

    def _backward(self) -> bool:
        """Align what aligned nodes read at the same position."""
        changed = False
        for a, b in self._aligned_nodes():
            for x, y in zip(a.inputs, b.inputs, strict=False):
                left, right = _before_casts(x), _before_casts(y)
                if left is None or right is None:
                    continue
                if _operator(left) != _operator(right) and left.name != right.name:
                    continue
                if left.name in self.reference.values and right.name in self.candidate.values:
                    changed |= _shapes_agree(left, right) and self._pair(left, right)
        return changed

    def _aligned_nodes(self) -> Iterator[tuple[ir.Node, ir.Node]]:
        theirs = {name: source_node(value) for value, name in self.candidate.names.items()}
        for value, name in list(self.reference.names.items()):
            a, b = source_node(value), theirs.get(name)
            if a is not None and b is not None and (a.domain, a.op_type) == (b.domain, b.op_type):
                yield a, b


def _before_casts(value: ir.Value | None) -> ir.Value | None:
    return None if value is None else list(uncast(value))[-1]


def _operator(value: ir.Value) -> tuple[str, str, int] | None:
    """Domain and type of the node that a tensor comes from, and which of its outputs it is; None for inputs."""
    before = _before_casts(value)
    node = before.producer() if before is not None else None
    if before is None or node is None:
        return None
    return node.domain, node.op_type, before.index() or 0


def _shapes_agree(a: ir.Value, b: ir.Value) -> bool:
    """Not known to differ."""
    if a.shape is None or b.shape is None:
        return True
    if len(a.shape) != len(b.shape):
        return False
    return all(x == y for x, y in zip(a.shape, b.shape, strict=True) if isinstance(x, int) and isinstance(y, int))


def _key(node: ir.Node, side: _Side) -> object | None:
    """What a node computes of which aligned tensors; None where one of its inputs is not aligned."""
    inputs: list[tuple[str, object]] = []
    for value in node.inputs:
        constant = _constant(value)
        if value is None:
            inputs.append(("absent", ""))
        elif constant is not None:
            inputs.append(("constant", tuple(constant.shape.numpy())))
        elif (name := side.called(value)) is not None:
            inputs.append(("tensor", name))
        else:
            return None
    if all(kind != "tensor" for kind, _ in inputs):
        return None
    if has(node, Trait.COMMUTES):
        inputs.sort(key=repr)
    return node.domain, node.op_type, len(node.outputs), tuple(inputs), _attributes(node)


def _attributes(node: ir.Node) -> tuple[tuple[str, object], ...]:
    """Integers and strings among the attributes: where an error changes one, an axis, the readers stay the same."""
    kinds = (ir.AttributeType.INT, ir.AttributeType.INTS, ir.AttributeType.STRING)
    return tuple(
        (name, repr(attribute.value)) for name, attribute in sorted(node.attributes.items()) if attribute.type in kinds
    )


def _constant(value: ir.Value | None) -> ir.TensorProtocol | None:
    before = _before_casts(value)
    return None if before is None else ir.convenience.get_const_tensor(before)


def _told_apart(ours: list[ir.Node], theirs: list[ir.Node]) -> list[tuple[ir.Node, ir.Node]]:
    """Pairs of nodes that fit each other, the same number of both; by weights first, then in their order."""
    if len(ours) != len(theirs):
        return []
    if len(ours) == 1:
        return [(ours[0], theirs[0])]
    marks: Mapping[bytes, list[ir.Node]] = defaultdict(list)
    for node in theirs:
        marks[_mark(node)].append(node)
    pairs, left = [], []
    for node in ours:
        alike = marks[_mark(node)]
        if alike:
            pairs.append((node, alike.pop(0)))
        else:
            left.append(node)
    used = {id(b) for _, b in pairs}
    return pairs + list(zip(left, [node for node in theirs if id(node) not in used], strict=True))


def _mark(node: ir.Node) -> bytes:
    """The weights of a node as float16 holds them."""
    parts = []
    for value in node.inputs:
        tensor = _constant(value)
        if tensor is not None and tensor.size <= _LARGEST_COMPARED:
            array = tensor.numpy()
            with np.errstate(over="ignore"):
                parts.append((array.astype(np.float16) if tensor.dtype.is_floating_point() else array).tobytes())
    return b"|".join(parts)
