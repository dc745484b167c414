"""Table of the error along the graph, as JSON that `dvc plots show` draws and compares between runs (see dvc.yaml)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from truehalf.files import write_json
from truehalf.report.drawings import NodeRow

_NO_NODE = {"position": None, "node": "none", "precision": "none", "log10_error": None}  # DVC draws no empty table


def write_data(folder: Path, profile: Sequence[NodeRow]) -> None:
    """Write error_along_graph.json: {position, node, precision, log10_error} of each node with a finite error above 0.

    Errors are written as log10: DVC's templates have only linear axes.
    """
    rows = [
        {
            "position": i,
            "node": row["node"],
            "precision": row["precision"],
            "log10_error": math.log10(row["local_error"]),
        }
        for i, row in enumerate(profile)
        if row["local_error"] and math.isfinite(row["local_error"])
    ]
    write_json(folder / "error_along_graph.json", rows or [_NO_NODE])
