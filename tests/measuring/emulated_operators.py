"""Emulated FP16 operators beside onnx.reference, over ONNX's backend tests: distances in units of the last place.

Each test with float32 inputs is converted to FP16 as a whole and run under emulation, and the inputs, rounded to FP16,
are put through onnx.reference twice:

    once    the float32 test on float64 arrays, the result rounded to FP16: one rounding for a node
    steps   the FP16 test on float16 arrays: numpy.float16, which rounds after every numpy operation inside a node

and every function of one variable is compared with "once" on all 65536 FP16 numbers.

A distance is the number of FP16 numbers from one to the other; Inf follows 65504, +0 and -0 are one number, and NaN is
at no distance from NaN and "apart" from everything else. "Of the largest" counts in units of the largest finite number
of that output instead: where terms cancel, what is left is as small as FP32's own error.
"""

from __future__ import annotations

import warnings
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from tests.onnx_backend import cases
from tests.truehalf.conversion.test_backend_nodes import converted
from truehalf.emulation.sessions import EmulatedSession
from truehalf.errors import StageError
from truehalf.runtime.ort import Session

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "emulation_ulp.json"
SEVERAL = "(several nodes)"
_RANDOM = {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
# fmt: off
FUNCTIONS = (
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Cos", "Cosh", "Elu", "Erf", "Exp", "Floor",
    "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Log", "Mish", "Neg", "Reciprocal", "Relu", "Round", "Selu",
    "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Tan", "Tanh",
)
# fmt: on
_FLOAT, _HALF = onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16


@dataclass
class Distances:
    """Of one operator to one reference."""

    cases: int = 0
    elements: int = 0
    equal: int = 0
    apart: int = 0
    max_ulp: int = 0
    of_largest: float = 0.0
    worst: str = ""

    def add(self, name: str, pairs: Sequence[tuple[np.ndarray, np.ndarray]]) -> None:
        """One test: actual and expected float16 arrays."""
        self.cases += 1
        for actual, expected in pairs:
            found, apart = distances(actual, expected)
            self.elements += found.size + apart
            self.equal += int((found == 0).sum())
            self.apart += apart
            largest = int(found.max(initial=0))
            self.of_largest = max(self.of_largest, of_largest(actual, expected))
            if not self.worst or largest > self.max_ulp:
                self.max_ulp, self.worst = largest, name


@dataclass
class Table:
    """Distances by operator, and how many tests could not be compared, by reason."""

    once: dict[str, Distances] = field(default_factory=lambda: defaultdict(Distances))
    steps: dict[str, Distances] = field(default_factory=lambda: defaultdict(Distances))
    left_out: Counter[str] = field(default_factory=Counter)
    cases: int = 0


def distances(actual: np.ndarray, expected: np.ndarray) -> tuple[np.ndarray, int]:
    """Units between two float16 arrays of one shape where neither or both are NaN, and how many are apart."""
    nan = np.isnan(actual), np.isnan(expected)
    apart = nan[0] != nan[1]
    with np.errstate(invalid="ignore"):
        found = np.abs(_rank(actual) - _rank(expected))
    found[nan[0] & nan[1]] = 0
    return found[~apart], int(apart.sum())


def of_largest(actual: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference between numbers finite in both, in units of the largest finite expected one."""
    both = np.isfinite(actual) & np.isfinite(expected)
    a, b = actual[both].astype(np.float64), expected[both].astype(np.float64)
    unit = float(np.spacing(np.float16(np.abs(b).max(initial=0))))
    return float(np.abs(a - b).max(initial=0) / unit)


def _rank(array: np.ndarray) -> np.ndarray:
    """The place of a float16 number among all of them; 0 for both zeros."""
    bits = np.ascontiguousarray(array).view(np.int16).astype(np.int32)
    return np.where(bits < 0, -(bits & 0x7FFF), bits)


def measured(limit: int | None = None, whole: bool = True) -> Table:
    """Run the tests, or the first `limit` of them, or their sample."""
    table = Table()
    for number, (name, proto, inputs) in enumerate(cases(whole)):
        if number == limit:
            break
        table.cases += 1
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            reason = _compare(name, proto, inputs, table)
        if reason:
            table.left_out[reason] += 1
    return table


@dataclass
class Case:
    """A test of ONNX's as FP16.

    Attributes:
        operator: its one operator, or SEVERAL.
        proto, half: the FP32 test, and as converted.
        feeds: its inputs, rounded to FP16 where they are floats of the half test.
    """

    operator: str
    proto: onnx.ModelProto
    half: onnx.ModelProto
    feeds: dict[str, np.ndarray]


def in_half(proto: onnx.ModelProto, inputs: Sequence[Any]) -> Case | str:
    """A test converted as a whole, or why it cannot be."""
    arrays = [onnx.numpy_helper.to_array(x) if isinstance(x, onnx.TensorProto) else x for x in inputs]
    operators = [node.op_type for node in proto.graph.node if node.op_type != "Constant"]
    if set(operators) & _RANDOM:
        return "draws random numbers"
    if len(arrays) != len(proto.graph.input) or not all(isinstance(array, np.ndarray) for array in arrays):
        return "reads or makes no tensors, or says nothing of its inputs"
    result, exact = converted(proto, keep_io_types=False)
    if not any(value.type.tensor_type.elem_type == _HALF for value in result.graph.output):
        return "puts out no FP16"
    if any(node.op_type == "Cast" for node in result.graph.node) and "Cast" not in operators:
        return "keeps a part in FP32"
    ends = [value.name for value in proto.graph.input]
    half = {
        name: array.astype(np.float16) if array.dtype == np.float32 and name not in exact else array
        for name, array in zip(ends, arrays, strict=True)
    }
    return Case(operators[0] if len(operators) == 1 else SEVERAL, proto, result, half)


def halves(case: Case, got: Sequence[Any], expected: Sequence[Any]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Of the outputs that are FP16, what two ways of running a test give."""
    return [
        (a.astype(np.float16), np.asarray(b).astype(np.float16))
        for a, b, value in zip(got, expected, case.half.graph.output, strict=True)
        if value.type.tensor_type.elem_type == _HALF
    ]


def _compare(name: str, proto: onnx.ModelProto, inputs: Sequence[Any], table: Table) -> str | None:
    """Add a test to the table, or say why not."""
    case = in_half(proto, inputs)
    if isinstance(case, str):
        return case
    try:
        emulated = list(EmulatedSession(ir.from_proto(case.half)).run(case.feeds).values())
    except StageError:
        return "ONNX Runtime has no float32 kernel for it"
    wide = {
        name: array.astype(np.float64) if array.dtype == np.float16 else array for name, array in case.feeds.items()
    }
    if _disputed(proto, wide):
        return "ONNX Runtime and onnx.reference disagree in FP32"
    references = (_reference(proto, wide), table.once), (_reference(case.half, case.feeds), table.steps)
    for expected, rows in references:
        if expected is not None and all(np.shape(a) == np.shape(b) for a, b in zip(emulated, expected, strict=True)):
            rows[case.operator].add(name, halves(case, emulated, expected))
    if all(expected is None for expected, _ in references):
        return "onnx.reference cannot run it"
    return None


def _disputed(proto: onnx.ModelProto, wide: Mapping[str, np.ndarray]) -> bool:
    narrow = {name: array.astype(np.float32) if array.dtype == np.float64 else array for name, array in wide.items()}
    expected = _reference(proto, narrow)
    try:
        actual = Session(ir.from_proto(proto)).run(narrow)
    except StageError:
        return False
    return expected is not None and not all(
        np.shape(a) == np.shape(b) and np.allclose(a, b, rtol=1e-3, atol=1e-5, equal_nan=True)
        for a, b in zip(actual.values(), expected, strict=True)
        if np.asarray(a).dtype == np.float32
    )


def _reference(proto: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> list[Any] | None:
    from onnx.reference import ReferenceEvaluator

    try:
        values = ReferenceEvaluator(proto).run(None, dict(feeds))
    except Exception:  # whatever an operator's Python raises
        return None
    return list(values) if all(isinstance(value, (np.ndarray, np.generic)) for value in values) else None


# --- every FP16 number ------------------------------------------------------------------------------------------------


def exhaustive() -> dict[str, Distances]:
    """Functions of one variable against "once" on all FP16 numbers; NaN, of which there are many, once."""
    every = np.arange(2**16, dtype=np.uint32).astype(np.uint16).view(np.float16)
    every = np.concatenate([every[~np.isnan(every)], np.float16([np.nan])])
    found: dict[str, Distances] = {}
    for operator in FUNCTIONS:
        result, proto = (one_node(operator, element_type) for element_type in (_HALF, _FLOAT))
        with np.errstate(all="ignore"):
            got = EmulatedSession(ir.from_proto(result)).run({"x": every})["y"].astype(np.float16)
            expected = _reference(proto, {"x": every.astype(np.float64)})
            assert expected is not None, operator
            found[operator] = Distances()
            found[operator].add(operator, [(got, expected[0].astype(np.float16))])
    return found


def one_node(operator: str, element_type: int) -> onnx.ModelProto:
    make = onnx.helper
    ends = [make.make_tensor_value_info(name, element_type, ["N"]) for name in "xy"]
    graph = make.make_graph([make.make_node(operator, ["x"], ["y"])], operator, ends[:1], ends[1:])
    return make.make_model(graph, opset_imports=[make.make_opsetid("", 20)], ir_version=9)


# --- the table --------------------------------------------------------------------------------------------------------


def as_rows(table: Table, functions: Mapping[str, Distances]) -> dict[str, Any]:
    """What is written: JSON types only."""
    return {
        "onnx": onnx.__version__,
        "cases": table.cases,
        "left_out": dict(sorted(table.left_out.items())),
        "operators": {
            operator: {
                reference: vars(rows[operator])
                for reference, rows in (("once", table.once), ("steps", table.steps))
                if operator in rows
            }
            for operator in sorted({*table.once, *table.steps})
        },
        "all_numbers": {operator: {"once": vars(row)} for operator, row in functions.items()},
    }
