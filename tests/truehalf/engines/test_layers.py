"""Layers of an engine: read from the inspector and from the builder's log, and the FP16 nodes that they lose."""

from __future__ import annotations

import json
from typing import Any

import pytest

from truehalf.engines.engine_report import Layer
from truehalf.engines.layers import NodeNames, half_layers, layers_of, layers_of_log, lost_nodes

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
            "Weights": {"Type": "Half", "Count": 864},
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
    ("Reformat", ["Float"], ["Half"], None, []),
    ("Convolution", ["Half", "Half"], ["Half"], "Half", ["/stem/Conv", "/stem/Relu"]),
    ("shape_call", ["Half"], ["Int64", "Bool"], None, []),
    ("kgen", ["Half", "BFloat16"], ["Float"], None, ["/attention/Softmax", "/attention/Mul"]),
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
    found = layers_of({"inspection": json.dumps({"Layers": described})}, NodeNames({}, {}))
    assert found is not None
    return found


@pytest.mark.parametrize("described", [OLD, apart(OLD)])
def test_layers_types_and_onnx_nodes_are_read(described: dict[str, Any]) -> None:
    found = layers(described["Layers"])
    assert [(one["type"], one["inputs"], one["outputs"], one["weights"], one["onnx_nodes"]) for one in found] == ROWS
    assert half_layers(found) == (1, 1 / 2), "the Reformat and the layer of integers count for neither"


@pytest.mark.parametrize(
    "described",
    [
        ["/stem/Conv", "/stem/Relu"],  # a verbosity that tells names only
        [{"Name": "/stem/Conv", "Inputs": [{"Format/Datatype": "N/A due to dynamic shapes"}], "Outputs": None}],
        [{"Name": "/stem/Conv"}],
        [],
    ],
)
def test_unknown_types_are_not_called_fp32(described: list[Any]) -> None:
    found = layers(described)
    assert len(found) == len(described) and half_layers(found) == (None, None)


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
    assert layers([{"Name": "a", "Outputs": [{"Format/Datatype": text}]}])[0]["outputs"] == [dtype]


@pytest.mark.parametrize("kind", ["signal", "Wait", "TrainStation", "kgen"])
def test_layers_without_outputs_compute_nothing(kind: str) -> None:
    """Streams that wait for one another are layers, too, with neither types nor outputs."""
    waiting = [{"Name": f"{kind} {i}", "LayerType": kind, "Inputs": [], "Outputs": []} for i in range(9)]
    moving = {"Name": "__myl_CastReshTran_myl0_3", "LayerType": "kgen", "Outputs": [{"DataType": "Half"}]}
    assert half_layers(layers([*waiting, moving, {"Name": "a", "Outputs": [{"DataType": "Half"}]}])) == (1, 1.0)


# --- the log ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["/a/Conv_myl0_1", "odd, LayerType: gemm", "a [b] {c}", "Inputs: [", "ä ö"])
def test_names_may_hold_anything(name: str) -> None:
    message = "\n".join(
        ["Layers:", LAYER.format(name=name, dtype="Half", nodes="[ONNX Layer: /a][ONNX Layer: /b]"), "", "I/O"]
    )
    (layer,) = layers_of_log(message) or []
    assert [one["Datatype"] for one in layer["Inputs"] + layer["Outputs"]] == ["Half", "Half"]
    assert layer["Metadata"] == "[ONNX Layer: /a][ONNX Layer: /b]"


@pytest.mark.parametrize(
    "message",
    [
        "",
        "Engine Layer Information:\nName: a, LayerType: gemm",
        "Layers:\nLayer(kgen): a, Tactic: 1",
        "Layers:\n" + LAYER.format(name="a", dtype="Half", nodes="").replace("Datatype", "DataType", 1),
        "Layers:\n" + LAYER.format(name="a", dtype="Half", nodes="").replace("LayerType", "Type"),
    ],
)
def test_another_format_is_not_known(message: str) -> None:
    found = layers_of_log(message)
    assert found is None or [len(layer["Inputs"]) for layer in found] != [1]


# --- FP16 nodes in layers without Half --------------------------------------------------------------------------------


def layer(nodes: str, read: str, wrote: str, **more: Any) -> dict[str, Any]:
    """A layer that computes some ONNX nodes ("a b c"), reads one type and writes another."""
    tensors = {"Inputs": [{"Format/Datatype": read}], "Outputs": [{"Format/Datatype": wrote}]}
    metadata = "\x1e".join(f"[ONNX Layer: {node}]" for node in nodes.split())
    return {"Name": nodes.replace(" ", "+"), "LayerType": "kgen", "Metadata": metadata, **tensors, **more}


def changed(described: list[dict[str, Any]], *names: str) -> list[str] | None:
    return lost_nodes(layers(described), names)


def test_nodes_in_layers_without_half_are_named() -> None:
    described = [layer("/a", "Half", "Half"), layer("/b", "Float", "Float"), layer("/c /d", "Half", "Float")]
    assert changed(described, "/a", "/b", "/c", "/d") == ["/b"]


def test_a_node_in_several_layers_is_kept_where_one_of_them_has_half() -> None:
    described = [layer("/a", "Float", "Float"), layer("/a", "Half", "Float"), layer("/b", "Half", "Half")]
    assert changed(described, "/a", "/b") == []


@pytest.mark.parametrize(
    "hiding",
    [
        layer("/a /b /c", "Float", "Float", Name="{ForeignNode[/a.../c]}", LayerType="Myelin"),
        layer("/in/Cast /a /b /c /out/Cast", "Float", "Float", Name="__myl_CastMulAddReluCast_myl0_1"),
        layer("/a /b /c", "N/A due to dynamic shapes", "Float"),
    ],
)
def test_a_layer_that_shows_nothing_of_its_inside_tells_nothing(hiding: dict[str, Any]) -> None:
    assert changed([hiding], "/a", "/b", "/c") is None
    names = [f"/n{i}" for i in range(6)]
    assert changed([hiding, *(layer(each, "Half", "Half") for each in names)], "/a", "/b", "/c", *names) == []


def test_a_few_nodes_that_are_told_stand_for_no_others() -> None:
    nodes = [f"/n{i}" for i in range(100)]
    assert changed([layer(one, "Float", "Float") for one in nodes[:40]], *nodes) is None
    assert changed([layer(one, "Float", "Float") for one in nodes[:60]], *nodes) == sorted(nodes[:60])


def test_layers_that_name_no_nodes_tell_nothing() -> None:
    for dtype in ("Half", "Float"):
        assert changed([{"Name": "a", "Outputs": [{"DataType": dtype}]}] * 3, "/a") is None
