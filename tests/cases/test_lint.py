"""Files that TensorRT refuses or runs slowly, and what `truehalf lint` says of them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.cases.doors import parsed, saved, truehalf
from tests.messages import expect

BODY = """s, y = Loop ({trips}, {condition}, x) <body = b (int64 i, bool c_in, float[1,4,8,8] s_in)
    => (bool c_out, float[1,4,8,8] s_out, float[1,4,8,8] stacked) <float one = {{1.0}}> {{
        s_out = Add(s_in, one) stacked = Identity(s_out) {end} }}>"""
ON = "c_out = Identity(c_in)"
UNTIL = "m = ReduceMax<keepdims=0>(s_out) c_out = Less(m, limit)"
LOOPS = {
    "no condition": BODY.format(trips="t", condition="", end=ON),
    "no trip limit": BODY.format(
        trips="", condition="c", end="m = ReduceMax<keepdims=0>(s_out) c_out = Less(m, limit)"
    ),
}


def _loop(body: str) -> str:
    weights = "<int64 t = {3}, bool c = {1}, float limit = {5.0}>"
    return f"g (float[1,4,8,8] x) => (float[k,1,4,8,8] y) {weights} {{ {body} }}"


@pytest.mark.parametrize("loop", LOOPS)
def test_a_loop_that_the_parser_refuses_is_found(tmp_path: Path, loop: str) -> None:
    """Model-Optimizer 1628; ONNX allows both, TensorRT's parser neither."""
    code, _ = truehalf("lint", saved(tmp_path / "m.onnx", parsed(_loop(LOOPS[loop]))))
    assert code == 1


def test_a_loop_with_both_is_no_error(tmp_path: Path) -> None:
    model = parsed(_loop(BODY.format(trips="t", condition="c", end=ON)))
    assert truehalf("lint", saved(tmp_path / "m.onnx", model))[0] == 0


class Resizes(nn.Module):
    """SAM's ONNX decoder (samexporter 31) takes the image's size as a float32 input."""

    def forward(self, masks: torch.Tensor, orig_im_size: torch.Tensor) -> torch.Tensor:
        size = orig_im_size.to(torch.int64)
        return functional.interpolate(masks, size=(size[0], size[1]), mode="bilinear", align_corners=False)


def test_a_float_input_that_decides_a_size_is_named(tmp_path: Path) -> None:
    torch.onnx.export(
        Resizes(),
        (torch.randn(1, 4, 64, 64), torch.tensor([300.0, 451.0])),
        str(tmp_path / "m.onnx"),
        dynamo=False,
        opset_version=17,
        input_names=["masks", "orig_im_size"],
        output_names=["out"],
    )
    code, printed = truehalf("lint", tmp_path / "m.onnx")
    assert code == 1
    expect(printed, None, "orig_im_size", "int64")


class Rotated(nn.Module):
    """A half transformer whose rotary embedding leaves q and k in float32 (stable-audio-3 79)."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.width = width
        self.before, self.after = nn.Linear(16, width), nn.Linear(width, 16)
        self.qkv, self.norm = nn.Linear(width, 3 * width), nn.LayerNorm(width)
        inverse = 10000 ** (-torch.arange(0, width // 2, 2) / (width // 2))
        angle = (torch.arange(128)[:, None] * inverse[None]).repeat(1, 2)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.LayerNorm):
                module.half()

    def rotated(self, x: torch.Tensor) -> torch.Tensor:
        first, second = x.float().chunk(2, -1)
        return x.float() * self.cos + torch.cat((-second, first), -1) * self.sin

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.before(x.half())
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm(x)).view(batch, length, 3, 2, width // 2).permute(2, 0, 3, 1, 4)
        scores = self.rotated(q) @ self.rotated(k).transpose(-1, -2) * (width // 2) ** -0.5
        mixed = (scores.softmax(-1) @ v.float()).half().transpose(1, 2).reshape(batch, length, width)
        return self.after(x + mixed).float()


def _findings(path: Path) -> list[str]:
    _, printed = truehalf("lint", path, "--quiet")
    return [word for word in printed.split() if word.isdigit()][:2]


def test_a_raw_export_has_the_findings_of_its_folded_twin(tmp_path: Path) -> None:
    raw, folded = tmp_path / "raw.onnx", tmp_path / "folded.onnx"
    torch.onnx.export(
        Rotated().eval(),
        (torch.randn(1, 128, 16),),
        str(raw),
        dynamo=False,
        opset_version=17,
        input_names=["x"],
        output_names=["y"],
        dynamic_axes={"x": {0: "n"}},
    )
    truehalf("repair", raw, "-o", folded)
    assert _findings(raw) == _findings(folded)
    islands = [line for line in truehalf("inspect", raw)[1].splitlines() if "island" in line]
    assert islands
