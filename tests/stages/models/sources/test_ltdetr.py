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
from tests.conftest import ROOT, composed

ARCHITECTURE = "model.options.architecture.backbone."
VIT = ["model=ltdetr_nano_vit"]


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


@pytest.mark.parametrize("decoder", ["dfine", "rtdetrv2"])
@pytest.mark.parametrize("model", ["ltdetr_nano_vit", "ltdetr_vit"])
def test_on_a_vit_with_random_weights(model: str, decoder: str, tmp_path: Path) -> None:
    mine = config(f"model={model}", f"decoder={decoder}")
    assert mine.model.name == model and mine.model.checkpoint is None
    opened = open_model(mine, tmp_path)
    assert not opened.trained and not opened.module.training and len(opened.class_names) == 10
    assert any("spatial_tuning_adapter" in name for name in opened.module.state_dict())
    assert opened.inputs[0].normalized == {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}


def test_what_a_vit_does_not_say_is_that_of_the_model_beside_it() -> None:
    for name in ("ltdetr", "ltdetr_nano"):
        beside, vit = (vars(config(f"model={each}").model) for each in (name, f"{name}_vit"))
        same = [key for key in beside if beside[key] == vit[key]]
        assert {"source", "image_size", "classes", "preprocessing", "inputs", "outputs", "fp32_pins"} <= set(same)
    shape = config("model=ltdetr_vit").model.options.architecture
    assert (shape.heads, shape.num_queries, shape.num_denoising) == (8, 300, 100)


def test_a_checkpoint_of_a_convnext_is_refused_on_a_vit(tmp_path: Path) -> None:
    weights = ROOT / "examples/digits/weights/dfine.safetensors"
    with pytest.raises(StageError) as error:
        open_model(config(*VIT, f"model.checkpoint={weights}"), tmp_path)
    said = str(error.value)
    assert "belongs to another architecture" in said and "missing in the file" in said and "of another shape" in said
    assert "unexpected in the file: model." in said


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
        (
            ["model.options.architecture.backbone.convnext.depths=[2,2]"],
            "model.options.architecture.backbone.convnext.depths: expected four positive integers",
        ),
        (
            ["model.options.architecture.backbone.convnext=null"],
            "model.options.architecture.backbone: expected one of convnext and vit, the other null; got neither",
        ),
        (
            ["model=ltdetr_nano_vit", ARCHITECTURE + "convnext={widths:[8,8,8,8],depths:[1,1,1,1],layer_scale_init:1}"],
            "model.options.architecture.backbone: expected one of convnext and vit, the other null; got both",
        ),
        ([*VIT, ARCHITECTURE + "vit.heads=5"], "vit.width: expected heads (5) times a multiple of 4 (rotary"),
        ([*VIT, ARCHITECTURE + "vit.heads=16"], "vit.width: expected heads (16) times a multiple of 4 (rotary"),
        ([*VIT, ARCHITECTURE + "vit.layers=[2,4]"], "vit.layers: expected three different layers in order, from 1 to"),
        ([*VIT, ARCHITECTURE + "vit.layers=[2,4,7]"], "from 1 to depth (6), got [2, 4, 7]"),
        ([*VIT, ARCHITECTURE + "vit.layers=[0,4,6]"], "from 1 to depth (6), got [0, 4, 6]"),
        ([*VIT, ARCHITECTURE + "vit.layers=[4,2,6]"], "from 1 to depth (6), got [4, 2, 6]"),
        ([*VIT, ARCHITECTURE + "vit.registers=-1"], "vit.registers: expected 0 or more, got -1"),
        ([*VIT, ARCHITECTURE + "vit.adapter_width=0"], "vit.adapter_width: expected 1 or more, got 0"),
        ([*VIT, "+" + ARCHITECTURE + "vit.patch_size=14"], "vit.patch_size: unknown key; known here: width"),
        ([*VIT, "model.options.architecture.ffn_dim=255"], "ffn_dim: expected an even number"),
        ([*VIT, "model.image_size=[120,128]"], "model.image_size: expected [height, width], multiples of 32"),
        (["model.options.architecture.encoder_blocks=4"], "encoder_blocks: expected 1 to 3, got 4"),
        (["model.options.architecture.encoder_expansion=0"], "encoder_expansion: expected a number above 0"),
        (["model.options.architecture.d_model=90", "model.options.architecture.heads=6"], "a multiple of 4"),
        (["model.options.architecture.heads=7"], "d_model: expected a multiple of heads (7), got 96"),
        (
            ["model.options.architecture.d_model=wide"],
            "model.options.architecture.d_model: expected an integer, got 'wide'",
        ),
        (["+model.options.depth=3"], "model.options.depth: unknown key; known here: attention_gain_log2"),
        (["++trace.dynamic_axes.images={0:batch,1:channels}"], "trace.dynamic_axes.images: axis 1 cannot vary"),
        (
            [
                "++trace.dynamic_axes.images={0:batch,2:height,3:width}",
                "engine.profiles=[{images:{min:[1,3,64,64],opt:[1,3,128,128],max:[4,3,128,200]}}]",
            ],
            "engine.profiles[0].images.max: expected heights and widths that are multiples of 32",
        ),
    ],
)
def test_what_it_does_not_take(overrides: list[str], said: str) -> None:
    with pytest.raises(ConfigErrors) as error:
        config(*overrides)
    assert said in str(error.value)
