"""Judge an ONNX file as it lies on disk, before anything is made of it: types, ONNX Runtime, onnx's checker.

Everything else runs a copy that was typed anew and that rounds by itself; it runs where the file does not.

    float16 and float32 where an operator takes one type     failed
    ONNX Runtime finds the graph invalid, and the reference's not   failed
    onnx's checker refuses what ONNX Runtime loads           named, no verdict: stated shapes may be false
    ONNX Runtime lacks a kernel, an operator or a plugin     named, no verdict
"""

from __future__ import annotations

import contextlib
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import onnx

from truehalf.codes import coded
from truehalf.errors import StageError
from truehalf.ir.facts import holds_fp16
from truehalf.ir.model_file import read_proto
from truehalf.ir.model_forms import ModelFile
from truehalf.ir.proto.names import graphs_of
from truehalf.ir.proto.plugins import plugins_of
from truehalf.ir.proto.refusals import checker_refusal, refused
from truehalf.ir.slots import schema_at
from truehalf.runtime.ort import Session, custom_operators
from truehalf.verification.findings import FAILED, VERIFIED, Finding, not_checked

CHECK = "file"
_HALF, _FLOAT = onnx.TensorProto.FLOAT16, onnx.TensorProto.FLOAT
_INVALID = re.compile(r"INVALID_GRAPH|Type Error|type inference failed", re.IGNORECASE)
_HELD = 1024  # bytes; smaller constants may be needed to infer types
_Variadic = onnx.defs.OpSchema.FormalParameterOption.Variadic


def judge_file(file: ModelFile, reference: ModelFile) -> list[Finding]:
    """Judge a file that holds FP16, by its path; other files are run as they are, and refused there.

    Args:
        reference: the FP32 file; what ONNX Runtime refuses in it as well is not held against the other.
    """
    if not holds_fp16(file.model):
        return []
    mixed = mixed_types(file.path)
    if mixed is not None:
        node, text = mixed
        return [
            Finding(CHECK, FAILED, coded("types-mixed", f"{file.path}: {text}"), no_node=True, facts={"node": node})
        ]
    error = None if plugins_of(file.model) or custom_operators(file.model) else _refusal(file.path)
    if error is not None and _INVALID.search(str(error)) and _refusal(reference.path) is None:
        return [Finding(CHECK, FAILED, str(error), no_node=True)]
    found = [] if error is None else [not_checked(f"whether a runtime loads the file as it is: {error}")]
    if (said := checker_refusal(file.path)) is not None:
        found.append(not_checked(str(refused(said, file.path, None))))
    return found or [Finding(CHECK, VERIFIED)]


def _refusal(path: Path) -> StageError | None:
    """What ONNX Runtime says of a file that it does not load."""
    try:
        Session(path, optimize=False).close()
    except StageError as error:
        return error
    return None


def mixed_types(path: Path) -> tuple[str, str] | None:
    """Find a node that reads float16 and float32 where its operator takes one type: its label, and a sentence.

    Types are inferred from weights, inputs and Casts; what the file states of values in between counts only behind
    operators that onnx does not know.
    """
    proto = read_proto(path)
    opsets = {"" if each.domain == "ai.onnx" else each.domain: each.version for each in proto.opset_import}
    unknown = {name for node in proto.graph.node if _parameters(node, opsets) is None for name in node.output}
    stated = [each for each in proto.graph.value_info if each.name in unknown]
    del proto.graph.value_info[:]
    proto.graph.value_info.extend(stated)
    _drop_weights(proto.graph)
    with contextlib.suppress(onnx.shape_inference.InferenceError, RuntimeError, ValueError):
        proto = onnx.shape_inference.infer_shapes(proto)
    return next(_mixed(proto.graph, {}, opsets), None)


def _drop_weights(graph: onnx.GraphProto) -> None:
    """Leave type and shape of large weights, in place."""
    tensors = [*graph.initializer, *(attribute.t for node in graph.node for attribute in node.attribute)]
    for tensor in tensors:
        if tensor.ByteSize() > _HELD:
            for field in ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data"):
                tensor.ClearField(field)
    for node in graph.node:
        for inner in graphs_of(node):
            _drop_weights(inner)


def _parameters(node: onnx.NodeProto, opsets: Mapping[str, int]) -> Sequence[onnx.defs.OpSchema.FormalParameter] | None:
    """Inputs that the schema of a node names; None for an operator that onnx does not know."""
    domain = "" if node.domain == "ai.onnx" else node.domain
    schema = schema_at(node.op_type, opsets.get(domain, 0), domain)
    return None if schema is None else schema.inputs


def _mixed(graph: onnx.GraphProto, outer: Mapping[str, int], opsets: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    values = (*graph.input, *graph.value_info, *graph.output)
    types = {**outer, **{value.name: value.type.tensor_type.elem_type for value in values}}
    types |= {tensor.name: tensor.data_type for tensor in graph.initializer}
    for node in graph.node:
        parameters = _parameters(node, opsets) or ()
        by_parameter = defaultdict[str, dict[int, str]](dict)
        for position, name in enumerate(node.input if parameters else ()):
            parameter = parameters[min(position, len(parameters) - 1)]
            if types.get(name) in (_HALF, _FLOAT) and (parameter.option != _Variadic or parameter.is_homogeneous):
                by_parameter[parameter.type_str].setdefault(types[name], name)
        for read in by_parameter.values():
            if len(read) > 1:
                label = node.name or f"{node.op_type} -> {node.output[0]}"
                text = (
                    f"node {label!r} ({node.op_type}) reads {read[_HALF]!r} in float16 and {read[_FLOAT]!r} in float32"
                )
                yield label, f"{text}, and its operator takes one type: no runtime loads the file. Cast one of them"
        for inner in graphs_of(node):
            yield from _mixed(inner, types, opsets)
