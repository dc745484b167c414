"""TopK whose k varies, and the sorts that are none."""

from __future__ import annotations

import pytest

from tests.messages import expect
from tests.truehalf.linting.linting import found, only

CONSTANTS = """<int64 zero = {0}, int64 one = {1}, int64[1] first = {0}, int64[1] second = {1}, int64[1] three = {3},
    int64[1] all = {-1}>"""


def text_of(body: str, inputs: str = "float[N,M] x, int64[N] n, int64[1] given") -> str:
    return f"({inputs}) => (float[A] y) {CONSTANTS} {{ {body} }}"


@pytest.mark.parametrize(
    ("k", "expected"),
    [
        ("k = ReduceMax<axes = [0]>(n)", [("warning", "dynamic-topk")]),
        ("s = Shape(x) h = Gather(s, second) k = Div(h, three)", [("warning", "dynamic-topk")]),
        ("s = Shape(x) k = Gather(s, first)", [("warning", "dynamic-topk")]),  # another axis than the sorted one
        ("k = Shape<start = 0, end = 1>(x)", [("warning", "dynamic-topk")]),
        ("s = Shape<start = 1>(x) h = Gather(s, zero) k = Reshape(h, second)", [("warning", "dynamic-topk")]),
        ("k = Identity(given)", [("warning", "dynamic-topk")]),
        ("s = Shape(x) k = Gather(s, second)", []),  # torch.sort
        ("s = Shape(x) h = Gather(s, one) k = Reshape(h, second)", []),
        ("s = Shape(x) k = Gather(s, all)", []),
        ("k = Shape<start = 1, end = 2>(x)", []),
        ("k = Shape<start = -1>(x)", []),
        ("h = Shape<start = 1>(x) e = Squeeze(h) r = Reshape(e, all) k = Concat<axis = 0>(r)", []),
        ("k = Identity(three)", []),
    ],
)
def test_topk(k: str, expected: list[tuple[str, str]]) -> None:
    assert found(text_of(f"{k} y, i = TopK(x, k)")) == expected


@pytest.mark.parametrize(
    ("body", "sorts"),
    [
        ("f = Reshape(v, all) k = Shape(v) y, i = TopK(f, k)", True),  # what flatten of one axis is
        ("f = Reshape(v, all) k = Shape(f) y, i = TopK(v, k)", True),
        ("c = Cast<to = 6>(v) k = Shape(v) y, i = TopK(c, k)", True),
        ("f = Reshape(w, all) k = Shape(v) y, i = TopK(f, k)", False),  # of another tensor
        ("f = Reshape(x, all) k = Shape<end = 1>(x) y, i = TopK(f, k)", False),  # one axis of two
        ("c = Abs(x) k = Shape<start = 1>(x) y, i = TopK(c, k)", True),  # M and M
        ("c = Transpose(x) k = Shape<start = 1>(x) y, i = TopK(c, k)", False),  # N and M
        ("f = Reshape(x, all) k = Size(x) y, i = TopK(f, k)", True),
        ("f = Reshape(u, all) s = Shape<end = 1>(u) k = Mul(s, three) y, i = TopK(f, k)", True),
        ("f = Reshape(u, all) s = Shape<end = 1>(u) k = Mul(s, second) y, i = TopK(f, k)", False),
        ("f = Reshape(x, all) s = Shape<end = 1>(x) k = Mul(s, s) y, i = TopK(f, k)", False),
    ],
)
def test_the_size_of_what_it_was_made_from(body: str, sorts: bool) -> None:
    rules = found(text_of(body, "float[N,M] x, float[N,3] u, float[P] v, float[Q] w"))
    assert rules == ([] if sorts else [("warning", "dynamic-topk")])


@pytest.mark.parametrize(("k", "of_an_input"), [("k = Identity(given)", True), ("k = Shape<end = 1>(x)", False)])
def test_what_k_varies_with(k: str, of_an_input: bool) -> None:
    message = only(text_of(f"{k} y, i = TopK(x, k)")).message
    expect(message, None, 3840, "size")
    assert ("input" in message) is of_an_input
