"""Extremes of float32 constants, from one reading in blocks that stay in the processor's cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from truehalf.conversion.rounding import release
from truehalf.ir.slots import is_float32

_BLOCK = 1 << 16  # elements


@dataclass
class ConstantFacts:
    """Extremes over the elements of a constant.

    Attributes:
        lowest, highest: smallest and largest finite w; 0 when there is none.
        neginf: whether -Inf is there.
    """

    elements: int = 0
    lowest: float = 0.0
    highest: float = 0.0
    neginf: bool = False

    @property
    def absmax(self) -> float:
        """Largest finite |w|."""
        return max(-self.lowest, self.highest)


def facts_of(value: ir.Value) -> ConstantFacts | None:
    """Facts of a float32 constant; None for other values."""
    tensor = ir.convenience.get_const_tensor(value) if is_float32(value) else None
    return None if tensor is None else constant_facts(tensor)


def constant_facts(tensor: ir.TensorProtocol) -> ConstantFacts:
    """Facts of a float32 tensor."""
    try:
        return _facts(tensor.numpy().reshape(-1))
    finally:
        release(tensor)


def _facts(array: np.ndarray[Any, Any]) -> ConstantFacts:
    facts = ConstantFacts(elements=array.size)
    lowest, highest = np.inf, -np.inf
    for start in range(0, array.size, _BLOCK):
        block = array[start : start + _BLOCK]
        with np.errstate(over="ignore", invalid="ignore"):
            is_finite = np.isfinite(block.sum())
        if not is_finite:
            facts.neginf |= bool(np.isneginf(block).any())
            block = block[np.isfinite(block)]
        if block.size:
            lowest, highest = min(lowest, float(block.min())), max(highest, float(block.max()))
    if lowest <= highest:
        facts.lowest, facts.highest = lowest, highest
    return facts
