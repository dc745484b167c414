"""The tables that `dvc plots` reads."""

import json
from pathlib import Path

from truehalf.verification.chain.plot_data import write_data

HISTOGRAMS = {
    "logits": {"edges": [1e-3, 1.77828e-3, 3.16228e-3], "counts": [5, 7]},
    "boxes": {"edges": [1.77828e-3, 3.16228e-3], "counts": [2]},
}
PROFILE = [
    {"node": "/a", "precision": "fp16", "local_error": 1e-3},
    {"node": "/b", "precision": "fp32", "local_error": 0.0},
    {"node": "/c", "precision": "fp16", "local_error": None},
]


def read(folder: Path, name: str):
    return json.loads((folder / name).read_text())


def test_bins_are_rows_and_outputs_columns(tmp_path: Path) -> None:
    write_data(tmp_path, HISTOGRAMS, PROFILE)
    assert read(tmp_path, "error_histogram.json") == [
        {"log10_error": -3.0, "logits": 5, "boxes": 0},
        {"log10_error": -2.75, "logits": 7, "boxes": 2},
    ]
    (row,) = read(tmp_path, "error_along_graph.json")
    assert row == {"position": 0, "node": "/a", "precision": "fp16", "log10_error": -3.0}


def test_a_run_without_errors_has_its_tables_too(tmp_path: Path) -> None:
    write_data(tmp_path, {"logits": {"edges": [], "counts": []}}, [])
    assert read(tmp_path, "error_histogram.json") == [{"log10_error": None, "logits": 0}]
    assert len(read(tmp_path, "error_along_graph.json")) == 1
