from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from tests.messages import raises
from tests.truehalf.exporting.torch_ops.exports import EXPORTERS, check_export
from truehalf.exporting.torch_ops import atan2

ROUNDING = 5e-7  # a few units in the last place of pi in float32


def test_equals_torch_in_all_quadrants_and_on_the_axes() -> None:
    side = torch.tensor([-2.0, -1.0, -1e-3, 0.0, 1e-3, 1.0, 2.0])
    y, x = torch.meshgrid(side, side, indexing="ij")
    torch.testing.assert_close(atan2(y, x), torch.atan2(y, x), rtol=0, atol=ROUNDING)
    assert atan2(y, x)[3, 3] == 0.0, "the origin"


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e20, 3e38])
def test_equals_torch_at_every_scale(scale: float) -> None:
    angle = torch.linspace(-math.pi, math.pi, 721)
    y, x = scale * angle.sin(), scale * angle.cos()
    torch.testing.assert_close(atan2(y, x), torch.atan2(y, x), rtol=0, atol=ROUNDING)


def test_stays_finite_in_half_precision_where_a_quotient_would_not() -> None:
    y, x = torch.tensor([1.0, 1.0, -1.0]).half(), torch.tensor([1e-6, -1e-6, 0.0]).half()
    torch.testing.assert_close(atan2(y, x), torch.atan2(y, x), rtol=0, atol=2e-3)  # half's steps at pi/2 are 1e-3


def test_signs_of_zero_and_nan_and_infinity() -> None:
    zero, one = torch.tensor([0.0, -0.0]), torch.tensor([-1.0, -1.0])
    assert atan2(zero, one).tolist() == pytest.approx([math.pi, math.pi]), "-0.0 counts as 0.0"
    nan = torch.tensor([math.nan, 1.0]), torch.tensor([1.0, math.nan])
    assert atan2(*nan).isnan().all()
    infinite = torch.tensor([math.inf, 1.0]), torch.tensor([1.0, -math.inf])
    torch.testing.assert_close(atan2(*infinite), torch.atan2(*infinite))


def test_broadcasts_and_keeps_the_type() -> None:
    y, x = torch.randn(3, 1, dtype=torch.float64), torch.randn(4, dtype=torch.float64)
    assert atan2(y, x).dtype == torch.float64
    torch.testing.assert_close(atan2(y, x), torch.atan2(y, x))
    with raises(None, "atan2", "torch.int64", "torch.float32", error=TypeError):
        atan2(torch.tensor([1]), torch.tensor([1.0]))


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_exports(exporter: tuple[str, int], tmp_path: Path) -> None:
    points = [(torch.randn(n, 4), torch.randn(n, 4)) for n in (3, 5)]
    points[1][0][0] = points[1][1][0] = 0.0
    check_export(atan2, points, {"a": {0: "n"}, "b": {0: "n"}}, exporter, tmp_path, tolerance=ROUNDING)
