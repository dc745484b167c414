"""Graph inputs and outputs that become float16 though float16 does not hold what was measured of them, and inputs that
stay float32 though it was not asked for: warnings.

No node causes this, and no pin prevents it: the types of the file are float16.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import onnx_ir as ir

from truehalf.calibration.ranges_form import Ranges, TensorRange
from truehalf.conversion.rules.base import on_sample
from truehalf.conversion.rules.facts import facts_of
from truehalf.float16 import MAX
from truehalf.ir.slots import is_float32


def interface_overflows(
    model: ir.Model, ranges: Ranges | None, io_type: Callable[[str | None], ir.DataType]
) -> list[str]:
    """One line for each float32 graph input or output that becomes float16 with |x| > 65504, measured or constant.

    Args:
        model: before it is converted.
        ranges: what was measured; None: only constants are known.
        io_type: what a graph input or output becomes, by name (truehalf.conversion.ports.io_type_of).
    """
    tensors = ranges.tensors if ranges is not None else {}
    found: list[str] = []
    inputs = [("input", value) for value in model.graph.inputs]
    for kind, value in [*inputs, *(("output", value) for value in model.graph.outputs)]:
        if not is_float32(value) or io_type(value.name) != ir.DataType.FLOAT16:
            continue
        entry = tensors.get(value.name or "", TensorRange())
        absmax, sample = entry.absmax or 0.0, entry.sample
        if not value.is_graph_input() and (facts := facts_of(value)) is not None:
            absmax, sample = facts.absmax, None
        if absmax > MAX:
            reaches = f"reaches |x| = {absmax:.4g} > 65504{on_sample(sample)}"
            found.append(f"graph {kind} {value.name!r} becomes float16 but {reaches}; keep_io_types keeps it float32")
    return found


def interface_decides(
    model: ir.Model, exact: Collection[ir.Value], io_type: Callable[[str | None], ir.DataType]
) -> list[str]:
    """One line for each float32 graph input that is to become float16 and stays float32, as it is among `exact`
    (truehalf.conversion.shape_arithmetic).
    """
    return [
        f"graph input {value.name!r} stays float32, though keep_io_types does not name it: it decides a shape, an "
        "index or a trip count, which float16 rounds"
        for value in model.graph.inputs
        if value in exact and is_float32(value) and io_type(value.name) == ir.DataType.FLOAT16
    ]
