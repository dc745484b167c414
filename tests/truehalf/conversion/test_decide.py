"""Verdicts: one rule after the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from tests.measuring.converted import only
from tests.messages import expect
from truehalf.calibration.ranges_form import Ranges, TensorRange, read_ranges
from truehalf.conversion.decide import decide
from truehalf.conversion.rules.base import Decision, Verdict
from truehalf.ir.normalize import NORMALIZE
from truehalf.ir.selectors import Lists

HEAD = '<ir_version: 8, opset_import: ["": 17]> g '


def decisions(text: str, ranges: dict[str, float] | None = None, **rules: Any) -> dict[str, Decision]:
    model = ir.from_onnx_text(text if text.startswith("<") else HEAD + text)
    NORMALIZE(model)
    content = {"tensors": {n: {"absmax": v, "sample": "s7"} for n, v in (ranges or {}).items()}}
    measured = None if ranges is None else read_ranges(content)
    return {node.name or "": verdict for node, verdict in decide(model, measured, only(**rules)).nodes.items()}


def rules_of(text: str, ranges: dict[str, float] | None = None, **rules: Any) -> dict[str, str]:
    return {name: decision.rule for name, decision in decisions(text, ranges, **rules).items()}


CHAIN = "(float[2] x) => (float[2] y) { [p] a = Relu(x) [q] b = Neg(a) [r] y = Relu(b) }"


def test_without_evidence_nodes_are_free() -> None:
    assert {d.verdict for d in decisions(CHAIN, {"a": 512.0}, data_max=512.0).values()} == {Verdict.free}


def test_data_max_pins_who_writes_and_who_reads_with_the_numbers() -> None:
    found = decisions(CHAIN, {"x": 1.0, "a": 60000.0, "b": 2.0}, data_max=512.0)
    assert {name: d.verdict.value for name, d in found.items()} == {"p": "fp32", "q": "fp32", "r": "free"}
    expect(found["q"].reason, None, "'a'", "6e+04", "data_max 512", "s7")
    assert found["q"] == Decision(
        Verdict.fp32,
        "data_max",
        found["q"].reason,
        value=60000.0,
        threshold=512.0,
        tensor="a",
        sample="s7",
    )


def test_data_max_none_is_off() -> None:
    assert set(rules_of(CHAIN, {"a": 60000.0}, data_max=None).values()) == {"none"}


def test_a_tensor_with_no_finite_value_has_no_range() -> None:
    model = ir.from_onnx_text(HEAD + CHAIN)
    NORMALIZE(model)
    ranges = {
        "tensors": {
            "a": {"absmax": None, "sample": None},
            "b": {"absmax": float("inf"), "sample": "s"},
            "y": {"absmax": 1.0},
        }
    }
    assert {d.rule for d in decide(model, read_ranges(ranges), only(data_max=1.0)).nodes.values()} == {"none"}


def test_integers_have_no_range_that_counts() -> None:
    text = """(float[2,2] x, int64[1] i) => (float[1,2] y) { [add] j = Add(i, i)  [gather] y = Gather(x, j) }"""
    assert rules_of(text, {"j": 1e9, "i": 1e9, "x": 1.0, "y": 1.0}, data_max=512.0) == {"gather": "none"}


def test_block_lists() -> None:
    found = decisions(CHAIN, block=Lists(op=("Neg",), node=("^r$",)))
    assert {name: d.rule for name, d in found.items()} == {"p": "none", "q": "op_block_list", "r": "node_block_list"}
    expect(found["q"].reason, None, "op_block_list: Neg")
    expect(found["r"].reason, None, "node_block_list: ^r$")


ANCHORS = """(float[2] x, bool[2] c) => (float[2] y) <float[2] w = {1.0, 3.4028235e38}>
    { [where] a = Where(c, x, w) [gather] b = Gather(w, i) [end] y = Add(a, b) } """.replace(
    "<float[2] w", "<int64[2] i = {0, 1}, float[2] w"
)


def test_finfo_max_anchors_pin_by_init_max() -> None:
    found = decisions(ANCHORS, init_max=65504.0)
    assert {name: d.rule for name, d in found.items()} == {"where": "init_max", "gather": "init_max", "end": "none"}
    assert found["where"].tensor == "w"
    assert found["where"].value == pytest.approx(3.4028235e38)


def test_finfo_max_anchors_overflow_wherever_they_reach() -> None:
    found = rules_of(ANCHORS, {"x": 1.0, "a": 3.4e38, "b": 1.0, "y": 3.4e38}, data_max=512.0)
    assert found == {"where": "overflow", "gather": "none", "end": "overflow"}


def test_infinite_constants_are_exact_in_float16() -> None:
    text = "(float[2] x) => (float[2] y) { w = Constant<value_floats = [1.0, 2.0]>() [add] y = Add(x, w) }"
    model = ir.from_onnx_text(HEAD + text)
    NORMALIZE(model)
    model.graph[0].attributes["value_floats"] = ir.AttrFloat32s("value_floats", [-np.inf, 2.0])
    (decision,) = decide(model, None, only(init_max=100.0)).nodes.values()
    assert decision.verdict is Verdict.free


def test_constants_held_in_nodes_count() -> None:
    text = """(int64[1] s) => (float[n] y) { [fill] a = ConstantOfShape<value = float[1] {100000.0}>(s)
        w = Constant<value_float = -1e6>() [add] y = Add(a, w) }"""
    assert rules_of(text, init_max=65504.0) == {"fill": "init_max", "add": "init_max"}
    assert set(rules_of(text, init_max=None).values()) == {"none"}


@pytest.mark.parametrize(
    "node",
    [
        "Range(x, x, x)",
        "Celu(x)",
        "RandomNormalLike(x)",
    ],
)
def test_operators_without_float16_in_their_schema(node: str) -> None:
    text = f"(float x) => () {{ [n] y = {node} }}"
    assert rules_of(text, init_max=1.0, block=Lists(op=("Range",)))["n"] == "no_fp16_kernel"


def test_the_opset_decides() -> None:
    """IsInf takes float16 from opset 20 on."""
    text = '<ir_version: 8, opset_import: ["": {opset}]> g (float[2] x) => (bool[2] y) {{ [n] y = IsInf(x) }}'
    assert rules_of(text.format(opset=17)) == {"n": "no_fp16_kernel"}
    assert rules_of(text.format(opset=20)) == {"n": "none"}


def test_unknown_operators_and_what_reads_their_untyped_results() -> None:
    text = """<ir_version: 8, opset_import: ["": 17, "their": 1]> g (float[2] x) => (float[2] y)
        { [theirs] a = their.Op(x)  [next] b = Add(a, x)  [last] y = Relu(b) }"""
    found = decisions(text)
    assert {name: d.verdict.value for name, d in found.items()} == {"theirs": "fp32", "next": "fp32", "last": "fp32"}
    expect(found["theirs"].reason, None, "their::Op")


IF = """(float[2] x, bool c) => (float[2] y) <float[2] w = {1.0, 1e6}> { [if] a = If(c) <
    then_branch = t () => (float[2] ty) { [then] ty = Add(x, w) },
    else_branch = e () => (float[2] ey) { [else] en = Neg(x) [own] ey = Exp(en) }> [after] y = Relu(a) }"""


def test_bodies_are_judged_by_lists_and_constants_like_the_rest() -> None:
    found = rules_of(IF, init_max=65504.0, block=Lists(op=("Neg", "If")))
    assert found == {
        "if": "op_block_list",
        "then": "init_max",
        "else": "op_block_list",
        "own": "none",
        "after": "none",
    }


def test_what_nobody_measured_in_a_body_is_a_candidate() -> None:
    ranges = {"x": 1.0, "a": 1.0, "y": 1.0}
    inside = {"then": "unmeasured", "else": "unmeasured", "own": "unmeasured"}
    assert rules_of(IF, ranges) == {"if": "none", "after": "none"} | inside
    assert rules_of(IF, ranges, include=Lists(node=("own",)))["own"] == "node_include_list"
    assert rules_of(IF, ranges, rules="autocast")["own"] == "none"


SEALED = """(seq(float[2]) s, float[2] x) => (seq(float[2]) r) { [map] r = SequenceMap(s) <
    body = b (float[2] i) => (float[2] o) { [within] o = Relu(i) }> [after] y = Relu(x) }"""


def test_bodies_of_other_operators_stay_fp32() -> None:
    assert rules_of(SEALED, include=Lists(op=("Relu", "SequenceMap"))) == {
        "map": "subgraph",
        "within": "subgraph",
        "after": "op_include_list",
    }


def test_loop_and_scan_stay_fp32_with_all_in_them() -> None:
    scan = """<ir_version: 8, opset_import: ["": {opset}]> g (float[1,3,2] x) => (float[1,3,2] y) {{
        [scan] y = Scan<num_scan_inputs = 1, body = b (float[2] i) => (float[2] o) {{ [within] o = Relu(i) }}>({inputs})
        }}"""
    for opset, inputs in ((8, ", x"), (17, "x")):
        assert rules_of(scan.format(opset=opset, inputs=inputs)) == {"scan": "subgraph", "within": "subgraph"}
    loop = """(int64 n, bool c, float[2] x) => (float[2] y) { [loop] y = Loop(n, c, x) <
        body = b (int64 i, bool k, float[2] s) => (bool k2, float[2] t) { k2 = Identity(k) [if] t = If(k) <
            then_branch = p () => (float[2] q) { [within] q = Exp(s) },
            else_branch = e () => (float[2] r) { [other] r = Neg(s) }> }> [after] z = Relu(y) }"""
    found = rules_of(loop, include=Lists(op=("Exp",)))
    assert found == dict.fromkeys(("loop", "if", "within", "other"), "subgraph") | {"after": "none"}


def test_sequences_stay_fp32() -> None:
    text = (
        "(float[2] x) => (float[2] y) { [a] s = SequenceConstruct(x, x) [b] i = Constant<value_int = 0>() "
        "[c] y = SequenceAt(s, i) }"
    )
    assert rules_of(text) == {"a": "no_fp16_kernel", "c": "no_fp16_kernel"}


def test_quantized_parts_are_left_alone() -> None:
    text = """<ir_version: 10, opset_import: ["": 19]> g (float[2] x) => (float[2] y)
        <float s = {0.5}, int8 z = {0}> { [q] a = QuantizeLinear(x, s, z) [d] y = DequantizeLinear(a, s, z) }"""
    assert rules_of(text) == {"q": "quantized", "d": "quantized"}


def test_what_computes_quantized_tensors_is_left_alone() -> None:
    """QLinearMatMul takes float16 scales from opset 21 on."""
    text = """<ir_version: 10, opset_import: ["": 21]> g (float[2,2] x) => (uint8[2,2] y)
        { [dynamic] q, s, z = DynamicQuantizeLinear(x) [product] y = QLinearMatMul(q, s, z, q, s, z, s, z) }"""
    assert rules_of(text, include=Lists(op=("QLinearMatMul",))) == {"dynamic": "quantized", "product": "quantized"}


def test_trees_hold_their_weights_as_float32() -> None:
    """TreeEnsemble's schema has float16, for all of its tensors alike."""
    text = """<ir_version: 10, opset_import: ["": 21, "ai.onnx.ml": 5]> g (float[1,1] x) => (float[1,1] y) {
        [trees] a = ai.onnx.ml.TreeEnsemble<aggregate_function = 1, leaf_targetids = [0, 0],
            leaf_weights = float[2] {1.0, 2.0}, n_targets = 1, nodes_falseleafs = [1], nodes_falsenodeids = [1],
            nodes_featureids = [0], nodes_modes = uint8[1] {0}, nodes_splits = float[1] {0.5}, nodes_trueleafs = [1],
            nodes_truenodeids = [0], post_transform = 0, tree_roots = [0]>(x)
        [next] y = Relu(a) }"""
    found = rules_of(text, include=Lists(op=("ai.onnx.ml::TreeEnsemble",)))
    assert found == {"trees": "no_fp16_kernel", "next": "none"}


