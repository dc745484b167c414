"""Nodes by the names that a builder is told, and what it says of them: the layers that they lie in, and refusals.

TensorRT for RTX lists layers in the builder's log, one line each, TensorRT's inspector in JSON:

    Name: a, LayerType: gemm, Inputs: [ { Name: x, Dimensions: [1,8], ..., Datatype: Half, Format: ... }, ...],
    Constants: [...], Outputs: [...], ..., StreamId: 0, Metadata: [ONNX Layer: /0/Conv][ONNX Layer: /1/Relu]

Names come from the model and may hold any character, so lines are read by their keys, never by commas or brackets.
"""

from __future__ import annotations

import contextlib
import json
import re
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir

from truehalf.engines.engine_report import Layer
from truehalf.ir.facts import all_nodes, label_of, name_of
from truehalf.ir.model_file import read_proto
from truehalf.ir.model_forms import ModelFile
from truehalf.ir.proto.data_files import data_file
from truehalf.ir.proto.forms import proto_graphs
from truehalf.ir.selectors import scope_of
from truehalf.patterns import Finding
from truehalf.runtime.tensorrt import LAYERS, BuildRefusal

# Characters that would end the entry of a node in a log, and others that stand for them there.
_TOLD = {ord("["): ord("⟦"), ord("]"): ord("⟧"), **{code: 0x2400 + code for code in range(32)}}
_SHOWN = {there: here for here, there in _TOLD.items()}
_LINE = re.compile(
    r"Name: (?P<name>.*?), LayerType: (?P<type>\w+), Inputs: \[(?P<inputs>.*)\], "
    r"Constants: \[.*\], Outputs: \[(?P<outputs>.*)\], .*?Metadata: (?P<nodes>.*)"
)
_TENSOR = re.compile(r", Datatype: (\w+), Format: ")
_NODE = re.compile(r"\[ONNX Layer: ([^\]\x1e\x1f]*)\]")
# The inspector writes types as "Half", "kHALF", "Half(64,1:8,...)", "Row major linear FP16 format (kLINEAR)".
_TYPES = {
    **{"half": "Half", "fp16": "Half", "float16": "Half", "float": "Float", "fp32": "Float", "float32": "Float"},
    **{"bf16": "BFloat16", "bfloat16": "BFloat16", "fp8": "FP8", "fp4": "FP4", "bool": "Bool"},
    **{"int64": "Int64", "int32": "Int32", "uint8": "UInt8", "int8": "Int8", "int4": "Int4"},
}
_TYPE = re.compile(rf"(?<![a-z0-9])k?({'|'.join(_TYPES)})(?![a-z0-9])")
_TYPE_KEYS = ("DataType", "Datatype", "Format/Datatype", "Format/DataType", "Format")  # TensorRT 11, RTX, TensorRT 10
_OPERATION = re.compile(r"\b([A-Z]\w+) operation was not supported")  # by which Myelin names an operator
_RTX_LACKS = frozenset({"NonZero", "Unique"})  # operators that TensorRT has, and TensorRT for RTX 1.7 has not


def told_names(model: ir.Model) -> dict[str, ir.Node]:
    """Nodes by the names that a builder is told: unique, and readable in its log; of a node without a name
    `<OpType>_<first output>`.
    """
    nodes: dict[str, ir.Node] = {}
    for node in all_nodes(model):
        name = name_of(node).translate(_TOLD)
        while name in nodes:
            name = f"{name}_{len(nodes)}"
        nodes[name] = node
    return nodes


def shown_name(told: str) -> str:
    """The name of a node as the file has it."""
    return told.translate(_SHOWN)


@contextlib.contextmanager
def named_file(file: ModelFile, nodes: Mapping[str, ir.Node]) -> Iterator[Path]:
    """Yield the file, or a temporary copy whose nodes have these names, if the file's own are others.

    The weights of a copy are links to the file's.
    """
    told = {str(node.outputs[0].name): name for name, node in nodes.items() if node.outputs}
    if all(told.get(str(node.outputs[0].name)) == node.name for node in all_nodes(file.written) if node.outputs):
        yield file.path
        return
    proto = read_proto(file.path)
    for graph in proto_graphs(proto.graph):
        for node in graph.node:
            node.name = told.get(node.output[0] if node.output else "", node.name)
    with tempfile.TemporaryDirectory(prefix="truehalf-") as folder:
        copy = Path(folder) / file.path.name
        for location in file.external:
            (copy.parent / location).parent.mkdir(parents=True, exist_ok=True)
            (copy.parent / location).symlink_to(data_file(file.path, location).resolve())
        onnx.save(proto, copy)
        yield copy


