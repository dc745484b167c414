"""FP16 arithmetic of a file that decides a shape, an index or a trip count: where it is rounded changes the shape.

300 * 2/3 in FP16 is 199.95, which rounds to 200. Where a kernel computes in FP32 and what follows is a Cast to an
integer, nothing rounds, and the size is 199: so ONNX Runtime's CPU provider has it, and fused kernels may. Emulation
rounds after every node. So a file with such arithmetic is run both ways, and must have the reference's shapes in both.
How much of data NonZero and its like leave is a choice of near ties, wherever it is rounded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from truehalf.codes import coded
from truehalf.conversion.shape_arithmetic import shape_arithmetic
from truehalf.errors import some_of
from truehalf.ir.facts import is_op, label_of
from truehalf.ir.inlining import InlineFunctions
from truehalf.ir.normalize import OpsetsOfSubgraphs

_NAMED = 3  # nodes of a sentence


def float16_shape_arithmetic(model: ir.Model) -> list[str]:
    """List the nodes of truehalf.conversion.shape_arithmetic that write FLOAT16, by name.

    Args:
        model: as loaded. Of an output whose type the file does not state, what a Cast makes is known.
    """
    if model.functions:
        model = model.clone()
        InlineFunctions()(model)
    OpsetsOfSubgraphs()(model)
    half = ir.DataType.FLOAT16
    return [
        label_of(node)
        for node in shape_arithmetic(model, of_data=False).nodes
        if any(value.dtype == half for value in node.outputs)
        or (is_op(node, "Cast") and node.attributes.get_int("to") == half)
    ]


def shape_problem(
    expected: Mapping[str, np.ndarray],
    got: Mapping[str, np.ndarray],
    rounded: Mapping[str, np.ndarray],
    nodes: Sequence[str],
    place: str,
) -> str | None:
    """Say which output has another shape where nothing is rounded; None where all have the reference's, or the same one
    where FP16 is rounded, too: then it is said there.

    Args:
        expected: outputs of the reference.
        got: those of the file as ONNX Runtime's CPU provider runs it.
        rounded: those of the file where FP16 is rounded between nodes; what is missing there has no shape.
        nodes: see float16_shape_arithmetic.
        place: what the run is called.
    """
    for name, value in expected.items():
        differs = name not in rounded or rounded[name].shape != got[name].shape
        if got[name].shape != value.shape and differs:
            said = f"output {name!r}: expected shape {list(value.shape)}, got {list(got[name].shape)} on {place}"
            return coded("wrong-shape", f"{said}, where FP16 is not rounded between nodes: {_decided(nodes)}")
    return None


def shapes_unknown(nodes: Sequence[str], why: object) -> str:
    """Say that a file could not be run without rounding."""
    return coded("not-searched", f"shapes where FP16 is not rounded between nodes: {_decided(nodes)}, and {why}")


def _decided(nodes: Sequence[str]) -> str:
    return f"FP16 arithmetic decides a shape ({some_of(nodes, _NAMED)}); keep it in FP32"
