"""Seconds that the minimum cut takes: on graphs of 1,000, 10,000 and 100,000 nodes, and on detectors.

    python -m benchmarks.placing
    python -m benchmarks.placing benchmarks/build/models/dfine640.onnx benchmarks/build/models/rtdetrv2640.onnx

Writes benchmarks/results/placing.json and prints the table.

The graphs are random: each node reads one or two of the 20 nodes before it, now and then a far one; 15 % are wanted in
FP16, `pinned` of them stay FP32 (Softmax and LayerNormalization are blocked), the others are free. Sizes of tensors go
from 1 kB to 4 MB. "Growth" is the exponent g of seconds ~ nodes^g between two rows.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx_ir as ir

from tests.measuring.converted import only
from truehalf.config.precision import PRODUCTS
from truehalf.conversion.decide import decide
from truehalf.conversion.partition import cost, eager, min_cut, problem
from truehalf.conversion.ports import ports
from truehalf.conversion.rules.base import Verdict
from truehalf.ir.model_file import load_model
from truehalf.ir.normalize import PREPARE, concrete_shapes
from truehalf.ir.selectors import Lists

RESULTS = Path(__file__).resolve().parent / "results" / "placing.json"
_COLUMNS = ("graph", "nodes", "free", "casts", "casts if eager", "posing s", "cut s", "growth")
_NODES = (1_000, 10_000, 100_000)
_PINNED = (0.05, 0.3)
_WANTED = 0.15
_BLOCKED = ("Softmax", "LayerNormalization")
_NEAR = 20
_SIZES = (16, 64, 256, 1024)  # squares of these: elements


def random_graph(nodes: int, pinned: float, seed: int = 0) -> ir.Model:
    """A typed graph with random edges and tensors of random size; it need not run."""
    rng = random.Random(seed)
    source = _value(ir.val("x"), rng)
    made, values = [], [source]
    for number in range(nodes):
        op = rng.choices(
            ("MatMul", "Softmax", "Add", "Relu"), (_WANTED, pinned, (0.85 - pinned) / 2, (0.85 - pinned) / 2)
        )
        near = values[-_NEAR:] if rng.random() < 0.98 else values
        inputs = [rng.choice(near) for _ in range(2 if op[0] in ("MatMul", "Add") else 1)]
        node = ir.node(op[0], inputs, name=f"n{number}", version=17)
        _value(node.outputs[0], rng).name = f"v{number}"
        made.append(node)
        values.append(node.outputs[0])
    outputs = [value for value in values if not value.uses()]
    return ir.Model(ir.Graph([source], outputs, nodes=made, opset_imports={"": 17}, name="random"), ir_version=9)


def _value(value: ir.Value, rng: random.Random) -> ir.Value:
    side = rng.choice(_SIZES)
    value.type, value.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape([side, side])
    return value


def timed(model: ir.Model) -> Iterator[tuple[str, Any]]:
    """Facts and seconds of placing the casts of a model."""
    rules = only(block=Lists(op=_BLOCKED), fp16_ops=PRODUCTS)
    decisions = decide(model, None, rules)
    movable = [node for node, decision in decisions.nodes.items() if decision.verdict is not Verdict.fp32]
    started = time.perf_counter()
    found = ports(model, movable)
    posed = problem(found, decisions.nodes, concrete_shapes(model))
    ready = time.perf_counter()
    assignment = min_cut(posed)
    done = time.perf_counter()
    yield "nodes", len(decisions.nodes)
    yield "free", len(posed.fp32)
    yield "casts", cost(posed, assignment).casts
    yield "casts if eager", cost(posed, eager(posed)).casts
    yield "posing s", ready - started
    yield "cut s", done - ready


def rows(models: Sequence[Path]) -> Iterator[dict[str, Any]]:
    """One for each random graph and each model."""
    dict(timed(random_graph(100, _PINNED[0])))  # imports are no part of the seconds
    for pinned in _PINNED:
        before: dict[str, Any] | None = None
        for nodes in _NODES:
            row = {"graph": f"random, {pinned:.0%} pinned"} | dict(timed(random_graph(nodes, pinned)))
            if before is not None:
                row["growth"] = math.log(row["cut s"] / before["cut s"]) / math.log(row["nodes"] / before["nodes"])
            before = row
            yield row
    for path in models:
        model = load_model(path)
        PREPARE(model)
        yield {"graph": path.stem} | dict(timed(model))


def table(found: Sequence[Mapping[str, Any]]) -> str:
    """Markdown."""
    lines = [f"| {' | '.join(_COLUMNS)} |", "|---" * len(_COLUMNS) + "|"]
    for row in found:
        cells = [row.get(column, "") for column in _COLUMNS]
        lines.append(f"| {' | '.join(f'{cell:.2f}' if isinstance(cell, float) else str(cell) for cell in cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.placing", description=__doc__.split("\n")[0])
    parser.add_argument("models", nargs="*", type=Path, help="ONNX files to place, too")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    found = list(rows(arguments.models))
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(found, indent=1) + "\n")
    print(table(found))


if __name__ == "__main__":
    main()