def test_nodes_that_take_any_type() -> None:
    text = """(float[2] x) => (int64[1] s, float16[2] h, float[2] y)
        { [shape] s = Shape(x) [half] h = Cast<to = 10>(x) [int] i = Cast<to = 7>(x) [back] y = Cast<to = 1>(i) }"""
    found = rules_of(text, {"x": 1e6, "y": 1e6}, data_max=512.0)
    assert found == {"shape": "any_type", "half": "any_type", "int": "any_type", "back": "overflow"}


def test_a_scatter_that_adds_up_stays_fp32() -> None:
    text = """(float[4] x, int64[2,1] i, float[2] u) => (float[4] y)
        { [put] a = ScatterND(x, i, u) [add] y = ScatterND<reduction = "add">(a, i, u) }"""
    assert rules_of(text) == {"put": "none", "add": "no_fp16_kernel"}


LISTED = "(float[2,2] x) => (float[2,2] y) { [mul] a = MatMul(x, x) [soft] b = Softmax(a) [exp] y = Exp(b) }"


def test_wanted_operators_are_fp16_unless_a_rule_or_list_is_against_it() -> None:
    found = decisions(LISTED, fp16_ops=("MatMul", "Gemm"))
    assert found["mul"] == Decision(Verdict.fp16, "fp16_ops", found["mul"].reason)
    expect(found["mul"].reason, None, "MatMul", "FP16")
    assert found["soft"].verdict is Verdict.free
    assert decisions(LISTED, {"a": 600.0}, fp16_ops=("MatMul",), data_max=512.0)["mul"].rule == "data_max"
    assert decisions(LISTED, fp16_ops=("MatMul",), block=Lists(op=("MatMul",)))["mul"].rule == "op_block_list"
    assert decisions(LISTED, fp16_ops=("MatMul",), rules="autocast")["mul"].rule == "fp16_ops"


