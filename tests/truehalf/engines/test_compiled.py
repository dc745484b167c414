"""A file whose engine cannot be built here, compiled by NVIDIA's own compiler: what a report says of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir
import pytest

from tests.cases.doors import parsed
from tests.measuring.attention_graphs import NO_GPU, Everything, Form, attention
from tests.messages import expect, raises
from tests.tiers import compiled
from truehalf.config.engine import EngineConfig, TargetConfig
from truehalf.engines.build import Order, build_engine
from truehalf.ir.patterns import Neighbours
from truehalf.runtime.tensorrt import RTX

pytestmark = compiled


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
    order = Order(declared=declared, profiles=[], probe=NO_GPU, target=TargetConfig(list(target)))
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


MIXED = """g (float16[2,8] x) => (float16[2,8] y) <float fill = {-1.0}>
    { c = IsInf(x) y = Where(c, x, fill) }"""
REFUSED = {  # graph, node, status for TensorRT
    "types that do not fit": (MIXED, "/net/Where_1", "failed"),
    "an operator of neither": ("g (float16[2,4,4] x) => (float16[2] y) { y = Det(x) }", "/net/Det_0", "failed"),
    "NonZero": ("g (float16[2,8] x) => (int64[2,M] y) { z = Relu(x) y = NonZero(z) }", "/net/NonZero_1", "planned"),
    "Unique": ("g (float16[8] x) => (float16[M] y) { z = Relu(x) y = Unique(z) }", "/net/Unique_1", "planned"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_that_tensorrt_shares_fails_and_another_is_not_verified(name: str, tmp_path: Path) -> None:
    text, node, status = REFUSED[name]
    found = report(tmp_path, parsed(text))
    assert found["status"] == status and "compiled" not in found
    said = "\n".join([*found["reasons"], *found["not_verified"]])
    expect(said.partition(node)[2], None, "net")
    assert node in said and "not-supported" in said
    assert report(tmp_path, parsed(text), RTX)["status"] == "failed", "the engine is for this compiler"


def test_an_operator_without_a_kernel_fails_with_its_node(tmp_path: Path) -> None:
    """NVIDIA/TensorRT 4705: Attention of opset 23 in FP32, with an additive mask."""
    text = """g (float16[2,4,64,64] q, float[2,4,64,64] k, float[1,1,64,64] m) => (float16[2,4,64,64] z)
        { c = Cast<to=1>(q) y = Attention(c, k, k, m) z = Cast<to=10>(y) w = Relu(z) }"""
    model = parsed(text, 23)
    model.ir_version = 10
    found = report(tmp_path, model, declared="fp16")
    assert found["status"] == "failed"
    expect(found["reason"], "no-engine", "/net/Attention_1")


def test_an_operator_of_a_plugin_is_not_verified(tmp_path: Path) -> None:
    model = parsed("g (float16[4] x) => (float16[4] y) { z = Relu(x) y = com.acme.Mine(z) }")
    model.opset_import.append(onnx.helper.make_opsetid("com.acme", 1))
    (tmp_path / "libmine.so").write_bytes(b"a plugin")
    assert report(tmp_path, model)["status"] == "planned"


DIES = """<ir_version: 10, opset_import: ["": 23]> g (float16[2,4,8] x) => (float16[2,4,8] y)
    { y = Attention<q_num_heads = 2, kv_num_heads = 2>(x, x, x) }"""


@pytest.mark.parametrize("backend", ["tensorrt", RTX])
def test_a_compiler_that_dies_is_no_verdict(backend: str, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/model.rtx.engine").write_bytes(b"the last good engine")
    found = report(tmp_path, onnx.parser.parse_model(DIES), backend)
    assert found["status"] == "planned" and any("SIGSEGV" in each for each in found["not_verified"])
    assert (tmp_path / "out/model.rtx.engine").read_bytes() == b"the last good engine"


def test_a_compiler_that_takes_too_long_is_stopped(tmp_path: Path) -> None:
    found = report(tmp_path, attention(Form()), build_minutes=0.001)
    assert found["status"] == "planned"
    expect(found["not_verified"][-1], "runtime-refuses", "engine.build_minutes", 0.06)


TARGETS = {  # asked for: compiled for, not covered
    ("sm87",): (None, ["sm87"]),
    ("sm87", "sm86"): (["sm86"], ["sm87"]),
    ("sm90", "sm100"): (None, ["sm90", "sm100"]),
    ("sm89", "sm121"): (["sm89", "sm121"], []),
}


@pytest.mark.parametrize("target", TARGETS)
def test_a_target_without_a_compiler_says_what_to_build_there(target: tuple[str, ...], tmp_path: Path) -> None:
    compiled_for, uncovered = TARGETS[target]
    found = report(tmp_path, attention(Form(16, 16, 1, 16)), target=target)
    assert found["status"] == ("planned" if compiled_for is None else "compiled")
    assert found.get("compiled", {}).get("targets") == compiled_for
    said = "\n".join(found["not_verified"])
    for name in uncovered:
        expect(said.partition("no compiler here covers")[2], None, name, "truehalf engine", "trtexec --onnx=model.onnx")
    assert ("no compiler" in said) == bool(uncovered)


@pytest.mark.parametrize(("missing", "package"), [(RTX, "truehalf[rtx]"), ("polygraphy", "truehalf[rtx]")])
def test_without_a_compiler_the_package_that_is_missing_is_named(missing: str, package: str, tmp_path: Path) -> None:
    onnx.save(attention(Form(16, 16, 1, 16)), tmp_path / "m.onnx")
    order = Order(declared="fp16", profiles=[], probe=NO_GPU | {missing: None}, target=TargetConfig(["sm89"]))
    found = build_engine(tmp_path / "m.onnx", tmp_path / "out", order, EngineConfig())
    assert found.status == "planned"
    expect(found.reason, None, package)
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["plan.json"]


@pytest.mark.parametrize("backend", ["tensorrt", RTX])
def test_a_place_that_cannot_be_written_is_an_error(backend: str, tmp_path: Path) -> None:
    (tmp_path / "out/model.rtx.engine").mkdir(parents=True)
    with raises("file-unwritable"):
        report(tmp_path, attention(Form(16, 16, 1, 16)), backend)


NAMES = {
    **{"brackets": "blocks[{}].{}", "none": "", "repeated": "{1}", "a line break": "a\nb{}{}", "odd": "a, {}: {}"},
    **{"dots and slashes": "/a.b/{}//{}/", "unicode": "größe·層{}/{}", "300 characters": 290 * "x" + "{}{}"},
}


@pytest.mark.parametrize("name", [*NAMES, "external data"])
def test_nodes_of_any_name_are_found_in_the_layers(name: str, tmp_path: Path) -> None:
    model = attention(Form(32, 32, 2, 16))
    for number, node in enumerate(model.graph.node):
        node.name = NAMES.get(name, "b[{}]{}").format(number, node.op_type)
    is_external = name == "external data"
    folder = {"save_as_external_data": True, "location": "w/data.bin", "size_threshold": 0} if is_external else {}
    (tmp_path / "w").mkdir()
    onnx.save(model, tmp_path / "model.onnx", **folder)
    before = (tmp_path / "model.onnx").read_bytes()
    order = Order(declared="fp16", profiles=[], probe=NO_GPU)
    found = build_engine(tmp_path / "model.onnx", tmp_path / "out", order, EngineConfig())
    facts = found.compiled
    assert facts is not None and facts["file_half_arithmetic"] == facts["half_arithmetic"] == 1.0
    assert facts["attention_regions"] == 1
    if name not in ("none", "repeated"):
        named = {node for layer in found.layer_table for node in layer["onnx_nodes"]}
        assert named and named <= {node.name for node in model.graph.node}, "by the names of the file"
    assert (tmp_path / "model.onnx").read_bytes() == before


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
    text = f"""<ir_version: 8, opset_import: ["": 17]> g (float[2,2] x, float[2,2] k) => (float[2,2] y)
    <float[2,2] w = {{1, 2, 3, 4}}> {{ {body} }}"""
    found = Neighbours(ir.from_onnx_text(text)).attentions()
    assert [str(each.softmax.outputs[0].name) for each in found] == softmaxes


def test_the_plans_options_of_the_machine_are_left_out(tmp_path: Path) -> None:
    assert EngineConfig().timing_cache is not None
    found = report(
        tmp_path,
        attention(Form()),
        timing_cache=str(tmp_path / "cache"),
    )
    assert found["status"] == "compiled" and not (tmp_path / "cache").exists()
