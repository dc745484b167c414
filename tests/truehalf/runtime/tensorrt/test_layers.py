"""What is read from the engine inspector, in the layouts of both versions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.truehalf.conftest import Planner
from tests.truehalf.runtime.tensorrt.recording import Tensor, World, module
from truehalf.runtime.tensorrt.build import build
from truehalf.runtime.tensorrt.proof import engine_facts, layer_facts
from truehalf.runtime.tensorrt.versions import VERSIONS

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


@pytest.mark.parametrize(("major", "described"), [(10, OLD), (11, apart(OLD)), (11, OLD)])
def test_layers_types_and_onnx_nodes_are_read(major: int, described: dict[str, Any]) -> None:
    facts = layer_facts(described["Layers"], VERSIONS[major].inspector_dtype)
    rows = [
        (one["type"], one["inputs"], one["outputs"], one["weights"], one["onnx_nodes"]) for one in facts["layer_table"]
    ]
    assert rows == ROWS
    assert (facts["layers"], facts["half_layers"]) == (4, 1)
    assert facts["half_layers_fraction"] == 1 / 2, "the Reformat and the layer of integers count for neither"
    assert facts["half_io_fraction"] == 6 / 9


@pytest.mark.parametrize(
    "layers",
    [
        ["/stem/Conv", "/stem/Relu"],  # a verbosity that tells names only
        [{"Name": "/stem/Conv", "Inputs": [{"Format/Datatype": "N/A due to dynamic shapes"}], "Outputs": None}],
        [{"Name": "/stem/Conv"}],
        [],
    ],
)
@pytest.mark.parametrize("major", [10, 11])
def test_unknown_types_are_not_called_fp32(layers: list[Any], major: int) -> None:
    facts = layer_facts(layers, VERSIONS[major].inspector_dtype)
    assert facts["layers"] == len(layers)
    assert facts["half_layers"] is facts["half_layers_fraction"] is facts["half_io_fraction"] is None


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
    layer = {"Name": "a", "Outputs": [{"Format/Datatype": text}]}
    assert layer_facts([layer], VERSIONS[10].inspector_dtype)["layer_table"][0]["outputs"] == [dtype]


@pytest.mark.parametrize("kind", ["signal", "Wait", "TrainStation", "kgen"])
def test_layers_without_outputs_compute_nothing(kind: str) -> None:
    """Streams that wait for one another are layers, too, with neither types nor outputs."""
    waiting = [{"Name": f"{kind} {i}", "LayerType": kind, "Inputs": [], "Outputs": []} for i in range(9)]
    half = {"Name": "a", "Outputs": [{"DataType": "Half"}]}
    facts = layer_facts([*waiting, half], VERSIONS[11].inspector_dtype)
    assert (facts["layers"], facts["half_layers"], facts["half_layers_fraction"]) == (10, 1, 1.0)


def test_the_inspector_gets_a_context_at_the_first_profile_s_opt(world: World, plan: Planner, tmp_path: Path) -> None:
    world.layers = OLD["Layers"] if world.version == "10.16" else apart(OLD)["Layers"]
    facts = build(plan(), tmp_path)
    ((strategy,),) = world.arguments("ICudaEngine.create_execution_context")
    assert strategy.name == "USER_MANAGED", "no device memory is taken for it"
    assert world.arguments("IExecutionContext.set_input_shape") == [("images", (2, 3, 8, 8))]
    order = world.called()
    assert order.index("set EngineInspector.execution_context") < order.index("EngineInspector.get_engine_information")
    assert facts["half_layers"] == 1 and len(facts["layer_table"]) == 4
    assert facts["io"] == [
        {"name": "images", "mode": "INPUT", "dtype": "FLOAT", "shape": [-1, 3, 8, 8]},
        {"name": "scores", "mode": "OUTPUT", "dtype": "FLOAT", "shape": [-1, 5]},
    ]


def test_no_context_is_no_fault(world: World) -> None:
    world.contexts = False
    trt = module(world)
    engine = trt.Runtime(object()).deserialize_cuda_engine(b"")
    assert engine_facts(trt, engine, VERSIONS[11].inspector_dtype)["layers"] == 0
    assert "set EngineInspector.execution_context" not in world.called()


def test_a_shape_tensor_without_values_is_no_fault(world: World) -> None:
    world.inputs = [Tensor("size", "INT64", (2,), values=())]
    trt = module(world)
    assert (
        engine_facts(trt, trt.Runtime(object()).deserialize_cuda_engine(b""), VERSIONS[11].inspector_dtype)["layers"]
        == 0
    )
    assert "set EngineInspector.execution_context" not in world.called()


def test_a_fixed_input_s_shape_is_not_set(world: World) -> None:
    world.inputs = [Tensor("images", shape=(1, 3, 8, 8))]
    trt = module(world)
    engine_facts(trt, trt.Runtime(object()).deserialize_cuda_engine(b""), VERSIONS[11].inspector_dtype)
    assert "IExecutionContext.set_input_shape" not in world.called()
