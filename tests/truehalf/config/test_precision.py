"""Options of the conversion: one dataclass, shown by one YAML file."""

from __future__ import annotations

import re
from dataclasses import fields, replace

import numpy as np
import pytest

from tests.configurations import composed
from tests.measuring.shipped import CONF, shipped
from tests.messages import raises
from truehalf.config.precision import Placement, Precision, PrecisionName, default_of
from truehalf.config.typed import plain


def test_the_yaml_shows_each_default_and_its_meaning() -> None:
    """A new option is a field and its line here; neither can be changed alone."""
    assert shipped("precision/fp16") == {key.name: default_of(key) for key in fields(Precision)} == plain(Precision())
    lines = (CONF / "precision/fp16.yaml").read_text().splitlines()
    comments = dict(match.groups() for line in lines if (match := re.match(r"(\w+):.*? # (.*)$", line)))
    meanings = {key.name: key.metadata["meaning"] for key in fields(Precision)}
    assert comments == {name: meaning for name, meaning in meanings.items() if name != "dtype"}


def test_fp32_differs_in_its_type_alone() -> None:
    assert composed("precision=fp32")["precision"] == plain(replace(Precision(), dtype=PrecisionName.fp32))


def test_values_are_read_as_a_yaml_files() -> None:
    made = Precision(placement="eager", op_block_list=("Softmax",), data_max=np.float32(128), fp16_ops={"MatMul"})
    assert (made.placement, made.op_block_list, made.fp16_ops) == (Placement.eager, ["Softmax"], ["MatMul"])
    assert (made.data_max, type(made.data_max)) == (128.0, float)
    assert replace(made, placement=Placement.min_cut) == Precision(
        op_block_list=["Softmax"], data_max=128, fp16_ops=["MatMul"]
    )


def test_every_wrong_value_is_named_at_once() -> None:
    with raises("bad-options", "data_max", "opset", "op_block_list[0]"):
        Precision(data_max=-1, opset=0, op_block_list=["Soft.*"])
    with raises("bad-options", "placement", "'nearest'", "min_cut, eager", "keep_io_types"):
        Precision(placement="nearest", keep_io_types="images")
    with pytest.raises(TypeError):
        Precision(data_maximum=1)
