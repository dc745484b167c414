"""Two small models held against each other by the door `compare`."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser

from tests.messages import raises
from truehalf.config.verification import GatesConfig, VerifyConfig
from truehalf.io_spec.in_file import SPEC_KEY
from truehalf.verification.chain.compare import compare
from truehalf.verification.report import Report

X = np.random.default_rng(0).normal(0, 1, (4, 3)).astype(np.float32)
PLAIN = "(float[N,3] x) => (float[N,3] y) { y = Relu (x) }"
ADDED = "(float[N,3] x) => (float[N,3] y) { y = Add (x, c) }"
CLASSES = {"outputs": [{"name": "y", "kind": "classes"}]}
OVERFLOW = """(float[N,3] x) => (float[N,3] y) <float up = {3000.0}, float down = {0.001}> {
    h = Cast<to = 10> (x)
    u = Cast<to = 10> (up)
    d = Cast<to = 10> (down)
    [amplify] a = Mul (h, u)
    b = Mul (a, d)
    y = Cast<to = 1> (b)
}"""
SAME = OVERFLOW.replace("to = 10", "to = 1")


def model(path: Path, text: str = PLAIN, spec: Any = None, **weights: np.ndarray) -> Path:
    proto = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> g {text}')
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(value, name) for name, value in weights.items())
    if spec is not None:
        entry = proto.metadata_props.add()
        entry.key, entry.value = SPEC_KEY, spec if isinstance(spec, str) else json.dumps(spec)
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(proto, path)
    return path


def options(tolerance: Any = 0.01, **changes: Any) -> VerifyConfig:
    return VerifyConfig(gates=GatesConfig(tensor_rms_max=tolerance), **changes)


def held(folder: Path, reference: str, candidate: str, inputs: Any = None, **given: Any) -> Report:
    """Arguments of `compare`, and of `options`."""
    files = model(folder / "fp32.onnx", reference), model(folder / "other.onnx", candidate)
    own = {name: given.pop(name) for name in ("spec", "preprocessing", "locate") if name in given}
    return compare(*files, {"x": X} if inputs is None else inputs, **{"locate": False} | own, options=options(**given))


def faults(folder: Path, reference: str, candidate: str, inputs: Any = None, **given: Any) -> list[str]:
    with raises(None) as error:
        held(folder, reference, candidate, inputs, **given)
    return [line.removeprefix("  - ") for line in str(error.value).splitlines()]


def constant(*values: float) -> dict[str, np.ndarray]:
    return {"c": np.array(values, np.float32)}
