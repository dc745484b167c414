"""Conversions by the peers and by truehalf, and looks into what they made."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tests.conftest import ROOT
from tests.measuring.converted import to_fp16
from truehalf.data.arrays import write_arrays

PEER = str(ROOT / "benchmarks" / "peer.py")
PEERS = ROOT / ".venv-peers" / "bin" / "python"
FLOAT, FLOAT16 = onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16
Arrays = dict[str, np.ndarray]


def write(folder: Path, text: str, weights: Arrays | None = None) -> Path:
    """A model from ONNX text, its initializers from arrays."""
    model = onnx.parser.parse_model(text)
    for name, array in (weights or {}).items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, folder / "fp32.onnx")
    return folder / "fp32.onnx"


def by_peer(tool: str, source: Path, sample: Arrays | None = None, **options: Any) -> Path:
    """The file that a peer makes of `source`; skips where its environment is missing.

    Raises:
        RuntimeError: when the peer fails, with its last words.
    """
    target = source.with_name(f"{tool}.onnx")
    line = command(tool, source, target, sample, options)
    done = subprocess.run(line, cwd=source.parent, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{tool}: {done.stderr.strip().splitlines()[-1]}")
    return target


def by_us(source: Path, sample: Arrays | None = None, **options: Any) -> Path:
    """The file that truehalf makes of `source`, checked in full."""
    target = source.with_name("truehalf.onnx")
    to_fp16(source, target, calibration=sample, **options)
    assert is_valid(target)
    return target


def command(tool: str, source: Path, target: Path, sample: Arrays | None, options: dict[str, Any]) -> list[str]:
    """The command line of one conversion, by a peer or by truehalf."""
    program = [str(PEERS), "-P", PEER]
    if tool == "truehalf":
        program = [sys.executable, "-m", "benchmarks.ours"]
    elif tool == "onnxruntime":
        program = [sys.executable, "-P", PEER]
    elif not PEERS.exists():
        pytest.skip(f"{tool} is not here: no .venv-peers (make bench-peers)")
    content = source.with_name("options.json")
    content.write_text(json.dumps(options))
    line = [*program, tool, str(source), str(target), "--options", str(content)]
    if sample is None:
        return line
    write_arrays(source.with_name("sample.npz"), sample)
    return [*line, "--sample", str(source.with_name("sample.npz"))]


def is_valid(path: Path) -> bool:
    """Whether the checker accepts a file in full and ONNX Runtime loads it."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    try:
        onnx.checker.check_model(str(path), full_check=True)
        ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception:  # of onnx, of its shape inference, of ONNX Runtime: no base in common
        return False
    return True


def op_type_of(path: Path, op: str) -> int:
    """Element type of the first output of the only node of an operator."""
    model = onnx.load(path)
    del model.graph.value_info[:]  # as the file computes, not as its writer says
    inferred = onnx.shape_inference.infer_shapes(model)
    values = (*inferred.graph.value_info, *inferred.graph.output)
    types = {value.name: value.type.tensor_type.elem_type for value in values}
    (node,) = [node for node in inferred.graph.node if node.op_type == op]
    return int(types[node.output[0]])


def half_weights(path: Path) -> list[np.ndarray]:
    """All FP16 initializers of a file, flattened."""
    tensors = onnx.load(path).graph.initializer
    return [onnx.numpy_helper.to_array(t).reshape(-1) for t in tensors if t.data_type == FLOAT16]
