"""NVIDIA's own compiler, TensorRT for RTX, which builds without a GPU: what it takes, refuses and logs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest

from tests.messages import expect
from truehalf.config.engine import EngineConfig
from truehalf.config.typed import plain
from truehalf.engines.plan import make_plan
from truehalf.runtime.tensorrt.build import build
from truehalf.runtime.tensorrt.layer_log import layers_of_log
from truehalf.runtime.tensorrt.versions import RTX, BuildError, EngineFacts

pytest.importorskip(RTX, reason="TensorRT for RTX has no wheel for this machine")

HALF = """<ir_version: 8, opset_import: ["": 17]> g (float16[N,8] x) => (float16[N,2] y)
<float16[8,2] w = {1, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1}> {
  a = MatMul(x, w)
  y = Relu(a)
}"""
PROFILE: dict[str, dict[str, list[int]]] = {"x": {"min": [1, 8], "opt": [2, 8], "max": [4, 8]}}
TENSOR = "{{ Name: x, Dimensions: [1,8], Strides: [8,1], StrideOrder: [1,0], Datatype: {dtype}, Format: (Linear) Row }}"
LAYER = (
    f"Name: {{name}}, LayerType: gemm, Inputs: [ {TENSOR}], Constants: [], Outputs: [ {TENSOR}], TacticName: t, "
    "StreamId: 0, Metadata: {nodes}"
)


def named(text: str) -> onnx.ModelProto:
    model = onnx.parser.parse_model(text)
    for node in model.graph.node:
        node.name = f"/{node.op_type}"
    return model


def plan(folder: Path, text: str = HALF, **changes: Any) -> Any:
    path = folder / "model.onnx"
    onnx.save(named(text), path)
    options = plain(EngineConfig()) | {"timing_cache": None} | changes
    names = (str(path), "model.engine")
    return make_plan(path, names=names, options=options, profiles=[PROFILE], declared="fp16")


def test_layers_are_read_from_the_builders_log(tmp_path: Path) -> None:
    facts: EngineFacts = build(plan(tmp_path), tmp_path, module=RTX)
    assert (tmp_path / "model.engine").stat().st_size == round(facts["engine_mb"] * 1e6) > 0
    assert facts["gpu"] is None and facts["inspection_fault"] is None and facts["half_layers_fraction"] == 1
    nodes = {name for layer in facts["layer_table"] for name in layer["onnx_nodes"]}
    assert nodes == {"/MatMul", "/Relu"}
    assert {dtype for layer in facts["layer_table"] for dtype in layer["constants"]} >= {"Half"}


@pytest.mark.parametrize("targets", [["sm75"], ["sm86", "sm120"]])
def test_it_is_compiled_for_the_target(targets: list[str], tmp_path: Path) -> None:
    facts = build(plan(tmp_path) | {"target": {"compute_capability": targets}}, tmp_path, module=RTX)
    assert facts["layers"]


@pytest.mark.parametrize(
    ("changes", "code", "said"),
    [
        ({"target": {"compute_capability": ["sm53"]}}, "unknown-choice", "sm53"),
        ({"profiles": [{"x": {"min": [1, 8], "opt": [2, 7], "max": [4, 8]}}]}, "wrong-plan", "engine.profiles[0]"),
        ({"profiles": [{"x": {"min": [3, 8], "opt": [2, 8], "max": [4, 8]}}]}, "wrong-plan", "engine.profiles[0]"),
        ({"profiles": []}, "no-engine", "model.onnx"),
    ],
)
def test_what_it_refuses_leaves_the_last_good_engine(changes: Any, code: str, said: str, tmp_path: Path) -> None:
    good = plan(tmp_path)
    build(good, tmp_path, module=RTX)
    before = (tmp_path / "model.engine").read_bytes()
    with pytest.raises(BuildError) as error:
        build(good | changes, tmp_path, module=RTX)
    assert error.value.code == code
    expect(str(error.value), code, said)
    assert (tmp_path / "model.engine").read_bytes() == before


def test_an_operator_that_it_lacks_is_named_with_its_node(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["": 17]>
g (float16[N,8] x) => (int64[2,M] y) { y = NonZero(x) }"""
    with pytest.raises(BuildError) as error:
        build(plan(tmp_path, text), tmp_path, module=RTX)
    assert [(each["op_type"], each["node"]) for each in error.value.errors] == [("NonZero", "/NonZero")]
    assert not (tmp_path / "model.engine").exists()


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
