"""Expectations: sums of constants, such as positions, weighted by a Softmax; soft-argmax is one.

    sum of p c    MatMul, Gemm, Einsum, Conv with constant weights, or ReduceSum, ReduceMean of p times constants
    p             Softmax of x: an error of e in x moves e of the weight between two peaks, from one position to another

Rounded, a logit has an error of 2^-12 |x| or more, so that of the difference between two is 2^-11 |x|; at p = 1/2 a
quarter of that goes over, and moves the sum by it times the distance of the constants, which is the largest sum, or
twice that where they are of both signs:

    error / largest sum >= 2^-13 |x|, or 2^-12 |x|    where two peaks are as high as each other, which few samples have

On the way to the output there may be sums, products and quotients with constants, from positions to coordinates; then
moves, Concat among them, bounds and resizing.
"""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from truehalf.ir import ops
from truehalf.ir.facts import constant_of, is_op, reached
from truehalf.ir.slots import computed_floats

_MOVES = ops.MOVES & ops.with_trait(ops.Trait.NO_ARITHMETIC)
_SHIFTS = ops.with_trait(ops.Trait.CANCELS) & ops.with_trait(ops.Trait.ELEMENTWISE)
_PASSED_ON = _MOVES | ops.with_trait(ops.Trait.LIMITS | ops.Trait.SAMPLES)
_LONGEST = 12  # nodes between the Softmax and the result


def expectation(end: ir.Node) -> list[ir.Node]:
    """The nodes from a result of the model back to the Softmax of which it is an expectation, without this; empty where
    it is none.
    """
    path: list[ir.Node] = []
    node, adds_up = (end, False) if _is_result(end) else (None, False)
    while node is not None and len(path) < _LONGEST:
        computed = computed_floats(node)
        if len(computed) != 1:
            break
        if is_op(node, "Softmax"):
            return path if adds_up else []
        is_sum = is_op(node, "ReduceSum", "ReduceMean") or ops.has(node, ops.Trait.PRODUCT)
        is_affine = ops.has(node, ops.Trait.LINEAR) or node.inputs.index(computed[0]) in ops.row_of(node).scaled
        if not (is_sum or is_affine or is_op(node, *_MOVES)):
            break
        adds_up |= is_sum
        path.append(node)
        node = computed[0].producer()
    return []


def error_at_a_tie(end: ir.Node, absmax: Callable[[ir.Value], float | None]) -> float:
    """Of an expectation, as above; 0 of other nodes.

    Args:
        absmax: largest |x| that was measured of a value; None: it is not known.
    """
    path = expectation(end)
    weights = [constant for node in path for value in node.inputs if (constant := constant_of(value)) is not None]
    if not path:
        return 0.0
    (weighted,) = computed_floats(path[-1])
    softmax = weighted.producer()
    logits = softmax.inputs[0] if softmax is not None else None
    largest = (absmax(logits) if logits is not None else None) or 0.0
    is_signed = any(is_op(node, *_SHIFTS) for node in path) or any(bool((each < 0).any()) for each in weights)
    return largest * 2.0 ** (-12 if is_signed else -13)


def _is_result(node: ir.Node) -> bool:
    """Whether a node computes what is an output of the model, or goes to one as it is."""

    def passed_on(value: ir.Value) -> list[ir.Value]:
        return [output for reader in value.consumers() if is_op(reader, *_PASSED_ON) for output in reader.outputs]

    made = [] if is_op(node, *_PASSED_ON) else node.outputs
    return any(value.is_graph_output() for value in reached(made, passed_on))
