"""Peak memory of a graph's activations: the largest sum of tensors that are alive at once.

Nodes run in the order of the graph, and a tensor is freed after its last use. Reshape and its like hand their input on
instead of copying it. Weights and subgraphs of control flow are left out; what a subgraph reads is read by its node.
An estimate: a runtime may fuse nodes, run them in another order, and keep more than it needs.

verify.memory_gb holds the activations of a run. Samples that are only to be got through run in batches of half of it,
two at once. A batch size that must be looked at has all of it, and is not verified beyond. The process takes up to
twice as much and what it holds besides (0.9 GB with torch and a small detector), as emulation rounds by copies:
measured with the models of benchmarks/zoo.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import onnx_ir as ir

from truehalf.data.samples import Sample, stacked
from truehalf.ir.facts import values_read
from truehalf.ir.normalize import concrete_shapes, elements
from truehalf.ir.ops import Trait, has


def peak_bytes(model: ir.Model, shapes: Mapping[ir.Value, Sequence[int]]) -> int:
    """Compute the largest number of bytes alive at once, with float16 held as float32, as emulation does.

    Args:
        model: typed.
        shapes: as truehalf.ir.normalize finds them.
    """

    def size(value: ir.Value) -> int:
        if value.const_value is not None or value not in shapes:
            return 0
        width = 4 if value.dtype in (None, ir.DataType.FLOAT16) else value.dtype.itemsize
        return int(elements(shapes[value]) * width)

    uses = Counter(_root(value) for node in model.graph for value in _read(node))
    uses.update(_root(value) for value in model.graph.outputs)
    alive = sum(size(value) for value in model.graph.inputs)
    most = alive
    for node in model.graph:
        if not has(node, Trait.VIEW):
            alive += sum(size(value) for value in node.outputs)
        most = max(most, alive)
        for value in dict.fromkeys(_root(value) for value in [*_read(node), *node.outputs]):
            uses[value] -= sum(_root(read) is value for read in _read(node))
            if uses[value] <= 0 and value.const_value is None:
                alive -= size(value)
    return most


def activations_gb(model: ir.Model, sample: Sample, batch: int) -> float:
    """Estimate the memory of a run of so many samples like this one, in GB (1e9 bytes), float16 held as float32."""
    shapes = {name: [batch, *array.shape[1:]] for name, array in stacked([sample]).items() if array.ndim}
    return peak_bytes(model, concrete_shapes(model, shapes)) / 1e9


def fitting_batch(model: ir.Model, sample: Sample, batch: int, memory_gb: float) -> int:
    """Choose a batch of at least one and at most `batch` samples, whose activations take half of `memory_gb`."""
    one = activations_gb(model, sample, 1)
    return batch if one * batch <= memory_gb / 2 else max(1, int(memory_gb / 2 / one))


def too_large(model: ir.Model, sample: Sample, batch: int, memory_gb: float) -> str | None:
    """Say why a batch is not run; None if it is. A single sample always is."""
    if batch == 1 or (needed := activations_gb(model, sample, batch)) <= memory_gb:
        return None
    return f"its activations take about {needed:.1f} GB, above verify.memory_gb ({memory_gb:g})"


def _read(node: ir.Node) -> list[ir.Value]:
    """List the inputs of a node, and tensors that its subgraphs read from outside."""
    return [value for value in values_read(node) if value.graph is node.graph]


def _root(value: ir.Value) -> ir.Value:
    """Follow views to the tensor whose memory they show."""
    while (node := value.producer()) is not None and has(node, Trait.VIEW) and node.inputs[0] is not None:
        value = node.inputs[0]
    return value
