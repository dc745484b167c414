"""What a conversion is asked for is checked as a configuration is, all at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.measuring.converted import to_fp16
from tests.messages import expect, raises
from tests.small_models import saved


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
    "placement": ("mincut", "unknown-choice", ["min_cut", "eager", "'mincut'"]),
    "safety_factor": (0, "out-of-range", [1, 65504, 0]),
    "data_max": (-1, "out-of-range", [0, -1]),
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
    bounds = {"data_max": float("nan"), "opset": 0}
    with raises("bad-options") as caught:
        to_fp16(saved(tmp_path), tmp_path / "out.onnx", **bounds)
    _, opset, limit = str(caught.value).splitlines()
    expect(limit, "out-of-range", "data_max", 0, "nan")
    expect(opset, "out-of-range", "opset", 1, 0)


def test_names_are_held_against_the_model(tmp_path: Path) -> None:
    with raises("bad-options", "keep_io_types", "'X'", "'images'", "'logits'"):
        to_fp16(saved(tmp_path), tmp_path / "out.onnx", keep_io_types=["X", "logits"])
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
    assert report.verdicts["op_block_list"] == report.verdicts["node_block_list"] == 1


def test_a_wish_that_matches_nothing_is_reported(tmp_path: Path) -> None:
    report = to_fp16(saved(tmp_path), tmp_path / "out.onnx", fp16_ops=["LogSoftmax"])
    assert report.unmatched_selectors == ["fp16_ops: LogSoftmax"]
    warning, nothing = report.warnings
    expect(nothing, "nothing-in-fp16")
    expect(warning, None, "fp16_ops", "LogSoftmax", "Softmax")
