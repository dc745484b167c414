"""What is folded is what ONNX Runtime computes: every version of every operator that the table has, at its opsets."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto

from tests.onnx_backend import loaded
from tests.truehalf.repairs.repairing import RNG, assert_equal, ops, repaired, run
from truehalf.ir.ops import adds_up
from truehalf.repairs.foldable import FOLDABLE
from truehalf.slimming.slim import slim

NEWEST = 24  # opset that ONNX Runtime and onnx both have
ROUNDING = 1e-6  # float32, other orders of sums, other exponentials
HALF_ROUNDING = 1e-3  # float16
X = RNG.standard_normal((2, 3, 4)).astype(np.float32)
SPECIAL = np.array([-np.inf, -2.5, -1.5, -0.5, -0.0, 0.0, 0.5, 1.5, 2.5, 100, np.inf, np.nan], np.float32)


class Case(NamedTuple):
    """One operator on constants; its form holds from `first` to `last`."""

    op_type: str
    inputs: list[Any]
    attributes: dict[str, Any] = {}  # noqa: RUF012 - never changed
    first: int = 7
    last: int = NEWEST
    results: int = 1

    def opsets(self) -> list[int]:
        """One for each version of the operator."""
        first = max(self.first, FOLDABLE.get(self.op_type, 7))
        versions = {onnx.defs.get_schema(self.op_type, opset).since_version for opset in range(first, self.last + 1)}
        return sorted({max(version, first) for version in versions})


def i64(*numbers: Any) -> np.ndarray:
    return np.array(numbers, np.int64)


def one(number: Any) -> np.ndarray:
    return np.asarray(number)


def f32(*numbers: Any) -> np.ndarray:
    return np.array(numbers, np.float32)


UNARY = ("Abs", "Atan", "Ceil", "Cos", "Erf", "Exp", "Floor", "IsInf", "IsNaN", "Log", "Neg", "Reciprocal", "Relu")
MORE_UNARY = ("Round", "Sigmoid", "Sign", "Sin", "Sqrt", "Tan", "Tanh", "Identity", "Not")
BINARY = ("Add", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max", "Min", "Mul", "Sub", "Sum")
REDUCTIONS = ("ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum")
AXES_ARE_INPUT = {"ReduceSum": 13}  # of the others since 18


def cases() -> Iterator[Case]:
    for op_type in (*UNARY, *MORE_UNARY):
        values = SPECIAL[1:-2] if op_type in ("Sin", "Cos", "Tan", "Relu", "Sign") else SPECIAL
        yield Case(op_type, [X > 0 if op_type == "Not" else values])
    for op_type in BINARY:
        old = op_type == "Equal"  # of floats since 11
        yield Case(op_type, [X, X[:1, :, :1] * 2], first=11 if old else 8 if op_type in ("Max", "Min", "Sum") else 7)
        yield Case(op_type, [X, X + 1], first=11 if old else 7)
    yield Case("Equal", [i64(1, 2, 3), i64(1, 5, 3)])
    for op_type in ("Add", "Div", "Mul", "Sub"):
        yield Case(op_type, [i64(-7, 7, -7, 7), i64(2, -2, -2, 2)])
    for op_type in ("And", "Or", "Xor"):
        yield Case(op_type, [X > 0, X[:1] > 0.5])
    for op_type in REDUCTIONS:
        change = AXES_ARE_INPUT.get(op_type, 18)
        yield Case(op_type, [X], {"axes": [1], "keepdims": 0}, last=change - 1)
        yield Case(op_type, [X], {"axes": [-1]}, first=11, last=change - 1)
        yield Case(op_type, [X, i64(0, -1)], first=change)
        yield Case(op_type, [X, i64()], {"noop_with_empty_axes": 1}, first=change)
        yield Case(op_type, [X], {"keepdims": 0})
    for op_type in ("ArgMax", "ArgMin"):
        yield Case(op_type, [X], {"axis": 1, "keepdims": 0})
        yield Case(op_type, [f32(1, 3, 3, 1, 1)], {"axis": 0})
        yield Case(op_type, [f32(1, 3, 3, 1, 1)], {"axis": 0, "select_last_index": 1}, first=12)
    for to in (TensorProto.INT32, TensorProto.INT64, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BOOL):
        yield Case("Cast", [f32(1.7, -1.7, 0, 0.3, 1e-9, 300)], {"to": to})
    yield Case("Cast", [i64(2**40 + 3, -1)], {"to": TensorProto.INT32})
    yield Case("Cast", [i64(3, 2**24 + 1)], {"to": TensorProto.FLOAT})
    yield Case("Concat", [X, X + 1], {"axis": 1})
    yield Case("ConstantOfShape", [i64(2, 3)], {"value": onnx.helper.make_tensor("v", 1, [1], [7.0])})
    yield Case("ConstantOfShape", [i64(2, 0)])
    yield Case("CumSum", [X, one(np.int32(1))], {"exclusive": 1, "reverse": 1})
    yield Case("CumSum", [X, one(np.int64(-1))])
    yield Case("Einsum", [X, X], {"equation": "bij,bkj->bik"})
    yield Case("Einsum", [f32(1, 2, 3), f32(4, 5)], {"equation": "i,j->ij"})
    yield Case("Expand", [f32(1, 2), i64(3, 1)])
    yield Case("Flatten", [X], {"axis": 2})
    yield Case("Flatten", [X], {"axis": -1}, first=11)
    yield Case("Gather", [X, i64([1], [2])], {"axis": 1})
    yield Case("Gather", [X, one(np.int64(-1))], {"axis": 1}, first=11)
    yield Case("GatherND", [X, i64([0, 1], [1, -1])])
    yield Case("GatherND", [X, i64([1], [0])], {"batch_dims": 1}, first=12)
    yield Case("Gemm", [X[0], X[1], f32(1, 2, 3)], {"transB": 1, "alpha": 0.5, "beta": 2.0})
    yield Case("Gemm", [X[0], X[1]], {"transA": 1}, first=11)
    yield Case("MatMul", [X, X[0].T.copy()])
    yield Case("MatMul", [X[0, 0], X[1].T.copy()])
    yield Case("Mod", [i64(-7, 7, -7), i64(3, -3, -3)])
    yield Case("Mod", [i64(-7, 7, -7), i64(3, -3, -3)], {"fmod": 1})
    yield Case("Mod", [f32(-7, 7, 5.5), f32(3, -3, 2)], {"fmod": 1})
    yield Case("NonZero", [X > 0])
    yield Case("NonZero", [f32(0, 1, 0, -2)])
    yield Case("OneHot", [i64(0, 2, 5, -1), one(np.int64(3)), f32(0, 1)])
    yield Case("OneHot", [i64(0, 2), one(np.int64(3)), f32(0, 1)], {"axis": 0})
    yield Case("Pad", [X], {"pads": [0, 1, 0, 0, 0, 1], "value": 2.0}, last=10)
    yield Case("Pad", [X, i64(0, 1, 0, 0, 0, 1)], first=11)
    for mode in ("reflect", "edge"):
        yield Case("Pad", [X, i64(0, 1, 1, 0, 1, 1)], {"mode": mode}, first=11)
    yield Case("Pow", [f32(2, 3, 0.5), f32(-1, 0.5, 3)])
    yield Case("Pow", [f32(2, -2), i64(2, 3)], first=12)
    yield Case("Pow", [i64(2, -2, 3), i64(3, 3, 1)], first=12)
    yield Case("Range", [one(np.float32(limit)) for limit in (-3, 300, 2)])
    yield Case("Range", [one(np.float32(limit)) for limit in (0.5, 9, 1.25)])
    for limits in ((10, 0, -3), (0, -3, 1), (0, 5, 1)):
        yield Case("Range", [one(np.int64(limit)) for limit in limits])
    yield Case("Reshape", [X, i64(0, -1)])
    yield Case("Reshape", [np.zeros((0, 3), np.float32), i64(0, 3)], {"allowzero": 1}, first=14)
    yield Case("ScatterElements", [f32(0, 0, 0), i64(2, 1), f32(1, 2)])
    yield Case("ScatterElements", [X, i64([[0, 2, 1, -1]]), X[:1, :1]], {"axis": 1})
    yield Case("ScatterElements", [f32(0, 0, 0), i64(1, 1), f32(1, 2)], {"reduction": "add"}, first=16)
    yield Case("ScatterND", [f32(0, 0, 0), i64([2], [1]), f32(1, 2)])
    yield Case("ScatterND", [f32(0, 0, 0), i64([1], [1]), f32(1, 2)], {"reduction": "add"}, first=16)
    yield Case("Shape", [X])
    yield Case("Shape", [X], {"start": -2, "end": 9}, first=15)
    yield Case("Size", [X])
    yield Case("Slice", [X], {"starts": [0, 1], "ends": [1, 9], "axes": [0, 2]}, last=9)
    yield Case("Slice", [X, i64(3), i64(-9), i64(2), i64(-2)], first=10)
    for axis in (0, 1, -1):
        yield Case("Softmax", [X], {"axis": axis})
        yield Case("LogSoftmax", [X], {"axis": axis})
    yield Case("Split", [X], {"axis": 2}, last=17, results=2)
    yield Case("Split", [X], {"axis": 2, "split": [1, 3]}, last=12, results=2)
    yield Case("Split", [X, i64(1, 3)], {"axis": -1}, first=13, results=2)
    yield Case("Split", [X], {"axis": 2, "num_outputs": 2}, first=18, results=2)
    yield Case("Squeeze", [X[None]], {"axes": [0]}, last=12)
    yield Case("Squeeze", [X[None], i64(0)], first=13)
    yield Case("Squeeze", [X[None]])
    yield Case("Tile", [X, i64(1, 2, 1)])
    yield Case("TopK", [X, i64(2)], {"axis": 1}, results=2)
    yield Case("TopK", [f32(1, 3, 3, 2), i64(3)], {"largest": 0}, first=11, results=2)
    yield Case("Transpose", [X], {"perm": [2, 0, 1]})
    yield Case("Transpose", [X])
    yield Case("Trilu", [X, one(np.int64(1))], {"upper": 0})
    yield Case("Trilu", [X])
    yield Case("Unsqueeze", [X], {"axes": [0, 2]}, last=12)
    yield Case("Unsqueeze", [X, i64(-1, 0)], first=13)
    yield Case("Where", [X > 0, X, f32(0)])


CASES = list(cases())


def constants(case: Case, opset: int) -> onnx.ModelProto:
    """The operator on initializers, and an Identity behind each result."""
    helper = onnx.helper
    names = ["" if array is None else f"c{i}" for i, array in enumerate(case.inputs)]
    tensors = [
        onnx.numpy_helper.from_array(array, name) for array, name in zip(case.inputs, names, strict=True) if name
    ]
    made = [f"r{i}" for i in range(case.results)]
    nodes = [helper.make_node(case.op_type, names, made, "/node", **case.attributes)]
    nodes += [helper.make_node("Identity", [name], [f"y_{name}"], f"/{name}") for name in made]
    graph = helper.make_graph(nodes, "net", [helper.make_tensor_value_info("x", 1, ["n"])], [], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    known = {info.name: info for info in onnx.shape_inference.infer_shapes(model).graph.value_info}
    for name in made:
        kind = known[name].type.tensor_type
        sizes = [dim.dim_value if dim.HasField("dim_value") else f"{name}_{i}" for i, dim in enumerate(kind.shape.dim)]
        output = helper.make_tensor_value_info(f"y_{name}", kind.elem_type, sizes if kind.HasField("shape") else None)
        model.graph.output.append(output)
    return model


def assert_folded(model: onnx.ModelProto, op_type: str, rtol: float) -> None:
    after, report = repaired(model, "fold_constants")
    kept = [node for node in after.graph.node if node.name == "/node"]
    assert not kept and report.counts["fold_constants"] > 0, f"{op_type} was not folded"
    assert_equal(model, after, [{"x": f32(1)}], rtol)


@pytest.mark.parametrize("op_type", sorted(FOLDABLE))
def test_every_version_of_an_operator(op_type: str) -> None:
    mine = [case for case in CASES if case.op_type == op_type]
    newest = {onnx.defs.get_schema(op_type, opset).since_version for opset in range(FOLDABLE[op_type], NEWEST + 1)}
    tried = {onnx.defs.get_schema(op_type, opset).since_version for case in mine for opset in case.opsets()}
    assert tried == newest, "no case for these versions"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        for case in mine:
            for opset in case.opsets():
                assert_folded(constants(case, opset), op_type, ROUNDING)


def half(case: Case) -> Case:
    return case._replace(
        inputs=[array.astype(np.float16) if array is not None and array.dtype == np.float32 else array
                for array in case.inputs]
    )  # fmt: skip


@pytest.mark.parametrize("op_type", sorted(set(FOLDABLE) - {"ConstantOfShape", "Range"}))  # no float16 in them
def test_float16(op_type: str) -> None:
    mine = [case for case in CASES if case.op_type == op_type and "to" not in case.attributes]
    for case in [half(case) for case in mine if any(a is not None and a.dtype == np.float32 for a in case.inputs)]:
        for opset in [opset for opset in case.opsets() if opset >= 13]:
            model = constants(case, opset)
            if adds_up(ir.from_proto(model.graph.node[0])):
                assert repaired(model, "fold_constants")[0].graph.node[0].op_type == op_type
            elif runs(model):
                assert_folded(model, op_type, HALF_ROUNDING)


def runs(model: onnx.ModelProto) -> bool:
    """Whether ONNX Runtime has the operator for these types."""
    try:
        run(model, {"x": f32(1)})
    except Exception as error:  # of no public class
        assert any(word in str(error) for word in ("NOT_IMPLEMENTED", "INVALID_GRAPH", "MLFloat16")), error
        return False
    return True


@pytest.mark.parametrize(
    "case",
    [
        *[Case(op_type, [X], {"axis": 1}, last=12) for op_type in ("Softmax", "LogSoftmax", "Hardmax")],
        Case("BatchNormalization", [X, f32(1, 2, 3), f32(0, 1, 2), f32(0, 1, 0), f32(1, 2, 3)], last=13),
        Case("LRN", [X[None]], {"size": 3}),
        Case("Range", [one(np.float32(0.1)), one(np.float32(100)), one(np.float32(0.3))], first=11),
        Case("Clip", [f32(-np.inf, 0), None, one(np.float32(2))], first=11),
        Case("RandomUniform", [], {"shape": [2]}),
    ],
)
def test_what_the_reference_gives_otherwise_is_not_folded(case: Case) -> None:
    versions = range(case.first, case.last + 1)
    for opset in sorted({max(onnx.defs.get_schema(case.op_type, v).since_version, case.first) for v in versions}):
        after, report = repaired(constants(case, opset), "fold_constants")
        assert (ops(after)[0], report.counts) == (case.op_type, {"fold_constants": 0})


def test_a_softmax_of_old_keeps_its_values_through_slim(tmp_path: Path) -> None:
    before = constants(Case("Softmax", [X], {"axis": 1}), 11)
    onnx.save(before, tmp_path / "model.onnx")
    slim(tmp_path / "model.onnx", tmp_path / "slim.onnx", simplify=False)
    assert_equal(before, onnx.load(tmp_path / "slim.onnx"), [{"x": f32(1)}])


def backend_cases() -> Iterator[tuple[str, onnx.ModelProto]]:
    """ONNX's own tests of single operators that are folded, with initializers in the place of inputs."""
    for case in loaded("node"):
        node = case.model.graph.node[0]
        opset = {entry.domain: entry.version for entry in case.model.opset_import}.get("", 0)
        arrays = case.data_sets[0][0]
        if len(case.model.graph.node) > 1 or node.domain or node.op_type not in FOLDABLE or opset > NEWEST:
            continue
        if not all(isinstance(array, np.ndarray) and array.dtype.kind in "biuf" for array in arrays):
            continue  # strings, float8, sequences
        model = onnx.ModelProto.FromString(case.model.SerializeToString())
        model.ir_version = 10
        for info, array in zip(model.graph.input, arrays, strict=True):
            model.graph.initializer.append(onnx.numpy_helper.from_array(array, info.name))
        del model.graph.input[:]
        model.graph.node[0].name = "/node"
        for i, output in enumerate(list(model.graph.output)):
            model.graph.node[0].output[list(model.graph.node[0].output).index(output.name)] = f"r{i}"
            model.graph.node.append(onnx.helper.make_node("Identity", [f"r{i}"], [output.name], f"/{i}"))
        yield case.name, model


def test_backend_tests_of_onnx() -> None:
    folded = 0
    for name, model in backend_cases():
        try:
            run(model, {})
        except Exception:  # types and versions that ONNX Runtime does not have
            continue
        after, report = repaired(model, "fold_constants")
        half_precision = any(tensor.data_type == TensorProto.FLOAT16 for tensor in model.graph.initializer)
        try:
            assert_equal(model, after, [{}], HALF_ROUNDING if half_precision else ROUNDING)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error
        folded += report.counts["fold_constants"] > 0
    assert folded > 200