def layers_of_log(message: str) -> list[Layer] | None:
    """Read the message of the builder's log that lists the layers; None if its format is not known."""
    if not message.startswith(LAYERS):
        return None
    layers = []
    for line in message.removeprefix(LAYERS).partition("\n\n")[0].split("\n"):
        parts = _LINE.fullmatch(line)
        tensors = "" if parts is None else parts["inputs"] + parts["outputs"]
        types = _TENSOR.findall(tensors)
        if parts is None or len(types) != tensors.count("Datatype: "):
            return None
        layers.append(_layer(parts["name"], parts["type"], types, parts["nodes"]))
    return layers


def layers_of_inspector(text: str) -> list[Layer]:
    """Read the JSON of TensorRT's inspector; of a verbosity that shows only names, these."""
    layers = []
    for each in json.loads(text)["Layers"]:
        described: dict[str, Any] = each if isinstance(each, dict) else {"Name": each}
        tensors = [*(described.get("Inputs") or []), *(described.get("Outputs") or [])]
        kind = described.get("ParameterType") or described.get("LayerType")
        types = (_type(tensor) if isinstance(tensor, dict) else None for tensor in tensors)
        layers.append(_layer(str(described.get("Name", "")), kind, types, str(described.get("Metadata", ""))))
    return layers


def _layer(name: str, kind: str | None, types: Iterable[str | None], nodes: str) -> Layer:
    shown = [shown_name(told) for told in _NODE.findall(nodes)]
    return {"name": name, "type": kind, "types": list(dict.fromkeys(types)), "onnx_nodes": shown}


def _type(tensor: Mapping[str, Any]) -> str | None:
    found = _TYPE.search(" ".join(str(tensor.get(key, "")) for key in _TYPE_KEYS).lower())
    return _TYPES[found[1]] if found else None


# --- refusals ---------------------------------------------------------------------------------------------------------


def is_shared(error: BuildRefusal, nodes: Mapping[str, ir.Node], plugin_ops: Collection[str]) -> bool:
    """True if TensorRT refuses a file as TensorRT for RTX does: for another operator than those that RTX alone lacks,
    or that a plugin brings; an error of the builder has to name a node.

    Args:
        nodes: of the file, by the names that the builder was told.
        plugin_ops: operators of plugins, as domain::Op or Op.
    """
    brought = _RTX_LACKS | {op.rpartition("::")[2] for op in plugin_ops}
    if error.errors:
        return any(refused["op_type"] not in brought for refused in error.errors)
    return bool(error.log) and bool(_nodes_in(error, nodes))


def explained(error: BuildRefusal, nodes: Mapping[str, ir.Node], findings: Sequence[Finding]) -> str:
    """The text of a refusal, with the module of each node that it names, and the lint findings on that node."""
    lines = [error.text]
    for name in _nodes_in(error, nodes):
        scope = scope_of(nodes[name])
        place = f"of the module {scope}" if scope else "of no module that its name shows"
        lines.append(f"  {label_of(nodes[name])}: {place}")
        lines += [
            f"    {finding.rule}: {finding.message} {finding.remedy} ({finding.link})"
            for finding in findings
            if finding.node == nodes[name].name
        ]
    return "\n".join(lines)


def _nodes_in(error: BuildRefusal, nodes: Mapping[str, ir.Node]) -> list[str]:
    """Names of the nodes that a refusal names, by themselves or by their operator."""
    text = "\n".join(error.log)
    named = [refused["node"] for refused in error.errors]
    named += [name for name in nodes if re.search(rf"(?<![\w/.]){re.escape(name)}(?![\w/])", text)]
    operators = {match[1] for match in _OPERATION.finditer(text)}
    named += [name for name, node in nodes.items() if node.op_type in operators]
    return [name for name in dict.fromkeys(named) if name in nodes]
