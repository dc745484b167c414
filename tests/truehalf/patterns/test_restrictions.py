"""Uses of an operator that TensorRT refuses, each beside a use that it takes."""

from __future__ import annotations

import pytest

from tests.truehalf.patterns.linting import findings, found

CONSTANTS = """<int64[1] k3840 = {3840}, int64[1] k3841 = {3841}, int64[1] one = {1}, int64 depth = {4},
    float[2] onoff = {0, 1}, bool yes = {1}, bool no = {0}, float half = {0.5}, int64[2,1] at = {0, 1}>"""
INPUTS = """float[1,4,9,9] x, int64[1] n, float[8,5000] w, int64[4] labels, float[5,4] table, float[1,4,9] line,
    float[N,1] batch, float[3,2,1] seq, float[1,4,1] lw"""


@pytest.mark.parametrize(
    ("refused", "taken", "opset"),
    [
        ("y, i = TopK(w, k3841)", "y, i = TopK(w, k3840)", 17),
        ("y = Squeeze(batch)", "y = Squeeze(batch, one)", 17),
        ("y = Squeeze(batch)", "y = Squeeze(x)", 17),  # the sizes are known
        ("y = Squeeze(x, n)", "y = Squeeze<axes = [0]>(x)", 0),
        ("y = Unsqueeze(x, n)", "y = Unsqueeze(x, one)", 17),
        ("y = ReduceSum(x, n)", "y = ReduceSum(x, one)", 17),
        ("y = ReduceMax(x, n)", "y = ReduceMax(x, one)", 18),
        ("y = CumSum(w, n)", "y = CumSum(w, one)", 17),
        ("y = OneHot(labels, n, onoff)", "y = OneHot(labels, depth, onoff)", 17),
        (
            "y = MaxPool<kernel_shape = [2, 2], dilations = [2, 2]>(x)",
            "y = MaxPool<kernel_shape = [2, 2], dilations = [1, 1]>(x)",
            17,
        ),
        (
            "y = AveragePool<kernel_shape = [2]>(line)",
            "y = AveragePool<kernel_shape = [2, 2]>(x)",
            17,
        ),
        (
            "z, i = MaxPool<kernel_shape = [2, 2]>(x) y = Cast<to = 1>(i)",
            "y = MaxPool<kernel_shape = [2, 2]>(x)",
            17,
        ),
        ("y = ScatterND<reduction = 'add'>(table, at, table2)", "y = ScatterND(table, at, table2)", 17),
        (
            "y = LSTM<hidden_size = 1, input_forget = 1>(seq, lw, lw)",
            "y = LSTM<hidden_size = 1>(seq, lw, lw)",
            17,
        ),
        ("y = LSTM<hidden_size = 1, layout = 1>(seq, lw, lw)", "y = LSTM<hidden_size = 1>(seq, lw, lw)", 17),
        (
            "y, m, v = BatchNormalization<training_mode = 1>(x, four, four, four, four)",
            "y = BatchNormalization(x, four, four, four, four)",
            17,
        ),
        (
            "a, m, y = LayerNormalization(x, norm) z = Neg(a)",
            "y = LayerNormalization(x, norm)",
            17,
        ),
    ],
)
def test_refused_and_taken(refused: str, taken: str, opset: int) -> None:
    constants = CONSTANTS.removesuffix(">") + ", float[2,4] table2 = {0,0,0,0,0,0,0,0}"
    constants += ", float[4] four = {1,1,1,1}, float[9] norm = {1,1,1,1,1,1,1,1,1}>"
    for body, expected in ((refused, [("error", "unsupported-op")]), (taken, [])):
        version = opset or (17 if body is refused else 11)
        body = body.replace("'", '"')
        assert list(dict.fromkeys(found(f"({INPUTS}) => (float[A] y) {constants} {{ {body} }}", version))) == expected


def test_squeeze_without_axes_came_with_a_version() -> None:
    text = f"({INPUTS}) => (float[A] y) {CONSTANTS} {{ y = Squeeze(batch) }}"
    assert found(text, tensorrt="11.5") == []
    assert found(text, tensorrt="11.4") == [("error", "unsupported-op")]


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ("y = Attention(q, q, q)", []),
        ("y = Attention(w, w, w)", [("error", "unsupported-op")]),
        ("y = Attention(q, q, q, , q, q)", [("error", "unsupported-op")]),
        ("y, a, b = Attention(q, q, q)", [("error", "unsupported-op")]),
        ("y = Attention<softcap = 1.0>(q, q, q)", [("error", "unsupported-op")]),
        ("y = Attention<q_num_heads = 2, kv_num_heads = 2>(f, f, f)", [("error", "unsupported-op")]),
    ],
)
def test_attention(node: str, expected: list[tuple[str, str]]) -> None:
    assert (
        found(
            f"(float16[N,2,8,4] q, float16[N,8,8] f, float[1,2,8,4] w) => (float[A] y) {{ {node} }}", 23, tensorrt="11"
        )
        == expected
    )


LOOP = """(float[4] x) => (float[A] y) <int64 t = {{3}}, bool c = {{1}}, float limit = {{5.0}}> {{
    {outputs} = Loop({inputs}, x) <body = b (int64 i, bool c_in, float[4] s_in) => (bool c_out, float[4] s_out{stacked})
    {{ s_out = Exp(s_in) {end} }}> }}"""
PASSED_ON, UNTIL = "c_out = Identity(c_in)", "m = ReduceMax<keepdims=0>(s_out) c_out = Less(m, limit)"


@pytest.mark.parametrize(
    ("inputs", "is_stacked", "end", "is_refused"),
    [  # each as TensorRT for RTX 1.7 has it
        ("t, c", True, PASSED_ON, False),
        ("t, c", False, UNTIL, False),
        (", c", False, UNTIL, False),
        ("t,", False, UNTIL, False),
        ("t,", False, PASSED_ON, True),
        (", c", True, UNTIL, True),
        ("t, c", True, UNTIL, True),
    ],
)
def test_loops_by_trip_limit_and_condition(inputs: str, is_stacked: bool, end: str, is_refused: bool) -> None:
    stacked, outputs = (", float[4] each", "s, y") if is_stacked else ("", "y")
    end += " each = Neg(s_in)" if is_stacked else ""
    errors = [each for each in found(LOOP.format(**locals())) if each[0] == "error"]
    assert errors == [("error", "unsupported-op")] * is_refused


@pytest.mark.parametrize(
    "node",
    [
        "y = Reshape(x, s)",
        "y = Expand(x, s)",
        "y = Slice(x, zero, s, zero)",
        'y = Resize<mode = "nearest">(image, , , four)',
    ],
)
def test_a_size_that_an_input_gives_is_an_integer(node: str) -> None:
    text = """({dtype}[2] size, float[4] x, float[1,1,4,4] image) => (float[A] y)
        <int64[2] one = {{1, 1}}, int64[2] zero = {{0, 0}}> {{ s = Cast<to = 7>(size)
        four = Concat<axis = 0>(one, s) {node} }}"""
    (finding,) = [each for each in findings(text.format(dtype="float", node=node)) if "'size'" in each.message]
    assert finding.severity == "error"
    assert not [each for each in findings(text.format(dtype="int32", node=node)) if each.severity == "error"]
