"""Which nodes of two files are the same: a node that chooses as the reference's does is not at fault for its choice."""

from __future__ import annotations

import onnx.parser
import onnx_ir as ir
import pytest

from truehalf.ir.normalize import InferTypes
from truehalf.verification.localize.both_files import BothFiles

HEAD = '<ir_version: 9, opset_import: ["" : 17]> '
REFERENCE = """g (float[1,8] x, float[1,8] y) => (float[1,3] v, bool[1,8] b) <int64[1] k = {3}, float c = {0.5}> {
    [scores] s = Mul(x, y)
    [top] v, i = TopK(s, k)
    [above] b = Greater(s, c)
}"""
HALF = """g (float[1,8] x, float[1,8] y) => (float[1,3] v, bool[1,8] b) <int64[1] k = {3}, float16 c = {14336}> {
    xh = Cast<to = 10>(x)
    yh = Cast<to = 10>(y)
    [scores] s = Mul(xh, yh)
    [top] vh, i = TopK(s, k)
    v = Cast<to = 1>(vh)
    [above] b = Greater(s, c)
}"""


def read(text: str) -> ir.Model:
    model = ir.serde.deserialize_model(onnx.parser.parse_model(HEAD + text))
    InferTypes()(model)
    return model


def chooses_alike(candidate: str, name: str) -> bool:
    files = BothFiles(read(REFERENCE), read(candidate))
    return files.chooses_alike(next(node for node in files.candidate.graph if node.name == name))


@pytest.mark.parametrize("name", ["top", "above"])
def test_the_same_choice_of_rounded_tensors(name: str) -> None:
    assert chooses_alike(HALF, name)


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("TopK(s, k)", "TopK<largest = 0>(s, k)", "top"),
        ("float16 c = {14336}", "float16 c = {14848}", "above"),
        ("Greater(s, c)", "Greater(c, s)", "above"),
        ("Greater(s, c)", "Less(s, c)", "above"),
        ("TopK(s, k)", "TopK(xh, k)", "top"),
    ],
    ids=["attribute", "constant", "swapped operands", "operator", "input"],
)
def test_another_choice(old: str, new: str, name: str) -> None:
    assert not chooses_alike(HALF.replace(old, new), name)


def test_what_computes_chooses_nothing() -> None:
    assert not chooses_alike(HALF, "scores")
