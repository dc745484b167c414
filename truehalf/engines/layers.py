"""Layers of an engine with their types and ONNX nodes, and the share of a file's arithmetic that they compute in Half.

With a(n) the operations of node n at the first profile's opt, H the nodes of the file that compute FP16, and L those of
H that lie only in layers without Half,

    file = sum of a(n) over H / sum of a(n)        engine = file - sum of a(n) over L / sum of a(n)

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
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir

from truehalf.engines.engine_report import Layer
from truehalf.ir.arithmetic import flops
from truehalf.ir.facts import all_nodes, name_of
from truehalf.ir.model_file import read_proto
from truehalf.ir.model_forms import ModelFile
from truehalf.ir.normalize import concrete_shapes
from truehalf.ir.ops import Trait, has
from truehalf.ir.proto.data_files import data_file
from truehalf.ir.proto.names import proto_graphs
from truehalf.json_values import JsonObject
from truehalf.runtime.tensorrt import LAYERS, BuildFacts, Profile

_LINE = re.compile(
    r"Name: (?P<Name>.*?), LayerType: (?P<LayerType>\w+), Inputs: \[(?P<Inputs>.*)\], "
    r"Constants: \[(?P<Constants>.*)\], Outputs: \[(?P<Outputs>.*)\], .*?Metadata: (?P<Metadata>.*)"
)
_TENSOR = re.compile(r"\{ Name: (?P<Name>.*?), Dimensions: \[[-\d,]*\], .*?Datatype: (?P<Datatype>\w+), Format: ")
_NODE = re.compile(r"\[ONNX Layer: ([^\]\x1e\x1f]*)\]")
_UNREADABLE = re.compile(r"[\[\]\x00-\x1f]")  # in the name of a node: it would end the entry of `_NODE`
_KNOWN_MIN = 0.5  # of the FP16 nodes that must be named, and of known type: fewer are no sample of the rest
# Layers that move, convert or hold values, or make streams wait for one another, and compute nothing; fused kernels are
# called by their contents.
_IDLE_TYPES = frozenset(
    ("reformat", "cast", "shuffle", "constant", "identity", "noop", "signal", "wait", "trainstation")
)
_MOVING_KERNELS = re.compile(r"__myl_(?:Cast|Conc|Move|Repl|Resh|Slic|Tran)+(?:_|$)")
_FLOATING = ("Half", "Float", "BFloat16", "FP8", "FP4")
# Types are written as "Half", "kHALF", "Half(64,1:8,...)", "Row major linear FP16 format (kLINEAR)", "N/A due to
# dynamic shapes".
_TYPES = (
    (r"half|fp16|float16", "Half"),
    (r"bf16|bfloat16", "BFloat16"),
    (r"fp8|float8|f8e4m3|e4m3", "FP8"),
    (r"fp4|float4|f4e2m1", "FP4"),
    (r"float|fp32|float32", "Float"),
    (r"int64", "Int64"),
    (r"int32", "Int32"),
    (r"uint8", "UInt8"),
    (r"int8", "Int8"),
    (r"int4", "Int4"),
    (r"bool", "Bool"),
)
_TYPE_KEYS = ("DataType", "Datatype", "Format/Datatype", "Format/DataType", "Format")  # TensorRT 11, RTX, TensorRT 10


# --- names of nodes ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NodeNames:
    """Names by which a builder is told the nodes of a file, each unique and readable in its log.

    Attributes:
        of_output: name by the node's first output.
        shown: by such a name the one that the file gives the node, if that is unique, else the name itself.
    """

    of_output: Mapping[str, str]
    shown: Mapping[str, str]

    @classmethod
    def of(cls, model: ir.Model) -> NodeNames:
        """Names of a model's nodes: their own; of nodes without one, `<OpType>_<first output>`."""
        nodes = [node for node in all_nodes(model) if node.outputs]
        own = Counter(map(name_of, nodes))
        of_output: dict[str, str] = {}
        shown: dict[str, str] = {}
        for node in nodes:
            name = name_of(node)
            readable = _UNREADABLE.sub("_", name)
            unique = readable
            while unique in shown or (unique != name and unique in own):
                unique = f"{readable}_{len(shown)}"
            of_output[str(node.outputs[0].name)] = unique
            shown[unique] = unique if own[name] > 1 else name
        return cls(of_output, shown)

    def nodes(self, model: ir.Model) -> dict[str, ir.Node]:
        """The nodes of the model by the names that a builder is told."""
        return {self.of_output[str(node.outputs[0].name)]: node for node in all_nodes(model) if node.outputs}

    def node(self, node: ir.Node) -> str:
        """Name of a node as reports show it."""
        return self.shown[self.of_output[str(node.outputs[0].name)]]


