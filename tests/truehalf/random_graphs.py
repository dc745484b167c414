"""Random valid models: broadcasts, fan-out, branches and loops with captured values, mixed element types."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

F32, F16, F64, I64 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.INT64
SHAPES = [(2, 3), (1, 3), (3,), ()]
UNARY = ["Relu", "Sigmoid", "Neg", "Exp", "Softmax", "Identity", "Tanh", "ReduceMean"]
BINARY = ["Add", "Sub", "Mul", "Max"]


class _Scope:
    """Names of float32 values by shape, what a node may read here; bodies see those of the graph around them."""

    def __init__(self, outer: _Scope | None = None) -> None:
        self.values: dict[str, tuple[int, ...]] = dict(outer.values) if outer else {}
        self.nodes: list[onnx.NodeProto] = []
        self.made: list[str] = []


class _Maker:
    def __init__(self, draw: st.DrawFn) -> None:
        self.draw, self.count, self.initializers = draw, 0, list[onnx.TensorProto]()

    def name(self, prefix: str = "v") -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def pick(self, scope: _Scope) -> str:
        return self.draw(st.sampled_from(sorted(scope.values)))

    def add(self, scope: _Scope, op: str, inputs: list[str], shape: tuple[int, ...], **attributes: Any) -> str:
        out = self.name()
        scope.nodes.append(helper.make_node(op, inputs, [out], name=self.name("n"), **attributes))
        scope.values[out] = shape
        scope.made.append(out)
        return out

    def weight(self, scope: _Scope, shape: tuple[int, ...]) -> str:
        name = self.name("w")
        array = np.linspace(-1, 1, max(1, int(np.prod(shape))), dtype=np.float32).reshape(shape)
        self.initializers.append(numpy_helper.from_array(array, name))
        return name

    def step(self, scope: _Scope, depth: int) -> None:
        kinds = ["unary", "unary", "binary", "binary", "weight", "constant", "matmul", "mixed", "shape"]
        kind = self.draw(st.sampled_from([*kinds, "if", "loop"] if depth else kinds))
        x = self.pick(scope)
        shape = scope.values[x]
        if kind == "unary":
            op = self.draw(st.sampled_from(UNARY if shape else ["Relu", "Sigmoid", "Neg", "Identity"]))
            attributes = {"keepdims": 0} if op == "ReduceMean" else {}
            self.add(scope, op, [x], () if op == "ReduceMean" else shape, **attributes)
        elif kind == "binary":
            y = self.pick(scope)
            both = np.broadcast_shapes(shape, scope.values[y])
            self.add(scope, self.draw(st.sampled_from(BINARY)), [x, y], tuple(both))
        elif kind == "weight":
            self.add(scope, "Mul", [x, self.weight(scope, shape)], shape)
        elif kind == "constant":
            value = numpy_helper.from_array(np.full(shape, 0.5, np.float32))
            self.add(scope, "Add", [x, self.add(scope, "Constant", [], shape, value=value)], shape)
        elif kind == "matmul" and shape == (2, 3):
            self.add(scope, "MatMul", [x, self.weight(scope, (3, 3))], shape)
        elif kind == "mixed":
            to = self.draw(st.sampled_from([F16, F64, I64]))
            hidden, negated = self.name(), self.name()
            scope.nodes.append(helper.make_node("Cast", [x], [hidden], name=self.name("n"), to=to))
            # Of two Casts in a row whose result a body reads, ONNX Runtime 1.31 loses one, in any FP32 file.
            scope.nodes.append(helper.make_node("Neg", [hidden], [negated], name=self.name("n")))
            self.add(scope, "Cast", [negated], shape, to=F32)
        elif kind == "shape":
            sizes = self.name()
            scope.nodes.append(helper.make_node("Shape", [x], [sizes], name=self.name("n")))
            self.add(scope, "Expand", [x, sizes], shape)
        elif kind == "if":
            self.branches(scope, shape, depth)
        elif kind == "loop":
            self.loop(scope, x, depth)

    def body(self, scope: _Scope, depth: int, state: dict[str, tuple[int, ...]]) -> _Scope:
        inner = _Scope(scope)
        inner.values |= state
        for _ in range(self.draw(st.integers(1, 3))):
            self.step(inner, depth - 1)
        return inner

    def of_shape(self, inner: _Scope, shape: tuple[int, ...]) -> str:
        """A value made in the body that has this shape, last of all."""
        fitting = [name for name, found in inner.values.items() if found == shape]
        return self.add(inner, "Identity", [self.draw(st.sampled_from(sorted(fitting)))], shape)

    def branches(self, scope: _Scope, shape: tuple[int, ...], depth: int) -> None:
        graphs = []
        for _ in range(2):
            inner = self.body(scope, depth, {})
            out = self.of_shape(inner, shape)
            graphs.append(helper.make_graph(inner.nodes, self.name("g"), [], [info(out, shape)]))
        self.add(scope, "If", ["condition"], shape, then_branch=graphs[0], else_branch=graphs[1])

    def loop(self, scope: _Scope, start: str, depth: int) -> None:
        shape, state = scope.values[start], self.name("s")
        inner = self.body(scope, depth, {state: shape})
        following, going_in, going_on = self.of_shape(inner, shape), self.name("c"), self.name("c")
        inner.nodes.append(helper.make_node("Identity", [going_in], [going_on], name=self.name("n")))
        scalar = helper.make_tensor_value_info(self.name("i"), I64, ())
        inputs = [scalar, helper.make_tensor_value_info(going_in, TensorProto.BOOL, ()), info(state, shape)]
        outputs = [helper.make_tensor_value_info(going_on, TensorProto.BOOL, ()), info(following, shape)]
        graph = helper.make_graph(inner.nodes, self.name("g"), inputs, outputs)
        self.add(scope, "Loop", ["trips", "condition", start], shape, body=graph)


def info(name: str, shape: tuple[int, ...]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, F32, shape)


@st.composite
def models(draw: st.DrawFn) -> onnx.ModelProto:
    """Models of 1 to 12 steps over inputs of several shapes; every value may be an output, inputs too."""
    maker, scope = _Maker(draw), _Scope()
    inputs = {f"x{i}": shape for i, shape in enumerate(SHAPES)}
    scope.values |= inputs
    for _ in range(draw(st.integers(1, 12))):
        maker.step(scope, depth=2)
    made = scope.made or [maker.add(scope, "Relu", ["x0"], SHAPES[0])]
    chosen = {made[-1], *draw(st.lists(st.sampled_from(sorted(scope.values)), max_size=3))}
    condition = helper.make_tensor_value_info("condition", TensorProto.BOOL, ())
    graph = helper.make_graph(
        scope.nodes,
        "g",
        [*(info(name, shape) for name, shape in inputs.items()), condition],
        [info(name, scope.values[name]) for name in sorted(chosen)],
        [*maker.initializers, numpy_helper.from_array(np.array(2, np.int64), "trips")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    return model


FEEDS = {
    f"x{i}": np.linspace(-0.7, 0.9, max(1, int(np.prod(shape))), dtype=np.float32).reshape(shape)
    for i, shape in enumerate(SHAPES)
} | {"condition": np.array(True)}
