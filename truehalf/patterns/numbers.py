"""Numbers and types that do not fit: masks beyond float16, float64, and float types that meet in one node."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from truehalf.float16 import MAX
from truehalf.ir.facts import FLOATS, fed_inputs
from truehalf.ir.ops import TABLE, Trait, with_trait
from truehalf.ir.slots import schema_at
from truehalf.patterns.frame import Match, Pattern, Subject
from truehalf.patterns.origins import Origin, constant

_READERS = {name: row.scaled for name, row in TABLE.items() if row.scaled and name != "Div"}
_FLOATS = {ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.BFLOAT16}
_FILLS = with_trait(Trait.LAYOUT) | {"ConstantOfShape", "Tile"}


class MaskBeyondFp16(Pattern):
    """a mask constant beyond 65504

    `Where`, `Add`, `Sub` or `Mul` reads a finite constant beyond 65504: -1e9 or `torch.finfo(torch.float32).min` as a
    mask, `finfo.max` as a marker (anchors of RT-DETR and D-FINE at the image's border). In float16 it is inf, and inf -
    inf, 0 * inf, or a row that holds nothing else is NaN.

    Instead: -1e4 masks as well, as exp(-1e4) is 0; mark with a number below 65504. Conversion keeps FP32 around such a
    constant, unless it proves that it is a mask, and clamps it.

    ```python
    scores + (1 - valid) * -1e9
    scores + (1 - valid) * -1e4  # instead: float16 holds it, and exp(-1e4) is 0 as well
    ```

    Source: float16 ends at 65504.
    """

    id = "mask-beyond-fp16"

    def find(self, subject: Subject) -> Iterator[Match]:
        for node in subject.of_type(*_READERS):
            found = (_extreme(node.inputs[index]) for index in _READERS[node.op_type])
            extreme = next((number for number in found if number is not None), None)
            if extreme is not None:
                yield Match(
                    node,
                    f"It reads a constant of {extreme:.4g}; in float16 that is {'-' if extreme < 0 else ''}inf, and "
                    "inf - inf, 0 * inf or a row of nothing else is NaN.",
                )


def _extreme(value: ir.Value | None) -> float | None:
    """Find the finite element of a constant, or of what is filled with one, that lies furthest beyond float16."""
    while constant(value) is None:
        node = value.producer() if value is not None else None
        if node is None or node.domain != "" or node.op_type not in _FILLS:
            return None
        if node.op_type == "ConstantOfShape":
            filled = node.attributes.get("value")
            return _furthest(filled.as_tensor()) if filled is not None else None
        value = node.inputs[0]
    return _furthest(constant(value))


def _furthest(tensor: ir.TensorProtocol | None) -> float | None:
    if tensor is None or tensor.dtype not in _FLOATS:
        return None
    array = tensor.numpy()
    # of large weights both ends are finite: no copy is made of them
    ends = np.array([array.min(), array.max()], float) if array.size else np.zeros(1)
    finite = ends if np.isfinite(ends).all() else array[np.isfinite(array)].astype(float)
    extreme = float(finite[np.abs(finite).argmax()]) if finite.size else 0.0
    return extreme if abs(extreme) > MAX else None


class Float64(Pattern):
    """float64, which TensorRT computes as float32

    TensorRT has no float64: it computes in float32, and clamps what lies beyond.

    Instead: Compute in float32: x.float(), dtype=torch.float32.

    Reported where float64 begins. Constants that fold away are no finding.

    ```python
    x.double().cumsum(1).float()  # instead: x.cumsum(1), or in float64 before the engine
    ```

    Source: TensorRT's operator matrix (data types).
    """

    id = "float64"

    def find(self, subject: Subject) -> Iterator[Match]:
        for value in fed_inputs(subject.model):
            if value.dtype == ir.DataType.DOUBLE:
                yield Match(None, name=value.name or "")
        for node in subject.nodes:
            if any(subject.values.origin(value) > Origin.CONSTANT for value in node.outputs):
                read = [value for value in node.inputs if value is not None and value.dtype == ir.DataType.DOUBLE]
                begins = not read and any(value.dtype == ir.DataType.DOUBLE for value in node.outputs)
                if begins or (read and all(constant(value) is not None for value in read)):
                    yield Match(node)


class MixedFloats(Pattern):
    """float types that meet in one node

    It reads several float types where its operator takes one: TensorRT refuses it, and so does ONNX Runtime.

    Instead: Cast to one type before it: x.to(y.dtype). Export with weights and buffers of one type.

    ```python
    features.half() * self.scale  # a buffer of float32 that a conversion by hand forgot
    features.half() * self.scale.half()  # instead
    ```

    Source: the types of ONNX's operators; networks of TensorRT 11 are strongly typed.
    """

    id, severity = "mixed-floats", "error"

    def find(self, subject: Subject) -> Iterator[Match]:
        opset = subject.model.graph.opset_imports.get("", 0)
        for node in subject.nodes:
            schema = schema_at(node.op_type, opset, "") if node.domain == "" else None
            if schema is None or node.op_type in subject.plugin_ops:
                continue
            types: dict[str, set[ir.DataType]] = {}
            for index, value in enumerate(node.inputs):
                slot = schema.inputs[min(index, len(schema.inputs) - 1)]  # the last one repeats when it is variadic
                if value is not None and value.dtype in FLOATS and slot.is_homogeneous:
                    types.setdefault(slot.type_str, set()).add(value.dtype)
            if any(len(together) > 1 for together in types.values()):
                yield Match(node)


PATTERNS = (MaskBeyondFp16(), Float64(), MixedFloats())
