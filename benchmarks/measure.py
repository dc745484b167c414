"""What a converted file is worth, held against its FP32 file; the result as JSON on the last line.

    python -m benchmarks.measure fp32.onnx converted.onnx check.npz

Shapes are those of a run (a Shape node behind every tensor), not inferred ones. Errors are those of honest FP16
rounding (truehalf.emulation.sessions) against the FP32 file, one sample at a time. A DETR sorts its queries by score:
an error of 1e-4 there swaps rows, with random weights nearly all of them. So outputs are compared after sorting all
their values, and the scores that the first TopK reads are compared element by element.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from tests.measuring.attention_graphs import compiled
from truehalf import compare
from truehalf.emulation.sessions import EmulatedSession
from truehalf.errors import StageError
from truehalf.io_spec.in_file import spec_inside
from truehalf.io_spec.profiles import dynamic_inputs
from truehalf.ir.arithmetic import flops
from truehalf.ir.facts import all_nodes, model_facts
from truehalf.ir.model_file import load_model, model_size_mb
from truehalf.ir.normalize import InferTypes
from truehalf.runtime.ort import Session

_BYTES = {ir.DataType.FLOAT: 4, ir.DataType.FLOAT16: 2, ir.DataType.BFLOAT16: 2, ir.DataType.DOUBLE: 8}
_SHAPE_OF = "benchmark/shape_of/"
Arrays = dict[str, np.ndarray]


def measure(reference: Path, converted: Path, check: Path) -> dict[str, Any]:
    """The figures of one converted file.

    Returns:
        valid (the checker and ONNX Runtime accept it) or invalid: the reason, and nothing else. Else nodes, casts (all
        Cast nodes), float_casts, cast_bytes (read and written by casts between float types, at the check's first
        sample), float_nodes, fp16_fraction, fp16_arithmetic (share of the operations), fp32_nodes (names), size_mb,
        sha256, error {output: {max, p99}} sorted, and score_error {max, p99} before the first TopK (None without one).
        matched: detections of a trained model, how many of those of FP32; None: of random weights, or none declared.
        compiled: what TensorRT for RTX makes of it without a GPU, at the check's shapes: seconds, engine_mb, layers
        (those that compute), half_share (of the arithmetic), fused and attentions; or refused: why.
    """
    reason = _refused(converted)
    if reason is not None:
        return {"valid": False, "invalid": reason}
    model = load_model(converted)
    InferTypes()(model)
    feeds = list(samples(check))
    return (
        {"valid": True}
        | structure(model, feeds[0])
        | _files(converted)
        | _errors(reference, converted, feeds)
        | {"matched": _matched(reference, converted, check)}
        | _compiled(converted, feeds[0])
    )


def _matched(reference: Path, converted: Path, check: Path) -> str | None:
    if not spec_inside(load_model(reference)).trained:
        return None
    found: Any = compare(reference, converted, check, locate=False).to_json()["detections"]
    return f"{found['matched']} of {found['reference']}" if found else None


def _refused(path: Path) -> str | None:
    try:
        onnx.checker.check_model(str(path), full_check=True)
    except Exception as error:  # the checker and shape inference raise various kinds
        return f"checker: {_line(error)}"
    try:
        Session(path)
    except StageError as error:
        return f"ONNX Runtime: {_line(error)}"
    return None


def _line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


def samples(path: Path) -> Iterator[Arrays]:
    """The samples of an npz one by one, each with a batch axis of 1."""
    with np.load(path) as arrays:
        stacked = {name: arrays[name] for name in arrays.files}
    for i in range(len(next(iter(stacked.values())))):
        yield {name: array[i : i + 1] for name, array in stacked.items()}


# --- structure --------------------------------------------------------------------------------------------------------


def structure(model: ir.Model, feeds: Arrays) -> dict[str, Any]:
    """Counts, cast bytes and arithmetic of a typed model at the shapes that `feeds` give it."""
    shapes = run_shapes(model, feeds)
    casts = [node for node in all_nodes(model) if node.op_type == "Cast" and node.domain == ""]
    between = [(node.inputs[0], node.outputs[0]) for node in casts]
    floats = [(a, b) for a, b in between if a is not None and a.dtype in _BYTES and b.dtype in _BYTES]
    moved = sum(
        math.prod(shapes.get(b, shapes.get(a, (1,)))) * (_BYTES[a.dtype] + _BYTES[b.dtype])
        for a, b in floats
        if a.dtype is not None and b.dtype is not None
    )
    total = half = 0.0
    in_fp32 = []
    for node in all_nodes(model):
        types = [value.dtype for value in node.outputs if value.name and value.dtype in _BYTES]
        if node.op_type in ("Cast", "Constant") or not types:
            continue
        work = flops(node, shapes)
        total += work
        if all(dtype == ir.DataType.FLOAT16 for dtype in types):
            half += work
        else:
            in_fp32.append(node.name or "")
    facts = model_facts(model)
    return {
        "nodes": facts["nodes"],
        "casts": facts["casts"],
        "float_casts": len(floats),
        "cast_bytes": moved,
        "float_nodes": facts["float_nodes"],
        "fp16_fraction": facts["fp16_fraction"],
        "fp16_arithmetic": half / total if total else None,
        "fp32_nodes": in_fp32,
    }


def run_shapes(model: ir.Model, feeds: Arrays) -> dict[ir.Value, tuple[int, ...]]:
    """Shapes of the main graph's tensors in one run on the CPU; the types of `feeds` are bent to the model's."""
    values = [value for node in model.graph for value in node.outputs if isinstance(value.type, ir.TensorType)]
    values = [value for value in values if value.name]
    looking = model.clone()
    named = ir.convenience.create_value_mapping(looking.graph)
    for value in values:
        shape = ir.node("Shape", [named[str(value.name)]])
        looking.graph.append(shape)
        output = shape.outputs[0]
        output.name, output.type = f"{_SHAPE_OF}{value.name}", ir.TensorType(ir.DataType.INT64)
        looking.graph.outputs.append(output)
    types = {value.name: value.dtype.numpy() for value in model.graph.inputs if value.dtype is not None}
    bent = {name: array.astype(types[name]) for name, array in feeds.items()}
    found = Session(looking, optimize=False).run(bent, [f"{_SHAPE_OF}{value.name}" for value in values])
    shapes = {value: tuple(int(size) for size in found[f"{_SHAPE_OF}{value.name}"]) for value in values}
    shapes |= {value: bent[str(value.name)].shape for value in model.graph.inputs if value.name in bent}
    return shapes


def _compiled(path: Path, feeds: Arrays) -> dict[str, Any]:
    fixed = {name: list(feeds[name].shape) for name in dynamic_inputs(load_model(path))}
    profiles: Any = [{name: dict.fromkeys(("min", "opt", "max"), shape) for name, shape in fixed.items()}]
    with tempfile.TemporaryDirectory() as folder:
        try:
            report = compiled(path, Path(folder), profiles if fixed else [])
        except StageError as error:
            return {"compiled": {"refused": _line(error)}}
    facts = report.compiled
    if facts is None:
        return {"compiled": {"refused": str(report.reason).partition("\n")[0]}}
    return {
        "compiled": {
            "seconds": report.build_seconds,
            "engine_mb": report.engine_mb,
            "layers": facts["layers"],
            "half_share": facts["half_arithmetic"],
            "fused": facts["fused_attention"],
            "attentions": facts["attention_regions"],
        }
    }


def _files(path: Path) -> dict[str, Any]:
    digest = hashlib.sha256()
    for file in (path, path.with_name(f"{path.name}.data")):
        if file.exists():
            with file.open("rb") as content:
                digest.update(hashlib.file_digest(content, "sha256").digest())
    return {"size_mb": model_size_mb(path), "sha256": digest.hexdigest()}


# --- errors -----------------------------------------------------------------------------------------------------------


def _errors(reference: Path, converted: Path, feeds: list[Arrays]) -> dict[str, Any]:
    try:
        expected, expected_scores = _outputs(reference, feeds, honest=False)
        got, scores = _outputs(converted, feeds, honest=True)
    except StageError as error:
        return {"error": None, "score_error": None, "error_reason": _line(error)}
    names = list(expected[0])
    by_output = {
        name: _distance(
            [np.sort(run[name], axis=None) for run in expected], [np.sort(run[other], axis=None) for run in got]
        )
        for name, other in zip(names, got[0], strict=True)
    }
    score = _distance(expected_scores, scores) if expected_scores and scores else None
    return {"error": by_output, "score_error": score}


def _outputs(path: Path, feeds: list[Arrays], honest: bool) -> tuple[list[Arrays], list[np.ndarray]]:
    """Outputs of each run, and what the first TopK reads in it."""
    model = load_model(path)
    InferTypes()(model)
    scores = next((node.inputs[0] for node in model.graph if node.op_type == "TopK"), None)
    outputs = [str(value.name) for value in model.graph.outputs]
    if scores is not None and scores not in model.graph.outputs:
        model.graph.outputs.append(scores)
    session: Any = EmulatedSession(model) if honest else Session(model)
    runs = [session.run(feed) for feed in feeds]
    found = [run[str(scores.name)] for run in runs] if scores is not None else []
    return [{name: run[name] for name in outputs} for run in runs], found


def _distance(expected: list[np.ndarray], got: list[np.ndarray]) -> dict[str, float]:
    """Largest and 99th percentile of |got - expected| over all runs; infinite where one side alone is not finite."""
    pairs = zip(expected, got, strict=True)
    with np.errstate(invalid="ignore"):
        errors = [
            np.where(b == a, 0.0, np.abs(b.astype(np.float64) - a.astype(np.float64))).reshape(-1) for a, b in pairs
        ]
    joined = np.concatenate(errors)
    joined[np.isnan(joined)] = np.inf
    return {"max": float(joined.max(initial=0.0)), "p99": float(np.percentile(joined, 99)) if joined.size else 0.0}


if __name__ == "__main__":
    print(json.dumps(measure(*(Path(argument) for argument in sys.argv[1:4]))))
