"""Statistics of float32 constants for the rules, from one reading in blocks that stay in the processor's cache."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from truehalf.float16 import INTEGERS_MAX
from truehalf.ir.slots import is_float32

_BLOCK = 1 << 16  # elements
_LOOK = 64  # elements; most constants that are no integers show it among these


@dataclass
class ConstantFacts:
    """Counts and extremes over the elements of a constant.

    Attributes:
        absmax, lowest, highest: largest |w|, smallest and largest w, over the finite elements; 0 when there are none.
        neginf: whether -Inf is there.
        integers_changed: all elements are integers, and float16 holds not all of them.
    """

    elements: int = 0
    absmax: float = 0.0
    lowest: float = 0.0
    highest: float = 0.0
    neginf: bool = False
    integers_changed: bool = False


def facts_of(value: ir.Value) -> ConstantFacts | None:
    """Facts of a float32 constant; None for other values."""
    tensor = ir.convenience.get_const_tensor(value) if is_float32(value) else None
    return None if tensor is None else constant_facts(tensor)


def constant_facts(tensor: ir.TensorProtocol) -> ConstantFacts:
    """Facts of a float32 tensor. A mapped file is let go again afterwards, so that weights do not pile up."""
    array = tensor.numpy().reshape(-1)
    try:
        return _facts(array)
    finally:
        del array
        if isinstance(tensor, ir.ExternalTensor):
            with contextlib.suppress(BufferError):  # another reference still holds the mapped array
                tensor.release()


def _facts(array: np.ndarray[Any, Any]) -> ConstantFacts:
    facts = ConstantFacts(elements=array.size, lowest=np.inf, highest=-np.inf)
    integers, changed = array.size > 0, False
    magnitudes = np.empty(min(_BLOCK, array.size), np.float32)
    for start in range(0, array.size, _BLOCK):
        block = array[start : start + _BLOCK]
        size = np.abs(block, out=magnitudes[: block.size])
        largest, smallest, highest = float(size.max()), float(block.min()), float(block.max())
        if not np.isfinite(largest):
            facts.neginf |= bool(np.isneginf(block).any())
            kept = block[np.isfinite(block)]
            largest = float(np.abs(kept).max()) if kept.size else 0.0
            smallest, highest = (float(kept.min()), float(kept.max())) if kept.size else (np.inf, -np.inf)
            integers = False
        facts.absmax, facts.lowest = max(facts.absmax, largest), min(facts.lowest, smallest)
        facts.highest = max(facts.highest, highest)
        integers = integers and _are_integers(block)
        if integers and largest > INTEGERS_MAX and not changed:
            with np.errstate(over="ignore"):
                changed = bool((block.astype(np.float16) != block).any())
    if facts.lowest > facts.highest:
        facts.lowest = facts.highest = 0.0
    facts.integers_changed = integers and changed
    return facts


def _are_integers(block: np.ndarray[Any, Any]) -> bool:
    return all(bool((part == np.rint(part)).all()) for part in (block[:_LOOK], block) if part.size)
