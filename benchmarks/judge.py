"""Is a converted backend test valid, and does it still compute what it should? A tool of peer.py's command line.

python -m benchmarks.judge judge --serve
python -m benchmarks.judge run --serve
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from benchmarks.peer import main
from truehalf.emulation.sessions import EmulatedSession
from truehalf.errors import StageError
from truehalf.ir.facts import model_facts
from truehalf.ir.model_file import load_model
from truehalf.ir.normalize import InferTypes
from truehalf.runtime.ort import Session

RTOL = ATOL = (
    1e-2  # ten units in the last place of FP16 numbers near 1; tests/truehalf/conversion holds truehalf to the same
)


def judge(source: str, target: str, sample: str | None, converted: str) -> None:
    """Write what became of `source` in `converted` to the JSON file `target`.

    checker: it passes the full check. io: its inputs and outputs keep names, order and types, but for weights that are
    listed among the inputs. loads: ONNX Runtime loads it (null where it does not load the original). close: its outputs
    under honest FP16 rounding are the original's within the tolerance (null where the original cannot be run, or
    nothing can be emulated). fp16: float nodes in FP16.
    """
    verdict: dict[str, Any] = {"checker": False, "io": None, "loads": None, "close": None, "fp16": None, "reason": None}
    try:
        onnx.checker.check_model(converted, full_check=True)
        verdict["checker"] = True
        verdict["io"] = _ends(source) == _ends(converted)
        model = load_model(converted)
        InferTypes()(model)
        facts = model_facts(model)
        verdict["fp16"], verdict["float_nodes"] = facts["fp16_nodes"], facts["float_nodes"]
        original = _session(source)
        if original is not None:
            Session(converted)
            verdict["loads"] = True
            verdict["close"] = _close(original, model, sample)
    except StageError as error:
        verdict["loads"], verdict["reason"] = False, str(error)
    except Exception as error:  # the checker and shape inference raise various kinds
        verdict["reason"] = f"{type(error).__name__}: {error}"[:300]
    Path(target).write_text(json.dumps(verdict))


def _ends(path: str) -> list[tuple[str, bytes]]:
    graph = onnx.load(path).graph
    weights = {each.name for each in graph.initializer}
    inputs = [value for value in graph.input if value.name not in weights]
    return [(value.name, _types(value)) for value in (*inputs, *graph.output)]


def _types(value: onnx.ValueInfoProto) -> bytes:
    """The type without the shape, which a converter may state more closely."""
    kept = onnx.TypeProto()
    kept.CopyFrom(value.type)
    for tensor in (
        kept.tensor_type,
        kept.sequence_type.elem_type.tensor_type,
        kept.optional_type.elem_type.tensor_type,
    ):
        if tensor.HasField("shape"):
            tensor.ClearField("shape")
    return bytes(kept.SerializeToString())


def _session(path: str) -> Session | None:
    try:
        return Session(path)
    except StageError:
        return None


def _close(original: Session, model: ir.Model, sample: str | None) -> bool | None:
    if sample is None:
        return None
    with np.load(sample) as arrays:
        feeds = {name: arrays[name] for name in arrays.files}
    try:
        expected = original.run(feeds)
        got = EmulatedSession(model).run(feeds)
    except StageError:
        return None
    if not all(isinstance(value, np.ndarray) and value.dtype != object for value in expected.values()):
        return None
    return all(_agree(a, got[name]) for name, a in expected.items())


def _agree(expected: np.ndarray, got: np.ndarray) -> bool:
    if expected.shape != got.shape:
        return False
    wide = np.complex128 if np.iscomplexobj(expected) else np.float64
    return bool(np.allclose(got.astype(wide), expected.astype(wide), rtol=RTOL, atol=ATOL, equal_nan=True))


def run(source: str, target: str, sample: str | None) -> None:
    """Run a model once; it fails where ONNX Runtime cannot."""
    assert sample is not None
    with np.load(sample) as arrays:
        Session(source).run({name: arrays[name] for name in arrays.files})


if __name__ == "__main__":
    main({"judge": judge, "run": run})
