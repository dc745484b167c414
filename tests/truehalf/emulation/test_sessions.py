"""Emulated runs, against torch in half precision."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser

from tests.messages import raises
from truehalf.emulation.sessions import EmulatedSession
from truehalf.runtime.ort import CPU


def saved(path: Path, text: str) -> Path:
    proto = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 17]>\n{text}')
    onnx.checker.check_model(proto, full_check=True)
    onnx.save(proto, path)
    return path


OVERFLOW = """g (float[2,2] x) => (float[2,2] y)
<float16[1] k = {25552}, float16[1] q = {5145}, float16[2,2] unit = {15360, 0, 0, 15360}>
{ h = Cast<to = 10>(x)  a = Mul(h, k)  b = Mul(a, q)  c = MatMul(b, unit)  y = Cast<to = 1>(c) }"""


def test_it_is_a_session(tmp_path: Path) -> None:
    session = EmulatedSession(saved(tmp_path / "m.onnx", OVERFLOW))
    assert session.provider == CPU
    assert np.isnan(session.run({"x": np.full((2, 2), 100, np.float32)})["y"]).all()
    assert session.run({"x": np.eye(2, dtype=np.float32)}, ["y"])["y"].dtype == np.float32


def test_half_inputs_take_both_types(tmp_path: Path) -> None:
    session = EmulatedSession(saved(tmp_path / "m.onnx", "g (float16[1] x) => (float16[1] y) { y = Add(x, x) }"))
    assert session.run({"x": np.float16([0.1])})["y"] == np.float16(0.2)
    assert session.run({"x": np.float32([0.1])})["y"] == np.float16(0.2)


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"no model")
    with raises("file-unreadable", "m.onnx"):
        EmulatedSession(tmp_path / "m.onnx")


def test_like_torch_in_half_precision(tmp_path: Path) -> None:
    """torch's CPU kernels round between operators too; inside they may split sums otherwise, so a few units differ."""
    import torch

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = torch.nn.Conv2d(3, 16, 3, stride=2, padding=1)
            self.qkv = torch.nn.Linear(16, 48)
            self.norm = torch.nn.LayerNorm(16)
            self.out = torch.nn.Linear(16, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            tokens = torch.relu(self.conv(x)).flatten(2).transpose(1, 2)
            q, k, v = self.qkv(tokens).chunk(3, dim=-1)
            weights = torch.softmax(q @ k.transpose(1, 2) * 0.25, dim=-1)
            return self.out(self.norm(tokens + weights @ v))

    torch.manual_seed(0)
    network = Network().half().eval()
    x = torch.randn(2, 3, 16, 16).half()
    path = tmp_path / "m.onnx"
    torch.onnx.export(network, (x,), str(path), dynamo=False, opset_version=17, input_names=["x"], output_names=["y"])
    with torch.no_grad():
        expected = network(x).numpy()
    actual = EmulatedSession(path).run({"x": x.numpy()})["y"]
    np.testing.assert_array_equal(actual, actual.astype(np.float16))
    unit = np.spacing(np.abs(expected).max())
    assert np.abs(actual - expected.astype(np.float32)).max() <= 4 * unit
