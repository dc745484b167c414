"""atan2(y, x) = sign(y) * angle(|x|, |y|, x < 0), where the quotient never exceeds 1

a = atan(min(|x|, |y|) / max(|x|, |y|)); |y| > |x|: a -> pi/2 - a; x < 0: a -> pi - a; y < 0: a -> -a.

torch.atan2 is exported as atan(y / x) and Where by the signs: y / x overflows in FP16, and 0 / 0 at the origin is NaN.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def atan2(input: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """torch.atan2(input, other): the angle of the point (x = other, y = input), in radians, -pi to pi.

    Args:
        input, other: floats, of shapes that broadcast. Finite: an infinite one among two gives torch's angle only if
            the other is finite. NaN gives NaN.

    Returns:
        float, the broadcast shape; within a few rounding errors of torch.atan2. 0 at the origin. -0.0 counts as 0.0:
        the angle of (-1, -0.0) is pi, where torch.atan2 says -pi.

    Raises:
        TypeError: when either is no float tensor.
    """
    import torch

    y, x = input, other
    if not (y.is_floating_point() and x.is_floating_point()):
        raise TypeError(f"atan2: expected float tensors, got {y.dtype} and {x.dtype}")
    far, high = x.abs(), y.abs()
    larger, smaller = torch.maximum(far, high), torch.minimum(far, high)
    angle = torch.atan(smaller / (larger + (larger == 0).to(larger.dtype)))
    steep, left, below = (high > far).to(angle.dtype), (x < 0).to(angle.dtype), (y < 0).to(angle.dtype)
    angle = angle + steep * (math.pi / 2 - 2 * angle)
    angle = angle + left * (math.pi - 2 * angle)
    return angle * (1 - 2 * below)
