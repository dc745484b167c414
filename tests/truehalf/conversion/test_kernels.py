"""What the cast clean-up leaves can be loaded wherever the file itself could: operators that move values, by type."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from tests.tiers import examples
from truehalf.conversion.casts_of_file import clean_model
from truehalf.conversion.element_types import KNOWN, chain_rule
from truehalf.ir.moves import has_kernel
from truehalf.ir.normalize import NORMALIZE
from truehalf.ir.ops import MOVES

T = ir.DataType
SHAPE = (1, 4, 2, 2)
TYPES = sorted(KNOWN, key=lambda dtype: dtype.value)
# What an operator reads beside `a` (and `c`, where it moves a second tensor), and its attributes.
STEPS: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "CenterCropPad": (["a", [1, 4, 3, 3]], {}),
    "Compress": (["a", [True, False]], {"axis": 2}),
    "Concat": (["a", "c"], {"axis": 1}),
    "DepthToSpace": (["a"], {"blocksize": 2}),
    "Expand": (["a", [3, 4, 2, 2]], {}),
    "Flatten": (["a"], {}),
    "Gather": (["a", [3, 0]], {"axis": 1}),
    "GatherElements": (["a", np.zeros(SHAPE, np.int64)], {}),
    "GatherND": (["a", [[0, 1], [0, 3]]], {}),
    "Identity": (["a"], {}),
    "Pad": (["a", [0, 0, 1, 0, 0, 0, 0, 1]], {}),
    "Reshape": (["a", [4, 4]], {}),
    "ReverseSequence": (["a", [3]], {"batch_axis": 0, "time_axis": 1}),
    "Scatter": (["a", np.zeros(SHAPE, np.int64), "c"], {}),
    "ScatterElements": (["a", np.arange(4).repeat(4).reshape(SHAPE), "c"], {"axis": 1}),
    "ScatterND": (["a", [[0]], "c"], {}),
    "Slice": (["a", [0, 1], [1, 3]], {}),
    "SpaceToDepth": (["a"], {"blocksize": 2}),
    "Split": (["a", [1, 3]], {"axis": 1}),
    "Squeeze": (["a", [0]], {}),
    "Tile": (["a", [1, 2, 1, 1]], {}),
    "Transpose": (["a"], {}),
    "Trilu": (["a"], {}),
    "Unsqueeze": (["a", [0]], {}),
    "Where": ([[True, False], "a", "c"], {}),
}
READERS: dict[str, tuple[list[Any], dict[str, Any]]] = {"Shape": (["a"], {}), "Size": (["a"], {})}  # of no values
ALL_STEPS = STEPS | READERS | {"Cut": (["a", [0, 0, 0, 0], list(SHAPE), [0, 1, 2, 3]], {})}
OPSETS = {"Scatter": [9]} | {"CenterCropPad": [18, 21]}  # gone since 11; there since 18


class Graph:
    """Collects nodes and constants."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def cast(self, name: str, dtype: ir.DataType) -> str:
        return self.add("Cast", [name], {"to": int(dtype)})

    def step(self, op_type: str, a: str, c: str) -> str:
        inputs, attributes = ALL_STEPS[op_type]
        op_type = "Slice" if op_type == "Cut" else op_type
        read = [{"a": a, "c": c}[each] if isinstance(each, str) else self.constant(each) for each in inputs]
        return self.add(op_type, read, attributes, outputs=2 if op_type == "Split" else 1)

    def constant(self, value: Any) -> str:
        self.weights.append(numpy_helper.from_array(np.array(value), f"k{len(self.weights)}"))
        return self.weights[-1].name

    def add(self, op_type: str, inputs: list[str], attributes: dict[str, Any], outputs: int = 1) -> str:
        names = [f"v{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op_type, inputs, names, **attributes))
        return names[0]

    def model(self, outputs: list[str], dtype: ir.DataType, opset: int) -> onnx.ModelProto:
        """All that is read and made nowhere is an input of this type."""
        known = {weight.name for weight in self.weights} | {name for node in self.nodes for name in node.output}
        inputs = dict.fromkeys(name for node in self.nodes for name in node.input if name not in known)
        graph = helper.make_graph(
            self.nodes,
            "g",
            [helper.make_tensor_value_info(name, int(dtype), SHAPE) for name in inputs],
            [onnx.ValueInfoProto(name=name) for name in outputs],
            self.weights,
        )
        model = ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8))
        NORMALIZE(model)
        return ir.to_proto(model)


def moved(op_types: Iterable[str], s: ir.DataType, m: ir.DataType, t: ir.DataType, opset: int) -> onnx.ModelProto:
    """Cast to m, move, Cast to t: each operator with inputs of its own."""
    graph, outputs = Graph(), []
    for op_type in op_types:
        result = graph.step(op_type, graph.cast(f"x_{op_type}", m), graph.cast(f"z_{op_type}", m))
        outputs += [graph.cast(result, t), *(graph.step(reader, result, "") for reader in READERS)]
    return graph.model(outputs, s, opset)


