"""Uses of an operator that TensorRT refuses though it has the operator.

Source: the restrictions in the operator matrix of TensorRT 10.15, and what its ONNX parser refuses. What they
say of data types is not repeated here (float64 and deployment-io look at types), nor are quantized operators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import onnx_ir as ir

from truehalf.ir.facts import FLOATS, lengths_of, subgraphs, upstream
from truehalf.ir.ops import TABLE, Trait, has, row_of
from truehalf.patterns.frame import Subject, moved_from
from truehalf.patterns.origins import Origin, constant
from truehalf.patterns.support import TOPK_MAX

Refusal = tuple[str, str]  # why, and what to write instead

_EVAL, _PLAIN = "Export the model in eval mode.", "Export without it."
# By operator and attribute: the values that TensorRT takes, and what to write instead.
_TAKEN: dict[str, dict[str, tuple[set[object], str]]] = {
    "Attention": {"softcap": ({0.0}, "Write the attention out.")},
    "BatchNormalization": {"training_mode": ({0}, _EVAL)},
    "LSTM": {"input_forget": ({0}, _PLAIN), "layout": ({0}, _PLAIN)},
    "Resize": {
        "mode": ({"cubic", "linear", "nearest"}, "Use linear or nearest."),
        "coordinate_transformation_mode": (
            {"align_corners", "asymmetric", "half_pixel", "pytorch_half_pixel", "tf_half_pixel_for_nn"},
            "Use half_pixel or align_corners; crop with a slice.",
        ),
        "nearest_mode": ({"ceil", "floor", "round_prefer_ceil", "round_prefer_floor"}, "Use floor."),
        "keep_aspect_ratio_policy": ({"stretch"}, "Compute the size, and stretch to it."),
        "antialias": ({0}, "antialias=False, or resize before the engine."),
    },
    "ScatterND": {"reduction": ({"none"}, "Give each position one value, or use ScatterElements.")},
    "Upsample": {"mode": ({"bilinear", "linear", "nearest"}, "Use linear or nearest.")},
}
_FIRST_OUTPUT_ONLY = ("Attention", "BatchNormalization", "LayerNormalization", "MaxPool")
# By operator: the second input, which TensorRT wants to be a constant.
_CONSTANT = {"CumSum": "the axis", "OneHot": "the depth", "Squeeze": "the axes", "Unsqueeze": "the axes"} | {
    name: "the axes" for name in TABLE if name.startswith("Reduce")
}


def refusals(node: ir.Node, subject: Subject) -> Iterator[Refusal]:
    """Yield what TensorRT refuses in a node of the default domain."""
    op_type = node.op_type
    for name, (values, remedy) in _TAKEN.get(op_type, {}).items():
        if name in node.attributes and node.attributes[name].value not in values:
            yield f"TensorRT has no {op_type} with {name} {node.attributes[name].value!r}.", remedy
    if op_type in _FIRST_OUTPUT_ONLY and any(value.name for value in node.outputs[1:]):  # read or not
        yield f"TensorRT gives only the first output of {op_type}.", "Do without the others; leave them unnamed."
    if op_type in _CONSTANT and any(subject.values.origin(value) is not Origin.CONSTANT for value in node.inputs[1:2]):
        name = _CONSTANT[op_type]
        yield f"TensorRT wants {name} of {op_type} to be a constant.", f"Give {name} as a number."
    slots = row_of(node).sizes
    for value in [each for index, each in enumerate(node.inputs) if slots is None or index in slots]:
        yield from _size_of_float_input(value)
    if op_type in _CHECKS:
        yield from _CHECKS[op_type](node, subject)


def _size_of_float_input(size: ir.Value | None) -> Iterator[Refusal]:
    """Yield a refusal for each graph input of floats that integers which decide a size are cast from."""
    if size is None or size.dtype not in (ir.DataType.INT32, ir.DataType.INT64):
        return
    for source in upstream(size, lambda node: has(node, Trait.STAYS_A_SIZE) or node.op_type == "Cast"):
        if source.is_graph_input() and source.dtype in FLOATS:
            message = f"Its size is computed from the input {source.name!r} of {source.dtype.name.lower()}: TensorRT"
            message += " takes sizes from inputs of int32 or int64 alone, as shape tensors."
            yield message, f"Export with {source.name!r} as int64, and give its values in engine.profiles."


def _pool(node: ir.Node, subject: Subject) -> Iterator[Refusal]:
    if any(size != 1 for size in node.attributes.get_ints("dilations", ())):
        yield f"TensorRT has no {node.op_type} with dilations.", "Pool without dilation, or gather first."
    if len(node.attributes.get_ints("kernel_shape", (1, 1))) not in (2, 3) and node.op_type != "LpPool":
        yield f"TensorRT has {node.op_type} over two or three axes only.", "Unsqueeze an axis of size 1."


def _topk(node: ir.Node, subject: Subject) -> Iterator[Refusal]:
    k = subject.values.sizes(node.inputs[1]) if len(node.inputs) > 1 else None
    if k and max(k) > TOPK_MAX:
        yield f"TensorRT's TopK ends at k = {TOPK_MAX}; this one has {max(k)}.", "Take fewer, or in two steps."


def _squeeze(node: ir.Node, subject: Subject) -> Iterator[Refusal]:
    has_axes = node.attributes.get_ints("axes") is not None or (len(node.inputs) > 1 and node.inputs[1] is not None)
    varies = None in (lengths_of(node.inputs[0]) or ())
    if varies and not has_axes and any(version < (11, 5) for version in subject.versions):
        yield "TensorRT before 11.5 wants the axes of Squeeze named, where a size varies.", "squeeze(axis), or reshape."


def _grid_sample(node: ir.Node, subject: Subject) -> Iterator[Refusal]:
    lengths = lengths_of(node.inputs[0])
    if lengths is not None and len(lengths) != 4 and any(version < (11, 2) for version in subject.versions):
        yield "TensorRT before 11.2 has GridSample over images [N, C, H, W] only.", "Sample slice by slice."


def _attention(node: ir.Node, subject: Subject) -> Iterator[Refusal]:
    if node.inputs[0] is not None and node.inputs[0].dtype == ir.DataType.FLOAT:
        yield "TensorRT has no kernel of Attention in FP32.", "Convert it to FP16, and keep it out of FP32 lists."
    if any(len(lengths) != 4 for value in node.inputs[:3] if (lengths := lengths_of(value)) is not None):
        yield "TensorRT's Attention takes Q, K and V with four axes only.", "Split the heads before it."
    if any(value is not None for value in node.inputs[4:]):
        yield "TensorRT's Attention has no cache and no length input.", "Concatenate keys and values before it."


def _loop(node: ir.Node, subject: Subject) -> Iterator[Refusal]:
    """Measured on TensorRT for RTX 1.7; NVIDIA/Model-Optimizer#1628."""
    (body,) = subgraphs(node)
    trips, condition = node.inputs[:2]
    goes_on, came_in = body.outputs[0], body.inputs[1]
    if condition is None and (came_in.uses() or came_in.is_graph_output()):
        yield "TensorRT wants a condition for a Loop whose body reads it.", "Give it one that is true."
    is_stacked = len(node.outputs) > len(node.inputs) - 2
    if is_stacked and (trips is None or (moved_from(goes_on, {"Identity"}) and constant(goes_on) is None)):
        yield (
            "TensorRT stacks the results of a Loop only where it has a trip limit, and no condition ends it.",
            "Loop over a number of rounds; where a condition holds no more, let further rounds change nothing.",
        )


def _resize(node: ir.Node, subject: Subject) -> Iterator[Refusal]:
    nearest = node.attributes.get_string("nearest_mode", "round_prefer_floor")
    mode = node.attributes.get_string("coordinate_transformation_mode", "half_pixel")
    if mode == "tf_half_pixel_for_nn" and nearest != "round_prefer_floor":
        yield f"TensorRT has {mode} with round_prefer_floor only, not with {nearest!r}.", "Use half_pixel."
    if any(subject.values.origin(value) is Origin.DATA for value in node.inputs[1:]):
        message = "Its scales or sizes are computed on the device; TensorRT wants them on the host."
        yield message, "Resize to a number, or to the size of a tensor."


_CHECKS: dict[str, Callable[[ir.Node, Subject], Iterator[Refusal]]] = {
    "Attention": _attention,
    "AveragePool": _pool,
    "GridSample": _grid_sample,
    "Loop": _loop,
    "LpPool": _pool,
    "MaxPool": _pool,
    "Resize": _resize,
    "Squeeze": _squeeze,
    "TopK": _topk,
    "Upsample": _resize,
}
