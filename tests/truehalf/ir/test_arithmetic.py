"""Depth of reduction and arithmetic, against what numpy or a pencil says."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from truehalf.ir.arithmetic import flops, reduction_depth
from truehalf.ir.normalize import NORMALIZE

HEAD = '<ir_version: 10, opset_import: ["": {opset}]> g '


def node_of(inputs: str, body: str, opset: int = 23) -> ir.Node:
    """The last node of a graph; it writes y."""
    model = ir.from_onnx_text(HEAD.format(opset=opset) + f"({inputs}) => () {{ {body} }}")
    NORMALIZE(model)
    return list(model.graph)[-1]


CASES = [
    ("float[2,3,5] a, float[5,7] b", "y = MatMul(a, b)", 5, 2 * 5 * 2 * 3 * 7),
    ("float[m,k] a, float[5] b", "y = MatMul(a, b)", 5, 2 * 5 * 1),
    ("float[5,3] a, float[7,5] b", "y = Gemm<transA = 1, transB = 1>(a, b)", 5, 2 * 5 * 3 * 7),
    ("float[1,4,9,9] x, float[6,2,3,3] w", "y = Conv<group = 2>(x, w)", 18, 2 * 18 * 6 * 49),
    ("float[1,4,5,5] x, float[4,6,3,3] w", "y = ConvTranspose<strides = [2, 2]>(x, w)", 36, 2 * 100 * 54),
    ("float[2,3,5] a, float[2,5,7] b", 'y = Einsum<equation = "bij, bjk -> bik">(a, b)', 5, 2 * 5 * 42),
    ("float[3,5] a, float[5,7] b", 'y = Einsum<equation = "ij,jk">(a, b)', 5, 2 * 5 * 21),
    ("float[2,3,4] a, float[4] b", 'y = Einsum<equation = "...i,i->...">(a, b)', 4, 2 * 4 * 6),
    # 2 batches, 4 heads of 8, 6 queries, 10 keys: 2 * 48 rows * 10 keys * (8 + 8)
    ("float[2,4,6,8] q, float[2,4,10,8] k", "y = Attention(q, k, k)", 10, 2 * 48 * 10 * 16),
    ("float[2,6,32] q, float[2,10,32] k", "y = Attention<q_num_heads = 4, kv_num_heads = 4>(q, k, k)", 10, 15360),
    ("float[2,3,4] x", "y = Softmax<axis = 1>(x)", 3, 24),
    ("float[2,3,4] x, float[4] s", "y = LayerNormalization(x, s)", 4, 24),
    ("float[2,6,4,4] x, float[6] s", "y = BatchNormalization(x, s, s, s, s)", 1, 192),
    ("float[2,6,4,4] x", "y = GlobalAveragePool(x)", 1, 192),
    ("float[2,6,4,4] x", "y = MaxPool<kernel_shape = [2, 2]>(x)", 1, 108),
    ("float[2,3,4] x", "i = Constant<value_ints = [0, -1]>()  y = ReduceSum(x, i)", 8, 24),
    ("float[2,3,4] x", "y = ReduceMean(x)", 24, 24),
    ("float[2,3,4] x", "y = ReduceMean<noop_with_empty_axes = 1>(x)", 1, 24),
    ("float[2,3,4] x, int64[n] axes", "y = ReduceSumSquare<noop_with_empty_axes = 1>(x, axes)", 24, 24),
    ("float[2,3,4] x", "y = ReduceMax(x)", 1, 24),
    ("float[5,2,3] x, float[1,16,3] w, float[1,16,4] r", "y = LSTM<hidden_size = 4>(x, w, r)", 7, 2 * 10 * 112),
    ("float[2,3] x", "y = Exp(x)", 1, 6),
    ("float[2,3] x", "y = Transpose(x)", 1, 0),
    ("float[a,b] x", "y = Exp(x)", 1, 1),
]


@pytest.mark.parametrize(("inputs", "body", "depth", "operations"), CASES, ids=[case[1] for case in CASES])
def test_depth_and_arithmetic(inputs: str, body: str, depth: int, operations: int) -> None:
    node = node_of(inputs, body)
    assert (reduction_depth(node), flops(node)) == (depth, operations)


def test_reduction_axes_were_attributes() -> None:
    assert reduction_depth(node_of("float[2,3,4] x", "y = ReduceMean<axes = [1]>(x)", opset=13)) == 3


def test_given_shapes_replace_the_graphs() -> None:
    node = node_of("float[b,k] a, float[k,n] b", "y = MatMul(a, b)")
    left, right = node.inputs
    assert left is not None and right is not None
    shapes = {left: (2, 640), right: (640, 3), node.outputs[0]: (2, 3)}
    assert (reduction_depth(node), flops(node)) == (1, 2.0)
    assert (reduction_depth(node, shapes), flops(node, shapes)) == (640, 2.0 * 640 * 6)


def test_other_domains_count_what_they_write() -> None:
    text = '<ir_version: 8, opset_import: ["": 17, "x": 1]> g (float[2,3] a) => (float[2,5] y) { y = x.MatMul(a, a) }'
    (node,) = ir.from_onnx_text(text).graph
    assert (reduction_depth(node), flops(node)) == (1, 10.0)
