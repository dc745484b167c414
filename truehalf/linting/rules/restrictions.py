"""Uses of an operator that TensorRT refuses though it has the operator.

Source: the restrictions in the operator matrix of TensorRT 10.15, and what its ONNX parser refuses. What they
say of data types is not repeated here (float64 and deployment-io look at types), nor are quantized operators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import onnx_ir as ir

from truehalf.ir.ops import TABLE
from truehalf.linting.sizes import constant
from truehalf.linting.support import TOPK_MAX
from truehalf.linting.values import Origin

if TYPE_CHECKING:
    from truehalf.linting.base import Subject

Refusal = tuple[str, str]  # why, and what to write instead

_CAST_TO = {
    ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.DOUBLE, ir.DataType.INT32,
    ir.DataType.INT64, ir.DataType.UINT8, ir.DataType.BOOL, ir.DataType.INT8, ir.DataType.FLOAT8E4M3FN,
    ir.DataType.INT4, ir.DataType.FLOAT4E2M1,
}  # fmt: skip


def refusals(node: ir.Node, subject: Subject) -> Iterator[Refusal]:
    """What TensorRT refuses in a node of the default domain."""
    for check in _CHECKS.get(node.op_type, ()):
        yield from check(node, subject)


def _first_output_only(node: ir.Node, subject: Subject) -> Iterator[Refusal]:
    if any(value.name for value in node.outputs[1:]):  # its parser refuses the names, read or not
        yield f"TensorRT gives only the first output of {node.op_type}.", "Do without the others; leave them unnamed."


def _no_dilations(node: ir.Node, subject: Subject) -> Iterator[Refusal]:
    if any(size != 1 for size in node.attributes.get_ints("dilations", ())):
        yield f"TensorRT has no {node.op_type} with dilations.", "Pool without dilation, or gather first."


def _pools_two_or_three(node: ir.Node, subject: Subject) -> Iterator[Refusal]:
    if len(node.attributes.get_ints("kernel_shape", (1, 1))) not in (2, 3):
        yield f"TensorRT has {node.op_type} over two or three axes only.", "Unsqueeze an axis of size 1."


def _topk(node: ir.Node, subject: Subject) -> Iterator[Refusal]:
    k = subject.values.sizes(node.inputs[1]) if len(node.inputs) > 1 else None
    if k and max(k) > TOPK_MAX:
        yield f"TensorRT's TopK ends at k = {TOPK_MAX}; this one has {max(k)}.", "Take fewer, or in two steps."


def _squeeze(node: ir.Node, subject: Subject) -> Iterator[Refusal]:
    given = node.attributes.get_ints("axes") is not None or (len(node.inputs) > 1 and node.inputs[1] is not None)
    shape = node.inputs[0].shape if node.inputs[0] is not None else None
    varies = shape is not None and any(not isinstance(dim, int) for dim in shape)
    if varies and not given and any(version < (11, 5) for version in subject.versions):
        yield "TensorRT before 11.5 wants the axes of Squeeze named, where a size varies.", "squeeze(axis), or reshape."


def _constant_second(name: str) -> Callable[[ir.Node, Subject], Iterator[Refusal]]:
    """Of a second input, which TensorRT wants to be a constant."""

    def check(node: ir.Node, subject: Subject) -> Iterator[Refusal]:
        if any(subject.values.origin(value) is not Origin.CONSTANT for value in node.inputs[1:2]):
            yield f"TensorRT wants {name} of {node.op_type} to be a constant.", f"Give {name} as a number."

    return check


def _attribute(name: str, allowed: object, why: str, remedy: str) -> Callable[[ir.Node, Subject], Iterator[Refusal]]:
    """Of an attribute that TensorRT takes with one value only."""

    def check(node: ir.Node, subject: Subject) -> Iterator[Refusal]:
        if node.attributes.get(name) is not None and node.attributes[name].value != allowed:
            yield why, remedy

    return check


def _drops_in_training(node: ir.Node, subject: Subject) -> Iterator[Refusal]:
    flag = constant(node.inputs[2]) if len(node.inputs) > 2 else None
    if flag is not None and bool(flag.numpy().any()):
        yield "Dropout in training mode.", "Export the model in eval mode."


def _cast(node: ir.Node, subject: Subject) -> Iterator[Refusal]:
    to = ir.DataType(node.attributes.get_int("to", 1))
    if to not in _CAST_TO:
        yield f"TensorRT has no type {to.name}.", "Use int32, int64 or float32."


def _grid_axes(node: ir.Node, subject: Subject) -> Iterator[Refusal]:
    shape = node.inputs[0].shape if node.inputs[0] is not None else None
    if shape is not None and len(shape) != 4 and any(version < (11, 2) for version in subject.versions):
        yield "TensorRT before 11.2 has GridSample over images [N, C, H, W] only.", "Sample slice by slice."


def _strings(node: ir.Node, subject: Subject) -> Iterator[Refusal]:
    if any(key in node.attributes for key in ("sparse_value", "value_string", "value_strings")):
        yield "TensorRT has neither sparse nor text constants.", "Use a dense tensor of numbers."


def _equation(node: ir.Node, subject: Subject) -> Iterator[Refusal]:
    equation = node.attributes.get_string("equation", "") or ""
    if any(letter.isupper() for letter in equation):
        yield f"TensorRT's Einsum takes small letters only, not {equation!r}.", "Use small letters."


def _attention(node: ir.Node, subject: Subject) -> Iterator[Refusal]:
    shapes = [value.shape for value in node.inputs[:3] if value is not None and value.shape is not None]
    if any(len(shape) != 4 for shape in shapes):
        yield "TensorRT's Attention takes Q, K and V with four axes only.", "Split the heads before it."
    if any(value is not None for value in node.inputs[4:]):
        yield "TensorRT's Attention has no cache and no length input.", "Concatenate keys and values before it."


_LSTM = ("TensorRT's LSTM has neither input_forget nor layout.", "Export without them.")
_TRAINING = ("BatchNormalization in training mode.", "Export the model in eval mode.")
_SUMS = ("TensorRT has ScatterND without a reduction only.", "Give each position one value, or use ScatterElements.")
_POOL = (_no_dilations, _pools_two_or_three)
_CHECKS: dict[str, tuple[Callable[[ir.Node, Subject], Iterator[Refusal]], ...]] = {
    "Attention": (
        _attention,
        _attribute("softcap", 0.0, "TensorRT's Attention has no softcap.", "Write the attention out."),
        _first_output_only,
    ),
    "AveragePool": _POOL,
    "BatchNormalization": (_attribute("training_mode", 0, *_TRAINING), _first_output_only),
    "Cast": (_cast,),
    "Constant": (_strings,),
    "CumSum": (_constant_second("the axis"),),
    "Dropout": (_drops_in_training,),
    "Einsum": (_equation,),
    "GridSample": (_grid_axes,),
    "LSTM": (_attribute("input_forget", 0, *_LSTM), _attribute("layout", 0, *_LSTM)),
    "LayerNormalization": (_first_output_only,),
    "LpPool": (_no_dilations,),
    "MaxPool": (*_POOL, _first_output_only),
    "OneHot": (_constant_second("the depth"),),
    "ScatterND": (_attribute("reduction", "none", *_SUMS),),
    "Squeeze": (_squeeze, _constant_second("the axes")),
    "TopK": (_topk,),
    "Unsqueeze": (_constant_second("the axes"),),
    **{name: (_constant_second("the axes"),) for name in TABLE if name.startswith("Reduce")},
}
