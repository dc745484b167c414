"""a & b -> a * b, a | b -> a + b > 0, ~a -> 1 - a: booleans by integer arithmetic

TensorRT takes And, Or and Not in most places and refuses them in some.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def bitwise_and(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a & b.

    Args:
        a, b: bool, of shapes that broadcast.

    Returns:
        bool, the broadcast shape.

    Raises:
        TypeError: when either is no bool tensor.
    """
    return (_number(a) * _number(b)).bool()


def bitwise_or(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a | b; as bitwise_and."""
    return (_number(a) + _number(b)).bool()


def bitwise_not(a: torch.Tensor) -> torch.Tensor:
    """~a; as bitwise_and."""
    return (1 - _number(a)).bool()


def _number(a: torch.Tensor) -> torch.Tensor:
    import torch

    if a.dtype != torch.bool:
        raise TypeError(f"bitwise: expected a bool tensor, got {a.dtype}")
    return a.int()
