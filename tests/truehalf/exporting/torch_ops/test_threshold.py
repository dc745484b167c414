from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.messages import raises
from tests.truehalf.exporting.torch_ops.exports import EXPORTERS, check_export
from truehalf.exporting.torch_ops import threshold_topk


@pytest.mark.parametrize("threshold", [-1.0, 0.3, 0.5, 2.0])
def test_finds_what_exceeds_the_threshold(threshold: float) -> None:
    scores = torch.rand(12, generator=torch.Generator().manual_seed(0))
    values, index, kept = threshold_topk(scores, threshold, 12)
    expected = scores[scores > threshold].sort(descending=True).values
    assert torch.equal(values[kept], expected)
    assert torch.equal(scores[index[kept]], expected)


def test_of_more_the_best() -> None:
    scores = torch.tensor([[0.9, 0.8, 0.7, 0.1], [0.0, 0.2, 0.6, 0.0]])
    values, index, kept = threshold_topk(scores, 0.5, 2)
    assert index.tolist() == [[0, 1], [2, 1]]
    assert kept.tolist() == [[True, True], [True, False]]
    assert torch.equal(values, scores.gather(1, index))


@pytest.mark.parametrize("k", [0, 3841])
def test_refusals(k: int) -> None:
    with raises(None, "threshold_topk", "k", 1, 3840, k, error=ValueError):
        threshold_topk(torch.rand(5000), 0.5, k)


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_exports(exporter: tuple[str, int], tmp_path: Path) -> None:
    def pooled(scores: torch.Tensor, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        _, index, kept = threshold_topk(scores, 0.5, 4)
        return index, (features.index_select(0, index) * kept.to(features.dtype)[:, None]).sum(0)

    axes = (
        {"a": {0: "n"}, "b": {0: "n"}} if exporter[0] == "torchscript" else {}
    )  # dynamo: n would have to be 4 at least
    examples = [(torch.rand(n), torch.randn(n, 3)) for n in ((7, 9) if axes else (7, 7))]
    # torch and ONNX Runtime add four numbers in another order
    check_export(pooled, examples, axes, exporter, tmp_path, tolerance=1e-6)
