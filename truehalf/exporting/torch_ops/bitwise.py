"""a & b -> a * b, a | b -> a + b > 0, ~a -> 1 - a: booleans by integer arithmetic

TensorRT takes And, Or and Not in most places and refuses them in some. It has no bitwise operators of integers, and
arithmetic on whole numbers does not make them: integers are refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def bitwise_and(input: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """torch.bitwise_and(input, other) of booleans, input & other.

    Args:
        input, other: bool, of shapes that broadcast.

    Returns:
        bool, the broadcast shape.

    Raises:
        TypeError: when either is no bool tensor.
    """
    return (_number(input) * _number(other)).bool()


def bitwise_or(input: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """torch.bitwise_or(input, other) of booleans, input | other; as bitwise_and."""
    return (_number(input) + _number(other)).bool()


def bitwise_not(input: torch.Tensor) -> torch.Tensor:
    """torch.bitwise_not(input) of booleans, ~input; as bitwise_and."""
    return (1 - _number(input)).bool()


def _number(a: torch.Tensor) -> torch.Tensor:
    import torch

    if not isinstance(a, torch.Tensor) or a.dtype != torch.bool:
        given = a.dtype if isinstance(a, torch.Tensor) else f"{a!r}"
        raise TypeError(f"bitwise: expected a bool tensor, got {given}; TensorRT has no bitwise operators of integers")
    return a.int()
