"""Numbers and types that do not fit.

mask-beyond-fp16   a float constant beyond 65504 that Where, Add, Sub or Mul reads: a mask, or a marker
int64-range        an integer constant beyond int32 that is no open end of a Slice
float64            where float64 begins: inputs, constants, and nodes that make it of something else, unless what they
                       make is a constant itself, which slim folds
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from truehalf.float16 import MAX
from truehalf.ir.facts import fed_inputs, is_op, reached, readers_of
from truehalf.ir.ops import TABLE, Trait, with_trait
from truehalf.linting.base import MOVES, Check, LocatedFinding, Rule, Subject
from truehalf.linting.sizes import constant
from truehalf.linting.values import Origin


class MaskBeyondFp16(Rule):
    """a mask constant beyond 65504

    `Where`, `Add`, `Sub` or `Mul` reads a finite constant beyond 65504: -1e9 or `torch.finfo(torch.float32).min` as a
    mask, `finfo.max` as a marker (anchors of RT-DETR and D-FINE at the image's border). In float16 it is inf, and inf -
    inf, 0 * inf, or a row that holds nothing else is NaN.

    ```python
    scores + (1 - valid) * -1e9
    scores + (1 - valid) * -1e4  # instead: float16 holds it, and exp(-1e4) is 0 as well
    ```

    The conversion keeps FP32 around such constants, unless it proves that one is a mask; then it clamps it.
    """

    id = "mask-beyond-fp16"
    source = "float16 ends at 65504"


class Int64Range(Rule):
    """an integer constant beyond int32

    An integer constant beyond int32. TensorRT 10 and 11 compute with int64; older versions, DLA and many plugins clamp
    it. Open ends of slices (2**63 - 1) are no finding.

    ```python
    key = labels * 2**33 + index  # instead: * 2**12, or two keys
    ```
    """

    id, severity = "int64-range", "info"
    source = "TensorRT before 10 clamps int64 to int32; its plugins and DLA still compute with int32"


class Float64(Rule):
    """float64, which TensorRT computes as float32

    Reported where float64 begins. TensorRT computes it in float32, and clamps what lies beyond. Constants that fold
    away are no finding.

    ```python
    x.double().cumsum(1).float()  # instead: x.cumsum(1), or in float64 before the engine
    ```
    """

    id = "float64"
    source = "TensorRT's operator matrix (data types)"


_READERS = {name: row.scaled for name, row in TABLE.items() if row.scaled and name != "Div"}
_FLOATS = {ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.BFLOAT16}
_FILLS = with_trait(Trait.LAYOUT) | {"ConstantOfShape", "Tile"}
_MOVES = MOVES | {"Concat"}
_OPEN_ENDS = with_trait(Trait.LIMITS) | {"Slice"}  # a limit that limits nothing
_INT32 = np.iinfo(np.int32)


def masks(subject: Subject) -> Iterator[LocatedFinding]:
    for node in subject.of_type(*_READERS):
        for index in _READERS[node.op_type]:
            extreme = _extreme(node.inputs[index])
            if extreme is not None:
                yield MaskBeyondFp16.at(
                    node,
                    f"It reads a constant of {extreme:.4g}; in float16 that is {'-' if extreme < 0 else ''}inf, and "
                    "inf - inf, 0 * inf or a row of nothing else is NaN.",
                    (
                        "-1e4 masks as well: exp(-1e4) is 0. Conversion keeps FP32 around such a constant, unless it "
                        "proves that it is a mask, and clamps it."
                        if extreme < 0
                        else "Mark with a number below 65504. Conversion keeps FP32 around such a constant."
                    ),
                )
                break


def _extreme(value: ir.Value | None) -> float | None:
    """The finite element of a constant, or of what is filled with one, that lies furthest beyond float16."""
    while value is not None and constant(value) is None and (node := value.producer()) is not None:
        if node.domain != "" or node.op_type not in _FILLS:
            return None
        if node.op_type == "ConstantOfShape":
            filled = node.attributes.get("value")
            return _furthest(filled.as_tensor().numpy()) if filled is not None else None
        value = node.inputs[0]
    tensor = constant(value)
    if tensor is None or tensor.dtype not in _FLOATS or tensor.size == 0:
        return None
    return _furthest(tensor.numpy())


def _furthest(array: np.ndarray) -> float | None:
    if array.dtype.kind != "f" and array.dtype.name != "bfloat16":
        return None
    low, high = float(array.min()), float(array.max())
    if np.isfinite(low) and np.isfinite(high):
        extreme = low if -low > high else high
    else:
        finite = array[np.isfinite(array)]
        extreme = float(finite[np.abs(finite).argmax()]) if finite.size else 0.0
    return extreme if abs(extreme) > MAX else None


def integers(subject: Subject) -> Iterator[LocatedFinding]:
    for node in subject.nodes:
        if _is_open_end(node):
            continue
        for value in node.inputs:
            tensor = constant(value) if value is not None and value.dtype == ir.DataType.INT64 else None
            if tensor is None or tensor.size == 0:
                continue
            array = tensor.numpy()
            if array.max() > _INT32.max or array.min() < _INT32.min:
                largest = int(array.max()) if array.max() > _INT32.max else int(array.min())
                yield Int64Range.at(
                    node,
                    f"It reads {largest}, beyond int32. TensorRT 10 and 11 compute with int64; older versions, DLA "
                    "and many plugins clamp it.",
                    "Keep integers below 2**31, for example with two keys in place of one.",
                )
                break


def _is_open_end(node: ir.Node) -> bool:
    """Whether a node takes its constants as limits, or only moves them to such nodes."""
    found = reached([node], lambda each: readers_of(each) if is_op(each, *_MOVES) else ())
    return all(is_op(each, *_OPEN_ENDS) or (is_op(each, *_MOVES) and readers_of(each)) for each in found)


def doubles(subject: Subject) -> Iterator[LocatedFinding]:
    message = "TensorRT has no float64: it computes in float32, and clamps what lies beyond."
    remedy = "Compute in float32: x.float(), dtype=torch.float32."
    for value in fed_inputs(subject.model):
        if value.dtype == ir.DataType.DOUBLE:
            yield Float64.of(value.name or "", message, remedy)
    made = {value for node in subject.nodes for value in node.outputs if value.dtype == ir.DataType.DOUBLE}
    for node in subject.nodes:
        doubles_read = [value for value in node.inputs if value is not None and value.dtype == ir.DataType.DOUBLE]
        begins = any(value in made for value in node.outputs) and not doubles_read and node.op_type != "Constant"
        constants = [value for value in doubles_read if constant(value) is not None]
        if not (begins or (constants and len(constants) == len(doubles_read))):
            continue
        if any(subject.values.origin(value) > Origin.CONSTANT for value in node.outputs):
            yield Float64.at(node, message, remedy)


RULES: tuple[type[Rule], ...] = (MaskBeyondFp16, Int64Range, Float64)
CHECKS: tuple[Check, ...] = (masks, integers, doubles)