@contextlib.contextmanager
def named_file(file: ModelFile, names: NodeNames) -> Iterator[Path]:
    """Yield the file, or a temporary copy whose nodes have these names, if the file's own are others.

    The weights of a copy are links to the file's.
    """
    nodes = (node for node in all_nodes(file.written) if node.outputs)
    if all(names.of_output[str(node.outputs[0].name)] == node.name for node in nodes):
        yield file.path
        return
    proto = read_proto(file.path)
    for graph in itertools.chain.from_iterable(map(proto_graphs, (proto.graph, *proto.functions))):
        for node in graph.node:
            node.name = names.of_output.get(node.output[0] if node.output else "", node.name)
    with tempfile.TemporaryDirectory(prefix="truehalf-") as folder:
        copy = Path(folder) / file.path.name
        for location in file.external:
            (copy.parent / location).parent.mkdir(parents=True, exist_ok=True)
            (copy.parent / location).symlink_to(data_file(file.path, location).resolve())
        onnx.save(proto, copy)
        yield copy


# --- layers -----------------------------------------------------------------------------------------------------------


def layers_of(facts: BuildFacts, names: NodeNames) -> list[Layer] | None:
    """Layers of an engine that was built; None if neither inspector nor log list them in a form that is known."""
    inspection = facts.get("inspection")
    described: Any = json.loads(inspection)["Layers"] if inspection else layers_of_log(facts["layer_log"])
    return None if described is None else [_layer(layer, names) for layer in described]


def layers_of_log(message: str) -> list[JsonObject] | None:
    """Read the message of the builder's log that lists the layers.

    Returns:
        {Name, LayerType, Inputs, Constants, Outputs, Metadata} of each, of tensors {Name, Datatype}, as the inspector's
        JSON; None if the format is another.
    """
    if not message.startswith(LAYERS):
        return None
    layers: list[JsonObject] = []
    for line in message.removeprefix(LAYERS).partition("\n\n")[0].split("\n"):
        parts = _LINE.fullmatch(line)
        if parts is None:
            return None
        layer: dict[str, Any] = parts.groupdict()
        for key in ("Inputs", "Constants", "Outputs"):
            tensors = [tensor.groupdict() for tensor in _TENSOR.finditer(layer[key])]
            if layer[key].count("Datatype: ") != len(tensors):
                return None
            layer[key] = tensors
        layers.append(layer)
    return layers


def _layer(described: Any, names: NodeNames) -> Layer:
    if not isinstance(described, dict):  # a verbosity that shows only names
        described = {"Name": described}
    weights = described.get("Weights")
    nodes = _NODE.findall(str(described.get("Metadata", "")))
    return {
        "name": str(described.get("Name", "")),
        "type": described.get("ParameterType") or described.get("LayerType"),
        "inputs": [_tensor_type(tensor) for tensor in described.get("Inputs") or []],
        "outputs": [_tensor_type(tensor) for tensor in described.get("Outputs") or []],
        "weights": _type(weights.get("Type")) if isinstance(weights, dict) else None,
        "constants": [_tensor_type(tensor) for tensor in described.get("Constants") or []],
        "onnx_nodes": [names.shown.get(name, name) for name in nodes],
    }


def _tensor_type(described: Any) -> str | None:
    if not isinstance(described, dict):
        return None
    return next((dtype for key in _TYPE_KEYS if (dtype := _type(described.get(key)))), None)


