"""Gates on what NVIDIA's compiler made of a file; what it cannot show is a stated layer table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir
import pytest

from tests.measuring.attention_graphs import NO_GPU, Everything, Form, attention
from tests.measuring.converted import only
from tests.messages import expect
from tests.tiers import compiled
from truehalf.config.engine import EngineConfig
from truehalf.conversion.convert import convert_model
from truehalf.engines.build import Order, build_engine
from truehalf.engines.compiled import compiler_facts, half_gate
from truehalf.engines.engine_report import Layer
from truehalf.engines.layers import told_names
from truehalf.ir.normalize import NORMALIZE
from truehalf.ir.selectors import Lists
from truehalf.runtime.tensorrt import RTX


def report(folder: Path, model: onnx.ModelProto, backend: str = "tensorrt", **options: Any) -> Any:
    path = folder / "model.onnx"
    onnx.save(model, path)
    cache: dict[str, Any] = {"timing_cache": str(folder / "cache")}
    order = Order(declared="fp16", profiles=[], probe=NO_GPU)
    return build_engine(path, folder / "out", order, EngineConfig(backend=backend, **cache, **options)).to_json()


def row(found: Any, gate: str) -> Any:
    (one,) = (each for each in found["gates"] if each["gate"] == gate)
    return one


def converted(form: Form, wide: Any) -> onnx.ModelProto:
    """An attention whose parts `wide` a list keeps FP32."""
    block = Lists(node=tuple(f"^{part}[.]" for part in wide))
    return ir.to_proto(
        convert_model(ir.from_proto(attention(form, Everything())), only(block, placement="eager")).model
    )


LOST = [
    (Form(), ("qk", "scale"), "tensorrt"),
    (Form(scale="before"), ("qk", "softmax"), RTX),
    (Form(mask="where", scale="both"), ("softmax", "pv"), "tensorrt"),
    (Form(queries=20, keys=50, mask="input"), ("qk", "scale", "mask", "softmax"), RTX),
    (Form(joint=True, rank=3), ("pv", "rows", "merge", "project_o"), "tensorrt"),
]


@compiled
@pytest.mark.parametrize(("form", "wide", "backend"), LOST)
def test_an_attention_that_is_not_fused_and_holds_fp32_is_not_verified(
    form: Form, wide: Any, backend: str, tmp_path: Path
) -> None:
    found = report(tmp_path, attention(form, wide), backend)
    gate = row(found, "fused_attention")
    assert found["status"] == "compiled" and gate["state"] == "not verified"
    assert (gate["value"], gate["limit"]) == (0, 1)
    layer = next(each["name"] for each in found["layer_table"] if "softmax.0" in each["onnx_nodes"])
    (said,) = (each for each in found["not_verified"] if "engine.gates.fused_attention" in each)
    expect(said, None, "softmax.0", layer, "MatMul", *wide[:1])
    assert (tmp_path / "out" / "model.rtx.engine").is_file()


@compiled
@pytest.mark.parametrize("wide", [(), ("softmax",), ("qk", "softmax"), ("scale", "mask", "softmax")])
def test_what_is_fused_passes(wide: Any, tmp_path: Path) -> None:
    found = report(tmp_path, attention(Form(mask="constant"), wide))
    assert found["status"] == "compiled"
    assert [(each["gate"], each["state"]) for each in found["gates"]] == [
        ("half_share_less", "verified"),
        ("fused_attention", "verified"),
    ]


@compiled
@pytest.mark.parametrize("wide", [("qk", "scale"), ("softmax", "pv"), ("pv", "heads_v", "split_v", "project_v")])
def test_evidence_of_the_conversion_excuses_an_attention(wide: Any, tmp_path: Path) -> None:
    found = report(tmp_path, converted(Form(), wide))
    gate = row(found, "fused_attention")
    assert found["status"] == "compiled" and (gate["state"], gate["value"], gate["limit"]) == ("verified", 0, 0)
    expect(gate["excused"]["softmax.0"], None, "node_block_list")


@compiled
def test_an_attention_that_is_fused_in_no_type_is_not_verified(tmp_path: Path) -> None:
    """Weights that are an output of the graph have to be written."""
    model = attention(Form(), ())
    model.graph.output.append(onnx.helper.make_tensor_value_info("weights", onnx.TensorProto.FLOAT16, None))
    found = report(tmp_path, model)
    gate = row(found, "fused_attention")
    assert found["status"] == "compiled" and (gate["state"], gate["value"], gate["limit"]) == ("not verified", 0, 1)
    expect(gate["reason"], None, "softmax.0")


@compiled
def test_gates_can_be_left_out(tmp_path: Path) -> None:
    off = {"half_share_less": None, "fused_attention": False}
    found = report(tmp_path, attention(Form(), ("qk", "scale")), gates=off)
    assert found["status"] == "compiled" and not found["gates"]


# --- the share in Half ------------------------------------------------------------------------------------------------

TWO = """<ir_version: 8, opset_import: ["": 17]>
g (float16[4,8] x, float16[8,8] u, float16[8,2] v) => (float16[4,2] y) {
  [large] a = MatMul(x, u)
  [small] y = MatMul(a, v)
}"""


def gate_on(layers: list[Layer], less: float = 0.02) -> Any:
    """The gate on TWO, compiled into these layers."""
    model = ir.from_onnx_text(TWO)
    NORMALIZE(model)
    facts = compiler_facts("a compiler", [], model, told_names(model), layers, [])
    gates: Any = {"half_share_less": less}
    (gate,) = half_gate(facts, layers, EngineConfig(gates=gates))
    return gate


def layer(nodes: str, *types: str | None, **further: Any) -> Any:
    """A layer of these ONNX nodes ("a b c") and types."""
    return {"name": f"k_{nodes}", "type": "gemm", "types": list(types), "onnx_nodes": nodes.split(), **further}


def gate_of(types: dict[str, str], less: float = 0.02) -> Any:
    """The gate on a layer for each node of a graph, of such inputs and outputs."""
    return gate_on([layer(node, dtype) for node, dtype in types.items()], less)


@pytest.mark.parametrize(
    ("types", "less", "value", "state"),
    [
        ({"large": "Half", "small": "Half"}, 0.02, 1.0, "verified"),
        ({"large": "Half", "small": "Float"}, 0.02, 0.8, "failed"),
        ({"large": "Half", "small": "Float"}, 0.25, 0.8, "verified"),
        ({"large": "Float", "small": "Half"}, 0.25, 0.2, "failed"),
        ({"large": "Float", "small": "Half"}, 0.8, 0.2, "verified"),
        ({"large": "Float", "small": "BFloat16"}, 0.9, 0.0, "failed"),
    ],
)
def test_the_share_in_half_is_of_the_arithmetic(types: dict[str, str], less: float, value: float, state: str) -> None:
    gate = gate_of(types, less)
    assert (gate["state"], gate["value"]) == (state, pytest.approx(value))
    if state == "failed":
        expect(gate["reason"], None, *(f"k_{node}" for node, dtype in types.items() if dtype != "Half"))


def test_layers_that_tell_of_little_arithmetic_tell_nothing() -> None:
    hides = [  # the larger product
        layer("large", None, "Float"),
        layer("large", "Float", name="{ForeignNode[large]}", type="Myelin"),
        layer("large in/Cast", "Float"),
        layer("another", "Half"),
    ]
    for layers in ([], [hides[3]], *([hiding, layer("small", "Half")] for hiding in hides)):
        assert gate_on(layers)["state"] == "not verified"
    assert gate_on([layer("large", "Half"), layer("small", None)])["state"] == "verified"


def test_a_node_in_several_layers_is_kept_where_one_of_them_has_half() -> None:
    layers = [layer("large", "Float"), layer("large small", "Half", "Float"), layer("small", "Float")]
    assert gate_on(layers)["value"] == 1.0


@compiled
def test_a_file_that_is_declared_fp32_has_no_gates(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(attention(Form(), Everything()), path)
    found = build_engine(path, tmp_path / "out", Order(declared="fp32", profiles=[], probe=NO_GPU), EngineConfig())
    assert found.status == "compiled" and not found.gates
