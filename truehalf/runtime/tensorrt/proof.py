"""Layers of a built engine with their types, as TensorRT's engine inspector or the builder's log gives them."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from truehalf.runtime.tensorrt.versions import EngineFacts, Graph, Layer, Port

NODES_MIN = 0.5  # of the FP16 nodes that must be named, and of known type: fewer are no sample of the rest


def engine_facts(trt: Any, engine: Any, keys: Sequence[str]) -> EngineFacts:
    """What the engine and its inspector say.

    Args:
        keys: of the inspector's JSON, those that hold a tensor's type, best first.

    Returns:
        layers; half_layers, those that compute and have a Half output; half_layers_fraction, of the layers that compute
        and have an output of a float type; half_io_fraction, of all float inputs and outputs of layers
        (the three are None where the inspector gives no types, as with a profiling verbosity below detailed);
        layer_table [{name, type, inputs, outputs (types, None where not known),
        weights (type), onnx_nodes}]; io [{name, mode, dtype, shape}]; device_memory_mb (10^6 bytes that an execution
        context takes, None where this TensorRT does not report it); inspection_fault, why TensorRT did not report
        something of this, or None: what it did not report is as in NO_LAYERS.
    """
    facts = NO_LAYERS.copy()
    try:
        sizes = (getattr(engine, name, None) for name in ("device_memory_size_v2", "device_memory_size"))  # 10.1, 10.0
        size = next((one for one in sizes if one is not None), None)
        facts["device_memory_mb"] = None if size is None else size / 1e6
        facts["io"] = ports(engine)
        text, facts["inspection_fault"] = _inspected(trt, engine)
        return facts | layer_facts(json.loads(text).get("Layers", []), keys)
    except Exception as error:  # the engine is there and may be good: what stops a look at it must not lose it
        return facts | {"inspection_fault": f"the engine could not be inspected: {type(error).__name__}: {error}"}


def ports(engine: Any) -> list[Port]:
    """Inputs and outputs of an engine."""
    return [
        {
            "name": name,
            "mode": engine.get_tensor_mode(name).name,
            "dtype": engine.get_tensor_dtype(name).name,
            "shape": list(engine.get_tensor_shape(name)),
        }
        for name in map(engine.get_tensor_name, range(engine.num_io_tensors))
    ]


NO_LAYERS: EngineFacts = {  # `engine_facts` of an engine that cannot be read
    **{"layers": None, "half_layers": None, "half_layers_fraction": None, "half_io_fraction": None},
    **{"layer_table": [], "device_memory_mb": None, "io": []},
    "inspection_fault": None,
}


def _inspected(trt: Any, engine: Any) -> tuple[str, str | None]:
    """The inspector's JSON, and why it had no execution context: types of dynamic shapes are not known without one."""
    inspector = engine.create_engine_inspector()
    if inspector is None:
        raise RuntimeError(f"TensorRT {trt.__version__} gives no engine inspector")
    problem = None
    try:
        context, _values = _context_at_opt(trt, engine)
        if context is not None:
            inspector.execution_context = context
    except Exception as error:
        problem = f"the inspector had no execution context: {type(error).__name__}: {error}"
    return inspector.get_engine_information(trt.LayerInformationFormat.JSON), problem


def _context_at_opt(trt: Any, engine: Any) -> tuple[Any, list[np.ndarray]]:
    """A context without allocated memory at the first profile's opt, or None, and the values that it reads."""
    context = engine.create_execution_context(trt.ExecutionContextAllocationStrategy.USER_MANAGED)
    values: list[np.ndarray] = []
    if context is None:
        return None, values
    for index in range(engine.num_io_tensors):
        name = engine.get_tensor_name(index)
        if engine.get_tensor_mode(name) != trt.TensorIOMode.INPUT:
            continue
        if engine.get_tensor_location(name) == trt.TensorLocation.HOST:
            points = profile_values(trt, engine, name, 0)
            if not points:
                return None, values
            values.append(points[1])
            context.set_tensor_address(name, values[-1].ctypes.data)
        elif -1 in tuple(engine.get_tensor_shape(name)):
            context.set_input_shape(name, tuple(engine.get_tensor_profile_shape(name, 0)[1]))
    return context, values


def profile_values(trt: Any, engine: Any, name: str, profile: int) -> list[np.ndarray]:
    """Values of a shape-tensor input at a profile's min, opt and max, in its type and shape, as far as it has them."""
    dtype = np.int64 if engine.get_tensor_dtype(name) == trt.DataType.INT64 else np.int32
    shape = tuple(engine.get_tensor_shape(name))
    numbers = engine.get_tensor_profile_values(profile, name)  # in this order, whatever the bindings call them
    return [np.array(one, dtype=dtype).reshape(shape) for one in numbers]


