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
    converters,
    cuda_operators,
    embedded,
    emulation,
    net,
    on_gpu,
    planted_faults,
    zoo,
)
from docs.generate import filled

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/reference/benchmarks.md"
EMULATION_PAGE = ROOT / "docs/explanation/fp16-emulation.md"
README = ROOT / "README.md"
TABLES: dict[str, tuple[Path, Path, Callable[[Any], str]]] = {
    "peers": (README, converters.RESULTS, converters.short_table),
    "proven": (README, embedded.RESULTS, embedded.proven),
    "embedded": (PAGE, embedded.RESULTS, embedded.table),
    "on_gpu": (EMULATION_PAGE, on_gpu.RESULTS, on_gpu.table),
    "cuda_operators": (EMULATION_PAGE, cuda_operators.RESULTS, cuda_operators.table),
    "converters": (PAGE, converters.RESULTS, converters.tables),
    "backend_nodes": (PAGE, backend_nodes.RESULTS, backend_nodes.table),
    "emulation": (PAGE, emulation.RESULTS, lambda found: emulation.markdown(found["models"])),
    "networks": (PAGE, emulation.RESULTS, lambda found: emulation.networks_markdown(found["networks"])),
    "blind_spot": (PAGE, blind_spot.RESULTS, blind_spot.table),
    "planted_faults": (PAGE, planted_faults.RESULTS, planted_faults.table),
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