def test_include_lists_beat_block_lists_and_candidate_rules_and_say_so() -> None:
    options = {"data_max": 512.0, "block": Lists(op=("Softmax",)), "include": Lists(pattern=("Softmax -> Exp",))}
    found = decisions(LISTED, {"a": 600.0, "b": 600.0}, **options)
    assert {name: d.rule for name, d in found.items()} == {
        "mul": "data_max",
        "soft": "pattern_include_list",
        "exp": "data_max",
    }
    assert found["soft"].verdict is Verdict.fp16
    reason = found["soft"].reason
    against = ["op_block_list: Softmax", "data_max 512", "'a'", 600, "s7"]
    expect(reason, None, "pattern_include_list: Softmax -> Exp", *against)
    assert reason.index("pattern_include_list") < reason.index("op_block_list") < reason.index("data_max")


def test_no_include_list_beats_a_missing_kernel_or_a_quantized_part() -> None:
    assert rules_of("(float x) => () { [n] y = Range(x, x, x) }", include=Lists(op=("Range",)))["n"] == "no_fp16_kernel"
    text = """<ir_version: 10, opset_import: ["": 19]> g (float[2] x) => (int8[2] y)
        <float s = {0.5}, int8 z = {0}> { [q] y = QuantizeLinear(x, s, z) }"""
    assert rules_of(text, include=Lists(node=("q",)))["q"] == "quantized"