def session(proto: onnx.ModelProto) -> ort.InferenceSession | None:
    """A session of ONNX Runtime's CPU provider; None where it has a kernel for some node not."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL  # which folds what has no kernel
    try:
        return ort.InferenceSession(proto.SerializeToString(), options, ["CPUExecutionProvider"])
    except Exception:
        return None


def check(proto: onnx.ModelProto, strict: bool = True) -> None:
    """Clean up a file that can be loaded: it can be loaded still, and computes the same."""
    before = session(proto)
    if before is None:
        return
    model = ir.from_proto(proto)
    clean_model(model, strict=strict)
    after = session(ir.to_proto(model))
    assert after is not None, onnx.printer.to_text(ir.to_proto(model))
    dtype = T(proto.graph.input[0].type.tensor_type.elem_type)
    if strict and T.BFLOAT16 not in (dtype, *(value.dtype for value in model.graph.outputs)):
        # a negative number that is cast to an unsigned type is undefined, and kernels differ
        typed = {value.dtype for node in ir.from_proto(proto).graph for value in node.outputs} | {dtype}
        unsigned = any(each is not None and not each.is_floating_point() and not each.is_signed() for each in typed)
        numbers = np.arange(16) if unsigned else np.arange(-8, 8)
        values = (numbers * (0.4 if dtype.is_floating_point() else 3)).reshape(SHAPE).astype(dtype.numpy())
        feeds = {each.name: values if each.name[0] == "x" else values[:, ::-1].copy() for each in before.get_inputs()}
        for a, b in zip(before.run(None, feeds), after.run(None, feeds), strict=True):
            np.testing.assert_array_equal(b, a)


def triples() -> list[tuple[ir.DataType, ir.DataType, ir.DataType]]:
    """Types through which a Cast of a Cast comes to one."""
    return [each for each in product(TYPES, repeat=3) if chain_rule(*each) is not None and each[1] != each[2]]


def test_there_is_a_step_for_every_operator_that_moves() -> None:
    assert set(STEPS) == set(MOVES)


@pytest.mark.parametrize("op_type", STEPS | READERS)
def test_every_type_that_an_operator_may_take_has_a_kernel(op_type: str) -> None:
    for opset, dtype in product(OPSETS.get(op_type, [13, 18, 21]), TYPES):
        graph = Graph()
        proto = graph.model([graph.step(op_type, "x", "z")], dtype, opset)
        (node,) = (node for node in ir.from_proto(proto).graph if node.op_type == op_type)
        if has_kernel(node, dtype):
            assert session(proto) is not None, f"opset {opset}, {dtype}"


@pytest.mark.parametrize("t", TYPES)
def test_moves_keep_to_types_that_can_be_loaded(t: ir.DataType) -> None:
    """Of every operator, from all types that float32 holds, and back. The whole below has other types between, too."""
    for s in TYPES:
        if (s, T.FLOAT, t) in triples():
            check(moved((op_type for op_type in STEPS if op_type not in OPSETS), s, T.FLOAT, t, 18))


@pytest.mark.slow
@pytest.mark.parametrize("op_type", STEPS)
def test_moves_keep_to_types_that_can_be_loaded_whatever_is_between(op_type: str) -> None:
    last = {(m, t): (s, m, t) for s, m, t in triples()}
    for opset, (s, m, t) in product(OPSETS.get(op_type, [21])[-1:], last.values()):
        check(moved([op_type], s, m, t, opset))


# Steps that keep the shape, one after the other.
KEEPING = {
    **{name: [name] for name in ("Identity", "Trilu", "GatherElements", "ScatterElements", "ScatterND", "Where")},
    "ReverseSequence": ["ReverseSequence"],
    "Pad": ["Pad", "Cut"],
    "Concat": ["Concat", "Cut"],
    "Tile": ["Tile", "Cut"],
    "Blocks": ["DepthToSpace", "SpaceToDepth"],
    "Axes": ["Unsqueeze", "Squeeze"],
}


@st.composite
def chains(draw: st.DrawFn) -> onnx.ModelProto:
    """Two tensors of some type through Casts and moves."""
    graph, s = Graph(), draw(st.sampled_from(TYPES))
    values, outputs = [("x", s), ("z", s)], []
    for _ in range(draw(st.integers(2, 8))):
        (a, type_a), (c, type_c) = draw(st.sampled_from(values)), draw(st.sampled_from(values))
        if draw(st.booleans()):
            dtype = draw(st.sampled_from([T.FLOAT, T.FLOAT, T.DOUBLE, *TYPES]))
            values.append((graph.cast(a, dtype), dtype))
            continue
        c = c if type_a == type_c else a
        for name in KEEPING[draw(st.sampled_from(sorted(KEEPING)))]:
            a = graph.step(name, a, c)
        values.append((a, type_a))
    for a, _ in values[-2:]:
        outputs.append(graph.cast(a, draw(st.sampled_from(TYPES))))
        outputs += [graph.step(draw(st.sampled_from(sorted(READERS))), a, "")]
    return graph.model(outputs, s, draw(st.sampled_from([14, 18, 21])))


@settings(max_examples=examples(200))
@given(chains())
def test_any_chain_can_be_loaded(proto: onnx.ModelProto) -> None:
    check(proto, strict=False)
    check(proto)
