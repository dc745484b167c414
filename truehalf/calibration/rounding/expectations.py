"""Expectations: sums of constants, such as positions, weighted by a Softmax; soft-argmax is one.

    sum of p c    MatMul, Gemm, Einsum, Conv with constant weights, or ReduceSum, ReduceMean of p times constants
    p             Softmax of x: an error of e in x moves e of the weight between two peaks, from one position to another

On the way to the output there may be sums, products and quotients with constants, from positions to coordinates; then
moves, Concat among them, bounds and resizing.
"""

from __future__ import annotations

import onnx_ir as ir

from truehalf.ir import ops
from truehalf.ir.facts import constant_of, is_op
from truehalf.ir.slots import is_float32

_AFFINE = ("Add", "Sub", "Mul", "Div", "Neg")
_MOVES = ops.MOVES & ops.with_trait(ops.Trait.NO_ARITHMETIC)
_PASSED_ON = (*_MOVES, "Clip", "Relu", "Resize", "Upsample")
_LONGEST = 12  # nodes between the Softmax and the result


def expectation(end: ir.Node) -> list[ir.Node]:
    """The nodes from a result of the model back to the Softmax of which it is an expectation, without this; empty where
    it is none.
    """
    path: list[ir.Node] = []
    node, adds_up = (end, False) if _is_result(end) else (None, False)
    while node is not None and len(path) < _LONGEST:
        computed = [value for value in node.inputs if is_float32(value) and constant_of(value) is None]
        if len(computed) != 1 or computed[0] is None:
            break
        if is_op(node, "Softmax"):
            return path if adds_up else []
        is_sum = is_op(node, "ReduceSum", "ReduceMean") or ops.has(node, ops.Trait.PRODUCT)
        if not (is_sum or is_op(node, *_AFFINE, *_MOVES)):
            break
        adds_up |= is_sum
        path.append(node)
        node = computed[0].producer()
    return []


def _is_result(node: ir.Node) -> bool:
    """Whether a node computes what is an output of the model, or goes to one as it is."""
    waiting = [] if is_op(node, *_PASSED_ON) else list(node.outputs)
    while waiting:
        value = waiting.pop()
        if value.is_graph_output():
            return True
        waiting += [output for reader in value.consumers() if is_op(reader, *_PASSED_ON) for output in reader.outputs]
    return False
