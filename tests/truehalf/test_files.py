"""JSON files and folders that replace others."""

from __future__ import annotations

import json
from pathlib import Path

from truehalf.files import swap_in, write_json


def test_swap_in_replaces_a_folder(tmp_path: Path) -> None:
    for name in ("new", "place"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    swap_in(tmp_path / "new", tmp_path / "place")
    assert (tmp_path / "place/file").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["place"]


def test_json_keeps_non_finite_numbers_readable(tmp_path: Path) -> None:
    write_json(tmp_path / "x.json", {"a": float("nan"), "b": [float("inf"), 1.0]})
    assert json.loads((tmp_path / "x.json").read_text()) == {"a": "nan", "b": ["inf", 1.0]}
