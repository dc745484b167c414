"""Both backbones, both decoders: shapes, seeded weights, what the features are; attention gain."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from examples.digits.detector import DECODERS, scale_attention_values
from tests.configurations import composed
from tests.conftest import ROOT
from tests.messages import raises
from tests.tiers import first_of
from tests.truehalf.models.detectors import CONVNEXT, QUERIES, VIT, built, detector, pictures
from tests.truehalf.models.refusing import in_order
from truehalf.models.configuration import validated
from truehalf.models.source import open_model
from truehalf.models.weights import load_weights

BACKBONES = {"convnext": CONVNEXT, "vit": VIT}


def on_vit(decoder: str, seed: int = 0, **changes: Any) -> Any:
    return built(decoder, seed, backbone=VIT, **changes)


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("backbone", list(BACKBONES))
def test_a_batch_gives_logits_and_boxes_and_each_picture_its_own(backbone: str, decoder: str) -> None:
    module = built(decoder, backbone=BACKBONES[backbone])
    images = torch.from_numpy(pictures(0, 1)["images"])
    with torch.no_grad():
        logits, boxes = module(images)
        alone = module(images[1:])
    assert logits.shape == (2, QUERIES, 10) and boxes.shape == (2, QUERIES, 4)
    assert logits.isfinite().all() and boxes.min() >= 0 and boxes.max() <= 1
    if backbone == "vit":  # of a ConvNeXt the random features vanish: which queries are taken is chance
        torch.testing.assert_close(logits[1:], alone[0], rtol=1e-3, atol=1e-4)  # FP32 sums in another order
        assert (logits[0] - logits[1]).abs().max() > 0.01


@pytest.mark.parametrize("decoder", DECODERS)
def test_random_weights_are_the_seeds_and_leave_torchs_own_state(decoder: str) -> None:
    state = torch.get_rng_state()
    first, same, other = on_vit(decoder, 1), on_vit(decoder, 1), on_vit(decoder, 2)
    assert torch.equal(state, torch.get_rng_state())
    again, others = same.state_dict(), other.state_dict()
    assert all(torch.equal(tensor, again[name]) for name, tensor in first.state_dict().items())
    name = next(name for name in first.state_dict() if name.endswith("fusion_proj.0.conv.weight"))
    assert not torch.equal(again[name], others[name])


@pytest.mark.parametrize("decoder", DECODERS)
def test_random_weights_on_a_vit_tell_queries_apart(decoder: str) -> None:
    with torch.no_grad():
        logits, _ = on_vit(decoder)(torch.from_numpy(pictures(0)["images"]))
    scores = logits.sigmoid().amax(-1)[0].numpy()
    assert len(np.unique(scores)) == QUERIES and np.ptp(scores) > 0.1


@pytest.mark.parametrize("decoder", DECODERS)
def test_a_vit_gives_the_encoder_features_of_three_strides_by_its_adapter(decoder: str) -> None:
    module = on_vit(decoder)
    model = module.network.model
    if decoder == "dfine":
        assert type(module.network).__name__ == "Deimv2ForObjectDetection"
        adapted = model.conv_encoder
    else:
        assert type(module.network).__name__ == "RTDetrV2ForObjectDetection"
        adapted = model.backbone.model
    features: list[torch.Tensor] = []
    adapted.register_forward_hook(lambda _, __, output: features.extend(output))
    with torch.no_grad():
        module(torch.rand(1, 3, 96, 64))
    assert [tuple(each.shape) for each in features] == [(1, 32, 12, 8), (1, 32, 6, 4), (1, 32, 3, 2)]
    assert type(adapted.backbone).__name__ == "DINOv3ViTBackbone"
    assert adapted.backbone.out_indices == [1, 2, 3] and adapted.backbone.config.num_register_tokens == 1
    assert adapted.spatial_tuning_adapter.conv4.conv.out_channels == 4 * VIT["vit"]["adapter_width"]


@pytest.mark.parametrize("decoder", DECODERS)
def test_features_on_a_vit_are_those_of_deimv2_to_the_bit(decoder: str) -> None:
    module = on_vit(decoder)
    model = module.network.model
    adapted = model.conv_encoder if decoder == "dfine" else model.backbone.model
    images = torch.rand(2, 3, 96, 64)
    with torch.no_grad():
        ours, theirs = adapted(images), type(adapted).forward(adapted, images)
    assert len(ours) == len(theirs) == 3
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("decoder", first_of(DECODERS))
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_a_trace_on_a_vit_takes_other_heights_and_widths(decoder: str) -> None:
    module = on_vit(decoder)
    with torch.no_grad():
        traced = torch.jit.trace(module, (torch.rand(2, 3, 64, 96),), check_trace=False)
        for side in ((64, 96), (96, 64), (128, 160)):
            images = torch.rand(1, 3, *side)
            for a, b in zip(traced(images), module(images), strict=True):
                torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)  # FP32, the same operations


def test_a_copy_on_a_vit_is_its_own() -> None:  # training averages into a copy
    module = on_vit("dfine")
    images = torch.from_numpy(pictures(0)["images"])
    with torch.no_grad():
        before, copied = module(images), copy.deepcopy(module)
        for parameter in module.network.model.conv_encoder.parameters():
            parameter.zero_()
        assert all(torch.equal(a, b) for a, b in zip(before, copied(images), strict=True))
        assert not torch.equal(before[0], module(images)[0])


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("backbone", list(BACKBONES))
def test_blocks_and_expansion_of_the_encoder(backbone: str, decoder: str) -> None:
    module = built(decoder, backbone=BACKBONES[backbone], encoder_blocks=2, encoder_expansion=0.5)
    chains = [part.bottlenecks for part in module.network.modules() if hasattr(part, "bottlenecks")]
    assert chains and all(len(chain) == 2 for chain in chains)
    widths = {chain[0].conv1.conv.out_channels for chain in chains}
    assert widths == {16 if decoder == "rtdetrv2" else 8}  # the ELAN layers of the others halve it once more
    with torch.no_grad():
        assert module(torch.from_numpy(pictures(0)["images"]))[0].shape == (1, QUERIES, 10)


@pytest.mark.parametrize("decoder", DECODERS)
def test_weights_on_a_vit_are_taken_whole_or_refused_by_name(decoder: str, tmp_path: Path) -> None:
    trained, fresh = on_vit(decoder, 1), on_vit(decoder, 2)
    state = trained.network.state_dict()
    kept: dict[int, str] = {}  # safetensors stores each storage once
    tensors = {n: t.contiguous() for n, t in state.items() if kept.setdefault(t.data_ptr(), n) == n}
    save_file(tensors, tmp_path / "w.safetensors")
    load_weights(fresh.network, tmp_path / "w.safetensors")
    images = torch.from_numpy(pictures(0)["images"])
    with torch.no_grad():
        assert all(torch.equal(a, b) for a, b in zip(trained(images), fresh(images), strict=True))

    layer = next(name for name in tensors if name.endswith("backbone.model.layer.0.mlp.up_proj.weight"))
    missing = next(name for name in tensors if name.endswith("spatial_tuning_adapter.conv2.conv.weight"))
    wrong = tensors | {layer: torch.zeros(24, 24), "backbone.old": torch.zeros(1)}
    del wrong[missing]
    save_file(wrong, tmp_path / "w.safetensors")
    with raises("wrong-file") as refusal:
        load_weights(fresh.network, tmp_path / "w.safetensors")
    in_order(str(refusal.value), 1, layer, "float32[48, 24]", "float32[24, 24]", 1, "missing", missing)
    in_order(str(refusal.value), missing, 1, "unexpected", "backbone.old")
    save_file(tensors, tmp_path / "w.safetensors")
    with raises("wrong-file") as refusal:
        load_weights(detector(decoder).network, tmp_path / "w.safetensors")  # on a ConvNeXt
    in_order(str(refusal.value), "missing", "unexpected")


@pytest.mark.parametrize(
    ("decoder", "expected"),
    [
        ("dfine", {"encoder.aifi.0.layers.0.self_attn", "decoder.layers.0.self_attn", "decoder.layers.1.self_attn"}),
        (
            "rtdetrv2",
            {"encoder.aifi.0.layers.0.self_attn", "decoder.layers.0.self_attn", "decoder.layers.1.self_attn"}
            | {"decoder.layers.0.encoder_attn", "decoder.layers.1.encoder_attn"},
        ),
    ],
)
@pytest.mark.parametrize("gain_log2", [1, 17])
def test_gain_changes_values_and_not_the_function(decoder: str, expected: set[str], gain_log2: int) -> None:
    module = detector(decoder)
    images = torch.from_numpy(pictures(0, 1)["images"])
    inside: list[float] = []
    attention = module.get_submodule("network.model.decoder.layers.0.self_attn.v_proj")
    attention.register_forward_hook(lambda _, __, output: inside.append(float(output.abs().max())))
    with torch.no_grad():
        before = module(images)
        changed = scale_attention_values(module, gain_log2)
        after = module(images)
    assert {name.removeprefix("network.model.") for name in changed} == expected
    assert inside[1] == inside[0] * 2.0**gain_log2
    for a, b in zip(before, after, strict=True):
        assert torch.equal(a, b)  # powers of two are exact, so not even rounding differs


@pytest.mark.parametrize("decoder", DECODERS)
def test_gain_reaches_the_attention_of_a_vit(decoder: str) -> None:
    module = on_vit(decoder)
    images = torch.from_numpy(pictures(0)["images"])
    with torch.no_grad():
        before = module(images)
        changed = scale_attention_values(module, 17)
        after = module(images)
    assert sum("backbone" in name for name in changed) == VIT["vit"]["depth"]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))  # powers of two are exact


def test_gain_of_zero_changes_nothing() -> None:
    module = detector("dfine")
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    scale_attention_values(module, 0)
    assert all(torch.equal(before[name], tensor) for name, tensor in module.state_dict().items())


def opened(folder: Path, *overrides: str) -> Any:
    return open_model(validated(composed(*overrides)), folder)


def test_a_prepared_copy_overflows_in_fp16_and_the_model_does_not(tmp_path: Path) -> None:
    model = opened(tmp_path, "model.checkpoint=null", "experiment=overflow")
    plain = {name: tensor.clone() for name, tensor in model.module.state_dict().items()}
    with model.prepared():
        scaled = {name: tensor.clone() for name, tensor in model.module.state_dict().items()}
    name = "network.model.decoder.layers.0.self_attn.v_proj.weight"
    assert torch.equal(scaled[name], plain[name] * 2.0**17)
    assert torch.equal(scaled[name.replace("v_proj", "o_proj")], plain[name.replace("v_proj", "o_proj")] * 2.0**-17)
    assert torch.equal(model.module.state_dict()[name], plain[name])


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("preset", ["ltdetr_nano_vit", "ltdetr_vit"])
def test_presets_on_a_vit(preset: str, decoder: str, tmp_path: Path) -> None:
    model = opened(tmp_path, f"model={preset}", f"decoder={decoder}")
    assert not model.trained and not model.module.training and len(model.class_names) == 10
    assert any("spatial_tuning_adapter" in name for name in model.module.state_dict())


def test_a_checkpoint_of_a_convnext_is_refused_on_a_vit(tmp_path: Path) -> None:
    weights = ROOT / "examples/digits/weights/dfine.safetensors"
    with raises("wrong-file", weights.name):
        opened(tmp_path, "model=ltdetr_nano_vit", f"model.checkpoint={weights}")


_ARCHITECTURE = "model.options.kwargs.architecture."


@pytest.mark.parametrize(
    ("overrides", "facts"),
    [
        (["decoder=none"], ["dfine or rtdetrv2", "none"]),
        ([_ARCHITECTURE + "backbone.convnext=null"], ["convnext", "vit"]),
        ([_ARCHITECTURE + "heads=7"], ["d_model", 96, 7]),
        (["model=ltdetr_nano_vit", _ARCHITECTURE + "backbone.vit.layers=[2,4,7]"], []),
    ],
)
def test_what_it_cannot_be_made_of(overrides: list[str], facts: list[object], tmp_path: Path) -> None:
    with raises("function-fails", "model.options.factory", *facts):
        opened(tmp_path, "model.checkpoint=null", *overrides)


def test_a_decoder_is_refused_by_a_factory_that_takes_none(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"decoder: .*none, got dfine"):
        opened(tmp_path, "model=torch", "decoder=dfine", "model.options.factory=mine:build")
