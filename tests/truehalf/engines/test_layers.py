"""Layers of an engine, read from the inspector and from the builder's log, and names that a builder is told."""

from __future__ import annotations

import json
import re
from typing import Any

import onnx_ir as ir
import pytest

from truehalf.engines.engine_report import Layer
from truehalf.engines.layers import layers_of_inspector, layers_of_log, shown_name, told_names

OLD = {  # with an execution context TensorRT 10 tells whole sentences
    "Layers": [
        {
            "Name": "Reformatting CopyNode for Input Tensor 0 to /stem/Conv",
            "LayerType": "Reformat",
            "Inputs": [{"Name": "images", "Format/Datatype": "Row major linear FP32"}],
            "Outputs": [{"Name": "r", "Format/Datatype": "Channel major FP16 format where channel % 8 == 0"}],
            "ParameterType": "Reformat",
        },
        {
            "Name": "/stem/Conv + /stem/Relu",
            "LayerType": "CaskConvolution",
            "ParameterType": "Convolution",
            "Inputs": [{"Name": "r", "Format/Datatype": "Half(64,1:8,8,1)"}, {"Name": "b", "Format/Datatype": "Half"}],
            "Outputs": [{"Name": "c", "Format/Datatype": "Half"}],
            "Metadata": "[ONNX Layer: /stem/Conv]\x1e[ONNX Layer: /stem/Relu]",
        },
        {
            "Name": "shape of c",
            "LayerType": "shape_call",
            "Inputs": [{"Name": "c", "Format/Datatype": "Half"}],
            "Outputs": [{"Name": "s", "Format/Datatype": "Int64"}, {"Name": "b", "Format/Datatype": "Bool"}],
            "Metadata": "",
        },
        {
            "Name": "__myl_Softmax",
            "LayerType": "kgen",
            "Inputs": [{"Name": "c", "Format/Datatype": "Half"}, {"Name": "m", "Format/Datatype": "BFloat16"}],
            "Outputs": [{"Name": "y", "Format/Datatype": "Float"}],
            "Metadata": "[ONNX Layer: /attention/Softmax][ONNX Layer: /attention/Mul]",
        },
    ],
    "Bindings": ["images", "y"],
}
ROWS = [
    ("Reformat", ["Float", "Half"], []),
    ("Convolution", ["Half"], ["/stem/Conv", "/stem/Relu"]),
    ("shape_call", ["Half", "Int64", "Bool"], []),
    ("kgen", ["Half", "BFloat16", "Float"], ["/attention/Softmax", "/attention/Mul"]),
]


def apart(described: Any) -> Any:
    """The layout of TensorRT 11: type and format in keys of their own, I/O tensors as objects."""
    if isinstance(described, list):
        return [apart(one) for one in described]
    if not isinstance(described, dict):
        return described
    known = {"Row major linear FP32": "Float", "Half(64,1:8,8,1)": "Half"}
    changed = {key: apart(value) for key, value in described.items() if key not in ("Format/Datatype", "Bindings")}
    if "Format/Datatype" in described:
        text = described["Format/Datatype"]
        changed |= {
            "Format": "N/A due to dynamic shapes",
            "DataType": known.get(text, "Half" if "FP16" in text else text),
        }
    return changed


TENSOR = "{{ Name: x, Dimensions: [1,8], Strides: [8,1], StrideOrder: [1,0], Datatype: {dtype}, Format: (Linear) Row }}"
LAYER = (
    f"Name: {{name}}, LayerType: gemm, Inputs: [ {TENSOR}], Constants: [], Outputs: [ {TENSOR}], TacticName: t, "
    "StreamId: 0, Metadata: {nodes}"
)


def layers(described: Any) -> list[Layer]:
    """Layers of an inspector's JSON."""
    return layers_of_inspector(json.dumps({"Layers": described}))


@pytest.mark.parametrize("described", [OLD, apart(OLD)])
def test_layers_types_and_onnx_nodes_are_read(described: dict[str, Any]) -> None:
    assert [(one["type"], one["types"], one["onnx_nodes"]) for one in layers(described["Layers"])] == ROWS


@pytest.mark.parametrize(
    ("described", "types"),
    [
        (["/stem/Conv"], []),  # a verbosity that tells names only
        (
            [{"Name": "/stem/Conv", "Inputs": [{"Format/Datatype": "N/A due to dynamic shapes"}], "Outputs": None}],
            [None],
        ),
        ([{"Name": "/stem/Conv", "Inputs": ["x"]}], [None]),
        ([{"Name": "/stem/Conv"}], []),
    ],
)
def test_unknown_types_are_not_called_fp32(described: list[Any], types: list[None]) -> None:
    (layer,) = layers(described)
    assert layer["name"] == "/stem/Conv" and layer["types"] == types


@pytest.mark.parametrize(
    ("text", "dtype"),
    [
        ("Half", "Half"),
        ("kHALF", "Half"),
        ("kFLOAT", "Float"),
        ("FP16", "Half"),
        ("Row major linear FP16 format (kLINEAR)", "Half"),
        ("Row major linear FP32", "Float"),
        ("Float(1,2:4)", "Float"),
        ("Row major linear BF16 format", "BFloat16"),
        ("BFloat16", "BFloat16"),
        ("FP8", "FP8"),
        ("Row major Int8 format", "Int8"),
        ("UInt8", "UInt8"),
        ("Int32", "Int32"),
        ("Row major linear INT64 format", "Int64"),
        ("Bool", "Bool"),
        ("Channel major format where channel % 32 == 0", None),
        ("Unknown", None),
    ],
)
def test_the_words_for_types(text: str, dtype: str | None) -> None:
    assert layers([{"Name": "a", "Outputs": [{"Format/Datatype": text}]}])[0]["types"] == [dtype]


# --- the log ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["/a/Conv_myl0_1", "odd, LayerType: gemm", "a [b] {c}", "Inputs: [", "ä ö"])
def test_names_may_hold_anything(name: str) -> None:
    message = "\n".join(
        ["Layers:", LAYER.format(name=name, dtype="Half", nodes="[ONNX Layer: /a][ONNX Layer: b⟦0⟧]"), "", "I/O"]
    )
    (layer,) = layers_of_log(message) or []
    assert (layer["types"], layer["onnx_nodes"]) == (["Half"], ["/a", "b[0]"])


@pytest.mark.parametrize(
    "message",
    [
        "",
        "Engine Layer Information:\nName: a, LayerType: gemm",
        "Layers:\nLayer(kgen): a, Tactic: 1",
        "Layers:\n" + LAYER.format(name="a", dtype="Half", nodes="").replace("Dimensions", "Datatype: Half", 1),
        "Layers:\n" + LAYER.format(name="a", dtype="Half", nodes="").replace("LayerType", "Type"),
    ],
)
def test_another_format_is_not_known(message: str) -> None:
    assert layers_of_log(message) is None


def test_names_that_a_builder_is_told_are_unique_and_readable() -> None:
    model = ir.from_onnx_text(
        """<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] e) {
        ["a[0]"] a = Relu(x) ["same"] b = Relu(a) ["same"] c = Relu(b) d = Relu(c) ["tab"] e = Relu(d) }"""
    )
    model.graph[4].name = "a\tb"
    told = list(told_names(model))
    assert len(set(told)) == 5 and not re.search(r"[\[\]\x00-\x1f]", "".join(told))
    assert [shown_name(name) for name in told] == ["a[0]", "same", told[2], "Relu_d", "a\tb"]
