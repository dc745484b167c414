"""FP16 arithmetic of a file that decides a shape, an index or a trip count: where it is rounded changes the shape.

300 * 2/3 in FP16 is 199.95, which rounds to 200. Where a kernel computes in FP32 and what follows is a Cast to an
integer, nothing rounds, and the size is 199: so ONNX Runtime's CPU provider has it, and fused kernels may. Emulation
rounds after every node. So a file with such arithmetic is run both ways, and must have the reference's shapes in both.
How much of data NonZero and its like leave is a choice of near ties, wherever it is rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from truehalf.codes import coded
from truehalf.conversion.shape_arithmetic import ShapeArithmetic, shape_arithmetic
from truehalf.errors import some_of
from truehalf.float16 import LOST
from truehalf.ir.facts import constant_of, is_op, label_of
from truehalf.ir.inlining import InlineFunctions
from truehalf.ir.normalize import OpsetsOfSubgraphs

_NAMED = 3  # nodes or numbers of a sentence
_STEP = 2.0**-10  # of a number, to the next one in FP16 at most


def float16_shape_arithmetic(model: ir.Model) -> list[str]:
    """The nodes of truehalf.conversion.shape_arithmetic that write FLOAT16, by name.

    Args:
        model: as loaded. Of an output whose type the file does not state, what a Cast makes is known.
    """
    half = ir.DataType.FLOAT16
    return [
        label_of(node)
        for node in _region(model).nodes
        if any(value.dtype == half for value in node.outputs)
        or (is_op(node, "Cast") and node.attributes.get_int("to") == half)
    ]


def _region(model: ir.Model) -> ShapeArithmetic:
    if model.functions:
        model = model.clone()
        InlineFunctions()(model)
    OpsetsOfSubgraphs()(model)
    return shape_arithmetic(model, of_data=False)


@dataclass(frozen=True)
class Causes:
    """What another shape may come of, of a file beside its reference.

    Attributes:
        nodes: see `float16_shape_arithmetic`.
        changed: a constant that decides a shape and is another number in the reference, as a sentence; None: none that
            has the same name there.
        inexact: a number that decides a shape is rounded to FP16 in the file; unknown without a reference, so True.
    """

    nodes: list[str]
    changed: str | None = None
    inexact: bool = True

    def of(self, is_rounding: bool) -> str | None:
        """Why a shape is another, as the end of a sentence; None where neither FP16 nor a constant says it.

        Args:
            is_rounding: whether it is a third one, or right, where FP16 is rounded between nodes.
        """
        if self.changed is None and (is_rounding or self.inexact):
            where = "where FP16 is not rounded between nodes"
            return f", {where}: FP16 arithmetic decides a shape ({some_of(self.nodes, _NAMED)}); keep it in FP32"
        return None if self.changed is None else f": {self.changed}"


def causes(nodes: list[str], model: ir.Model, reference: ir.Model | None) -> Causes:
    """See `Causes`.

    Args:
        model: the file, as loaded.
        reference: as loaded; None: there is none to compare constants with.
    """
    if reference is None:
        return Causes(nodes)
    theirs, changed, inexact = _deciding_constants(reference), None, False
    for name, array in _deciding_constants(model).items():
        same = [theirs[name]] if name in theirs else [each for each in theirs.values() if _is_rounded(each, array)]
        if name in theirs and not _is_rounded(theirs[name], array):
            told = (
                f"constant {name!r}, which decides it, is {_shown(array)}, and {_shown(theirs[name])} in the reference"
            )
            changed = changed or told
        inexact |= array.dtype == np.float16 and any(not np.array_equal(each, array) for each in same)
    return Causes(nodes, changed, inexact)


def _deciding_constants(model: ir.Model) -> dict[str, np.ndarray]:
    found = {str(value.name): constant_of(value) for value in _region(model).values}
    return {name: array for name, array in found.items() if array is not None}


def _is_rounded(exact: np.ndarray, array: np.ndarray) -> bool:
    """Whether an array is another one, perhaps rounded to FP16, in whichever way."""
    if exact.shape != array.shape or array.dtype.kind != "f" or exact.dtype.kind != "f":
        return np.array_equal(exact, array)
    step = np.maximum(np.abs(exact.astype(np.float64)) * _STEP, LOST)
    return bool((np.abs(exact.astype(np.float64) - array) <= step).all())


def _shown(array: np.ndarray) -> str:
    listed = [f"{number:.6g}" for number in array.reshape(-1)[:_NAMED]]
    more = ", ..." if array.size > _NAMED else ""
    return f"[{', '.join(listed)}{more}]" if array.ndim else listed[0]


def shape_problem(
    expected: Mapping[str, np.ndarray],
    got: Mapping[str, np.ndarray],
    rounded: Mapping[str, np.ndarray],
    found: Callable[[], Causes],
    place: str,
) -> str | None:
    """A sentence on the first output whose shape is another where nothing is rounded; None where all are the same, or
    neither FP16 nor a constant explains it: then it is the same where FP16 is rounded, which is said there.

    Args:
        expected: outputs of the reference.
        got: those of the file as ONNX Runtime's CPU provider runs it.
        rounded: those of the file where FP16 is rounded between nodes; what is missing there has no shape.
        found: called where a shape is another.
        place: what the run is called.
    """
    for name, value in expected.items():
        if got[name].shape != value.shape:
            why = found().of(name not in rounded or rounded[name].shape != got[name].shape)
            said = f"output {name!r}: expected shape {list(value.shape)}, got {list(got[name].shape)} on {place}"
            if why is not None:
                return coded("wrong-shape", f"{said}{why}")
    return None


def shapes_unknown(nodes: list[str], why: object) -> str:
    """A sentence on a file that could not be run so."""
    decided = f"FP16 arithmetic decides a shape ({some_of(nodes, _NAMED)})"
    return coded("not-searched", f"shapes where FP16 is not rounded between nodes: {decided}, and {why}")
