"""The user's code is a module's file, or all sources of its top-level package."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from truehalf.provenance.fingerprints import user_files


def written(root: Path, *files: str) -> Path:
    for name in files:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("raise RuntimeError\n")
    return root


def names(root: Path, *named: str) -> list[str]:
    return [path.relative_to(root).as_posix() for path in user_files(named, root)]


def test_a_module_and_a_package(tmp_path: Path) -> None:
    written(
        tmp_path, "mine.py", "mine/notes.py", "pack/__init__.py", "pack/inner/net.py", "pack/notes.txt", "src/net.py"
    )
    assert names(tmp_path, "mine:build") == ["mine.py"], "a mere folder gives way to a module"
    written(tmp_path, "beside.py")
    assert names(tmp_path, "mine:build") == ["beside.py", "mine.py"]
    assert names(tmp_path, "pack.inner.net:build") == ["pack/__init__.py", "pack/inner/net.py"]
    assert names(tmp_path, "src.net:build") == ["src/net.py"], "a folder without an __init__.py is a package too"
    assert user_files(["absent_package.models:build", "sys:exit"], tmp_path) == []


def test_nothing_is_run_and_the_path_stays(tmp_path: Path) -> None:
    written(tmp_path, "loud/__init__.py", "loud/net.py")
    before = list(sys.path)
    assert names(tmp_path, "loud.net:build") == ["loud/__init__.py", "loud/net.py"]
    assert sys.path == before and "loud" not in sys.modules


def test_the_workspace_comes_before_what_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, packages = tmp_path / "workspace", written(tmp_path / "packages", "both_of_mine.py", "sold/__init__.py")
    written(root, "both_of_mine.py")
    monkeypatch.syspath_prepend(packages)
    assert names(root, "both_of_mine:build") == ["both_of_mine.py"]
    assert user_files(["sold.net:build"], root) == [packages / "sold/__init__.py"]


def test_the_product_is_none_of_it() -> None:
    root = Path(__file__).resolve().parents[3]
    assert "examples/digits/train.py" in names(root, "examples.digits.train:main")
    assert user_files(["truehalf.api:convert"], root) == []
