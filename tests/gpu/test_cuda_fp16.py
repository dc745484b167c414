"""The emulation beside FP16 on a GPU: torch's half modules on CUDA, and ONNX Runtime's CUDA provider."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

from tests.measuring.half_networks import NETWORKS, compared, rms
from tests.truehalf.emulation.emulation import parsed
from truehalf.emulation.sessions import EmulatedSession
from truehalf.runtime.ort import CUDA, Session

pytestmark = pytest.mark.gpu
PLAIN = [name for name in NETWORKS if "detector" not in name]  # their outputs need no matching


@pytest.fixture(autouse=True)
def _tensor_cores_add_up_in_fp32() -> None:
    import torch

    assert torch.cuda.is_available(), "there is a GPU and torch sees no CUDA device: install torch's CUDA build"
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False


@pytest.mark.parametrize("name", NETWORKS)
def test_emulation_is_as_near_to_cuda_as_addition_order_allows(name: str, tmp_path: Path) -> None:
    for row in compared(name, tmp_path, device="cuda").values():
        assert row["units_p50"] <= 1
        assert row["rms"] <= 2 * row["half_rms"]
        assert 0.5 * row["half_rms"] <= row["emulated_rms"] <= 2 * row["half_rms"]


@pytest.mark.parametrize("name", PLAIN)
def test_emulation_beside_onnx_runtime_on_cuda(name: str, tmp_path: Path) -> None:
    import torch

    network, images = NETWORKS[name]()
    path = tmp_path / "half.onnx"
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exact = network(images).numpy()
        torch.onnx.export(network.half(), (images.half(),), str(path), dynamo=False, input_names=["x"])
    session = Session(path, CUDA)
    feeds = {"x": images.half().numpy()}
    (on_cuda,), (emulated,) = session.run(feeds).values(), EmulatedSession(path).run(feeds).values()
    assert session.cpu_nodes == []
    cost = rms(on_cuda - exact)
    assert rms(emulated - on_cuda) <= 2 * cost
    assert 0.5 * cost <= rms(emulated - exact) <= 2 * cost


def test_an_overflow_is_one_on_both() -> None:
    import torch

    model = parsed(
        """g (float16[2,2] x) => (float16[2,2] y)
        <float16[1] k = {25552}, float16[1] q = {5145}, float16[2,2] unit = {15360, 0, 0, 15360}>
        { a = Mul(x, k)  b = Mul(a, q)  y = MatMul(b, unit) }"""
    )
    x = np.float16([[100, 1], [1, 100]])
    emulated = EmulatedSession(model).run({"x": x})["y"]
    on_cuda = (torch.from_numpy(x).cuda() * 1000 * 0.001) @ torch.eye(2, dtype=torch.half, device="cuda")
    np.testing.assert_array_equal(emulated, np.float32([[np.inf, np.nan], [np.nan, np.inf]]))
    np.testing.assert_array_equal(on_cuda.float().cpu().numpy(), emulated)
