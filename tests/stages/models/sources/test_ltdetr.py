"""LT-DETR from its configuration."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from conf.schema import Config
from conf.validate import ConfigErrors
from stages.configuration import validated
from stages.io import StageError
from stages.models.source import open_model
from stages.models.sources.ltdetr import files
from tests.conftest import composed


def config(*overrides: str) -> Config:
    return validated(composed(*overrides))


def test_the_checkpoint_is_sought_in_the_workspace(tmp_path: Path) -> None:
    mine = config("model.checkpoint=mine.safetensors")
    assert (
        files(mine, tmp_path) == [tmp_path / "mine.safetensors"]
        and files(config("model.checkpoint=null"), tmp_path) == []
    )
    with pytest.raises(StageError) as error:
        open_model(mine, tmp_path)
    assert f"{tmp_path}/mine.safetensors: no such file" in str(error.value)


def test_attention_gain_reaches_the_module(tmp_path: Path) -> None:
    plain = open_model(config("model.checkpoint=null"), tmp_path).module.state_dict()
    scaled = open_model(config("model.checkpoint=null", "experiment=overflow"), tmp_path).module.state_dict()
    changed = {name for name, tensor in plain.items() if not torch.equal(tensor, scaled[name])}
    assert changed
    name = "network.model.decoder.layers.0.self_attn.v_proj.weight"
    assert torch.equal(scaled[name], plain[name] * 2.0**17)
    assert torch.equal(scaled[name.replace("v_proj", "o_proj")], plain[name.replace("v_proj", "o_proj")] * 2.0**-17)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["decoder=none"], "decoder: expected dfine or rtdetrv2, got none"),
        (["model.image_size=[120,128]"], "model.image_size: expected [height, width], multiples of 32"),
        (["model.classes=null"], "model.classes: expected one or more"),
        (["model.drop_outputs=[aux]"], "model.inputs, model.outputs, model.drop_outputs: are known of this source"),
        (["model.options.mean=[0,0]"], "model.options.mean: expected three numbers (RGB), got [0.0, 0.0]"),
        (["model.options.std=[1,0,1]"], "model.options.std: expected numbers above 0"),
        (["model.options.attention_gain_log2=61"], "model.options.attention_gain_log2: expected 0 to 60, got 61"),
        (["model.options.architecture.backbone_depths=[2,2]"], "backbone_depths: expected four positive integers"),
        (["model.options.architecture.heads=7"], "d_model: expected a multiple of heads (7), got 96"),
        (
            ["model.options.architecture.d_model=wide"],
            "model.options.architecture.d_model: expected an integer, got 'wide'",
        ),
        (["+model.options.depth=3"], "model.options.depth: unknown key; known here: attention_gain_log2"),
        (["++trace.dynamic_axes.images={0:batch,2:height}"], "trace.dynamic_axes.images: axis 2 cannot vary"),
    ],
)
def test_what_it_does_not_take(overrides: list[str], said: str) -> None:
    with pytest.raises(ConfigErrors) as error:
        config(*overrides)
    assert said in str(error.value)
