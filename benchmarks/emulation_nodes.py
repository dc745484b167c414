"""Emulated FP16 operators beside onnx.reference, over ONNX's backend tests (tests/measuring/emulated_operators.py).

    python -m benchmarks.emulation_nodes          about two minutes on two cores

Writes benchmarks/results/emulation_ulp.json and prints the tables.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping
from typing import Any

from tests.measuring.emulated_operators import RESULTS, as_rows, exhaustive, measured


def markdown(operators: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    """One line for each operator: share of equal numbers, most units, most units of the largest number."""
    lines = [
        "| operator | tests | numbers | once: equal | units | of the largest | steps: equal | units | of the largest |"
    ]
    lines += ["|---" * 9 + "|"]
    for operator, row in operators.items():
        first = next(iter(row.values()))
        cells = [_cells(row.get(reference)) for reference in ("once", "steps")]
        lines.append(f"| {operator} | {first['cases']} | {first['elements']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cells(row: Mapping[str, Any] | None) -> str:
    if row is None or not row["elements"]:
        return "- | - | -"
    units = f"{row['max_ulp']}{' and NaN' if row['apart'] else ''}"
    return f"{row['equal'] / row['elements']:.2%} | {units} | {row['of_largest']:.3g}"


def main(arguments: Iterable[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.emulation_nodes", description=__doc__.split("\n")[0])
    parser.add_argument("--limit", type=int, help="only that many tests; nothing is written then")
    chosen = parser.parse_args(None if arguments is None else list(arguments))
    rows = as_rows(measured(chosen.limit), exhaustive())
    if chosen.limit is None:
        RESULTS.write_text(json.dumps(rows, indent=1) + "\n")
    print(markdown(rows["operators"]))
    print(f"\n{rows['cases']} tests; left out: {rows['left_out']}\n")
    print(markdown(rows["all_numbers"]))


if __name__ == "__main__":
    main()
