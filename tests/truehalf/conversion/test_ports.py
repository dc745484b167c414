"""What has one precision, and whose precision the ends of a tensor follow."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from truehalf.conversion.ports import FP16, FP32, Ports, Slot, ports
from truehalf.ir.normalize import PREPARE

HEAD = '<ir_version: 8, opset_import: ["": 17]> g '
LOOP = """(float[2] x) => (float[2] y, float[n,2] z) <int64 n = {3}, bool go = {1}> { a = Relu(x)
    y, z = Loop(n, go, a) <body = l (int64 i, bool c, float[2] s) => (bool d, float[2] u, float[2] v)
        { d = Identity(c) u = Add(s, a) v = Exp(u) }> }"""
SCAN = """(float[3,2] x) => (float[2] y, float[3,2] z) <float[2] zero = {0.0, 0.0}>
    { a = Relu(x) y, z = Scan<num_scan_inputs = 1, body =
        l (float[2] s0, float[2] r) => (float[2] s1, float[2] o) { s1 = Add(s0, r) o = Exp(s1) }>(zero, a) }"""
IF = """(float[2] x, bool c) => (float[2] y) { a = Relu(x)
    y = If(c) <then_branch = t () => (float[2] p) { p = Exp(a) },
               else_branch = e () => (float[2] q) { q = Neg(a) }> }"""


def found(
    text: str, movable: set[str] | None = None, **options: object
) -> tuple[Ports, dict[str, object], dict[str, list[object]]]:
    """The ports of a graph whose nodes move (by op type; default: all), and what writes and reads each tensor."""
    proto = onnx.parser.parse_model(HEAD + text)
    onnx.checker.check_model(proto, full_check=True)
    model = ir.from_proto(proto)
    PREPARE(model)
    nodes = [n for n in ir.traversal.RecursiveGraphIterator(model.graph) if movable is None or n.op_type in movable]
    result = ports(model, nodes, **options)  # type: ignore[arg-type]
    writes = {t.value.name or "": label(t.producer) for t in result.tensors}
    return result, writes, {t.value.name or "": [label(use.end) for use in t.uses] for t in result.tensors}


def label(end: object) -> object:
    if isinstance(end, Slot):
        return f"{end.node.op_type}:{end.index}"
    return end.op_type if isinstance(end, ir.Node) else end


def test_nodes_own_their_half_slots_and_the_outside_has_its_type() -> None:
    text = (
        "(float[1,1,2,2] x) => (float[1,1,4,4] y) <float[4] s = {1.0,1.0,2.0,2.0}> { a = Relu(x) y = Resize(a, , s) }"
    )
    _, writes, reads = found(text)
    assert writes == {"x": FP32, "s": FP32, "a": "Relu", "y": "Resize"}
    assert reads == {"x": ["Relu"], "s": [FP32], "a": ["Resize"], "y": [FP32]}
    assert found(text, keep_io_types=False)[1]["x"] == FP16
    assert found(text, keep_io_types=["y"])[1]["x"] == FP16
    assert found(text, keep_io_types=["y"])[2]["y"] == [FP32]


def test_what_does_not_move_is_fp32_and_shape_takes_either() -> None:
    text = "(float[2] x) => (float[2] y, int64[1] s) { a = Relu(x) y = Exp(a) s = Shape(a) }"
    _, writes, reads = found(text, {"Relu"})
    assert (writes["a"], writes["y"], reads["a"]) == ("Relu", FP32, [FP32, None])


def test_a_branch_output_is_one_with_the_output_of_the_if() -> None:
    result, writes, reads = found(IF)
    assert (writes["y"], reads["p"], reads["q"]) == ("If:0", ["If:0"], ["If:0"])
    assert sorted(map(str, reads["a"])) == ["Exp", "Neg"]  # captured: read where it is read
    assert sum(isinstance(owner, Slot) for owner in result.owners) == 1


def test_a_loop_and_a_scan_pass_float32_on() -> None:
    _, writes, reads = found(LOOP, {"Relu", "Loop"})
    assert (reads["a"], writes["s"], writes["y"]) == ([FP32, FP32], FP32, FP32)
    assert (reads["v"], writes["z"]) == ([FP32], FP32)
    _, writes, reads = found(SCAN, {"Relu", "Scan"})
    assert (reads["a"], writes["s0"], writes["r"], writes["y"], writes["z"]) == ([FP32], FP32, FP32, FP32, FP32)


def test_a_pinned_if_puts_out_float32() -> None:
    _, writes, reads = found(IF, {"Relu", "Exp", "Neg"})
    assert (writes["y"], reads["p"], reads["q"]) == (FP32, [FP32], [FP32])
    assert reads["a"] == ["Exp", "Neg"]


def test_large_weights_are_cast_at_run_time_when_asked() -> None:
    text = "(float[2] x) => (float[2] y) <float[2] w = {1.0, 2.0}> { y = Add(x, w) }"
    by_name = {tensor.value.name: tensor for tensor in found(text)[0].tensors}
    assert by_name["w"].constant
    by_name = {tensor.value.name: tensor for tensor in found(text, init_conversion_max_bytes=7)[0].tensors}
    assert not by_name["w"].constant
    assert by_name["w"].producer == FP32
