"""The opset that FP16 needs, or a later one that is asked for.

    target None, opset >= 7   ->  as it is
    target None, opset <  7   ->  7    (Cast names its type, shapes broadcast by attribute, no runtime has FP16 kernels)
    target > opset            ->  target
    target < opset            ->  as it is, with a note: operators cannot be taken back in general

onnx.version_converter does the work on a model without its weights, which come back afterwards; onnxscript's, which has
other rules from opset 18 on, comes only with torch and drops nodes that nothing reads. What onnx's cannot do is
done here: functions are inlined, operators of old for which it has no rule are restated (`_restate`), and integer
Constants of old become initializers.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx
import onnx_ir as ir

from truehalf.errors import StageError, first_line
from truehalf.ir.facts import all_nodes, all_values
from truehalf.ir.inlining import InlineFunctions, WeightsApart
from truehalf.ir.normalize import InferTypes, LiftConstants, proto_without_weights, rename, unique_names
from truehalf.ir.ops import Trait, with_trait
from truehalf.ir.passes import Done, Pass

_FP16_FROM = 7
_NUMBERED_CASTS = 6  # Cast names its type by number from here on
_CONSTANTS_OF_ANY_TYPE = 9
SCAN_WITHOUT_BATCH = 9  # before, all that a Scan reads and writes has a batch axis

# Until which opset an operator is restated here; meanwhile it stands in a domain that onnx does not touch.
_BROADCAST_BY_ATTRIBUTE = with_trait(Trait.LOGIC | Trait.COMPARES) - {"Not"}
_RECURRENT = with_trait(Trait.RECURRENT)
_RESTATED_UNTIL = {"Cast": 5, "Pad": 1, "Scan": 8} | dict.fromkeys(_BROADCAST_BY_ATTRIBUTE | _RECURRENT, 6)
_HELD = "held"


@dataclass(frozen=True)
class ToOpset(Pass):
    """Brings a model to an opset in which FP16 can be stated; its weights are not read.

    Below IR version 4, where all weights stand among the inputs, too, a model leaves with version 4 and without them
    there, whatever its opset. Names of inputs, outputs, nodes and tensors stay. What was done is one of the notes.

    Attributes:
        target: opset of the operators of ONNX's default domain; None: raised only below 7.

    Raises:
        StageError: when the target is unknown to the installed onnx, or an operator cannot be converted.
    """

    target: int | None = None

    def edit(self, model: ir.Model, done: Done) -> None:
        done.modified = WeightsApart()(model).modified
        source, target = model.graph.opset_imports.get(""), self.target
        if source is None or (target is None and source >= _FP16_FROM) or source == target:
            return
        target = target or _FP16_FROM
        latest = onnx.defs.onnx_opset_version()
        if target > latest:
            raise StageError(
                "wrong-opset", f"opset {target}: expected at most {latest}, the latest that the installed onnx knows"
            )
        if target < source:
            done.refuse(None, f"opset {source} is kept: the target {target} lies below it, and models are only raised")
            return
        try:
            done.modified |= InlineFunctions()(model).modified
            scans = any(node.op_type == "Scan" and node.domain == "" for node in all_nodes(model))
            stops = [_FP16_FROM, *([SCAN_WITHOUT_BATCH] if scans else [])]
            for version in [*(stop for stop in stops if source < stop < target), target]:
                _raise(model, version)
            done.counts[f"opset raised from {source} to {target}"] += 1
        except (RuntimeError, ValueError) as error:
            if target != _FP16_FROM or source < _NUMBERED_CASTS:
                raise StageError(
                    "wrong-opset",
                    f"the model cannot be raised from opset {source} to {target}: {_reason(error)}. "
                    "Export it anew at a later opset",
                ) from error
            done.refuse(None, f"opset {source} is kept: {_reason(error)}")


def _raise(model: ir.Model, target: int) -> None:
    """Give a model the graph that onnx makes of it; it stays as it is where onnx fails."""
    source = model.graph.opset_imports[""]
    held = [node for node in all_nodes(model) if node.domain == "" and source <= _RESTATED_UNTIL.get(node.op_type, 0)]
    _type_casts([node for node in held if node.op_type == "Cast"], model)
    for node in held:
        node.domain = _HELD
    with unique_names(model) as originals:
        try:
            proto = proto_without_weights(model)
        finally:
            for node in held:
                node.domain = ""
        if held:
            proto.opset_import.add(domain=_HELD, version=1)
        raised = ir.from_proto(onnx.version_converter.convert_version(proto, target))
        for node in [node for node in all_nodes(raised) if node.domain == _HELD]:
            node.domain = ""
            _restate(node)
        raised.graph.opset_imports.pop(_HELD, None)
        _restore_weights(model, raised)
        _restore_metadata(model, raised)
        rename(raised, {value: originals[value.name] for value in all_values(raised) if value.name in originals})
    model.graph = raised.graph
    if target < _CONSTANTS_OF_ANY_TYPE:
        LiftConstants(lambda dtype: not dtype.is_floating_point())(model)  # integers of the converter


def _type_casts(casts: list[ir.Node], model: ir.Model) -> None:
    """Cast had no inference of types when it named them, and the rules for broadcasting want shapes."""
    waiting, before = casts, len(casts) + 1
    while waiting and len(waiting) < before:
        InferTypes()(model)
        for cast in waiting:
            source, result = cast.inputs[0], cast.outputs[0]
            if source is not None and source.shape is not None:
                result.type, result.shape = ir.TensorType(_named_type(cast)), source.shape
        waiting, before = [cast for cast in waiting if cast.outputs[0].shape is None], len(waiting)


def _named_type(cast: ir.Node) -> ir.DataType:
    return ir.DataType[cast.attributes["to"].as_string().upper()]


def _restate(node: ir.Node) -> None:
    """An operator in the words of a later opset."""
    if node.op_type == "Scan":
        _scan_over_batch(node)
    elif node.op_type == "Cast":
        node.attributes["to"] = ir.AttrInt64("to", _named_type(node).value)
    elif node.op_type == "Pad":
        node.attributes["pads"] = ir.AttrInt64s("pads", node.attributes.pop("paddings").as_ints())
    elif node.op_type in _RECURRENT:
        node.attributes.pop("output_sequence", None)  # which outputs are there says as much
    elif "axis" in node.attributes:
        raise ValueError(f"{node.op_type} that broadcasts along an axis")
    else:
        node.attributes.pop("broadcast", None)


def _scan_over_batch(node: ir.Node) -> None:
    """Scan of opset 8, whose values have a batch axis first, as one of opset 9 over that axis around one of opset 9."""
    if node.inputs[0] is not None:
        raise ValueError("Scan of sequences that differ in length")
    name = str(node.outputs[0].name)
    read = [value for value in node.inputs[1:] if value is not None]
    rows = [_row(value, ir.val(f"{name}/row/{i}")) for i, value in enumerate(read)]
    attributes = {key: attribute.value for key, attribute in node.attributes.items()}
    if (directions := attributes.pop("directions", None)) is not None:
        attributes["scan_input_directions"] = directions
    scan = ir.node("Scan", rows, attributes, num_outputs=len(node.outputs), name=f"{name}/scan")
    for i, (value, whole) in enumerate(zip(scan.outputs, node.outputs, strict=True)):
        value.name = f"{name}/scan/{i}"
        _row(whole, value)
    body = ir.Graph(rows, scan.outputs, nodes=[scan], name=f"{name}/body")
    node.attributes.clear()
    node.attributes["body"] = ir.AttrGraph("body", body)
    node.attributes["num_scan_inputs"] = ir.AttrInt64("num_scan_inputs", len(rows))
    for i, whole in enumerate(read):
        node.replace_input_with(i, whole)
    node.resize_inputs(len(read))


def _row(whole: ir.Value, row: ir.Value) -> ir.Value:
    """A value that is typed as one row of another."""
    row.type, row.shape = whole.type, None if whole.shape is None else ir.Shape(list(whole.shape)[1:])
    return row


def _restore_weights(model: ir.Model, raised: ir.Model) -> None:
    """Put back by name what was only mentioned; sibling subgraphs may share names, so they are unique by now."""
    values = [value for graph in model.graphs() for value in graph.initializers.values()]
    tensors = {value.name: value.const_value for value in values}
    constants = {node.outputs[0].name: node.attributes for node in all_nodes(model) if node.op_type == "Constant"}
    for graph in raised.graphs():
        for value in graph.initializers.values():
            value.const_value = tensors.get(value.name, value.const_value)
    for node in all_nodes(raised):
        if node.op_type == "Constant" and node.outputs[0].name in constants:
            node.attributes.update(constants[node.outputs[0].name])


def _restore_metadata(model: ir.Model, raised: ir.Model) -> None:
    """The properties of graph, nodes and values, which onnx does not copy."""
    raised.graph.metadata_props.update(model.graph.metadata_props)
    nodes = {node.outputs[0].name: node for node in all_nodes(model) if node.outputs}
    for node in all_nodes(raised):
        if node.outputs and (before := nodes.get(node.outputs[0].name)) and before.op_type == node.op_type:
            node.metadata_props.update(before.metadata_props)
    properties = {value.name: value.metadata_props for value in all_values(model)}
    for value in all_values(raised):
        value.metadata_props.update(properties.get(value.name, {}))


def _reason(error: Exception) -> str:
    """What onnx says, without the place in its source."""
    text = first_line(error)
    return text.split("Assertion `false` failed: ")[-1].replace("$", "")
