"""Reference and candidate: which tensors and nodes are the same.

Alignment of tensors:

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
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import onnx_ir as ir

from truehalf.calibration.instrument import main_values
from truehalf.emulation.emulate import emulate
from truehalf.emulation.pessimistic import split_sums
from truehalf.ir.facts import reached, values_read
from truehalf.ir.normalize import InferTypes
from truehalf.ir.ops import Trait, has, row_of
from truehalf.verification.graft import as_held

_FLOATS = {ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE}
_COUNTS = {ir.DataType.INT64, ir.DataType.INT32, ir.DataType.BOOL}


@dataclass(frozen=True)
class Pair:
    """Names of a tensor in the reference, and in the candidate."""

    reference: str
    candidate: str


class BothFiles:
    """An aligned pair of models.

    Attributes:
        reference, candidate: typed copies of the models.
        values: tensors of the candidate's main graph, by name.
        pairs: tensors of numbers that both files compute, in the order of the reference.
        pessimistic: True if the sums inside FP16 nodes are rounded, too.
    """

    def __init__(
        self,
        reference: ir.Model,
        candidate: ir.Model,
        *,
        pessimistic: bool = False,
    ) -> None:
        """Align them.

        Args:
            pessimistic: round the sums inside FP16 nodes, too, as the evaluation that failed did.

        Raises:
            StageError: when types cannot be inferred.
        """
        self.reference, self.candidate = reference.clone(), candidate.clone()
        for model in (self.reference, self.candidate):
            InferTypes(missing=True)(model)
        self.values, originals = main_values(self.candidate), main_values(self.reference)
        self.pairs = [
            Pair(ours, mine)
            for ours, mine in align(self.reference, self.candidate).items()
            if self.values[mine].producer() is not None
            and ours in originals
            and _comparable(originals[ours], self.values[mine])
        ]
        self._pairs = {pair.candidate: pair for pair in self.pairs}
        self.pessimistic = pessimistic

    @cached_property
    def emulated(self) -> ir.Model:
        """The candidate in emulation, whose tensors have its names (truehalf.emulation.emulate)."""
        return emulate(split_sums(self.candidate) if self.pessimistic else self.candidate)

    def as_held(self, pair: Pair, array: np.ndarray) -> np.ndarray:
        """Convert the reference's tensor to the candidate's type; float16 numbers as float32."""
        held = as_held(array, self.values[pair.candidate].dtype)
        return held.astype(np.float32) if held.dtype == np.float16 else held

    def narrow(self, pair: Pair, computed: np.ndarray) -> np.ndarray:
        """Return a tensor of the emulated candidate as float16 if that is its type."""
        return computed.astype(np.float16) if self.values[pair.candidate].dtype == ir.DataType.FLOAT16 else computed

    def is_discrete(self, pair: Pair) -> bool:
        """True if a tensor holds integers or booleans."""
        return self.values[pair.candidate].dtype in _COUNTS

    def operands(self, pair: Pair) -> list[Pair]:
        """Other pairs that the candidate computes this one from."""
        names = sorted({str(value.name) for value in self._computing(pair)} - {pair.candidate})
        return [self._pairs[name] for name in names if name in self._pairs]

    def inner(self, pair: Pair) -> list[str]:
        """Float tensors that the candidate computes between its operands and a pair, with that, in graph order."""
        found = {str(value.name) for value in self._computing(pair) if value.dtype in _FLOATS and value.producer()}
        found -= self._pairs.keys() - {pair.candidate}
        return [name for name in self.values if name in found]

    def _computing(self, pair: Pair) -> list[ir.Value]:
        """List the candidate's tensors on the way to one, back to those of other pairs."""

        def read(value: ir.Value) -> list[ir.Value]:
            node = value.producer()
            is_start = str(value.name) == pair.candidate
            return [] if node is None or (not is_start and value.name in self._pairs) else values_read(node)

        return list(reached([self.values[pair.candidate]], read))

    def blamed(self, tensor: str) -> ir.Node | None:
        """Return the node that causes a tensor's error: its writer, without Casts; for a Cast to float16 of an FP32
        tensor, and for a constant, the first reader.
        """
        value = self.values[tensor]
        node = value.producer()
        is_cast_to_half = has(node, Trait.SAME) and value.dtype == ir.DataType.FLOAT16
        if node is not None and node.op_type != "Constant" and not is_cast_to_half:
            return source_node(value)
        waiting = [value]
        for each in waiting:
            for reader in each.consumers():
                if not has(reader, Trait.SAME):
                    return reader
                waiting += reader.outputs
        return source_node(value)


