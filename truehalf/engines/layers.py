"""Layers of an engine with their types and ONNX nodes.

TensorRT for RTX lists layers in the builder's log, one line each, TensorRT's inspector in JSON:

    Name: a, LayerType: gemm, Inputs: [ { Name: x, Dimensions: [1,8], ..., Datatype: Half, Format: ... }, ...],
    Constants: [...], Outputs: [...], ..., StreamId: 0, Metadata: [ONNX Layer: /0/Conv][ONNX Layer: /1/Relu]

Names come from the model and may hold any character, so lines are read by their keys, never by commas or brackets.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir

from truehalf.engines.engine_report import Layer
from truehalf.ir.facts import all_nodes, name_of
from truehalf.ir.model_file import read_proto
from truehalf.ir.model_forms import ModelFile
from truehalf.ir.proto.data_files import data_file
from truehalf.ir.proto.names import proto_graphs
from truehalf.runtime.tensorrt import LAYERS

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
    for graph in itertools.chain.from_iterable(map(proto_graphs, (proto.graph, *proto.functions))):
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
