"""A plan whose engine cannot be built here, compiled by NVIDIA's own compiler: what a report says of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
import pytest

from tests.measuring.attention_graphs import Everything, Form, attention
from tests.messages import raises
from truehalf.codes import codes_in
from truehalf.config.engine import EngineConfig, TargetConfig
from truehalf.engines.build import Order, build_engine
from truehalf.engines.compiling.report import compiler_facts
from truehalf.ir.model_file import load_model
from truehalf.ir.patterns import Neighbours
from truehalf.runtime.tensorrt.proof import NO_LAYERS
from truehalf.runtime.tensorrt.versions import RTX

pytest.importorskip(RTX, reason="TensorRT for RTX has no wheel for this machine")

HERE: Any = {"gpus": None, "tensorrt": None, RTX: "1.7"}


def report(
    folder: Path,
    model: onnx.ModelProto,
    backend: str = "tensorrt",
    target: Sequence[str] = (),
    declared: str = "fp16",
    **options: Any,
) -> Any:
    path = folder / "model.onnx"
    onnx.save(model, path)
    order = Order(declared=declared, profiles=[], probe=HERE, target=TargetConfig(list(target)))
    return build_engine(path, folder / "out", order, EngineConfig(backend=backend, **options)).to_json()


@pytest.mark.parametrize("backend", ["tensorrt", RTX])
def test_without_a_gpu_the_file_is_compiled_and_planned(backend: str, tmp_path: Path) -> None:
    found = report(tmp_path, attention(Form()), backend)
    assert found["status"] == "compiled" and found["gates"][0]["state"] == "verified"
    assert (tmp_path / "out" / "model.rtx.engine").is_file() and (tmp_path / "out" / "plan.json").is_file()
    assert "parity" not in found and any("outputs" in each for each in found["not_verified"])


@pytest.mark.parametrize(("wide", "fused"), [((), 1), (("softmax",), 1), (("qk",), 1), (("qk", "scale", "softmax"), 0)])
def test_a_fused_attention_survives_one_of_product_and_softmax_in_fp32_not_both(
    wide: tuple[str, ...], fused: int, tmp_path: Path
) -> None:
    compiled = report(tmp_path, attention(Form(), wide))["compiled"]
    assert (compiled["attention_regions"], compiled["fused_attention"]) == (1, fused)
    assert compiled["attention_not_fused"] == ([] if fused else ["softmax.0"])


def test_an_fp32_file_has_no_arithmetic_in_half(tmp_path: Path) -> None:
    compiled = report(tmp_path, attention(Form(), Everything()), declared="fp32")["compiled"]
    assert (compiled["file_half_arithmetic"], compiled["half_arithmetic"], compiled["computed_in_fp32"]) == (0, 0, [])


def test_a_file_that_it_refuses_for_another_product_is_planned(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float16[2,8] x) => (int64[2,M] y) { z = Relu(x) y = NonZero(z) }'
    )
    found = report(tmp_path, model)
    assert found["status"] == "planned" and "compiled" not in found
    assert any("not-supported" in codes_in(each) and "NonZero" in each for each in found["not_verified"])
    with raises("not-supported", "NonZero"):
        report(tmp_path, model, RTX)


DIES = """<ir_version: 10, opset_import: ["": 23]> g (float16[2,4,8] x) => (float16[2,4,8] y)
    { y = Attention<q_num_heads = 2, kv_num_heads = 2>(x, x, x) }"""


def test_a_compiler_that_dies_leaves_a_plan_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/model.rtx.engine").write_bytes(b"the last good engine")
    found = report(tmp_path, onnx.parser.parse_model(DIES))
    assert found["status"] == "planned" and any("SIGSEGV" in each for each in found["not_verified"])
    with raises("runtime-refuses", "SIGSEGV", tmp_path / "model.onnx"):
        report(tmp_path, onnx.parser.parse_model(DIES), RTX)
    assert (tmp_path / "out/model.rtx.engine").read_bytes() == b"the last good engine"


@pytest.mark.parametrize("backend", ["tensorrt", RTX])
@pytest.mark.parametrize(
    ("place", "target", "code"), [("folder", [], "file-unwritable"), ("", ["sm53"], "unknown-choice")]
)
def test_what_is_no_fault_of_the_file_is_an_error(
    backend: str, place: str, target: list[str], code: str, tmp_path: Path
) -> None:
    if place:
        (tmp_path / "out/model.rtx.engine").mkdir(parents=True)
    with raises(code):
        report(tmp_path, attention(Form(16, 16, 1, 16)), backend, target)


def test_a_log_that_cannot_be_read_is_not_known(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(attention(Form()), path)
    graph = {"float_nodes": 4, "fp16_nodes": 4, "fp16_node_names": []}
    plan: Any = {"graph": graph, "profiles": [], "target": {"compute_capability": []}}
    facts = compiler_facts(NO_LAYERS | {"tensorrt": "1.9"}, load_model(path), plan)
    assert facts["fused_attention"] is None and facts["cast_layers"] is None and facts["attention_regions"] == 1


@pytest.mark.parametrize(
    ("body", "softmaxes"),
    [
        ("a = MatMul(x, k) b = Softmax(a) y = MatMul(b, x)", ["b"]),
        ("a = MatMul(x, k) s = Mul(a, w) m = Add(s, x) b = Softmax(m) c = Transpose(b) y = MatMul(c, k)", ["b"]),
        ("a = MatMul(x, k) b = Softmax(a) y = MatMul(b, w)", []),  # an expectation over fixed values
        ("a = MatMul(x, w) b = Softmax(a) y = MatMul(b, k)", []),
        ("a = MatMul(x, k) b = Softmax(a) y = Mul(b, x)", []),
        ("b = Softmax(x) y = MatMul(b, k)", []),
        (
            "a = MatMul(x, k) b = Softmax(a) c = MatMul(b, x) d = MatMul(c, k) e = Softmax(d) y = MatMul(e, c)",
            ["b", "e"],
        ),
    ],
)
def test_attentions_are_told_from_other_softmaxes(body: str, softmaxes: list[str]) -> None:
    import onnx_ir as ir

    text = f"""<ir_version: 8, opset_import: ["": 17]> g (float[2,2] x, float[2,2] k) => (float[2,2] y)
    <float[2,2] w = {{1, 2, 3, 4}}> {{ {body} }}"""
    found = Neighbours(ir.from_onnx_text(text)).attentions()
    assert [str(each.softmax.outputs[0].name) for each in found] == softmaxes


def test_the_plans_options_of_the_machine_are_left_out(tmp_path: Path) -> None:
    assert EngineConfig().timing_cache is not None
    found = report(
        tmp_path,
        attention(Form()),
        hardware_compatibility="ampere_plus",
        timing_cache=str(tmp_path / "cache"),
        version_compatible=True,
        refit=True,
    )
    assert found["status"] == "compiled" and not (tmp_path / "cache").exists()
