"""Float arithmetic that becomes a shape, an index, a trip count or a branch stays FP32; what becomes data does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from tests.measuring.converted import only
from tests.messages import expect
from tests.tiers import examples
from tests.truehalf.conversion.conversion import FLOAT16, convert_in_memory, types
from truehalf.conversion.decide import decide
from truehalf.conversion.rules.base import Verdict
from truehalf.conversion.shape_arithmetic import deciding_input
from truehalf.emulation.emulate import emulate
from truehalf.ir.normalize import PREPARE
from truehalf.ir.selectors import Lists

# `x` is float[2050], `t` float[1] = 2051.4, `d` the 2050 of x's shape as float[1]; float16 makes 2048, 2050 or 2052 of
# the numbers between 2049 and 2052. `o` is a result of any type, `y` data that runs in FP16.
HEAD = """<ir_version: 10, opset_import: ["": 21]> g (float[n] x, float[1] t) => (float[m] y, {output} o)
<int64[1] zero = {{0}}, int64[1] one = {{1}}, int64[1] two = {{2}}, int64[1] far = {{3000}},
 int64 c0 = {{0}}, int64 c1 = {{1}}, int64 c5000 = {{5000}},
 float third = {{0.33333334}}, float[1] f1 = {{1.0}}, float f0 = {{0.0}}, float limit = {{2051.2}}, bool true = {{1}}>
{{ y = Relu(x)  shape = Shape(x)  d = Cast<to = 1>(shape)  {body} }}"""


def model(body: str, output: str = "float[k]") -> onnx.ModelProto:
    proto = onnx.parser.parse_model(HEAD.format(body=body, output=output))
    onnx.checker.check_model(proto, full_check=True)
    return proto


def run(proto: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    return ort.InferenceSession(proto.SerializeToString(), options, ["CPUExecutionProvider"]).run(None, feeds)


FEEDS = {"x": np.linspace(-1, 1, 2050, dtype=np.float32), "t": np.array([2051.4], np.float32)}


def check(proto: onnx.ModelProto, feeds: dict[str, np.ndarray] = FEEDS, **options: Any) -> onnx.ModelProto:
    """Convert, and expect the same shapes, integers and, but for roundings, floats: where FP16 arithmetic rounds, and
    on a provider that computes it in FP32.
    """
    _, result = convert_in_memory(proto, only(), **options)
    rounded = ir.to_proto(emulate(ir.from_proto(result)))
    for outputs in (run(rounded, feeds), run(result, feeds)):
        for before, after in zip(run(proto, feeds), outputs, strict=True):
            assert after.shape == before.shape
            rtol = 2e-3 if before.dtype.kind == "f" else 0
            np.testing.assert_allclose(after.astype(np.float64), before.astype(np.float64), rtol=rtol, atol=rtol)
    assert FLOAT16 in types(result).values()
    return result


SINKS = {
    "ConstantOfShape": ("o = ConstantOfShape(i)", "float[k]"),
    "Expand": ("o = Expand(f1, i)", "float[k]"),
    "Tile": ("o = Tile(f1, i)", "float[k]"),
    "Reshape": ("u = Expand(f1, i) v = Concat<axis = 0>(i, one) o = Reshape(u, v)", "float[k, 1]"),
    "Slice ends": ("u = Expand(f1, far) o = Slice(u, zero, i)", "float[k]"),
    "Slice starts": ("u = Expand(f1, far) o = Slice(u, i, far)", "float[k]"),
    "Gather": ("r = Range(c0, c5000, c1) o = Gather(r, i)", "int64[1]"),
    "GatherElements": ("r = Range(c0, c5000, c1) o = GatherElements(r, i)", "int64[1]"),
    "GatherND": ("r = Range(c0, c5000, c1) j = Unsqueeze(i, one) o = GatherND(r, j)", "int64[1]"),
    "ScatterND": ("u = Expand(f0, far) j = Unsqueeze(i, one) o = ScatterND(u, j, f1)", "float[k]"),
    "ScatterElements": ("u = Expand(f0, far) o = ScatterElements(u, i, f1)", "float[k]"),
    "TopK": ("r = Expand(f1, far) o, p = TopK(r, i)", "float[k]"),
    "Pad": ("p = Concat<axis = 0>(zero, i) o = Pad(f1, p)", "float[k]"),
    "OneHot depth": ("w = Concat<axis = 0>(f1, f1) s = Squeeze(i) o = OneHot(one, s, w)", "float[1, k]"),
    "Range of integers": ("s = Squeeze(i) o = Range(c0, s, c1)", "int64[k]"),
    "Split": ("u = Expand(f1, far) j = Sub(far, i) k = Concat<axis = 0>(i, j) o, v = Split(u, k)", "float[k]"),
    "Resize sizes": ("o = Resize(f1, , , i)", "float[k]"),
    "CenterCropPad": ("o = CenterCropPad<axes = [0]>(f1, i)", "float[k]"),
    "Loop": ("""s = Squeeze(i) o = Loop(s, , zero) <body = b (int64 n, bool c, int64[1] k) => (bool e, int64[1] m)
                { e = Identity(c) m = Add(k, one) }>""", "int64[1]"),
    "SequenceAt": ("""r = Range(c0, c5000, c1) q = SplitToSequence<axis = 0>(r, c1) s = Squeeze(i) z = Sub(s, c1)
                o = SequenceAt(q, z)""", "int64[1]"),
    "a custom size": ("u = Slice(y, zero, i) o = Shape(u)", "int64[1]"),
}  # fmt: skip
# From d = 2050.0 and t = 2051.4 to an integer i.
ARITHMETIC = {
    "a constant": "k = Constant<value = float[1] {2049.0}>() v = Mul(y, k) i = Cast<to = 7>(k)",
    "Floor": "a = Floor(t) i = Cast<to = 7>(a)",
    "Ceil": "a = Ceil(t) b = Sub(a, f1) i = Cast<to = 7>(b)",
    "Round": "a = Mul(t, f1) b = Round(a) c = Max(b, d) i = Cast<to = 7>(c)",
    "Sub": "a = Sub(d, f1) i = Cast<to = 7>(a)",
    "Div": "a = Div(d, third) b = Mul(a, third) c = Sub(b, f1) j = Cast<to = 6>(c) i = Cast<to = 7>(j)",
    "Sqrt, Mul": "a = Sqrt(t) b = Mul(a, a) i = Cast<to = 7>(b)",
    "Log, Exp": "a = Log(t) b = Exp(a) i = Cast<to = 7>(b)",
    "Pow": "two_f = Cast<to = 1>(two) a = Pow(t, two_f) b = Sqrt(a) i = Cast<to = 7>(b)",
    "ReduceSum": "a = Concat<axis = 0>(d, f1) b = ReduceSum(a, zero) c = Sub(b, f1) e = Sub(c, f1) i = Cast<to = 7>(e)",
    "Greater": "a = Greater(t, limit) b = Cast<to = 7>(a) i = Add(b, shape)",
    "Where": "a = Greater(t, limit) b = Where(a, t, d) c = Sub(b, f1) i = Cast<to = 7>(c)",
    "a count": "a = Greater(t, limit) b = Cast<to = 1>(a) c = Sub(d, b) i = Cast<to = 7>(c)",
    "moves": "a = Concat<axis = 0>(t, d) b = Transpose(a) c = Slice(b, zero, one) i = Cast<to = 7>(c)",
    "If": """a = Greater(t, limit) s = Squeeze(a) b = If(s) <then_branch = h () => (float[1] p) { p = Add(t, f1) },
             else_branch = e () => (float[1] q) { q = Identity(d) }> i = Cast<to = 7>(b)""",
    "Loop state": """b = Loop(c1, , t) <body = l (int64 n, bool c, float[1] k) => (bool e, float[1] m)
             { e = Identity(c) m = Sub(k, f1) }> i = Cast<to = 7>(b)""",
    "Loop scan": """v, b = Loop(c1, , t) <body = l (int64 n, bool c, float[1] k) => (bool e, float[1] m, float[1] r)
             { e = Identity(c) m = Identity(k) r = Sub(k, f1) }> w = Squeeze(b, zero) i = Cast<to = 7>(w)""",
    "Scan": """u = Unsqueeze(t, zero) v, b = Scan<num_scan_inputs = 1, body = l
             (float[1] k, float[1] r) => (float[1] m, float[1] w)
             { m = Identity(k) w = Sub(r, k) }>(f1, u) i0 = Cast<to = 7>(b) i = Squeeze(i0, zero)""",
}  # fmt: skip


@pytest.mark.parametrize("sink", SINKS)
def test_whatever_says_where_or_how_many_is_exact(sink: str) -> None:
    body, output = SINKS[sink]
    check(model(f"a = Sub(d, f1) i = Cast<to = 7>(a) {body}", output))


@pytest.mark.parametrize("arithmetic", ARITHMETIC)
def test_whatever_it_is_computed_with(arithmetic: str) -> None:
    check(model(f"{ARITHMETIC[arithmetic]} o = Expand(f1, i)"))


TEXTS = {
    "Resize scales": """(float[1,3,n,n] x, float t) => (float[a,b,c,d] y, float[1,3,n,n] z)
        <float[2] one = {1, 1}, int64[1] two = {2},
        float three = {3}> { z = Relu(x) q = Div(t, three) e = Expand(q, two) s = Concat<axis=0>(one, e)
        y = Resize<mode = "linear">(z, , s) }""",
    "a condition of floats": """(float[3] x, float t) => (float[3] y, float k)
        <int64 far = {9000}, bool true = {1}, float step = {0.001},
        float limit = {0.5005}, float start = {0}, float[3] big = {1, 2, 3}> { x1 = Relu(x)
        y, k = Loop(far, true, x1, start) <body = b (int64 n, bool c, float[3] s, float f)
        => (bool e, float[3] r, float g)
        { r = Add(s, big) g = Add(f, step) e = Less(g, limit) }> }""",
    "positions that are not 0": """(float[3] x, float t) => (float[3] y, int64[1, k] o) <float[3] w = {1e-9, 1, 0}>
        { y = Relu(x) v = Mul(w, t) o = NonZero(v) }""",
    "what a condition leaves": """(float[3] x, float t) => (float[3] y, float[k] o)
        <float[3] w = {1.0001, 1, 0}, float[1] one = {1}>
        { y = Relu(x) v = Greater(w, one) o = Compress(y, v) }""",
    "what is unique": """(float[3] x, float t) => (float[3] y, float[k] o) <float[3] w = {1.0001, 1, 0}>
        { y = Relu(x) v = Abs(w) o = Unique(v) }""",
    "a branch": """(float[3] x, float t) => (float[3] y) <float w = {1.9999}, int64[1] zero = {0}>
        { v = Mul(t, t) c = Less(v, limit) x1 = Relu(x) y = If(c) <then_branch = a () => (float[3] p) { p = Neg(x1) },
        else_branch = b () => (float[3] q) { q = Relu(x1) }> limit = Constant<value_float = 4.0001>() }""",
    "the nearest of some sizes": """(float[3] x, float t) => (float[3] y, float[1] o) <float[1] c = {0.23340667},
        float[4] grid = {0.70005, 0.7001, 0.7002, 0.7004}, float[4] v = {1, 2, 3, 4}>
        { y = Relu(x) s = Shape(x) f = Cast<to = 1>(s) g = Mul(f, c) d = Sub(grid, g) a = Abs(d)
        i = ArgMin<axis = 0>(a) o = Gather(v, i) }""",
    "the best of some constants": """(float[3] x, float t) => (float[3] y, float[1] o) <int64[1] one = {1},
        float[4] w = {0.70005, 0.7001, 0.7002, 0.7001}, float[4] v = {1, 2, 3, 4}>
        { y = Relu(x) a = Sqrt(w) b, i = TopK(a, one) o = Gather(v, i) }""",
    "a layer of sizes": """(float[3] x, float t) => (float[3] y, float[k] o)
        <int64[1] n = {300}, float[300, 2] w = {WEIGHTS}, float[1] one = {1}, int64[1] r = {1}, int64[1] zero = {0}>
        { y = Relu(x) s = Shape(x) f = Cast<to = 1>(s) e = Expand(f, n) a = MatMul(e, w) b = Slice(a, zero, r)
        i = Cast<to = 7>(b) o = Expand(one, i) }""".replace("WEIGHTS", ", ".join(["2.2789"] * 600)),
    "a captured float": """(float[3] x, float t, bool b) => (float[3] y, float[k] o)
        <float[1] one = {1}, int64[1] shape = {1}>
        { y = Relu(x) v = Reshape(t, shape) w = Mul(v, one1) o = If(b) <then_branch = a () => (float[h] p)
        { i = Cast<to = 7>(w) p = Expand(one, i) }, else_branch = e () => (float[j] q) { q = Relu(one) }>
        one1 = Constant<value_floats = [1025.5]>() }""",
}


@pytest.mark.parametrize("name", TEXTS)
def test_whole_graphs(name: str) -> None:
    text = TEXTS[name]
    head = '<ir_version: 10, opset_import: ["": 21]> g '
    model = ir.from_onnx_text(head + text)
    model.graph.sort()
    proto = ir.to_proto(model)
    onnx.checker.check_model(proto, full_check=True)
    x = np.linspace(-1, 1, 3, dtype=np.float32)
    feeds: dict[str, np.ndarray] = {"x": np.ones((1, 3, 300, 300), np.float32) if "n,n" in text else x}
    feeds |= {"t": np.array(2, np.float32)}
    for flag in (True, False) if "bool b" in text else (None,):
        check(proto, feeds | ({} if flag is None else {"b": np.array(flag)}))


def test_in_a_function() -> None:
    text = """<ir_version: 10, opset_import: ["": 21, "our": 1]> g (float[n] x) => (float[n] y, float[m] o)
        <float[1] one = {1}> { y = Relu(x) s = Shape(x) i = our.fewer(s) o = Expand(one, i) }
        <domain: "our", opset_import: ["": 21]> fewer (s) => (i)
        { f = Cast<to = 1>(s) k = Constant<value_floats = [1.0]>() g = Sub(f, k) i = Cast<to = 7>(g) }"""
    check(onnx.parser.parse_model(text), {"x": FEEDS["x"]})


def test_what_an_unknown_operator_reads() -> None:
    text = """<ir_version: 10, opset_import: ["": 17, "com.microsoft": 1]> g (float[n] x) => (float[n] y, float[m] o)
        <float c = {1.4}, float zero = {0}, float one = {1}>
        { y = Relu(x) s = Size(x) f = Cast<to = 1>(s) g = Mul(f, c) o = com.microsoft.Range(zero, g, one) }"""
    check(onnx.parser.parse_model(text), {"x": FEEDS["x"]})


# --- what stays FP16 --------------------------------------------------------------------------------------------------


def decided(text: str) -> dict[str, tuple[str, str]]:
    model = ir.from_onnx_text(text if text.startswith("<") else f'<ir_version: 10, opset_import: ["": 21]> g {text}')
    PREPARE(model)
    return {str(node.name): (each.rule, each.reason) for node, each in decide(model, None, only()).nodes.items()}


def _decisions(text: str) -> dict[ir.Node, Any]:
    model = ir.from_onnx_text(text)
    PREPARE(model)
    return decide(model, None, only()).nodes


def rules_of(text: str) -> dict[str, str]:
    return {name: rule for name, (rule, _) in decided(text).items()}


@pytest.mark.parametrize(
    "end",
    [
        "o = Identity(i)",  # a label
        "c = Cast<to = 7>(x) o = Add(i, c)",
        "j = Cast<to = 3>(i) k = Cast<to = 6>(j) s = Constant<value_float = 0.5>() h = DequantizeLinear(k, s) "
        "o = Cast<to = 7>(h)",
        "c = Greater(i, i) o = Where(c, i, i)",
        "s = Shape(i) u = Expand(x, s) o = Cast<to = 7>(u)",
        "z = ArgMax(i) m = Gather(x, z) o = Cast<to = 7>(m)",
    ],
)
def test_an_integer_that_is_data_keeps_nothing_in_fp32(end: str) -> None:
    text = (
        f"(float[4] x) => (int64[k] o) {{ [mul] a = Mul(x, x) [floor] b = Floor(a) [cast] i = Cast<to = 7>(b) {end} }}"
    )
    found = rules_of(text)
    assert (found["mul"], found["floor"], found["cast"]) == ("none", "none", "any_type")


def test_the_report_says_what_is_decided() -> None:
    found = decided(
        """(float[4] x) => (float[k] o) { [mul] a = Mul(x, x) [cast] i = Cast<to = 7>(a) [tile] o = Tile(x, i) }"""
    )
    rule, reason = found["mul"]
    assert rule == "shape_arithmetic"
    expect(reason, None, "repeats", "Tile", "'tile'")
    assert found["tile"][0] == "none"


def test_no_list_overrides_it() -> None:
    model = ir.from_onnx_text("""<ir_version: 10, opset_import: ["": 21]> g (float[1] x) => (float[k] o)
        { [mul] a = Mul(x, x) [cast] i = Cast<to = 7>(a) [tile] o = Tile(x, i) }""")
    PREPARE(model)
    for rules in (only(include=Lists(op=("Mul",))), only(fp16_ops=("Mul",)), only(rules="autocast")):
        found = {node.name: each for node, each in decide(model, None, rules).nodes.items()}
        assert (found["mul"].verdict, found["mul"].rule) == (Verdict.fp32, "shape_arithmetic")


def test_a_layer_ends_it() -> None:
    text = """(float[1, 4] x, float[4, 16] w) => (float[k] o)
        { [before] v = Relu(x) [layer] a = MatMul(v, w)
        [sum] b = ReduceSum<keepdims = 0>(a) [cast] i = Cast<to = 7>(b)
        z = Constant<value_ints = [1]>() j = Reshape(i, z) [fill] o = ConstantOfShape(j) }"""
    found = rules_of(text)
    assert (found["before"], found["layer"], found["sum"]) == ("none", "none", "shape_arithmetic")


SIZES = {
    "of an axis": ("s = Shape(x) f = Cast<to = 1>(s) [mul] a = Mul(f, c) o = Cast<to = 7>(a)", "shape_arithmetic"),
    "of all": ("s = Size(x) f = Cast<to = 1>(s) [mul] a = Mul(f, c) o = Cast<to = 6>(a)", "shape_arithmetic"),
    "of two": (
        "s = Shape(x) f = Cast<to = 1>(s) g = Sqrt(f) [mul] a = Mul(f, g) o = Cast<to = 7>(a)",
        "shape_arithmetic",
    ),
    "of an axis, narrow": (
        "s = Shape(x) f = Cast<to = 1>(s) [mul] a = Mul(f, c) o = Cast<to = 2>(a)",
        "shape_arithmetic",
    ),
    "compared": ("s = Shape(x) f = Cast<to = 1>(s) [mul] a = Mul(f, c) o = Less(a, c)", "shape_arithmetic"),
    "in a branch": (
        """s = Shape(x) f = Cast<to = 1>(s) b = Greater(t, c) z = Squeeze(b) v = If(z)
        <then_branch = h () => (float[1] p) { [mul] p = Mul(f, c) }, else_branch = e () => (float[1] q) { q = Neg(f) }>
        o = Cast<to = 7>(v)""",
        "shape_arithmetic",
    ),
    "of the branch itself": (
        """s = Shape(x) b = Greater(t, c) z = Squeeze(b) o = If(z)
        <then_branch = h () => (int64[1] p) { f = Cast<to = 1>(s) [mul] a = Mul(f, c) p = Cast<to = 7>(a) },
        else_branch = e () => (int64[1] q) { q = Neg(s) }>""",
        "shape_arithmetic",
    ),
    "in a loop": (
        """s = Shape(x) f = Cast<to = 1>(s) n = Constant<value_int = 3>() v = Loop(n, , f) <body = l
        (int64 i, bool d, float[1] k) => (bool e, float[1] m) { e = Identity(d) [mul] m = Mul(k, c) }>
        o = Cast<to = 7>(v)""",
        "subgraph",
    ),
    "in a scan": (
        """s = Shape(x) f = Cast<to = 1>(s) u = Unsqueeze(f, z) z = Constant<value_ints = [0]>()
        v, w = Scan<num_scan_inputs = 1, body = l (float[1] k, float[1] r) => (float[1] m, float[1] o1)
        { m = Identity(k) [mul] o1 = Mul(r, c) }>(c, u) o = Cast<to = 7>(w)""",
        "subgraph",
    ),
    "of data in a branch": (
        """s = Shape(x) f = Cast<to = 1>(s) b = Greater(t, c) z = Squeeze(b) v = If(z)
        <then_branch = h () => (float[1] p) { [mul] p = Mul(f, t) }, else_branch = e () => (float[1] q) { q = Neg(f) }>
        o = Cast<to = 7>(v)""",
        "none",
    ),
    "of data": ("s = Shape(x) f = Cast<to = 1>(s) g = Mul(f, t) [mul] a = Mul(g, c) o = Cast<to = 7>(a)", "none"),
    "no size": ("[mul] a = Mul(t, c) o = Cast<to = 7>(a)", "none"),
}


@pytest.mark.parametrize("name", SIZES)
def test_an_output_that_is_a_size(name: str) -> None:
    body, rule = SIZES[name]
    kind = "int32" if "to = 6" in body else "uint8" if "to = 2" in body else "bool" if "o = Less" in body else "int64"
    text = f"""g (float[n] x, float[1] t) => ({kind}[k] o) <float[1] c = {{0.6666667}}> {{ {body} }}"""
    model = ir.from_onnx_text(f'<ir_version: 10, opset_import: ["": 21]> {text}')
    model.graph.sort()
    PREPARE(model)
    found = {node.name: each.rule for node, each in decide(model, None, only()).nodes.items()}
    assert found["mul"] == rule


@pytest.mark.parametrize("keep", [False, ["x"], ["y"]])
def test_an_input_that_decides_a_shape_stays_float32(keep: bool | list[str]) -> None:
    proto = model("a = Mul(d, t) i = Cast<to = 7>(a) o = ConstantOfShape(i)")
    feeds = {"x": np.ones(2050, np.float32), "t": np.array([0.9996], np.float32)}
    result, mixed = convert_in_memory(proto, only(), keep_io_types=keep)
    kinds = {value.name: value.type.tensor_type.elem_type for value in mixed.graph.input}
    assert kinds["t"] == onnx.TensorProto.FLOAT and (kinds["x"] == FLOAT16) == (keep != ["x"])
    assert sum("'t'" in warning for warning in result.decisions.warnings) == 1
    fed = feeds | ({"x": feeds["x"].astype(np.float16)} if kinds["x"] == FLOAT16 else {})
    assert run(mixed, fed)[1].shape == run(proto, feeds)[1].shape == (2049,)


@pytest.mark.parametrize("table", ["float[4000] x", "float[2, 4000] x"])
def test_indices_of_the_machine_learning_operators(table: str) -> None:
    found = {
        node.name: each.rule
        for node, each in _decisions(
            f"""<ir_version: 10, opset_import: ["": 21, "ai.onnx.ml": 3]> g ({table}, float[1] t) => (float[k, l] o)
            {{ [mul] a = Mul(t, t) i = Cast<to = 7>(a) o = ai.onnx.ml.ArrayFeatureExtractor(x, i) }}"""
        ).items()
    }
    assert found["mul"] == "shape_arithmetic"


def test_a_choice_ends_it() -> None:
    text = """(float[300] x, int64[1] k) => (float[m] o)
        { [before] a = Neg(x) [topk] v, i = TopK(a, k) [gather] o = Gather(x, i) }"""
    assert set(rules_of(text).values()) == {"none"}


def test_a_float_input_may_be_index_and_data() -> None:
    """It is cast for the others, and read as it is by the Cast to an integer."""
    text = """(float[4] x) => (float[4] y, float[k] o)
        { y = Neg(x) i = Cast<to = 7>(x) o = Tile(y, one1) p = Gather(y, i)
        one1 = Reshape(j, s) j = ReduceMax<keepdims = 0>(i) s = Constant<value_ints = [1]>() }"""
    model = ir.from_onnx_text(f'<ir_version: 10, opset_import: ["": 21]> g {text}')
    model.graph.sort()
    check(ir.to_proto(model), {"x": np.array([0, 1, 2, 2.9996], np.float32)})


# --- the table --------------------------------------------------------------------------------------------------------


def test_inputs_that_no_float_can_be_are_positions_or_sizes_unless_they_are_listed_as_data() -> None:
    data = {"And", "Or", "Xor", "Not", "BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "Where"}
    data |= {"DequantizeLinear", "QLinearConv", "TfIdfVectorizer", "CategoryMapper"}
    left = set()
    for schema in onnx.defs.get_all_schemas():
        for index, parameter in enumerate(schema.inputs):
            kinds = set(parameter.types)
            if kinds & {"tensor(int64)", "tensor(bool)"} and "tensor(float)" not in kinds:
                values = [ir.Value(name=f"v{i}") for i in range(index + 1)]
                node = ir.Node(schema.domain, schema.name, values, version=schema.since_version)
                if deciding_input(node, index) is None:
                    left.add(schema.name)
    assert left == data - {"DequantizeLinear", "QLinearConv"}


# --- any of it --------------------------------------------------------------------------------------------------------

STEPS = {
    "Mul": "{0} = Mul({1}, w{2})", "Div": "{0} = Div({1}, w{2})",
    "Add": "{0} = Add({1}, w{2})", "Sub": "{0} = Sub({1}, w{2})",
    "Sqrt": "{0}a = Sqrt({1}) {0} = Mul({0}a, {0}a)", "Floor": "{0} = Floor({1})", "Ceil": "{0} = Ceil({1})",
    "Round": "{0} = Round({1})", "Max": "{0} = Max({1}, w{2})", "Neg": "{0}a = Neg({1}) {0} = Abs({0}a)",
    "Sum": "{0} = Sum({1}, w{2}, {1})",
    "Concat": "{0}a = Concat<axis = 0>({1}, w{2}) {0} = ReduceMean<keepdims = 1>({0}a, zero)",
    "CumSum": "{0}a = Concat<axis = 0>(w{2}, {1}) {0}b = CumSum({0}a, c0) {0} = Slice({0}b, one, two)",
    "If": """{0} = If(true) <then_branch = h{0} () => (float[1] p{0}) {{ p{0} = Mul({1}, w{2}) }},
            else_branch = e{0} () => (float[1] q{0}) {{ q{0} = Neg({1}) }}>""",
    "Loop": """{0} = Loop(c1, , {1}) <body = l{0} (int64 n{0}, bool c{0}, float[1] k{0}) => (bool v{0}, float[1] m{0})
            {{ v{0} = Identity(c{0}) m{0} = Add(k{0}, w{2}) }}>""",
}  # fmt: skip


@st.composite
def chains(draw: st.DrawFn) -> tuple[onnx.ModelProto, int, float]:
    """A size of 2049 to 9000, or a number of that size, through 1 to 6 steps to an integer in 1 to 2999, and a sink."""
    value, lines = draw(st.sampled_from(["d", "t"])), []
    for number in range(draw(st.integers(1, 6))):
        step = draw(st.sampled_from(sorted(STEPS)))
        factor = draw(st.sampled_from([0.6666667, 1.5, 0.1, 3.0, 1000.3, 1.0009]))
        lines.append(
            f"w{number} = Constant<value_floats = [{factor}]>() " + STEPS[step].format(f"s{number}", value, number)
        )
        value = f"s{number}"
    sink = draw(st.sampled_from(sorted(set(SINKS) - {"SequenceAt", "Split"})))
    body, output = SINKS[sink]
    bound = "lo = Constant<value_floats = [1.0]>() hi = Constant<value_floats = [2999.0]>()"
    wrapped = f"{bound} r0 = Mod<fmod = 1>({value}, hi) r1 = Abs(r0) r2 = Max(r1, lo) i = Cast<to = 7>(r2)"
    try:
        proto = model(" ".join([*lines, wrapped, body]), output)
    except onnx.shape_inference.InferenceError:  # the steps leave nothing that the sink takes, which inference knows
        reject()
    return proto, draw(st.integers(2049, 9000)), draw(st.floats(2049, 9000, width=32))


@settings(max_examples=examples(60))
@given(chains())
def test_any_chain_into_any_sink(drawn: tuple[onnx.ModelProto, int, float]) -> None:
    proto, size, number = drawn
    check(proto, {"x": np.linspace(-1, 1, size, dtype=np.float32), "t": np.array([number], np.float32)})
