"""Products and convolutions cut into blocks: the same function, but for rounding; partial sums that overflow."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from tests.truehalf.emulation.emulation import parsed, run
from tests.truehalf.emulation.splitting import Case, assert_same_but_for_rounding, feeds_of, pessimistic
from truehalf.emulation.half_nodes import BLOCK, NOT_SPLIT
from truehalf.emulation.pessimistic import split_sums

# One node each, with sums over more than a block.
SAME_FUNCTION: dict[str, Case] = {
    "MatMul": ("float16[2,4,300] x, float16[300,5] w", "float16[2,4,5] y", "{ y = MatMul(x, w) }", 17),
    "MatMul, vectors": ("float16[300] x, float16[300] w", "float16 y", "{ y = MatMul(x, w) }", 17),
    "Gemm": (
        "float16[300,4] x, float16[5,300] w, float16[5] b",
        "float16[4,5] y",
        "{ y = Gemm<transA = 1, transB = 1, alpha = 0.5, beta = 2.0>(x, w, b) }",
        17,
    ),
    "Conv": (
        "float16[2,40,6,6] x, float16[4,40,3,3] w, float16[4] b",
        "float16[2,4,3,3] y",
        "{ y = Conv<strides = [2, 2], pads = [1, 1, 1, 1]>(x, w, b) }",
        17,
    ),
    "Conv, groups": (
        "float16[2,80,6,6] x, float16[4,40,3,3] w",
        "float16[2,4,4,4] y",
        "{ y = Conv<group = 2>(x, w) }",
        17,
    ),
    "ConvTranspose": (
        "float16[2,40,4,4] x, float16[40,3,3,3] w, float16[3] b",
        "float16[2,3,9,9] y",
        "{ y = ConvTranspose<strides = [2, 2]>(x, w, b) }",
        17,
    ),
    "ConvTranspose, groups": (
        "float16[2,80,4,4] x, float16[80,3,3,3] w",
        "float16[2,6,6,6] y",
        "{ y = ConvTranspose<group = 2>(x, w) }",
        17,
    ),
    "Einsum": (
        "float16[2,4,300] x, float16[2,300,5] w",
        "float16[2,4,5] y",
        '{ y = Einsum<equation = "bik,bkj->bij">(x, w) }',
        17,
    ),
    "Einsum, two letters": (
        "float16[2,40,30] x, float16[40,30,5] w",
        "float16[2,5] y",
        '{ y = Einsum<equation = "bik, ikj">(x, w) }',
        17,
    ),
}


@pytest.mark.parametrize("case", SAME_FUNCTION)
def test_the_function_stays_but_for_rounding(case: str) -> None:
    part = 2**-7 if case == "MatMul, vectors" else 2**-8  # one number, whose terms cancel
    assert_same_but_for_rounding(SAME_FUNCTION[case], part)


def test_partial_products_overflow() -> None:
    """256 terms of 300, then 256 of -300: the sum is 0, the first partial sum 76800."""
    model = parsed("g (float16[1,512] x, float16[512,1] w) => (float16[1,1] y) { y = MatMul(x, w) }")
    x = np.where(np.arange(512) < 256, 300, -300).astype(np.float16)[None]
    w = np.ones((512, 1), np.float16)
    assert run(model, x=x, w=w)["y"].item() == 0
    assert np.isinf(pessimistic(model, x=x, w=w)["y"].item())


@pytest.mark.parametrize(
    ("shapes", "equation", "blocks"),
    [
        (("2,20,30,10", "20,30,10,3"), "nabc,abco->no", 2 * 30),  # 10 whole, 20 by 12, 30 by 1
        (("4,40,40", "4,40,40"), "nab,nba->n", 14),  # 40 whole, 40 by 3
        (("4,200,300", "300"), "nab,b->n", 2 * 300),
        (("16,40,24", "16,40,24"), "abc,abc->", 3 * 40),
    ],
)
def test_every_summed_letter_of_an_einsum_is_cut(shapes: tuple[str, str], equation: str, blocks: int) -> None:
    model = parsed(
        f"""g (float16[{shapes[0]}] x, float16[{shapes[1]}] w) => (float16 y)
        {{ z = Einsum<equation = "{equation}">(x, w)  y = ReduceMax<keepdims = 0>(z) }}"""
    )
    feeds = {name: np.abs(array) for name, array in feeds_of(model, 0.1).items()}
    split = split_sums(model)
    proto = onnx.shape_inference.infer_shapes(ir.to_proto(split), data_prop=True)
    shape = {
        v.name: [d.dim_value for d in v.type.tensor_type.shape.dim]
        for v in (*proto.graph.value_info, *proto.graph.input)
    }
    left, right = equation.split("->")
    parts = [node for node in proto.graph.node if node.op_type == "Einsum"]
    assert len(parts) == blocks
    for node in parts:
        lengths = dict(zip(left.replace(",", ""), [n for name in node.input for n in shape[name]], strict=True))
        assert np.prod([length for letter, length in lengths.items() if letter not in right]) <= BLOCK
    np.testing.assert_allclose(pessimistic(model, **feeds)["y"], run(model, **feeds)["y"], rtol=2e-2)


def test_an_einsum_of_too_many_blocks_is_listed() -> None:
    text = (
        """g (float16[1024,1024] x, float16[1024,1024] w) => (float16 y) { y = Einsum<equation = "ab,ab->">(x, w) }"""
    )
    why = "an Einsum that sums 1048576 terms: 8192 blocks; at most 4096 are made"
    assert split_sums(parsed(text)).meta[NOT_SPLIT] == {"Einsum -> y": why}
