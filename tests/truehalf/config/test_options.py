"""Options of the conversion: one dataclass, shown by one YAML file."""

from __future__ import annotations

import copy
import pickle
import random
from dataclasses import FrozenInstanceError, fields, replace

import numpy as np
import pytest

from tests.configurations import composed
from tests.messages import raises
from truehalf.config.engine import EngineConfig, TargetConfig
from truehalf.config.precision import Placement, Precision, PrecisionName
from truehalf.config.schema import Config, LintConfig, RepairConfig, SlimConfig, TraceConfig
from truehalf.config.typed import plain, typed
from truehalf.config.verification import GatesConfig, VerifyConfig


def test_fp32_differs_in_its_type_alone() -> None:
    assert composed("precision=fp32")["precision"] == plain(replace(Precision(), dtype=PrecisionName.fp32))


def test_values_are_read_as_a_yaml_files() -> None:
    made = Precision(placement="eager", op_block_list=("Softmax",), data_max=np.float32(128), fp16_ops={"MatMul"})
    assert (made.placement, made.op_block_list, made.fp16_ops) == (Placement.eager, ("Softmax",), ("MatMul",))
    assert (made.data_max, type(made.data_max)) == (128.0, float)
    assert replace(made, placement=Placement.min_cut) == Precision(
        op_block_list=["Softmax"], data_max=128, fp16_ops=["MatMul"]
    )


SECTIONS = [Precision, VerifyConfig, GatesConfig, EngineConfig, TargetConfig]
SECTIONS += [TraceConfig, SlimConfig, RepairConfig, LintConfig]


@pytest.mark.parametrize("section", SECTIONS)
def test_options_serve_as_keys_and_do_not_change(section: type) -> None:
    made, other = section(), section()
    assert made == other and hash(made) == hash(other) and len({made, other, replace(made)}) == 1
    for each in fields(section):
        value = getattr(made, each.name)
        assert not isinstance(value, list), each.name
        if isinstance(value, dict):
            for change in (
                lambda v: v.update(a=1),
                lambda v: v.clear(),
                lambda v: v.setdefault("a", 1),
                lambda v: v.popitem(),
            ):
                with pytest.raises(TypeError):
                    change(value)
        with pytest.raises(FrozenInstanceError):
            setattr(made, each.name, value)
    assert pickle.loads(pickle.dumps(made)) == made == copy.deepcopy(made)
    assert plain(made) == plain(other)


@pytest.mark.parametrize("seed", range(6))
def test_lists_tuples_and_sets_make_the_same_options(seed: int) -> None:
    draw = random.Random(seed)
    names = [each.name for each in fields(Precision) if each.name.startswith("op_") or each.name == "fp16_ops"]
    chosen = {name: sorted(draw.sample(["Softmax", "MatMul", "Conv", "Exp"], draw.randint(0, 4))) for name in names}
    made = [Precision(**{name: form(ops) for name, ops in chosen.items()}) for form in (list, tuple, set, iter)]
    assert len(set(made)) == 1
    given = next(iter(chosen.values()))
    given.append("Relu")
    assert made[0] in set(made), "what is given may change afterwards"


def test_every_section_of_a_configuration_is_hashable() -> None:
    values = composed("engine.profiles=[{images: {min: [1, 3, 8, 8], opt: [1, 3, 8, 8], max: [2, 3, 8, 8]}}]")
    config = typed(Config, values, "", errors := [])
    assert not errors
    for each in fields(config):
        if each.name != "model":  # its options are what its source says
            hash(getattr(config, each.name))


def test_every_wrong_value_is_named_at_once() -> None:
    with raises("bad-options", "data_max", "opset", "op_block_list[0]"):
        Precision(data_max=-1, opset=0, op_block_list=["Soft.*"])
    with raises("bad-options", "placement", "'nearest'", "min_cut, eager", "keep_io_types"):
        Precision(placement="nearest", keep_io_types="images")
    with pytest.raises(TypeError):
        Precision(data_maximum=1)
