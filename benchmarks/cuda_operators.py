"""Emulated FP16 operators beside those of ONNX Runtime's CUDA provider on a GPU, over ONNX's backend tests.

    python -m benchmarks.cuda_operators           on a machine with an NVIDIA GPU

Each test with float32 inputs is converted to FP16 as a whole and run under emulation and on the GPU, and every function
of one variable on all FP16 numbers. Distances are in units in the last place (tests/measuring/emulated_operators.py).
Writes benchmarks/results/cuda_operators.json.
"""

from __future__ import annotations

import warnings
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from tests.measuring.emulated_operators import FUNCTIONS, Case, Distances, halves, in_half, one_node
from tests.onnx_backend import cases
from truehalf.emulation.sessions import EmulatedSession
from truehalf.errors import StageError
from truehalf.files import write_json
from truehalf.runtime.machine import probe
from truehalf.runtime.ort import CUDA, Session

RESULTS = Path(__file__).resolve().parent / "results" / "cuda_operators.json"


def of_case(name: str, case: Case, rows: dict[str, Distances], found: dict[str, Any]) -> str | None:
    """Add a test to the rows, or say why not; what is NaN in one of the two alone is told by name."""
    try:
        emulated = list(EmulatedSession(ir.from_proto(case.half)).run(case.feeds).values())
    except StageError:
        return "ONNX Runtime has no float32 kernel for it"
    session = None
    try:
        session = Session(case.half.SerializeToString(), CUDA)
        on_gpu = list(session.run(case.feeds).values())
    except StageError:
        return "the CUDA provider does not run it"
    if session.cpu_nodes:
        return "runs on the CPU provider"
    if not all(np.shape(a) == np.shape(b) for a, b in zip(emulated, on_gpu, strict=True)):
        found["other shapes"].append(name)
        return "other shapes"
    alone = Distances()
    alone.add(name, halves(case, emulated, on_gpu))
    rows[case.operator].add(name, halves(case, emulated, on_gpu))
    if alone.apart or alone.of_largest > 2:
        found["far"].append([name, case.operator, alone.max_ulp, alone.of_largest, alone.apart])
    return None


def every_number(operator: str) -> Distances:
    """A function of one variable on all FP16 numbers."""
    every = np.arange(2**16, dtype=np.uint32).astype(np.uint16).view(np.float16)
    proto = one_node(operator, onnx.TensorProto.FLOAT16)
    emulation = EmulatedSession(ir.from_proto(proto))
    emulated = emulation.run({"x": every})["y"].astype(np.float16)
    session = Session(proto.SerializeToString(), CUDA)
    on_gpu = session.run({"x": every})["y"]
    found = Distances()
    if not session.cpu_nodes:
        found.add(operator, [(emulated, on_gpu)])
    return found


def table(found: Mapping[str, Any]) -> str:
    """Markdown: how many numbers are equal, and the tests that are further apart than two units."""
    rows = found["operators"].values()
    numbers, equal = (sum(row[key] for row in rows) for key in ("elements", "equal"))
    named = ", ".join(f"`{name}` ({units:.0f})" for name, _, _, units, _ in found["far"])
    functions = {name: row for name, row in found["all_numbers"].items() if row["elements"]}
    near = sum(row["max_ulp"] <= 1 and not row["apart"] for row in functions.values())
    apart = ", ".join(name for name, row in functions.items() if row["apart"])
    others = ", ".join(f"{name} {row['max_ulp']}" for name, row in functions.items() if row["max_ulp"] > 1)
    said = [
        f"{sum(row['cases'] for row in rows)} tests, {numbers} numbers: {equal / numbers:.1%} equal. More than two",
        f"units of the largest number apart: {named}.",
        f"All FP16 numbers through {len(functions)} functions of one variable: {near} are at most one unit apart. Most",
        f"units of the others: {others}. NaN in one of the two alone: {apart or 'none'}.",
    ]
    return " ".join(said)


def main() -> None:
    rows: dict[str, Distances] = defaultdict(Distances)
    left_out: Counter[str] = Counter()
    found: dict[str, Any] = {"far": [], "other shapes": []}
    functions: dict[str, Any] = {}
    np.seterr(all="ignore")
    warnings.simplefilter("ignore")
    for operator in FUNCTIONS:
        try:
            functions[operator] = vars(every_number(operator))
        except StageError as error:
            functions[operator] = str(error)
    for name, proto, inputs in cases(True):
        case = in_half(proto, inputs)
        reason = case if isinstance(case, str) else of_case(name, case, rows, found)
        if reason:
            left_out[reason] += 1
    result = {
        **{
            "machine": probe(),
            "left_out": dict(left_out),
            "all_numbers": functions,
            **found,
        },
        "operators": {operator: vars(rows[operator]) for operator in sorted(rows)},
    }
    write_json(RESULTS, result)


if __name__ == "__main__":
    main()
