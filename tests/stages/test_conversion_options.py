"""What a conversion is asked for is checked as a configuration is, all at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stages.fp16 import to_fp16
from stages.io import StageError
from tests.stages.small_models import saved


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"node_block_list": ["("]}, r"node_block_list\[0\]: '\(' is no regular expression"),
        ({"ranges": {"a": 1.0}}, "ranges: expected"),
        ({"ranges": "missing.json"}, "missing.json"),
    ],
)
def test_bad_options(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(StageError, match=message):
        to_fp16(saved(tmp_path), tmp_path / "out.onnx", **options)
    assert not (tmp_path / "out.onnx").exists()


FAULTY = {
    "keep_io_types": (None, "expected true or false, or a list, got None"),
    "op_block_list": ("Softmax", "expected a list, got 'Softmax'"),
    "scope_block_list": (["a/b"], "'a/b' is no module scope"),
    "pattern_include_list": (["MatMul"], "'MatMul' is no pattern"),
    "rules": ("auto", "expected one of default, autocast, got 'auto'"),
    "init_overflow": ("clmp", "expected one of pin, clamp, got 'clmp'"),
    "placement": ("mincut", "expected one of min_cut, eager, got 'mincut'"),
    "safety_factor": (0, "expected 1 to 65504, got 0"),
    "data_max": (-1, "expected above 0"),
    "data_max_share": (9, "expected 0 to 1, got 9"),
    "underflow_share_max": (float("nan"), "expected 0 to 1, got nan"),
    "opset": (0, "expected 1 or more, got 0"),
    "custom_rule": ("rules", "expected module:function"),
    "inner": ("yes", "expected true or false, got 'yes'"),
}


@pytest.mark.parametrize("key", FAULTY)
def test_the_door_checks_what_the_chain_checks(tmp_path: Path, key: str) -> None:
    value, message = FAULTY[key]
    with pytest.raises(StageError) as caught:
        to_fp16(saved(tmp_path), tmp_path / "out.onnx", **{key: value})
    assert f"  - {key}" in str(caught.value)
    assert message in str(caught.value)
    assert not (tmp_path / "out.onnx").exists()


def test_all_bad_options_are_listed_at_once(tmp_path: Path) -> None:
    several = {key: FAULTY[key][0] for key in ("rules", "placement", "op_block_list")}
    with pytest.raises(StageError) as caught:
        to_fp16(saved(tmp_path), tmp_path / "out.onnx", **several)
    assert [line.split(":")[0].strip(" -") for line in str(caught.value).splitlines()[1:]] == [
        "placement",
        "op_block_list",
        "rules",
    ]
    bounds = {"data_max_share": 9, "opset": 0}
    with pytest.raises(StageError, match=r"data_max_share: expected 0 to 1(.|\n)*opset: expected 1 or more"):
        to_fp16(saved(tmp_path), tmp_path / "out.onnx", **bounds)


def test_names_and_shapes_are_held_against_the_model(tmp_path: Path) -> None:
    shapes = {"image": [1, 2], "images": [1, 2, 3]}
    with pytest.raises(StageError) as caught:
        to_fp16(saved(tmp_path), tmp_path / "out.onnx", keep_io_types=["X", "logits"], input_shapes=shapes)
    assert str(caught.value).splitlines()[1:] == [
        "  - keep_io_types: 'X' is no input or output of the model; it has 'images', 'logits'",
        "  - input_shapes: 'image' is no input of the model; it has 'images'",
        "  - input_shapes: 'images': expected 2 axes, got [1, 2, 3]",
    ]
    with pytest.raises(StageError, match=r"input_shapes: 'images': axis 1 is fixed to 2, got \[5, 3\]"):
        to_fp16(saved(tmp_path), tmp_path / "out.onnx", input_shapes={"images": [5, 3]})
    with pytest.raises(StageError, match="expected true or false, or a list, got 'images'"):
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
    report = to_fp16(saved(tmp_path), tmp_path / "out.onnx", fp16_ops=["Matmul", "Conv"])
    assert report["unmatched_selectors"] == ["fp16_ops: Matmul"]  # Conv stands in the default, which fits all models
    assert report["warnings"] == ["fp16_ops: Matmul matches no node (the model has MatMul)"]
    with pytest.raises(StageError, match="fp16_ops: Matmul matches no node"):
        to_fp16(saved(tmp_path), tmp_path / "out.onnx", fp16_ops=["Matmul"], strict_selectors=True)
