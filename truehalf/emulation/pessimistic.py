"""FP16 graph -> FP16 graph whose FP16 sums are explicit: what an engine does that accumulates in FP16.

`emulate` rounds once per node. On the result of `split_sums` it rounds inside nodes, too, with s(x) = the sum of x in
blocks of 128 terms, each block rounded, and added up in FP16 one after the other (truehalf.emulation.half_nodes):

    Sum, Mean                        a + b + c + ..., divided by the number of inputs
    ReduceMean, GlobalAveragePool    s(x) / n                  ReduceSum              s(x)
    ReduceSumSquare, ReduceL2        s(x * x), its Sqrt
    AveragePool                      sum of the window (one rounding), divided by its number of terms
    CumSum                           term by term, as in each evaluation (truehalf.emulation.cumulative_sums)
    Attention, Softmax, LogSoftmax   the nodes that ONNX defines them by, their products and sums as here: logits beyond
                                     FP16's largest are Inf
    Layer-, Instance-, Group-,       d = x - s(x) / n, v = s(d * d) / n:  d * (1 / Sqrt(v + epsilon)) * scale + bias
      RMSNormalization               (RMS: d = x)
    MatMul, Gemm, Conv,              blocks along the axis that is added up (truehalf.emulation.split_products)
      ConvTranspose, Einsum

each operation above being a node, so rounded. Types that a node states for its inside (stash_type) are overruled:
engines have overruled them.

What this bounds, and what it does not:

    a sum without negative terms     (|x|, Exp, squares as in a variance) no partial sum exceeds the whole in exact
                                     arithmetic, so in whatever order and blocks an engine adds, it can overflow only
                                     where this does, but for sums so near 65504 that roundings decide: those of n terms
                                     along an axis move the sum by at most n / 8 + 32 here, those of an engine by what
                                     it rounds.
    a sum of terms of both signs     (products, convolutions, mean) it is Inf here when a block, or a partial sum of
                                     blocks from first to last, exceeds 65504. An engine that adds in another order can
                                     have a larger partial sum: no bound on every order.
    rounding                         an estimate: blocks of 128 in this order lose about what an FP16 accumulator after
                                     FP32 dot products loses. Adding every single term in FP16 loses more, a tree less.

A sum of at most 128 terms is one block: a MatMul, Gemm, Conv, ConvTranspose or Einsum as short as that stays as it is.
FP32 nodes, and nodes whose output is not FLOAT16, stay as they are. What else accumulates or multiplies elements inside
(RNN, GRU, LSTM, LRN, LpNormalization, LpPool, other Reduce operators, interpolation, scattering with a reduction),
and what has not been judged, stays, too, and is listed.
Other functions of one element (Gelu, Sigmoid, ...) are computed inside as `emulate` does: they accumulate no elements.
"""

from __future__ import annotations

from typing import Any

import onnx
import onnx_ir as ir
from onnx_ir.passes.common import InlinePass

from truehalf.emulation.cumulative_sums import RULES
from truehalf.emulation.half_nodes import NOT_SPLIT, OPSET, Rule, is_half, raise_for_rules, split
from truehalf.emulation.split_normalizations import group_normalization, instance_normalization, layer_normalization
from truehalf.emulation.split_products import product
from truehalf.emulation.split_reductions import add, average_pool, global_average_pool, reduce
from truehalf.ir.facts import all_nodes, is_op, label_of
from truehalf.ir.normalize import InferTypes, Names
from truehalf.ir.ops import TABLE, adds_up

_DEFINED = "truehalf.defined"  # domain of functions that take the place of nodes
_BY_ONNX = ("Attention", "LogSoftmax", "Softmax")  # whose definition is FLOAT16 where they are


_RULES: dict[str, Rule] = {
    **dict.fromkeys(("Sum", "Mean"), add),
    **dict.fromkeys(("ReduceL2", "ReduceMean", "ReduceSum", "ReduceSumSquare"), reduce),
    "GlobalAveragePool": global_average_pool,
    "AveragePool": average_pool,
    **RULES,
    "LayerNormalization": layer_normalization,
    "RMSNormalization": layer_normalization,
    "InstanceNormalization": instance_normalization,
    "GroupNormalization": group_normalization,
    **dict.fromkeys(("MatMul", "Gemm", "Conv", "ConvTranspose", "Einsum"), product),
}


def split_sums(model: ir.Model) -> ir.Model:
    """The graph with explicit sums; `model` itself is left as it is.

    Values keep their names, inputs and outputs their types and order.

    Returns:
        The new graph. Its `meta["not_split"]` maps the FP16 nodes with sums that were left as they are, or were not cut
        into blocks everywhere, to the reason, in graph order; nodes without a name go by "<OpType> -> <first output>".
    """
    explicit = model.clone()
    InferTypes()(explicit)
    if raise_for_rules(explicit, [*_RULES, *_BY_ONNX]):
        InferTypes()(explicit)
    while _define(explicit):  # Attention's definition has a Softmax
        InlinePass()(explicit)
        InferTypes()(explicit)
    places = {label_of(node): i for i, node in enumerate(all_nodes(explicit))}
    left = {label_of(node): why for node in all_nodes(explicit) if (why := _unruled(node))}
    left |= split(explicit, _RULES, Names(explicit))
    explicit.meta[NOT_SPLIT] = dict(sorted(left.items(), key=lambda item: places[item[0]]))
    return explicit


def _define(model: ir.Model) -> bool:
    """Calls of the function that ONNX defines it by, in place of each FP16 node of _BY_ONNX; whether there are any."""
    opset, names = model.graph.opset_imports.get("", 0), Names(model)
    for number, node in enumerate(node for node in all_nodes(model) if is_op(node, *_BY_ONNX)):
        if opset < OPSET or not is_half(node.inputs[:1]):
            continue
        types = [None if value is None else value.type for value in node.inputs]
        texts = [b"" if each is None else ir.serde.serialize_type(each).SerializeToString() for each in types]
        schema: Any = onnx.defs.get_schema(node.op_type, opset, "")
        version = max(each for each in schema.context_dependent_function_opset_versions if each <= opset)
        written = ir.to_proto(node).SerializeToString()
        body = schema.get_context_dependent_function_with_opset_version(version, written, texts)
        proto = onnx.FunctionProto.FromString(body)
        del proto.opset_import[:]
        proto.opset_import.add(version=opset)
        del proto.output[len(node.outputs) :]
        made = {name for each in proto.node for name in each.output}
        missing = [name for name in proto.output if name not in made]  # optional ones, which nothing reads
        proto.node.extend(onnx.helper.make_node("Identity", [proto.input[0]], [name]) for name in missing)
        for each in proto.node:
            each.name = f"{label_of(node)}/{each.op_type}"
        proto.domain, proto.name = _DEFINED, f"{node.op_type}{number}"
        function = ir.serde.deserialize_function(proto)
        model.functions[function.identifier()] = function
        node.domain, node.op_type = _DEFINED, proto.name
        for value in node.outputs:
            value.name = value.name or names.fresh("not_read")
    return bool(model.functions)


def _unruled(node: ir.Node) -> str:
    """The caveat on a node that has no rule, or nothing."""
    if not is_half(node.inputs) or not is_half(node.outputs) or (node.domain == "" and node.op_type in _RULES):
        return ""
    if node.domain != "":
        return f"{node.domain}:{node.op_type} is no standard operator: what it accumulates is unknown"
    if node.op_type in TABLE and not adds_up(node):
        return ""
    return f"{node.op_type}: there is no rule for it"
