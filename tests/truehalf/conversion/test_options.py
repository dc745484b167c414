"""What a conversion is asked for is checked as a configuration is, all at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import truehalf
from tests.measuring.converted import to_fp16
from tests.messages import expect, raises
from tests.small_models import saved
from truehalf import Precision
from truehalf.config.selector_entries import misspelt_operators


@pytest.mark.parametrize(
    ("options", "code", "facts"),
    [
        ({"node_block_list": ["("]}, "bad-syntax", ["node_block_list[0]", "'('"]),
        ({"ranges": {"a": 1.0}}, "wrong-file", ["ranges", "tensors", "absmax"]),
        ({"ranges": "missing.json"}, "file-missing", ["missing.json"]),
    ],
)
def test_bad_options(tmp_path: Path, options: dict[str, Any], code: str, facts: list[object]) -> None:
    with raises(code, *facts):
        to_fp16(saved(tmp_path), tmp_path / "out.onnx", **options)
    assert not (tmp_path / "out.onnx").exists()


FAULTY = {
    "keep_io_types": (None, "wrong-type", [None]),
    "op_block_list": ("Softmax", "wrong-type", ["'Softmax'"]),
    "scope_block_list": (["a/b"], "bad-syntax", ["'a/b'"]),
    "pattern_include_list": (["MatMul"], "bad-syntax", ["'MatMul'"]),
    "rules": ("auto", "unknown-choice", ["default", "autocast", "'auto'"]),
    "init_overflow": ("clmp", "unknown-choice", ["pin", "clamp", "'clmp'"]),
    "placement": ("mincut", "unknown-choice", ["min_cut", "eager", "'mincut'"]),
    "safety_factor": (0, "out-of-range", [1, 65504, 0]),
    "data_max": (-1, "out-of-range", [0, -1]),
    "underflow_share_max": (float("nan"), "out-of-range", [0, 1, "nan"]),
    "opset": (0, "out-of-range", [1, 0]),
    "custom_rule": ("rules", "bad-syntax", ["module:function", "'rules'"]),
    "inner": ("yes", "wrong-type", ["'yes'"]),
}


@pytest.mark.parametrize("key", FAULTY)
def test_the_door_checks_what_the_chain_checks(tmp_path: Path, key: str) -> None:
    value, code, facts = FAULTY[key]
    with raises("bad-options") as caught:
        to_fp16(saved(tmp_path), tmp_path / "out.onnx", **{key: value})
    _, fault = str(caught.value).splitlines()
    assert fault.startswith(f"  - {key}")
    expect(fault, code, *facts)
    assert not (tmp_path / "out.onnx").exists()


def test_all_bad_options_are_listed_at_once(tmp_path: Path) -> None:
    several = {key: FAULTY[key][0] for key in ("rules", "placement", "op_block_list")}
    with raises("bad-options") as caught:
        to_fp16(saved(tmp_path), tmp_path / "out.onnx", **several)
    assert [line.split(":")[0].strip(" -") for line in str(caught.value).splitlines()[1:]] == [
        "placement",
        "op_block_list",
        "rules",
    ]
    bounds = {"underflow_share_max": 9, "opset": 0}
    with raises("bad-options") as caught:
        to_fp16(saved(tmp_path), tmp_path / "out.onnx", **bounds)
    _, opset, share = str(caught.value).splitlines()
    expect(share, "out-of-range", "underflow_share_max", 0, 1, 9)
    expect(opset, "out-of-range", "opset", 1, 0)


def test_names_and_shapes_are_held_against_the_model(tmp_path: Path) -> None:
    shapes = {"image": [1, 2], "images": [1, 2, 3]}
    with raises("bad-options") as caught:
        to_fp16(saved(tmp_path), tmp_path / "out.onnx", keep_io_types=["X", "logits"], input_shapes=shapes)
    _, kept, image, images = str(caught.value).splitlines()
    expect(kept, "wrong-name", "keep_io_types", "'X'", "'images'", "'logits'")
    expect(image, "wrong-name", "input_shapes", "'image'", "'images'")
    expect(images, "wrong-shape", "input_shapes", "'images'", 2, [1, 2, 3])
    with raises("wrong-shape", "input_shapes", "'images'", "axis 1", 2, [5, 3]):
        to_fp16(saved(tmp_path), tmp_path / "out.onnx", input_shapes={"images": [5, 3]})
    with raises("wrong-type", "keep_io_types", "'images'"):
        to_fp16(saved(tmp_path), tmp_path / "out.onnx", keep_io_types="images")


def test_any_iterable_is_a_list_and_numbers_may_be_numpys(tmp_path: Path) -> None:
    report = to_fp16(
        saved(tmp_path),
        tmp_path / "out.onnx",
        op_block_list=iter(["Softmax"]),
        node_block_list={"Relu"},
        keep_io_types=("logits",),
        data_max=np.float32(512),
    )
    assert report["verdicts"]["op_block_list"] == report["verdicts"]["node_block_list"] == 1


def test_a_wish_that_matches_nothing_is_reported(tmp_path: Path) -> None:
    report = to_fp16(saved(tmp_path), tmp_path / "out.onnx", fp16_ops=["LogSoftmax"])
    assert report["unmatched_selectors"] == ["fp16_ops: LogSoftmax"]
    warning, nothing = report["warnings"]
    expect(nothing, "nothing-in-fp16")
    expect(warning, None, "fp16_ops", "LogSoftmax", "Softmax")
    with raises("no-match", "fp16_ops", "LogSoftmax", "Softmax"):
        to_fp16(saved(tmp_path), tmp_path / "out.onnx", fp16_ops=["LogSoftmax"], strict_selectors=True)


MISSPELT = {
    "op_block_list": ("Sofmax", "Softmax"),
    "op_include_list": ("Matmul", "MatMul"),
    "fp16_ops": ("ai.onnx::Layernormalization", "LayerNormalization"),
    "pattern_block_list": ("MatMul -> Sofftmax", "Softmax"),
    "pattern_include_list": ("relu <- MatMul", "Relu"),
}


@pytest.mark.parametrize("key", MISSPELT)
def test_a_misspelt_operator_is_refused_at_once(tmp_path: Path, key: str) -> None:
    entry, meant = MISSPELT[key]
    model, precision = saved(tmp_path), Precision(**{key: ["Relu -> Sqrt" if "pattern" in key else "Sqrt", entry]})
    with raises("unknown-choice", f"precision.{key}[1]", meant):
        truehalf.convert(model, samples="no_such_folder", precision=precision)


LIKE = {
    "Mtmul": "MatMul",
    "Layernorm": "LayerNormalization",
    "com.microsoft::Sofmax": "Softmax",
    "com.microsoft::SkipLayernormalisation": "SkipLayerNormalization",
    "ai.onnx::batchnorm": "BatchNormalization",
    "BatchNorm2d": "BatchNormalization",
    "Conv2d": "Conv",
    "ReLU": "Relu",
    "GlobalAverage": "GlobalAveragePool",
    "Resise": "Resize",
}


@pytest.mark.parametrize("name", LIKE)
@pytest.mark.parametrize("key", ["op_block_list", "op_include_list", "fp16_ops"])
def test_whatever_the_case_or_how_much_of_a_name_is_left_out(name: str, key: str) -> None:
    (problem,) = misspelt_operators("precision", Precision(**{key: [name]}))
    expect(problem, "unknown-choice", f"precision.{key}[0]", name.rpartition("::")[2], f"mean {LIKE[name]}")


@pytest.mark.parametrize("operator", ["MatMul", "LayerNormalization", "GridSample", "NonMaxSuppression"])
@pytest.mark.parametrize("seed", range(3))
def test_one_letter_is_lost_doubled_or_exchanged(operator: str, seed: int) -> None:
    random = np.random.default_rng([seed, len(operator)])
    at = int(random.integers(1, len(operator) - 1))
    changed = [operator[at] * 2, "", operator[at + 1] + operator[at]][seed]
    name = operator[:at] + changed + operator[at + (2 if seed == 2 else 1) :]
    (problem,) = misspelt_operators("precision", Precision(fp16_ops=[name]))
    expect(problem, "unknown-choice", operator)


def test_a_misspelt_operator_of_the_models_own_domain() -> None:
    of_model = ["com.acme::MyPlugin", "Conv"]
    precision = Precision(fp16_ops=["com.acme::MyPlugn", "com.acme::MyPlugin", "com.acme::Other", "MyPlugin"])
    (problem,) = misspelt_operators("precision", precision, of_model)
    expect(problem, "unknown-choice", "precision.fp16_ops[0]", "com.acme::MyPlugn", "com.acme::MyPlugin")


@pytest.mark.parametrize(
    "name",
    ["EfficientNMS_TRT", "InstanceNormalization_TRT", "MultiscaleDeformableAttnPlugin", "Linear", "my.own::Mtmul"],
)
def test_names_of_plugins_and_of_nothing_like_an_operator(name: str) -> None:
    assert list(misspelt_operators("precision", Precision(fp16_ops=[name]), ["Conv"])) == []


@pytest.mark.parametrize("name", ["com.acme::Sofmax", "Foo", "FastGelu", "SkipLayerNormalization", "QGemm", "Swish"])
def test_an_unknown_operator_may_be_the_users_own(name: str) -> None:
    assert list(misspelt_operators("precision", Precision(op_block_list=[name]))) == []


def test_an_operator_of_the_model_is_not_misspelt(tmp_path: Path) -> None:
    text = """<ir_version: 10, opset_import: ["": 17, "my": 1]> g (float[2] x) => (float[2] y) { y = my.Sofmax(x) }
    <domain: "my", opset_import: ["": 17]> Sofmax (a) => (b) { b = Relu(a) }"""
    report = to_fp16(saved(tmp_path, text), tmp_path / "out.onnx", op_block_list=["Sofmax"])
    assert report["unmatched_selectors"] == ["op_block_list: Sofmax"]  # a function, which is inlined
    with raises("unknown-choice", "'Sofmax'", "Softmax"):
        to_fp16(saved(tmp_path), tmp_path / "out.onnx", op_block_list=["Sofmax"])


def test_names_of_the_runtimes_operators_are_known() -> None:
    """All that ONNX Runtime 1.31 has beside ONNX: each would else be taken for one of ONNX that is misspelt."""
    for name in Path(__file__).with_name("contributed_operators.txt").read_text().split():
        listed = [name, f"com.microsoft::{name}"]
        assert list(misspelt_operators("precision", Precision(op_block_list=listed))) == []
