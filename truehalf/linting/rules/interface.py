"""Inputs, outputs and names.

deployment-io    inputs and outputs that TensorRT, Triton or DeepStream cannot take
baked-item       an input that nothing reads: its value was written into the file when it was traced
fixed-positions  height and width vary, and a constant of one size is added to what they size
empty-node-name  nodes without a name, or with that of another: one finding, with their number
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import onnx_ir as ir

from truehalf.ir.facts import fed_inputs, lengths_of, name_of
from truehalf.ir.normalize import concrete_shapes
from truehalf.linting.base import Check, LocatedFinding, Rule, Subject
from truehalf.linting.sizes import constant
from truehalf.linting.values import is_static


class DeploymentIo(Rule):
    """an input or output that TensorRT, Triton or DeepStream cannot take

    What TensorRT, Triton or DeepStream cannot take as input or output.

    - Error: types without a binding (string, uint16, sequences).
    - Warning: float64 (bound as float32); bool, uint8 and bfloat16 (DeepStream's nvinfer has none); float8 (nor has
      Triton's configuration); scalars (no batch axis); names with a comma, colon, semicolon, quote, star or space,
      which trtexec and DeepStream separate by.
    - Info: int64 (older nvinfer has none; RT-DETR's labels are); an output that varies in more than its batch
      (DeepStream's nvinfer keeps one size; Triton takes -1).
    """

    id = "deployment-io"
    source = "types of TensorRT's bindings, Triton's model configuration and DeepStream's nvinfer"


class BakedItem(Rule):
    """an input that nothing reads: its traced value is a constant now

    An input that nothing reads, or that the file lost though its I/O spec names it. What Python computed from it
    (`.item()`, `int(...)`, `if`) is a constant with the traced value.

    ```python
    logits / temperature.item()  # every run divides by the traced temperature
    logits / temperature  # instead
    ```
    """

    id = "baked-item"
    source = "NVIDIA's guidance on exporting for TensorRT"


class FixedPositions(Rule):
    """height and width vary, position embeddings do not

    An input varies in height and width, and a constant of one size is added to what they size: the file says that sizes
    vary, but runs only at the traced one.

    ```python
    x.flatten(2).transpose(1, 2) + self.positions
    grid = torch.nn.functional.interpolate(self.grid, x.shape[2:], mode="bilinear")  # instead
    (x + grid).flatten(2).transpose(1, 2)
    ```
    """

    id = "fixed-positions"
    source = "ONNX's rules of broadcasting"


class EmptyNodeName(Rule):
    """nodes without a unique name

    One finding with the number of nodes. TensorRT names layers, errors and profiles after nodes. Nodes without a name,
    or with the name of another, cannot be told apart, nor chosen by lists of nodes. `slim` names them.

    Repair pass: `deduplicate_names`.
    """

    id, severity = "empty-node-name", "info"
    source = "TensorRT names layers, errors and profiles after nodes"


_BINDINGS = {
    ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.INT32, ir.DataType.INT64,
    ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.BOOL, ir.DataType.DOUBLE, ir.DataType.FLOAT8E4M3FN,
}  # fmt: skip
_NARROW = (ir.DataType.BFLOAT16, ir.DataType.FLOAT8E4M3FN)
# What TensorRT binds and servers do not: DeepStream's nvinfer has FLOAT, HALF, INT8 and INT32, and INT64 in newer ones;
# Triton's configuration has no float8.
_SERVERS = {
    ir.DataType.BOOL: ("warning", "DeepStream's nvinfer has no such type"),
    ir.DataType.UINT8: ("warning", "DeepStream's nvinfer has no such type"),
    ir.DataType.BFLOAT16: ("warning", "DeepStream's nvinfer has no such type"),
    ir.DataType.FLOAT8E4M3FN: ("warning", "neither Triton's configuration nor DeepStream's nvinfer has such a type"),
    ir.DataType.INT64: ("info", "older versions of DeepStream's nvinfer have no such type, and read it as another"),
}
_PROBES = (64, 96)
_SEPARATORS = re.compile(r"[,:;\s'\"*]")


def inputs_and_outputs(subject: Subject) -> Iterator[LocatedFinding]:
    graph = subject.model.graph
    for value in fed_inputs(subject.model):
        yield from (DeploymentIo.of(value.name or "", *problem) for problem in _of_value(value, "input"))
    varying = _varying_axes(subject)
    for value in graph.outputs:
        problems = [*_of_value(value, "output"), *_of_output(varying.get(value, []))]
        yield from (DeploymentIo.of(value.name or "", *problem, last=True) for problem in problems)


_Problem = tuple[str, str, str]  # message, remedy, severity


def _of_value(value: ir.Value, kind: str) -> Iterator[_Problem]:
    if isinstance(value.type, (ir.SequenceType, ir.OptionalType)):
        yield f"The {kind} is no tensor; TensorRT binds tensors only.", "Give tensors.", "error"
        return
    dtype = value.dtype
    if dtype is not None and dtype not in _BINDINGS:
        yield f"TensorRT has no {kind} of type {dtype.name}.", "Use float32 or int32.", "error"
    elif dtype == ir.DataType.DOUBLE:
        yield (
            f"The {kind} is float64; the engine binds float32 in its place, and a client that sends or expects float64 "
            "reads other numbers.",
            "Convert to float32 before the engine, and after it.",
            "warning",
        )
    elif dtype in _SERVERS:
        severity, lacking = _SERVERS[dtype]
        remedy = "Use int32 or float32 where it is to run there." if dtype not in _NARROW else "Use float32 or float16."
        yield f"The {kind} is {dtype.name.lower()}: {lacking}.", remedy, severity
    if value.shape is not None and len(value.shape) == 0:
        message = f"The {kind} is a scalar; Triton and DeepStream expect a batch axis."
        yield message, "Give it an axis: x[None].", "warning"
    if _SEPARATORS.search(value.name or ""):
        message = "Its name holds a character that trtexec's shapes or DeepStream's lists of names separate by."
        yield message, "Use letters, digits, dots, slashes and underscores.", "warning"


def _varying_axes(subject: Subject) -> dict[ir.Value, list[int]]:
    """Axes of outputs, after the first, that follow an input that varies in more than its batch.

    onnx infers shapes at two sizes of these inputs: the dimensions that a file states are names, often new ones.
    """
    graph = subject.model.graph
    unsure = [value for value in graph.outputs if value.shape is not None and not is_static(value)]
    if not unsure or not subject.varying:
        return {}
    small, large = (concrete_shapes(subject.model, _bound(graph, size)) for size in _PROBES)
    return {
        value: [axis for axis in range(1, len(small[value])) if small[value][axis] != large[value][axis]]
        for value in unsure
        if value in small and value in large
    }


def _bound(graph: ir.Graph, size: int) -> dict[str, list[int]]:
    """Shapes of the inputs, with one size for all axes after the first that vary."""
    return {
        value.name or "": [
            dim if isinstance(dim, int) else (size if axis else 1) for axis, dim in enumerate(value.shape)
        ]
        for value in graph.inputs
        if value.shape is not None
    }


def _of_output(varying: list[int]) -> Iterator[_Problem]:
    if varying:
        yield (
            f"Besides the batch, axis {', '.join(map(str, varying))} of the output varies; DeepStream's nvinfer keeps "
            "one size for all but the batch.",
            "Give a fixed number of rows (torch.topk, padding); Triton takes such an output with dims -1.",
            "info",
        )


def unread_inputs(subject: Subject) -> Iterator[LocatedFinding]:
    unread = [each for each in fed_inputs(subject.model) if not each.uses() and each not in subject.outputs]
    kept = {each.name for each in subject.model.graph.inputs}
    lost = [name for name in subject.expected_inputs if name not in kept]
    found = [(each.name or "", "Nothing reads this input") for each in unread]
    found += [(name, "The model was exported with this input, and the graph has it no more") for name in lost]
    for name, what in found:
        yield BakedItem.of(
            name,
            f"{what}: what was computed from it, with .item(), int() or in Python, is a constant with the value that "
            "was traced.",
            "Compute with the tensor itself; leave out an input that is not needed.",
        )


def positions(subject: Subject) -> Iterator[LocatedFinding]:
    varying = subject.varying
    for node in subject.of_type("Add") if varying else ():
        for fixed, other in (node.inputs[:2], node.inputs[1::-1]):
            if fixed is None or other is None or constant(fixed) is None or constant(other) is not None:
                continue
            if axes := _stretched(fixed, other):
                yield FixedPositions.at(
                    node,
                    f"Input {varying[0]!r} varies in more than its batch, but this constant of shape "
                    f"{lengths_of(fixed)} fits one size only (axis {axes[0]}).",
                    "Resize position embeddings to the size at hand (torch.nn.functional.interpolate), or fix height "
                    "and width.",
                )


def _stretched(fixed: ir.Value, other: ir.Value) -> list[int]:
    """Axes of `other`, after its first, whose size varies and which `fixed` has more than one element for."""
    if fixed.shape is None or other.shape is None or len(fixed.shape) > len(other.shape):
        return []
    offset = len(other.shape) - len(fixed.shape)
    return [
        offset + axis
        for axis, size in enumerate(fixed.shape)
        if offset + axis > 0 and isinstance(size, int) and size > 1 and not isinstance(other.shape[offset + axis], int)
    ]


def names(subject: Subject) -> Iterator[LocatedFinding]:
    seen: set[str] = set()
    nameless: list[ir.Node] = []
    for node in subject.nodes:
        if not node.name or node.name in seen:
            nameless.append(node)
        seen.add(node.name or "")
    if nameless:
        count, example = len(nameless), repr(name_of(nameless[0]))
        yield EmptyNodeName.at(
            nameless[0],
            f"1 node has no unique name, {example}: errors, layer tables and lists of nodes cannot tell it from others."
            if count == 1
            else f"{count} nodes have no unique name, such as {example}: errors, layer tables and lists of nodes "
            "cannot tell them apart.",
            "Name them when exporting; repair pass deduplicate_names, and slim, name them.",
            count=count,
        )


RULES: tuple[type[Rule], ...] = (DeploymentIo, BakedItem, FixedPositions, EmptyNodeName)
CHECKS: tuple[Check, ...] = (inputs_and_outputs, unread_inputs, positions, names)
