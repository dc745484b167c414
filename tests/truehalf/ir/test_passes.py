"""What every pass says of its work: whether the file changed, what was done how often, and what was refused and why."""

from __future__ import annotations

from dataclasses import dataclass

import onnx
import onnx_ir as ir
import pytest

from tests.messages import raises
from truehalf.conversion.casts import CleanCasts
from truehalf.exporting.after_export import NameAxes
from truehalf.ir.inlining import WeightsApart
from truehalf.ir.normalize import NORMALIZE, PREPARE, InferTypes, NameNodes, sort_nodes
from truehalf.ir.opset import ToOpset
from truehalf.ir.passes import Done, Pass, Passes

PLAIN = """<ir_version: 8, opset_import: ["": 17]> g (float[2,4,6,6] x, float[2,p,q,2] s) => (float[2,4,p,q] y)
    { [a] c = Cast <to = 1> (x)  [b] g = GridSample (c, s)  k = Constant <value_float = 2.0> ()
      [b] v = Mul (g, k)  y = Relu (v) }"""
OLD = '<ir_version: 3, opset_import: ["": 6]> g (float[2] x) => (float[2] y) { [n] y = Relu (x) }'
LISTED = """<ir_version: 8, opset_import: ["": 17]> g (float[2] x, float[2] w = {1, 2}) => (float[2] y)
    { [n] y = Add (x, w) }"""
UNSORTED = '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Relu (a)  a = Relu (x) }'
EXPORTED = """<ir_version: 8, opset_import: ["": 18]> g (float[4,N] x, float[4,N] w) => (float[2,N] y, float[4,N] z)
    <int64[2] l = {2, 2}, int64 i = {1}>
    { s = SplitToSequence (x, l)  p = SequenceAt (s, i)  y = Relu (p)  c = CastLike (x, w)  z = Relu (c) }"""
TIDY = '<ir_version: 8, opset_import: ["": 17]> g (float[2,N] x) => (float[2,N] y) { [n] y = Relu (x) }'
NAMED, RAISED = NameAxes({"x": {1: "M"}}), ToOpset(18)
WORK = [
    *((NameNodes(), PLAIN), (InferTypes(), PLAIN), (WeightsApart(), LISTED), (NAMED, EXPORTED)),
    *((NORMALIZE, UNSORTED), (PREPARE, PLAIN), (ToOpset(), OLD), (CleanCasts(), PLAIN), (RAISED, PLAIN)),
]


@pytest.mark.parametrize(("each", "text"), WORK, ids=lambda each: type(each).__name__)
def test_a_pass_says_that_the_file_is_another(each: Pass, text: str) -> None:
    model = ir.from_onnx_text(text)
    before = ir.to_proto(model).SerializeToString(deterministic=True)
    done = each(model)
    assert done.model is model and done.modified
    assert ir.to_proto(model).SerializeToString(deterministic=True) != before


@pytest.mark.parametrize(
    "each",
    [each for each, _ in WORK if each not in (RAISED, NAMED)],
    ids=lambda each: type(each).__name__,
)
def test_a_pass_says_that_there_was_nothing_to_do(each: Pass) -> None:
    model = ir.from_onnx_text(TIDY)
    before = ir.to_proto(model).SerializeToString(deterministic=True)
    done = each(model)
    assert (done.modified, done.counts.total(), done.refused) == (False, 0, [])
    assert ir.to_proto(model).SerializeToString(deterministic=True) == before


@dataclass(frozen=True)
class Renamed(Pass):
    """A pass of a test."""

    name: str
    refuses: str = ""

    def edit(self, model: ir.Model, done: Done) -> None:
        if self.refuses:
            done.refuse(model.graph[0], self.refuses)
            return
        model.graph[0].name = self.name
        done.counts["renamed"] += 1


def test_a_list_of_passes_adds_up_what_they_say() -> None:
    model = ir.from_onnx_text(UNSORTED)
    done = Passes(Renamed("first"), Passes(Renamed("second"), Renamed("third", "not wanted")), Renamed("fourth"))(model)
    assert (done.modified, done.counts, done.refused) == (
        True,
        {"renamed": 3},
        [{"node": "second", "reason": "not wanted"}],
    )
    assert done.notes() == ["renamed", "not wanted"]
    assert not Passes(Renamed("", "not wanted"))(model).modified


def test_errors_keep_their_codes() -> None:
    model = ir.from_onnx_text(UNSORTED.replace("Relu (x)", "Relu (y)"))
    with raises("graph-cycle"):
        sort_nodes(model)
    with pytest.raises(onnx.shape_inference.InferenceError):
        Passes(InferTypes(strict=True))(ir.from_onnx_text(UNSORTED.replace("float[2] y", "float[3] y")))
