"""What the tests of the cast clean-up share: a graph from ONNX text, cleaned and checked."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator

from truehalf.conversion.casts_of_file import CastsReport, clean_model

F16, F32, F64, I8, I32, I64, BOOL, BF16 = 10, 1, 11, 3, 6, 7, 9, 16


def graph(body: str, inputs: str = "float[4] x", outputs: str = "float[4] y") -> onnx.ModelProto:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> g ({inputs}) => ({outputs}) {{ {body} }}')
    onnx.checker.check_model(model, full_check=True)
    return model


def cleaned(proto: onnx.ModelProto, strict: bool = False) -> tuple[onnx.ModelProto, CastsReport]:
    model = ir.from_proto(proto)
    report = clean_model(model, strict=strict)
    result = ir.to_proto(model)
    onnx.checker.check_model(result, full_check=True)
    assert [(v.name, v.type) for v in result.graph.input] == [(v.name, v.type) for v in proto.graph.input]
    assert [(v.name, v.type) for v in result.graph.output] == [(v.name, v.type) for v in proto.graph.output]
    return result, report


def ops(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def chain(*types: int) -> str:
    """Casts of Relu(x) one after the other; the last is read by a Relu that writes y."""
    lines = ["h0 = Relu(x)"] + [f"h{i + 1} = Cast<to = {t}>(h{i})" for i, t in enumerate(types)]
    return "\n".join([*lines, f"y = Relu(h{len(types)})"])


def run(model: onnx.ModelProto, x: np.ndarray, **feeds: np.ndarray) -> np.ndarray:
    (result,) = ReferenceEvaluator(model).run(None, {"x": x} | feeds)
    return np.asarray(result)
