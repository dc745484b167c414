"""FP16 arithmetic of a file that decides a shape, an index or a trip count: where it is rounded changes the shape.

300 * 2/3 in FP16 is 199.95, which rounds to 200. Where a kernel computes in FP32 and what follows is a Cast to an
integer, nothing rounds, and the size is 199: so ONNX Runtime's CPU provider has it, and fused kernels may. Emulation
rounds after every node. So a file with such arithmetic is run both ways, and must have the reference's shapes in both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from truehalf.codes import coded
from truehalf.errors import some_of
from truehalf.ir.facts import is_op, label_of

if TYPE_CHECKING:
    import onnx_ir as ir

_NAMED = 3  # nodes of a sentence


def float16_shape_arithmetic(model: ir.Model) -> list[str]:
    """The nodes of truehalf.conversion.shape_arithmetic that write FLOAT16, by name.

    Args:
        model: as loaded. Of an output whose type the file does not state, what a Cast makes is known.
    """
    import onnx_ir as ir

    from truehalf.conversion.shape_arithmetic import shape_arithmetic
    from truehalf.ir.inlining import InlineFunctions
    from truehalf.ir.normalize import OpsetsOfSubgraphs

    if model.functions:
        model = model.clone()
        InlineFunctions()(model)
    OpsetsOfSubgraphs()(model)
    half = ir.DataType.FLOAT16
    return [
        label_of(node)
        for node in shape_arithmetic(model).nodes
        if any(value.dtype == half for value in node.outputs)
        or (is_op(node, "Cast") and node.attributes.get_int("to") == half)
    ]


def shape_problem(
    expected: Mapping[str, np.ndarray], got: Mapping[str, np.ndarray], nodes: list[str], place: str
) -> str | None:
    """A sentence on the first output whose shape is another where nothing is rounded; None where all are the same.

    Args:
        expected: outputs of the reference.
        got: those of the file as ONNX Runtime's CPU provider runs it.
        nodes: see `float16_shape_arithmetic`.
        place: what the run is called.
    """
    for name, value in expected.items():
        if got[name].shape != value.shape:
            found = f"output {name!r}: expected shape {list(value.shape)}, got {list(got[name].shape)} on {place}"
            why = f"FP16 arithmetic decides a shape ({some_of(nodes, _NAMED)}); keep it in FP32"
            return coded("wrong-shape", f"{found}, where FP16 is not rounded between nodes: {why}")
    return None


def shapes_unknown(nodes: list[str], why: object) -> str:
    """A sentence on a file that could not be run so."""
    decided = f"FP16 arithmetic decides a shape ({some_of(nodes, _NAMED)})"
    return coded("not-searched", f"shapes where FP16 is not rounded between nodes: {decided}, and {why}")
