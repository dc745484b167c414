"""LT-DETR from its configuration."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.configurations import composed
from tests.conftest import ROOT
from tests.messages import raises
from tests.truehalf.models.refusing import in_order, refuses
from truehalf.config.schema import Config
from truehalf.models.configuration import validated
from truehalf.models.source import open_model
from truehalf.models.sources.ltdetr import files

ARCHITECTURE = "model.options.architecture."
BACKBONE = ARCHITECTURE + "backbone."
VIT = ["model=ltdetr_nano_vit"]


def config(*overrides: str) -> Config:
    return validated(composed(*overrides))


def test_the_checkpoint_is_sought_in_the_workspace(tmp_path: Path) -> None:
    mine = config("model.checkpoint=mine.safetensors")
    assert (
        files(mine, tmp_path) == [tmp_path / "mine.safetensors"]
        and files(config("model.checkpoint=null"), tmp_path) == []
    )
    with raises("file-missing", tmp_path / "mine.safetensors"):
        open_model(mine, tmp_path)


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
        assert {"source", "image_size", "classes", "preprocessing", "inputs", "outputs"} <= set(same)
    shape = config("model=ltdetr_vit").model.options.architecture
    assert (shape.heads, shape.num_queries, shape.num_denoising) == (8, 300, 100)


def test_a_checkpoint_of_a_convnext_is_refused_on_a_vit(tmp_path: Path) -> None:
    weights = ROOT / "examples/digits/weights/dfine.safetensors"
    with raises("wrong-file", weights.name) as error:
        open_model(config(*VIT, f"model.checkpoint={weights}"), tmp_path)
    _, wrong, missing, unexpected, *_ = str(error.value).splitlines()
    in_order(wrong, " model.", "float32", "float32")
    in_order(missing, "missing", " model.")
    in_order(unexpected, "unexpected", " model.")


@pytest.mark.parametrize(
    ("overrides", "key", "code", "facts"),
    [
        (["decoder=none"], "decoder", "in-conflict", ["dfine", "rtdetrv2"]),
        (["model.image_size=[120,120]"], "model.image_size", "out-of-range", [32, "[120, 120]"]),
        (["model.classes=null"], "model.classes", "needs-value", []),
        (
            ["model.drop_outputs=[aux]"],
            *("model.inputs, model.outputs, model.drop_outputs", "in-conflict", ["null", "[]"]),
        ),
        (["model.options.mean=[0,0]"], "model.options.mean", "wrong-shape", ["RGB", "[0.0, 0.0]"]),
        (["model.options.std=[1,0,1]"], "model.options.std", "out-of-range", [0, "[1.0, 0.0, 1.0]"]),
        (
            ["model.options.attention_gain_log2=61"],
            *("model.options.attention_gain_log2", "out-of-range", [0, 60, 61]),
        ),
        ([BACKBONE + "convnext=null"], BACKBONE.rstrip("."), "needs-value", ["convnext", "vit"]),
        (
            [*VIT, BACKBONE + "convnext={widths: [8,8,8,8], depths: [1,1,1,1], layer_scale_init: 1}"],
            *(BACKBONE.rstrip("."), "in-conflict", ["convnext", "vit"]),
        ),
        ([*VIT, BACKBONE + "vit.registers=-1"], BACKBONE + "vit.registers", "out-of-range", [0, -1]),
        ([*VIT, BACKBONE + "vit.adapter_width=0"], BACKBONE + "vit.adapter_width", "out-of-range", [1, 0]),
        ([*VIT, BACKBONE + "vit.patch_size=14"], BACKBONE + "vit.patch_size", "unknown-key", ["width"]),
        ([*VIT, "model.image_size=[120,120]"], "model.image_size", "out-of-range", [32, "[120, 120]"]),
        ([ARCHITECTURE + "encoder_blocks=4"], ARCHITECTURE + "encoder_blocks", "out-of-range", [1, 3, 4]),
        ([ARCHITECTURE + "encoder_expansion=0"], ARCHITECTURE + "encoder_expansion", "out-of-range", [0, 1, "got 0"]),
        ([ARCHITECTURE + "d_model=wide"], ARCHITECTURE + "d_model", "wrong-type", ["'wide'"]),
        (["model.options.depth=3"], "model.options.depth", "unknown-key", ["attention_gain_log2"]),
        (
            ["trace.dynamic_axes.images={0: batch, 1: channels}"],
            *("trace.dynamic_axes.images", "axis-fixed", ["axis 1"]),
        ),
        (
            [
                "trace.dynamic_axes.images={0: batch, 2: height, 3: width}",
                "engine.profiles=[{images:{min:[1,3,64,64],opt:[1,3,128,128],max:[4,3,128,200]}}]",
            ],
            *("engine.profiles[0].images.max", "out-of-range", [32, "[4, 3, 128, 200]"]),
        ),
    ],
)
def test_what_it_does_not_take(overrides: list[str], key: str, code: str, facts: list[object]) -> None:
    with refuses(key, code, *facts):
        config(*overrides)


@pytest.mark.parametrize("overrides", [[ARCHITECTURE + "heads=7"], [*VIT, BACKBONE + "vit.layers=[2,4,7]"]])
def test_sizes_that_do_not_fit_each_other(overrides: list[str], tmp_path: Path) -> None:
    with raises("module-fails", "model.options.architecture"):
        open_model(config(*overrides), tmp_path)
