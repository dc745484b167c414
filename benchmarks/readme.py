"""Put the tables of benchmarks/results/*.json between their two markers: the zoo's into README.md, the farm's into
docs/how-to/farm.md, the others into benchmarks/README.md.

python -m benchmarks.readme
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import (
    backend_nodes,
    blind_spot,
    compare_many,
    converters,
    emulation,
    farm,
    overhead,
    placing,
    planted_faults,
    repair,
    sensitivity,
    sweep,
    tracking,
    zoo,
)

MAIN = Path(__file__).resolve().parent.parent / "README.md"
README = Path(__file__).resolve().parent / "README.md"
TABLES: dict[str, tuple[Path, Callable[[Any], str]]] = {
    "converters": (converters.RESULTS, converters.tables),
    "backend_nodes": (backend_nodes.RESULTS, backend_nodes.table),
    "placing": (placing.RESULTS, placing.table),
    "emulation": (emulation.RESULTS, lambda found: emulation.markdown(found["models"])),
    "networks": (emulation.RESULTS, lambda found: emulation.networks_markdown(found["networks"])),
    "blind_spot": (blind_spot.RESULTS, blind_spot.table),
    "sensitivity": (sensitivity.RESULTS, sensitivity.table),
    "planted_faults": (planted_faults.RESULTS, planted_faults.table),
    "repair": (repair.RESULTS, repair.tables),
    "sweep": (sweep.RESULTS, sweep.table),
    "overhead": (overhead.RESULTS, overhead.table),
    "compare_many": (compare_many.RESULTS, compare_many.table),
    "tracking": (tracking.RESULTS, tracking.table),
}


def filled(text: str, name: str, table: str) -> str:
    """`text` with `table` between <!-- name --> and <!-- /name -->."""
    before, opening, rest = text.partition(f"<!-- {name} -->")
    _, closing, after = rest.partition(f"<!-- /{name} -->")
    assert opening and closing, f"{README}: expected the markers of {name}"
    return f"{before}{opening}\n{table}\n{closing}{after}"


def main() -> None:
    text = README.read_text()
    for name, (results, table) in TABLES.items():
        if results.exists():
            text = filled(text, name, table(json.loads(results.read_text())))
    README.write_text(text)
    if farm.RESULTS.exists():
        found = json.loads(farm.RESULTS.read_text())
        page = filled(farm.PAGE.read_text(), "validation", farm.validation_table(found))
        farm.PAGE.write_text(filled(page, "farm", farm.table(found)))
    if zoo.RESULTS.exists():
        MAIN.write_text(filled(MAIN.read_text(), "zoo", zoo.table(json.loads(zoo.RESULTS.read_text()))))


if __name__ == "__main__":
    main()
