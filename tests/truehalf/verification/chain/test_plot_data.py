"""The table that `dvc plots` reads."""

import json
from pathlib import Path

from truehalf.verification.chain.plot_data import write_data

PROFILE = [
    {"node": "/a", "precision": "fp16", "local_error": 1e-3},
    {"node": "/b", "precision": "fp32", "local_error": 0.0},
    {"node": "/c", "precision": "fp16", "local_error": None},
]


def rows(folder: Path):
    return json.loads((folder / "error_along_graph.json").read_text())


def test_a_node_with_a_finite_error_is_a_row(tmp_path: Path) -> None:
    write_data(tmp_path, PROFILE)
    assert rows(tmp_path) == [{"position": 0, "node": "/a", "precision": "fp16", "log10_error": -3.0}]


def test_a_run_without_errors_has_its_table_too(tmp_path: Path) -> None:
    write_data(tmp_path, [])
    assert len(rows(tmp_path)) == 1
