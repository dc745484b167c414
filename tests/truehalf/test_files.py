"""JSON files and folders that replace others."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.messages import raises
from truehalf.files import read_json, read_yaml, swap_in, write_json


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


@pytest.mark.parametrize("read", [read_json, read_yaml])
def test_what_cannot_be_read_is_an_error_of_the_user(tmp_path: Path, read: Callable[[Path], object]) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    (tmp_path / "broken").write_text("[{")
    for name, code in (("absent", "file-missing"), ("bytes", "file-unreadable"), ("broken", "file-unreadable")):
        with raises(code, str(tmp_path / name)) as error:
            read(tmp_path / name)
    assert "line 1" in str(error.value)


def test_a_folder_is_no_yaml(tmp_path: Path) -> None:
    with raises("file-unreadable", str(tmp_path)):
        read_yaml(tmp_path)
