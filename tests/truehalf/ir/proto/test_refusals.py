"""Files that onnx's checker refuses: whose they are, which node, and what to do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

import truehalf
from tests.messages import raises
from tests.truehalf.linked_models import LAYOUTS, linked
from truehalf.errors import StageError
from truehalf.ir.proto.refusals import checker_refusal

Text = tuple[int, str]
GROUPS = "<float[2] s = {1, 1}, float[2] b = {0, 0}>"
REFUSED: dict[str, tuple[int, str, tuple[object, ...]]] = {
    "withdrawn, and there again": (
        18,
        f"(float[1,4,3,3] x) => (float[1,4,3,3] y) {GROUPS} "
        "{ a = Relu(x) [gn] y = GroupNormalization<num_groups = 2>(a, s, b) }",
        ("'gn'", "GroupNormalization", "opset 21"),
    ),
    "without a name": (
        20,
        f"(float[1,4,3,3] x) => (float[1,4,3,3] y) {GROUPS} {{ y = GroupNormalization<num_groups = 2>(x, s, b) }}",
        ("GroupNormalization", "opset 21"),
    ),
    "another length": (17, "(float[2,3] x) => (float[2,5] y) { a = Relu(x) [ng] y = Neg(a) }", ("'ng'", "Neg", 3, 5)),
    "another length of the first axis": (
        17,
        "(float[2,3] x, float[3,4] w) => (float[3,4] y) { [mm] y = MatMul(x, w) }",
        ("'mm'", "MatMul", 2, 3),
    ),
    "of a pool": (
        17,
        "(float[1,2,8,8] x) => (float[1,2,5,4] y) { [pool] y = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(x) }",
        ("'pool'", "MaxPool", 4, 5),
    ),
    "of a Transpose": (
        13,
        "(float[2,3,4] x) => (float[2,3,4] y) { a = Abs(x) [turn] y = Transpose<perm = [2, 1, 0]>(a) }",
        ("'turn'", "Transpose", "graph.output"),
    ),
}


def parsed(opset: int, text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : {opset}]> g {text}')


@pytest.mark.parametrize("name", REFUSED)
def test_the_file_the_node_and_the_remedy_are_named(name: str, tmp_path: Path) -> None:
    opset, text, facts = REFUSED[name]
    path = tmp_path / "of_the_user.onnx"
    onnx.save(parsed(opset, text), path)
    with raises("model-invalid", str(path), "the model anew", *facts):
        truehalf.convert(path)
    with raises("model-invalid", str(path), "the model anew", *facts):
        truehalf.convert(path, tmp_path / "half.onnx")
    assert not (tmp_path / "half.onnx").exists()


@pytest.mark.parametrize("name", REFUSED)
def test_no_file_is_named_of_a_model_in_memory(name: str) -> None:
    opset, text, facts = REFUSED[name]
    with raises("model-invalid", "the model", *facts) as caught:
        truehalf.convert(parsed(opset, text))
    assert ".onnx" not in str(caught.value)


@pytest.mark.parametrize("seed", range(3))
def test_lengths_that_a_generator_draws(seed: int, tmp_path: Path) -> None:
    random = np.random.default_rng(seed)
    sides = [int(side) for side in random.integers(2, 7, size=int(random.integers(1, 5)))]
    wrong = list(sides)
    wrong[int(random.integers(len(sides)))] += 1
    stated, given = (",".join(map(str, each)) for each in (wrong, sides))
    path = tmp_path / "drawn.onnx"
    onnx.save(parsed(17, f"(float[{given}] x) => (float[{stated}] y) {{ a = Relu(x) [end] y = Neg(a) }}"), path)
    with raises("model-invalid", str(path), "'end'", "Neg"):
        truehalf.convert(path)


def test_what_onnx_runtime_refuses_of_a_model_in_memory_names_no_file() -> None:
    model = parsed(17, "(float[2,3] x) => (float[2,3] y) { a = Relu(x) [ng] y = Neg<foo = 3>(a) }")
    for call in (truehalf.convert, lambda each: truehalf.compare(each, each, [{"x": np.zeros((2, 3), np.float32)}])):
        with pytest.raises(StageError) as caught:
            call(model)
        assert ".onnx" not in str(caught.value)


@pytest.mark.parametrize("declared", ["1,7,9,2", "1,7,f,2", "b,n,f,c"])
@pytest.mark.parametrize("read", ['a, step, "", length', "a, step, window", "a, step, window, length"])
def test_the_default_of_stft_is_one_sided(declared: str, read: str, tmp_path: Path) -> None:
    """onnx infers 16 frequencies where the attribute is not written, and ONNX Runtime gives 9, as ONNX says."""
    window = ", ".join(["1.0"] * 16)
    model = parsed(
        17,
        f"(float[1,64,1] x) => (float[{declared}] y) <int64 step = {{8}}, int64 length = {{16}}, "
        f"float[16] window = {{{window}}}> {{ a = Relu(x) [st] y = STFT({read}) }}",
    )
    feed = {"x": np.random.default_rng(0).normal(size=(1, 64, 1)).astype(np.float32)}
    result = truehalf.convert(model, tmp_path / "half.onnx", samples=[feed])
    assert result.report.check is None or result.report.check.state != "failed"


@pytest.mark.parametrize("op_type", ["Relu", "Turn"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_links_to_external_data_are_no_reason(layout: str, op_type: str, tmp_path: Path) -> None:
    text = f"""<ir_version: 8, opset_import: ["": 17]> g (float[1,4] x) => (float[1,4] y)
    {{ a = MatMul (x, w) y = {op_type} (a) }}"""
    found = checker_refusal(linked(tmp_path, layout, text))
    assert found is None if op_type == "Relu" else "Turn" in str(found)