def with_makers(node: ir.Node) -> list[ir.Node]:
    """Return a node; with one that chooses by its values also the nodes that compute these: of a tensor that float16
    holds a TopK or ArgMax chooses as before.
    """
    found = [node]
    chooses = has(node, Trait.STEPS) and row_of(node).choice is not None
    value = node.inputs[0] if chooses else None
    while value is not None and (maker := source_node(value)) is not None:
        found.append(maker)
        value = maker.inputs[0] if has(maker, Trait.EXACT) and maker.inputs else None
    return found


def _comparable(ours: ir.Value, mine: ir.Value) -> bool:
    """True if both are tensors of floats, or of the same integers or booleans; sequences are none."""
    if not isinstance(ours.type, ir.TensorType) or not isinstance(mine.type, ir.TensorType):
        return False
    return {ours.dtype, mine.dtype} <= _FLOATS or (ours.dtype == mine.dtype and ours.dtype in _COUNTS)


# --- alignment --------------------------------------------------------------------------------------------------------


_TRUSTED = 0.8  # of the shared names
_SUFFIX = re.compile(
    r"(?:[_/.](?:(?:in|out)put)?_?(?:cast(?:ed)?\d*|to|fp16|fp32|float16|float32|half|float|\d))+$", re.I
)
_LARGEST_COMPARED = 1 << 22  # elements of a weight


def align(reference: ir.Model, candidate: ir.Model) -> dict[str, str]:
    """Candidate tensor by reference tensor: inputs and what nodes compute, in the order of the reference.

    Each candidate tensor stands for one reference tensor at most. Constants are not in it.
    """
    ours, theirs = _Side(reference), _Side(candidate)
    _by_name(ours, theirs)
    while _by_operands(ours, theirs) or _by_readers(ours, theirs):
        pass
    found = {name: str(value.name) for value, name in theirs.names.items()}
    return {name: found[name] for name in ours.values if name in found}


def source_node(value: ir.Value) -> ir.Node | None:
    """Return the node that a tensor comes from, passing over Casts and Identities; the first Cast if there is none."""
    nodes = [node for each in uncast(value) if (node := each.producer()) is not None]
    return nodes[-1] if nodes else None


def uncast(value: ir.Value) -> Iterator[ir.Value]:
    """Yield a tensor, and the tensors that Casts and Identities make it of, one behind the other."""
    source: ir.Value | None = value
    while source is not None:
        yield source
        node = source.producer()
        source = node.inputs[0] if node is not None and has(node, Trait.SAME) else None


class _Side:
    """One of the two graphs.

    Attributes:
        values: inputs and what nodes compute, by name.
        names: what each tensor is called in the reference, as far as it is aligned; of both sides alike.
    """

    def __init__(self, model: ir.Model) -> None:
        self.outputs = list(model.graph.outputs)
        inputs = [value for value in model.graph.inputs if not value.is_initializer()]
        computed = [out for node in model.graph if node.op_type != "Constant" for out in node.outputs if out.name]
        self.values = {str(value.name): value for value in [*inputs, *computed]}
        self.names: dict[ir.Value, str] = {}

    def called(self, value: ir.Value) -> str | None:
        """Look up the reference's name for a tensor, through Casts and Identities."""
        return next((self.names[each] for each in uncast(value) if each in self.names), None)


def _pair(ours: _Side, theirs: _Side, a: ir.Value, b: ir.Value) -> bool:
    """Align two tensors; True if that was possible and new."""
    if a in ours.names or b in theirs.names:
        return False
    ours.names[a] = theirs.names[b] = str(a.name)
    return True


def _by_name(ours: _Side, theirs: _Side) -> None:
    """Align tensors of the same name, then those whose name a converter has made longer."""
    shared = [(value, theirs.values[name]) for name, value in ours.values.items() if name in theirs.values]
    same = [_operator(a) == _operator(b) for a, b in shared]
    is_trusted = sum(same) >= _TRUSTED * len(same)
    for (a, b), alike in zip(shared, same, strict=True):
        by_contract = a.producer() is None or any(a is output for output in ours.outputs)
        # Trusted names and one operator: the shape may differ, as of a node whose axis is wrong.
        if (alike and is_trusted) or ((alike or is_trusted or by_contract) and _shapes_agree(a, b)):
            _pair(ours, theirs, a, b)
    for name, b in theirs.values.items():
        stem = ours.values.get(_SUFFIX.sub("", name))
        if stem is not None and _operator(stem) == _operator(b) and _shapes_agree(stem, b):
            _pair(ours, theirs, stem, b)