def logged_facts(layers: Sequence[Any] | None, keys: Sequence[str]) -> EngineFacts:
    """Layers of the builder's log (truehalf.runtime.tensorrt.layer_log), as in `engine_facts`."""
    if layers is None:
        return NO_LAYERS | {"inspection_fault": "the builder's log lists layers in a format that is not known, or none"}
    return NO_LAYERS | layer_facts(layers, keys)


def layer_facts(layers: Sequence[Any], keys: Sequence[str]) -> EngineFacts:
    """Layers of the engine inspector's JSON, as in `engine_facts`."""
    rows = [_layer_row(one, keys) for one in layers]
    float_layers = [row for row in rows if computes(row) and any(dtype in _FLOATING for dtype in row["outputs"])]
    slots = [dtype for row in rows for dtype in row["inputs"] + row["outputs"] if dtype in _FLOATING]
    half = sum("Half" in row["outputs"] for row in float_layers)
    return {
        "layers": len(rows),
        "half_layers": half if slots else None,
        "half_layers_fraction": half / len(float_layers) if float_layers else None,
        "half_io_fraction": slots.count("Half") / len(slots) if slots else None,
        "layer_table": rows,
    }


# Layers that move, convert or hold values, or make streams wait for one another, and compute nothing; fused kernels are
# called by what is in them.
_IDLE_TYPES = frozenset(
    ("reformat", "cast", "shuffle", "constant", "identity", "noop", "signal", "wait", "trainstation")
)
_MOVING_KERNELS = re.compile(r"__myl_(?:Cast|Conc|Move|Repl|Resh|Slic|Tran)+(?:_|$)")


def computes(row: Layer) -> bool:
    """Whether a layer does more than move, convert or hold values."""
    idle = str(row["type"]).lower() in _IDLE_TYPES or not row["outputs"]
    return not idle and not _MOVING_KERNELS.match(row["name"])


def _hides(row: Layer) -> bool:
    """Whether a layer is a piece of the network that was compiled as a whole, whose inside has no known types."""
    return "ForeignNode[" in row["name"] or str(row["type"]).lower() in ("foreignnode", "myelin")


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


def _layer_row(layer: Any, keys: Sequence[str]) -> Layer:
    if not isinstance(layer, dict):  # a verbosity that shows only names
        layer = {"Name": layer}
    weights = layer.get("Weights")
    return {
        "name": str(layer.get("Name", "")),
        "type": layer.get("ParameterType") or layer.get("LayerType"),
        "inputs": [_tensor_type(one, keys) for one in layer.get("Inputs") or []],
        "outputs": [_tensor_type(one, keys) for one in layer.get("Outputs") or []],
        "weights": _type(weights.get("Type")) if isinstance(weights, dict) else None,
        "constants": [_tensor_type(one, keys) for one in layer.get("Constants") or []],
        "onnx_nodes": re.findall(r"\[ONNX Layer: ([^\]\x1e\x1f]*)\]", str(layer.get("Metadata", ""))),
    }


def _tensor_type(described: Any, keys: Sequence[str]) -> str | None:
    if not isinstance(described, dict):
        return None
    return next((found for key in keys if (found := _type(described.get(key)))), None)


def _type(text: Any) -> str | None:
    words = str(text or "").lower()
    return next(
        (name for pattern, name in _TYPES if re.search(rf"(?<![a-z0-9])k?(?:{pattern})(?![a-z0-9])", words)), None
    )


def changed_nodes(facts: EngineFacts, graph: Graph) -> list[str] | None:
    """FP16 nodes of the file that lie only in layers without Half; None where layers name too few nodes, or tell the
    types of too few.

    Not counted where a layer may cast to FP16 and back inside: one that fuses other nodes, too, is compiled as a whole
    or does not tell a type.
    """
    if not graph["fp16_nodes"]:
        return []
    names = frozenset(graph.get("fp16_node_names") or ())
    seen: set[str] = set()
    kept: set[str] = set()
    lost: set[str] = set()
    for row in facts["layer_table"]:
        fused = frozenset(row.get("onnx_nodes") or ())
        if not fused & names or not computes(row):
            continue
        seen |= fused & names
        types = row["inputs"] + row["outputs"]
        if "Half" in types:
            kept |= fused & names
        elif fused <= names and not _hides(row) and None not in types and set(types) & set(_FLOATING):
            lost |= fused
    if not names or len(seen) < NODES_MIN * len(names) or len(kept | lost) < NODES_MIN * len(seen):
        return None
    return sorted(lost - kept)
