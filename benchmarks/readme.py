"""Put the tables of benchmarks/results/*.json into the README and the pages of docs/, each between its two markers.

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
    cuda_operators,
    embedded,
    emulation,
    farm,
    net,
    on_gpu,
    overhead,
    placing,
    planted_faults,
    repair,
    repeated_on_gpu,
    served,
    sweep,
    tracking,
    zoo,
)
from docs.generate import filled

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/reference/benchmarks.md"
EMULATION_PAGE = ROOT / "docs/explanation/fp16-emulation.md"
ENGINE_PAGE = ROOT / "docs/how-to/engine.md"
README = ROOT / "README.md"
TABLES: dict[str, tuple[Path, Path, Callable[[Any], str]]] = {
    "peers": (README, converters.RESULTS, converters.short_table),
    "proven": (README, embedded.RESULTS, embedded.proven),
    "embedded": (PAGE, embedded.RESULTS, embedded.table),
    "by_layers": (EMULATION_PAGE, embedded.RESULTS, embedded.layers_table),
    "on_gpu": (EMULATION_PAGE, on_gpu.RESULTS, on_gpu.table),
    "cuda_operators": (EMULATION_PAGE, cuda_operators.RESULTS, cuda_operators.table),
    "repeated_on_gpu": (EMULATION_PAGE, repeated_on_gpu.RESULTS, repeated_on_gpu.table),
    "served": (ENGINE_PAGE, served.RESULTS, served.table),
    "converters": (PAGE, converters.RESULTS, converters.tables),
    "backend_nodes": (PAGE, backend_nodes.RESULTS, backend_nodes.table),
    "placing": (PAGE, placing.RESULTS, placing.table),
    "emulation": (PAGE, emulation.RESULTS, lambda found: emulation.markdown(found["models"])),
    "networks": (PAGE, emulation.RESULTS, lambda found: emulation.networks_markdown(found["networks"])),
    "blind_spot": (PAGE, blind_spot.RESULTS, blind_spot.table),
    "planted_faults": (PAGE, planted_faults.RESULTS, planted_faults.table),
    "repair": (PAGE, repair.RESULTS, repair.tables),
    "sweep": (PAGE, sweep.RESULTS, sweep.table),
    "overhead": (PAGE, overhead.RESULTS, overhead.table),
    "compare_many": (PAGE, compare_many.RESULTS, compare_many.table),
    "tracking": (PAGE, tracking.RESULTS, tracking.table),
    "validation": (farm.PAGE, farm.RESULTS, farm.validation_table),
    "farm": (farm.PAGE, farm.RESULTS, farm.table),
    "trained": (PAGE, net.RESULTS, net.trained),
    "graded_faults": (PAGE, net.RESULTS, net.faults),
    "zoo": (ROOT / "docs/reference/zoo.md", zoo.RESULTS, zoo.table),
}


def main() -> None:
    for name, (page, results, table) in TABLES.items():
        if results.exists():
            page.write_text(filled(page, name, table(json.loads(results.read_text()))))


if __name__ == "__main__":
    main()
