"""Options of the conversion: one dataclass, shown by one YAML file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import Field, fields, is_dataclass, replace
from typing import Any

import numpy as np
import pytest

from tests.configurations import composed
from tests.measuring.shipped import CONF, shipped
from tests.messages import raises
from truehalf.config.engine import EngineConfig
from truehalf.config.options import Options
from truehalf.config.precision import Placement, Precision, PrecisionName
from truehalf.config.typed import plain
from truehalf.config.verification import VerifyConfig


@pytest.mark.parametrize(
    ("file", "section"),
    [("precision/fp16", Precision), ("verify/detection", VerifyConfig), ("engine/tensorrt", EngineConfig)],
    ids=["precision", "verify", "engine"],
)
def test_the_yaml_shows_each_default_and_its_meaning(file: str, section: type[Options]) -> None:
    """A new option is a field and its line here; neither can be changed alone."""
    assert shipped(file) == plain(section())
    text = (CONF / f"{file}.yaml").read_text()
    comments = dict(re.findall(r"^ *(\w+):.*? # (.*)$", text, re.MULTILINE))
    meanings = {key.name: key.metadata["meaning"] for key in _keys(section)}
    assert comments == {name: meanings[name] for name in comments}
    assert meanings.keys() - comments.keys() <= {"dtype", "backend", "profiles", "warm_up", "runs", "rounds"}


def _keys(section: type) -> Iterator[Field[Any]]:
    for key in fields(section):
        if is_dataclass(key.default):
            yield from _keys(type(key.default))
        if key.metadata:
            yield key


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
