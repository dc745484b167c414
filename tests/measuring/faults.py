"""Faults to plant in a network, each at a random node:

overflow          weights of a layer times 2^k, and a Mul by 2^-k in front of the next one: the same function in
                  FP32, Inf in FP16, converted without rules on ranges; the weights stay in float16's range
wrong weight      the weight of one node in the FP16 file shuffled, negated or result
lost epsilon      the epsilon of one LayerNormalization or Clip set to 0 in the FP16 file; before a
                  LayerNormalization, both files scale the input so that its variance is about epsilon
removed cast      a scale moved as for an overflow, or the other way; the conversion keeps an island FP32, and one
                  node of it then runs in FP16
swapped operands  the two inputs of a Sub or Div, or two of a Concat, of one node of the FP16 file
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from tests.measuring.converted import to_fp16
from truehalf.calibration.instrument import Instrumented
from truehalf.emulation.sessions import EmulatedSession
from truehalf.float16 import MAX
from truehalf.ir.model_file import load_model, save_model
from truehalf.runtime.ort import Session
from truehalf.verification.metrics.tensors import outputs_apart

LEAST_EFFECT = 0.02  # of a fault on the outputs
_LARGEST_POWER = 24  # float16 ends at 2^-24
_LEAST_WEIGHT = 2.0**-20  # 16 steps of a subnormal: of a weight that is scaled down enough must be left
_NO_RULES = {"rules": "autocast", "data_max": None, "init_max": None}
_LINEAR = ("MatMul", "Conv", "Gemm")
# What the scale of the first input passes through unchanged, whatever else is read.
_HOMOGENEOUS = (
    "Relu", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Slice", "MaxPool", "AveragePool", "ReduceSum",
    "ReduceMean", "GridSample", "MatMul", "Mul", "Identity",
)  # fmt: skip


class NoSite(Exception):
    """The draw does not make a fault; the next one may."""


@dataclass
class Network:
    """A model and its samples.

    Attributes:
        sample, check: one batch of one picture each, to convert with and to search with.
    """

    name: str
    model: ir.Model
    sample: dict[str, np.ndarray]
    check: dict[str, np.ndarray]
    _halved: ir.Model | None = None

    @classmethod
    def load(cls, folder: Path, name: str) -> Network:
        arrays = [dict(np.load(folder / f"{name}{suffix}.npz")) for suffix in ("", ".check")]
        sample, check = ({key: array[:1] for key, array in each.items()} for each in arrays)
        return cls(name, load_model(folder / f"{name}.onnx"), sample, check)

    @cached_property
    def outputs(self) -> dict[str, np.ndarray]:
        """Of the sample to search with."""
        return Session(self.model).run(self.check)

    @cached_property
    def halved_outputs(self) -> dict[str, np.ndarray]:
        """Likewise, of the FP16 file."""
        return EmulatedSession(self.result()).run(self.check)

    def result(self) -> ir.Model:
        """The FP16 file, by the default rules."""
        if self._halved is None:
            self._halved = result(self.model, self.sample)
        return self._halved.clone()


@dataclass
class Fault:
    """A planted one.

    Attributes:
        reference, candidate: FP32, and FP16 with the fault.
        healthy: FP16 without it; None: the network's own FP16 file.
        node: its name.
    """

    reference: ir.Model
    candidate: ir.Model
    healthy: ir.Model | None
    node: str
    detail: str


def result(model: ir.Model, sample: Mapping[str, np.ndarray], **options: Any) -> ir.Model:
    """What to_fp16 makes of a model in memory."""
    with tempfile.TemporaryDirectory() as folder:
        save_model(model, Path(folder) / "fp32.onnx")
        to_fp16(Path(folder) / "fp32.onnx", Path(folder) / "fp16.onnx", calibration=dict(sample), **options)
        return _in_memory(load_model(Path(folder) / "fp16.onnx"))


def _in_memory(model: ir.Model) -> ir.Model:
    for value in model.graph.initializers.values():
        if value.const_value is not None:
            value.const_value = ir.tensor(value.const_value.numpy().copy(), name=value.name)
    return model


# --- the kinds --------------------------------------------------------------------------------------------------------


def overflow(network: Network, rng: np.random.Generator) -> Fault:
    reference = network.model.clone()
    move = _moved_scale(reference, network.check, rng, 18.0)
    candidate = result(reference, network.sample, **_NO_RULES)
    healthy = result(network.model, network.sample, **_NO_RULES)  # computes the same: the scale is a power of 2
    return Fault(reference, candidate, healthy, move.first, f"2^{move.power}, taken back by {move.last}")


def wrong_weight(network: Network, rng: np.random.Generator) -> Fault:
    candidate = network.result()
    sites = [
        (node, i)
        for node in candidate.graph
        if node.op_type in (*_LINEAR, "LayerNormalization")
        for i, value in enumerate(node.inputs)
        if value is not None and value.const_value is not None and value.const_value.size >= 16
    ]
    node, i = sites[rng.integers(len(sites))]
    how = ("shuffled", "negated", "result")[rng.integers(3)]
    change: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "shuffled": lambda array: rng.permutation(array.reshape(-1)).reshape(array.shape),
        "negated": lambda array: -array,
        "result": lambda array: array / 2,
    }
    _replace_constant(candidate.graph, node, i, change[how])
    return Fault(network.model, candidate, None, str(node.name), f"input {i} {how}")


def lost_epsilon(network: Network, rng: np.random.Generator) -> Fault:
    reference = network.model.clone()
    sites = [node for node in reference.graph if node.op_type == "LayerNormalization" or _epsilon_of_clip(node)]
    chosen = sites[rng.integers(len(sites))]
    if chosen.op_type == "Clip":
        candidate = network.result()
        node = named(candidate, str(chosen.name))
        _replace_constant(candidate.graph, node, 1, np.zeros_like)
        return Fault(network.model, candidate, None, str(node.name), "min of Clip")
    epsilon = chosen.attributes.get_float("epsilon", 1e-5)
    source = chosen.inputs[0]
    assert source is not None
    array = _values_of(reference, network.check, [str(source.name)])[str(source.name)]
    power = round(math.log2(math.sqrt(epsilon) / float(np.sqrt(array.astype(np.float64).var(axis=-1).mean()))))
    _scale_input(reference.graph, chosen, 2.0**power)
    without = _without_epsilon(reference, str(chosen.name))
    runs = [Session(model).run(network.check) for model in (reference, without)]
    if outputs_apart(*runs) < LEAST_EFFECT:
        raise NoSite("FP32 does not miss the epsilon either")
    healthy = result(reference, network.sample)
    candidate = _without_epsilon(healthy, str(chosen.name))
    return Fault(reference, candidate, healthy, str(chosen.name), f"epsilon {epsilon:g}, input times 2^{power}")


def removed_cast(network: Network, rng: np.random.Generator) -> Fault:
    reference = network.model.clone()
    high = bool(rng.integers(2))
    _moved_scale(reference, network.check, rng, 19.0 if high else -30.0)
    healthy = result(reference, network.sample)
    candidate = healthy.clone()
    names = {str(node.name) for node in reference.graph}
    lost = _lost_in_half(reference, network.check, high)
    island = [
        node
        for node in candidate.graph
        if node.name in names and node.op_type not in ("Cast", "Constant") and len(node.outputs) == 1
        if node.outputs[0].dtype == ir.DataType.FLOAT and node.outputs[0].name in lost
    ]
    if not island:
        raise NoSite("the conversion makes no island")
    node = island[rng.integers(len(island))]
    _run_in_half(candidate.graph, node)
    return Fault(reference, candidate, healthy, str(node.name), "overflows" if high else "underflows")


def swapped_operands(network: Network, rng: np.random.Generator) -> Fault:
    candidate = network.result()
    floats = (ir.DataType.FLOAT, ir.DataType.FLOAT16)
    sites = [
        node
        for node in candidate.graph
        if node.op_type in ("Sub", "Div", "Concat") and len(node.inputs) > 1 and node.outputs[0].dtype in floats
    ]
    node = sites[rng.integers(len(sites))]
    a, b = (0, 1) if node.op_type != "Concat" else map(int, rng.choice(len(node.inputs), 2, replace=False))
    left, right = node.inputs[a], node.inputs[b]
    if left is right:
        raise NoSite("both are the same")
    node.replace_input_with(a, right)
    node.replace_input_with(b, left)
    return Fault(network.model, candidate, None, str(node.name), f"inputs {a} and {b}")


PLANT: dict[str, Callable[[Network, np.random.Generator], Fault]] = {
    "overflow": overflow,
    "wrong weight": wrong_weight,
    "lost epsilon": lost_epsilon,
    "removed cast": removed_cast,
    "swapped operands": swapped_operands,
}
KINDS = tuple(PLANT)


# --- surgery ----------------------------------------------------------------------------------------------------------


@dataclass
class Move:
    """A scale 2^power from `first`, which writes it, to `last`, which takes it back; `between` them, all in order."""

    first: str
    last: str
    power: int = 0
    between: list[ir.Node] = field(default_factory=list)


def _moved_scale(model: ir.Model, feeds: Mapping[str, np.ndarray], rng: np.random.Generator, log2: float) -> Move:
    """Scale a layer's weights so that its output has a largest |x| of about 2^log2, and take it back at a later one:
    what is smaller in its weights, what is larger by a Mul in front of it (2^-k is exact, weights times 2^-k are not).
    """
    sites = list(_paths(model))
    if not sites:
        raise NoSite("no two layers are joined by what keeps a scale")
    path = sites[rng.integers(len(sites))]
    written = str(path[0].outputs[0].name)
    largest = float(np.abs(_values_of(model, feeds, [written])[written]).max())
    power = round(log2 - math.log2(largest))
    if (power > 0) != (log2 > 0):
        raise NoSite("the layer's output is there already")
    for node in (path[0], *(node for node in path[1:-1] if node.op_type == "Add")):
        for i, value in enumerate(node.inputs):
            if value is not None and value.const_value is not None and (node.op_type == "Add" or i >= 1):
                _replace_constant(model.graph, node, i, lambda array: _scaled(array, power))
    if power > 0:
        if power > _LARGEST_POWER:
            raise NoSite("float16 has no 2^-k to take it back with")
        _scale_input(model.graph, path[-1], 2.0**-power)
    else:
        _replace_constant(model.graph, path[-1], 1, lambda array: _scaled(array, -power))
    return Move(str(path[0].name), str(path[-1].name), power, path)


def _scaled(array: np.ndarray, power: int) -> np.ndarray:
    scaled: np.ndarray = array * np.float32(2.0**power)
    largest = float(np.abs(scaled).max())
    if largest and not _LEAST_WEIGHT <= largest <= MAX:
        raise NoSite("float16 would lose the scaled weights: another fault, of another node")
    return scaled


def _paths(model: ir.Model) -> Iterator[list[ir.Node]]:
    """From a layer with constant weights to the next one, with nothing between that a scale does not pass through."""
    for node in model.graph:
        if node.op_type not in _LINEAR or len(node.inputs) < 2 or not _is_constant(node.inputs[1]):
            continue
        path = [node]
        while True:
            value = path[-1].outputs[0]
            uses = list(value.uses())
            if len(uses) != 1 or value.is_graph_output():
                break
            reader, index = uses[0]
            path.append(reader)
            if reader.op_type in _LINEAR and index == 0 and _is_constant(reader.inputs[1]):
                yield path
                break
            adds = reader.op_type == "Add" and _is_constant(reader.inputs[1 - index])
            passes = reader.op_type in _HOMOGENEOUS and (index == 0 or reader.op_type in ("MatMul", "Mul"))
            if (not adds and not passes) or any(other is value for i, other in enumerate(reader.inputs) if i != index):
                break


def _is_constant(value: ir.Value | None) -> bool:
    return value is not None and value.const_value is not None and value.is_initializer()


def _replace_constant(graph: ir.Graph, node: ir.Node, i: int, change: Callable[[np.ndarray], np.ndarray]) -> None:
    """Give one node a changed copy of a constant that it reads."""
    value = node.inputs[i]
    assert value is not None and value.const_value is not None
    array = np.ascontiguousarray(change(value.const_value.numpy()))
    name = f"{value.name}/of/{node.name}/{i}"
    changed = ir.val(name, const_value=ir.tensor(array, name=name))
    graph.register_initializer(changed)
    node.replace_input_with(i, changed)
    if not value.uses() and not value.is_graph_output():
        del graph.initializers[str(value.name)]


def _scale_input(graph: ir.Graph, node: ir.Node, scale: float) -> None:
    source = node.inputs[0]
    assert source is not None
    factor = ir.val(f"{node.name}/quiet", const_value=ir.tensor(np.float32(scale), name=f"{node.name}/quiet"))
    graph.register_initializer(factor)
    scaled = ir.node("Mul", [source, factor], name=f"{node.name}/Scale")
    scaled.outputs[0].name = f"{node.name}/Scale_output_0"
    scaled.outputs[0].type, scaled.outputs[0].shape = source.type, source.shape
    graph.insert_before(node, scaled)
    node.replace_input_with(0, scaled.outputs[0])


def _run_in_half(graph: ir.Graph, node: ir.Node) -> None:
    """Put Casts around an FP32 node, so that it runs in FP16; its output keeps its name."""
    half = ir.DataType.FLOAT16
    for i, value in enumerate(node.inputs):
        if value is not None and value.dtype == ir.DataType.FLOAT:
            if value.const_value is not None:
                with np.errstate(over="ignore"):
                    _replace_constant(graph, node, i, lambda array: array.astype(np.float16))
                continue
            cast = ir.node("Cast", [value], {"to": int(half)}, name=f"{node.name}/in_{i}")
            cast.outputs[0].name = f"{node.name}/in_{i}_output"
            cast.outputs[0].type, cast.outputs[0].shape = ir.TensorType(half), value.shape
            graph.insert_before(node, cast)
            node.replace_input_with(i, cast.outputs[0])
    output = node.outputs[0]
    back = ir.node("Cast", [output], {"to": int(ir.DataType.FLOAT)}, name=f"{node.name}/out")
    result = back.outputs[0]
    result.type, result.shape = ir.TensorType(ir.DataType.FLOAT), output.shape
    for reader, index in list(output.uses()):
        if reader is not back:
            reader.replace_input_with(index, result)
    for position, value in enumerate(graph.outputs):
        if value is output:
            graph.outputs[position] = result
    result.name, output.name, output.type = output.name, f"{output.name}/half", ir.TensorType(half)
    graph.insert_after(node, back)


def _without_epsilon(model: ir.Model, name: str) -> ir.Model:
    copy = model.clone()
    named(copy, name).attributes["epsilon"] = ir.AttrFloat32("epsilon", 0.0)
    return copy


def _epsilon_of_clip(node: ir.Node) -> bool:
    if node.op_type != "Clip" or len(node.inputs) < 2 or not _is_constant(node.inputs[1]):
        return False
    low = node.inputs[1]
    assert low is not None and low.const_value is not None
    return 0 < float(low.const_value.numpy()) <= 1e-3


def _lost_in_half(model: ir.Model, feeds: Mapping[str, np.ndarray], high: bool) -> set[str]:
    """Tensors with elements above 65504; or, all of whose elements are below 2^-24, and some not 0."""
    floats = [out for node in model.graph for out in node.outputs if out.name and out.dtype == ir.DataType.FLOAT]
    found = set()
    for value, largest in _absmax(model, feeds, [str(value.name) for value in floats]).items():
        if largest > MAX if high else 0 < largest < 2.0**-24:
            found.add(value)
    return found


def _absmax(model: ir.Model, feeds: Mapping[str, np.ndarray], names: list[str]) -> dict[str, float]:
    from truehalf.calibration.ranges import Scanner

    scan = Scanner(model, names).run(feeds)
    return dict(zip(names, map(float, np.maximum(np.abs(scan.low), np.abs(scan.high))), strict=True))


def _values_of(model: ir.Model, feeds: Mapping[str, np.ndarray], names: list[str]) -> dict[str, np.ndarray]:
    return Instrumented(model).open(names).run(feeds)[0]


def named(model: ir.Model, name: str) -> ir.Node:
    return next(node for node in model.graph if node.name == name)