def _by_operands(ours: _Side, theirs: _Side) -> bool:
    """Align results of the same operator on the same aligned tensors; True if there were any."""
    found: list[dict[Hashable, list[ir.Value]]] = []
    for side in (ours, theirs):
        groups: dict[Hashable, list[ir.Value]] = defaultdict(list)
        for value in side.values.values():
            if value not in side.names and (key := _computation(value, side)) is not None:
                groups[key].append(value)
        found.append(groups)
    pairs = [pair for key, group in found[0].items() for pair in _matched(group, found[1].get(key, []))]
    return sum(_pair(ours, theirs, a, b) for a, b in pairs) > 0


def _by_readers(ours: _Side, theirs: _Side) -> bool:
    """Align operands at the same position of aligned nodes, of one operator or name; True if there were any."""
    nodes = {name: source_node(value) for value, name in theirs.names.items()}
    changed = False
    for value, name in list(ours.names.items()):
        reader, other = source_node(value), nodes.get(name)
        if reader is None or other is None or (reader.domain, reader.op_type) != (other.domain, other.op_type):
            continue
        for left, right in zip(reader.inputs, other.inputs, strict=False):
            if left is None or right is None:
                continue
            a, b = _source(left), _source(right)
            is_known = a.name in ours.values and b.name in theirs.values
            if is_known and (_operator(a) == _operator(b) or a.name == b.name) and _shapes_agree(a, b):
                changed |= _pair(ours, theirs, a, b)
    return changed


def _source(value: ir.Value) -> ir.Value:
    return list(uncast(value))[-1]


def _operator(value: ir.Value) -> tuple[str, str, int] | None:
    """Domain and type of the node that a tensor comes from, and which of its outputs it is; None for inputs."""
    source = _source(value)
    node = source.producer()
    return None if node is None else (node.domain, node.op_type, source.index() or 0)


def _shapes_agree(a: ir.Value, b: ir.Value) -> bool:
    """Not known to differ."""
    if a.shape is None or b.shape is None:
        return True
    if len(a.shape) != len(b.shape):
        return False
    return all(x == y for x, y in zip(a.shape, b.shape, strict=True) if isinstance(x, int) and isinstance(y, int))


def _computation(value: ir.Value, side: _Side) -> Hashable | None:
    """Key of a tensor by its operator and aligned operands; None for a Cast, and if an operand is not aligned."""
    node = value.producer()
    if node is None or has(node, Trait.SAME):
        return None
    operands: list[tuple[str, Hashable]] = []
    for operand in node.inputs:
        if operand is None:
            operands.append(("absent", ""))
        elif (constant := _constant(operand)) is not None:
            operands.append(("constant", tuple(constant.shape.numpy())))
        elif (name := side.called(operand)) is not None:
            operands.append(("tensor", name))
        else:
            return None
    if all(kind != "tensor" for kind, _ in operands):
        return None
    if has(node, Trait.COMMUTES):
        operands.sort(key=repr)
    # Of the attributes integers and texts: where an error changes one, an axis, the readers stay the same.
    kinds = (ir.AttributeType.INT, ir.AttributeType.INTS, ir.AttributeType.STRING)
    attributes = tuple((name, repr(each.value)) for name, each in sorted(node.attributes.items()) if each.type in kinds)
    return node.domain, node.op_type, value.index(), len(node.outputs), tuple(operands), attributes


def _constant(value: ir.Value) -> ir.TensorProtocol | None:
    return ir.convenience.get_const_tensor(_source(value))


def _matched(ours: list[ir.Value], theirs: list[ir.Value]) -> list[tuple[ir.Value, ir.Value]]:
    """Pairs of tensors that fit each other, by the weights of their nodes, then in their order; none where one side has
    more.
    """
    if len(ours) != len(theirs):
        return []
    if len(ours) == 1:
        return [(ours[0], theirs[0])]
    waiting = {value: _weights(value) for value in theirs}
    pairs, left = [], []
    for value in ours:
        weights = _weights(value)
        match = next((other for other, its_weights in waiting.items() if its_weights == weights), None)
        if match is None:
            left.append(value)
        else:
            pairs.append((value, match))
            del waiting[match]
    return pairs + list(zip(left, waiting, strict=True))


def _weights(value: ir.Value) -> list[bytes]:
    """Constants that a tensor's node reads, as float16 holds them."""
    node, found = value.producer(), []
    for operand in () if node is None else node.inputs:
        tensor = None if operand is None else _constant(operand)
        if tensor is not None and tensor.size <= _LARGEST_COMPARED:
            array = tensor.numpy()
            with np.errstate(over="ignore"):
                found.append((array.astype(np.float16) if tensor.dtype.is_floating_point() else array).tobytes())
    return found