CUSTOM = """<ir_version: 8, opset_import: ["": 17, "com.acme": 1]> g (float[2] x) => (float[2] y)
    <float[2] a> { [theirs] a = com.acme.Op(x) [next] y = Relu(a) }"""


@pytest.mark.parametrize("entry", ["Op", "com.acme::Op"])
def test_a_custom_operator_that_an_include_list_names_is_fp16(entry: str) -> None:
    assert rules_of(CUSTOM) == {"theirs": "no_fp16_kernel", "next": "none"}
    found = decisions(CUSTOM, include=Lists(op=(entry,)))
    assert (found["theirs"].verdict, found["theirs"].rule) == (Verdict.fp16, "op_include_list")


def test_a_custom_operator_is_judged_by_all_that_it_touches() -> None:
    assert rules_of(CUSTOM, {"a": 1e6}, include=Lists(op=("Op",)))["theirs"] == "overflow"


def test_a_custom_operator_of_unknown_types_stays_fp32() -> None:
    text = CUSTOM.replace("<float[2] a> ", "")
    assert rules_of(text, include=Lists(op=("Op",))) == {"theirs": "no_fp16_kernel", "next": "no_fp16_kernel"}


def test_selectors_that_match_nothing_are_reported() -> None:
    model = ir.from_onnx_text(HEAD + LISTED)
    NORMALIZE(model)
    rules = only(block=Lists(op=("Sofmax", "Exp")), include=Lists(scope=("decoder",)))
    found = decide(model, None, rules)
    assert [str(selector) for selector in found.unmatched] == ["op_block_list: Sofmax", "scope_include_list: decoder"]
    misspelt, unknown = found.warnings
    expect(misspelt, None, "op_block_list: Sofmax", "Softmax")
    expect(unknown, None, "scope_include_list: decoder")
    assert "Softmax" not in unknown


def refuse(node: ir.Node, ranges: Mapping[str, Any]) -> str | None:
    return "mine"


def test_autocast_knows_its_three_limits_and_the_lists_alone() -> None:
    text = """(float[2] x) => (float[2] y) <float[2] w = {2049.0, 1e-9}, float eps = {1e-9}>
        { [a] a = Add(x, w) [b] b = Add(a, eps) [c] c = Log(b) [d] y = ReduceSum(c) }"""
    ranges = {"a": 1e-6, "b": 1e9, "c": 1.0, "y": 1.0, "x": 1.0}
    options = {"epsilons": True, "reduction_depth_max": 1, "data_max": 512.0}
    found = rules_of(
        text, ranges, rules="autocast", custom_rule="tests.truehalf.conversion.test_decide:refuse", **options
    )
    assert found == {"a": "none", "b": "data_max", "c": "data_max", "d": "reduction_depth"}


def test_many_nodes_are_judged_in_time_that_grows_with_them() -> None:
    """Work, not seconds: how often a rule looks at a tensor's range."""

    class Counting(dict[str, Any]):
        looks = 0

        def get(self, key: str, default: Any = None) -> Any:
            Counting.looks += 1
            return super().get(key, default)

    def looks(nodes: int) -> int:
        body = " ".join(f"x{i + 1} = Relu(x{i})" for i in range(nodes))
        model = ir.from_onnx_text(HEAD + f"(float[2] x0) => (float[2] x{nodes}) {{ {body} }}")
        NORMALIZE(model)
        Counting.looks = 0
        ranges = Ranges(Counting({f"x{i}": TensorRange(1.0) for i in range(nodes)}))
        decide(model, ranges, only(data_max=512.0, init_max=65504.0, masks=True, inner=True))
        return Counting.looks

    assert looks(400) < 4.5 * looks(100)