def _type(text: Any) -> str | None:
    words = str(text or "").lower()
    return next(
        (name for pattern, name in _TYPES if re.search(rf"(?<![a-z0-9])k?(?:{pattern})(?![a-z0-9])", words)), None
    )


def computes(layer: Layer) -> bool:
    """True if a layer does more than move, convert or hold values."""
    is_idle = str(layer["type"]).lower() in _IDLE_TYPES or not layer["outputs"]
    return not is_idle and not _MOVING_KERNELS.match(layer["name"])


def half_layers(layers: Sequence[Layer]) -> tuple[int | None, float | None]:
    """Number of layers that compute with a Half output, and their share of those that output floats; None if no type is
    known.
    """
    rows = [layer for layer in layers if computes(layer) and any(dtype in _FLOATING for dtype in layer["outputs"])]
    half = sum("Half" in layer["outputs"] for layer in rows)
    is_known = any(dtype in _FLOATING for layer in layers for dtype in layer["inputs"] + layer["outputs"])
    return (half if is_known else None), (half / len(rows) if rows else None)


# --- the share of the arithmetic --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HalfShare:
    """Arithmetic in FP16.

    Attributes:
        file: share in the file, 0 to 1; None without arithmetic.
        engine: share in the engine; None if layers name too few nodes, or tell the types of too few.
        lost: FP16 nodes of the file in layers without Half.
    """

    file: float | None
    engine: float | None
    lost: list[str]


def half_share(
    model: ir.Model, layers: Sequence[Layer] | None, profiles: Sequence[Profile], names: NodeNames
) -> HalfShare:
    """Share of a typed model's arithmetic in FP16, in the file and in the engine; None for `layers`: not known."""
    shapes = concrete_shapes(model, {name: ranges["opt"] for name, ranges in profiles[0].items()} if profiles else {})
    nodes = [node for node in all_nodes(model) if node.outputs]
    arithmetic = {names.node(node): flops(node, shapes) for node in nodes}
    half = [names.node(node) for node in nodes if _computes_fp16(node)]
    lost = lost_nodes(layers or [], half)
    total = sum(arithmetic.values())
    if not total:
        return HalfShare(None, None, lost or [])
    in_file, gone = (sum(arithmetic[name] for name in fp16) for fp16 in (half, lost or []))
    return HalfShare(in_file / total, None if lost is None else (in_file - gone) / total, lost or [])


def _computes_fp16(node: ir.Node) -> bool:
    """True if a node outputs FLOAT16, no other float, and does more than move values: an engine need not have casts,
    constants and moves.
    """
    types = {output.dtype for output in node.outputs if output.name}
    floats = {dtype for dtype in types if dtype is not None and dtype.is_floating_point()}
    return None not in types and floats == {ir.DataType.FLOAT16} and not has(node, Trait.NO_ARITHMETIC)


def lost_nodes(layers: Sequence[Layer], half: Sequence[str]) -> list[str] | None:
    """FP16 nodes of a file that lie only in layers without Half; None if layers name too few nodes, or tell the types
    of too few.

    A layer that fuses other nodes, too, may cast to FP16 and back inside: it counts only if it tells Half.
    """
    names, seen, kept, lost = frozenset(half), set[str](), set[str](), set[str]()
    for layer in layers:
        fused = frozenset(layer["onnx_nodes"])
        if not fused & names or not computes(layer):
            continue
        seen |= fused & names
        types = layer["inputs"] + layer["outputs"]
        if "Half" in types:
            kept |= fused & names
        elif fused <= names and not _is_opaque(layer) and None not in types and set(types) & set(_FLOATING):
            lost |= fused
    if names and (len(seen) < _KNOWN_MIN * len(names) or len(kept | lost) < _KNOWN_MIN * len(seen)):
        return None
    return sorted(lost - kept)


def _is_opaque(layer: Layer) -> bool:
    """True for a Myelin or ForeignNode layer: a piece of the network compiled as a whole, its inner types unknown."""
    return "ForeignNode[" in layer["name"] or str(layer["type"]).lower() in ("foreignnode", "myelin")
