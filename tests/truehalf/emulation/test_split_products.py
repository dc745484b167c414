"""Products and convolutions cut into blocks: the same function, but for rounding; partial sums that overflow."""

from __future__ import annotations

import numpy as np
import pytest

from tests.messages import expect
from tests.truehalf.emulation.emulation import parsed, run
from tests.truehalf.emulation.splitting import Case, assert_same_but_for_rounding, pessimistic
from truehalf.emulation.half_nodes import NOT_SPLIT
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
    "ConvTranspose": (
        "float16[2,40,4,4] x, float16[40,3,3,3] w, float16[3] b",
        "float16[2,3,9,9] y",
        "{ y = ConvTranspose<strides = [2, 2]>(x, w, b) }",
        17,
    ),
    "Einsum": (
        "float16[2,4,300] x, float16[2,300,5] w",
        "float16[2,4,5] y",
        '{ y = Einsum<equation = "bik,bkj->bij">(x, w) }',
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
    ("shapes", "equation", "said"),
    [
        (("200,200", "200,200", ""), "ab,ab->", "two operands"),
        (("2,200", "2,200", "2"), "...b,...b->...", "two operands"),
        (("9,200", "3,200", "9,3"), "ab,cb", "two operands"),
    ],
)
def test_other_einsums_are_listed(shapes: tuple[str, ...], equation: str, said: str) -> None:
    x, w, y = (f"float16[{shape}]" if shape else "float16" for shape in shapes)
    model = parsed(f"""g ({x} x, {w} w) => ({y} y) {{ y = Einsum<equation = "{equation}">(x, w) }}""")
    (reason,) = split_sums(model).meta[NOT_SPLIT].values()
    expect(reason, None, said)


@pytest.mark.parametrize("operator", ["Conv", "ConvTranspose"])
def test_groups_of_many_terms_are_listed(operator: str) -> None:
    weights = "4,40,3,3" if operator == "Conv" else "80,3,3,3"
    sides, channels = ("4,4", 4) if operator == "Conv" else ("8,8", 6)
    text = f"(float16[2,80,6,6] x, float16[{weights}] w) => (float16[2,{channels},{sides}] y)"
    split = split_sums(parsed(f"g {text} {{ y = {operator}<group = 2>(x, w) }}"))
    assert [node.op_type for node in split.graph] == [operator] and len(split.meta[NOT_SPLIT]) == 1
