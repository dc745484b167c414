"""Attention gain: other ranges inside, the same function."""

from __future__ import annotations

import pytest
import torch

from stages.models.ltdetr import scale_attention_values
from tests.stages.models.detectors import detector, pictures


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


def test_gain_of_zero_changes_nothing() -> None:
    module = detector("dfine")
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    scale_attention_values(module, 0)
    assert all(torch.equal(before[name], tensor) for name, tensor in module.state_dict().items())
