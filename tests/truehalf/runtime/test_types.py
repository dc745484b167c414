"""Types of what ONNX Runtime's own operators compute, against those that a session of it reports."""

from __future__ import annotations

import onnx
import onnx.parser
import onnx_ir as ir
import onnxruntime
import pytest

from truehalf.runtime.types import infer_types

TOKENS = "float[1,2,8] x"
QUANTIZED = "float s, uint8 z"
CALLS = {  # inputs, outputs and the node
    "QuantizeLinear": ("float[4] x, float s, int8 z", "a", "QuantizeLinear(x, s, z)"),
    "DynamicTimeWarping": ("float[3,4] x", "a", "DynamicTimeWarping(x)"),
    "GridSample": ("float[1,1,4,4] x, float[1,2,2,2] g", "a", "GridSample(x, g)"),
    "Range": ("float x", "a", "Range(x, x, x)"),
    "RotaryEmbedding": (f"{TOKENS}, int64[1] i, float[4,2] c", "a", "RotaryEmbedding<num_heads = 2>(x, i, c, c)"),
    "Unique": ("float[4] x", "a, b, c", "Unique(x)"),
    "NGramRepeatBlock": ("int64[2,3] i, float[2,5] x", "a", "NGramRepeatBlock<ngram_size = 2>(i, x)"),
    "SkipLayerNormalization": (f"{TOKENS}, float[8] g", "a, b, c, d", "SkipLayerNormalization(x, x, g)"),
    "SkipSimplifiedLayerNormalization": (
        f"{TOKENS}, float[8] g",
        'a, "", "", d',
        "SkipSimplifiedLayerNormalization(x, x, g)",
    ),
    "MultiHeadAttention": (TOKENS, "a, b, c", "MultiHeadAttention<num_heads = 2>(x, x, x)"),
    "GroupQueryAttention": (
        "float[1,2,16] x, float[1,2,0,8] k, int32[1,1] l, int32 t",
        "a, b, c",
        "GroupQueryAttention<num_heads = 2, kv_num_heads = 2>(x, x, x, k, k, l, t)",
    ),
    "EmbedLayerNormalization": (
        "int32[1,3] i, int32[1,3] n, float[4,8] x, float[4,8] p, float[2,8] q, float[8] g",
        "a, b, c",
        "EmbedLayerNormalization(i, n, x, p, q, g, g)",
    ),
    "WordConvEmbedding": (
        "int32[1,2,8] i, float[4,3] w, float[5] b, float[6,4] e",
        "a",
        "WordConvEmbedding<embedding_size = 5, conv_window_size = 2, char_embedding_size = 4>(i, w, b, e)",
    ),
    "DequantizeLinear": (f"uint8[4] x, {QUANTIZED}", "a", "DequantizeLinear(x, s, z)"),
    "MatMulIntegerToFloat": ("uint8[2,4] x, int8[4,3] w, float s", "a", "MatMulIntegerToFloat(x, w, s, s)"),
    "QAttention": (
        f"uint8[1,2,8] x, uint8[8,24] w, float[24] b, {QUANTIZED}",
        "a",
        'QAttention<num_heads = 2>(x, w, b, s, s, "", z, z)',
    ),
    "QLinearAdd": (f"uint8[2] x, {QUANTIZED}", "a", "QLinearAdd(x, s, z, x, s, z, s, z)"),
    "QLinearConcat": (f"uint8[2] x, {QUANTIZED}", "a", "QLinearConcat<axis = 0>(s, z, x, s, z)"),
    "QLinearConv": (f"uint8[1,1,4,4] x, uint8[1,1,3,3] w, {QUANTIZED}", "a", "QLinearConv(x, s, z, w, s, z, s, z)"),
    "GatherBlockQuantized": (
        "uint4[4,32] x, int64[2] i, float[4,2] s",
        "a",
        "GatherBlockQuantized<block_size = 16>(x, i, s)",
    ),
}
OPEN = {  # whose type no input has
    "MurmurHash3": ("float[4] x", "a", "MurmurHash3(x)"),
    "QGemm": (f"uint8[2,4] x, uint8[4,3] w, {QUANTIZED}", "a", "QGemm(x, s, z, w, s, z)"),
}


def without_types(inputs: str, outputs: str, call: str) -> onnx.ModelProto:
    names = [name for name in outputs.split(", ") if name != '""']
    model = onnx.parser.parse_model(
        f'<ir_version: 9, opset_import: ["": 17, "com.microsoft": 1]> g ({inputs}) => (float {names[0]}) '
        f"{{ {outputs} = com.microsoft.{call} }}"
    )
    del model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    return model


def types_of_session(model: onnx.ModelProto) -> dict[str, str]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return {each.name: each.type for each in session.get_outputs()}


def inferred(model: onnx.ModelProto) -> dict[str, str | None]:
    made = ir.from_proto(model)
    infer_types(made)
    return {str(each.name): each.type and f"tensor({each.type.dtype.name.lower()})" for each in made.graph.outputs}


@pytest.mark.parametrize("name", CALLS)
def test_types_are_those_of_the_runtime(name: str) -> None:
    """Further outputs may stay open."""
    model = without_types(*CALLS[name])
    found, known = inferred(model), types_of_session(model)
    assert found["a"] == known["a"] and {**known, **{each: dtype for each, dtype in found.items() if dtype}} == known


@pytest.mark.parametrize("name", OPEN)
def test_what_no_input_says_stays_open(name: str) -> None:
    model = without_types(*OPEN[name])
    assert inferred(model) == {"a": None}
    assert types_of_session(model)["a"].startswith("tensor(")


def test_operators_of_others_stay_open() -> None:
    model = without_types(*CALLS["Range"])
    model.graph.node[0].domain = "com.acme"
    assert inferred(model) == {"a": None}
