"""The digest of a stage's code changes with all that the stage runs, and with nothing else."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from tests.test_imports import imports_of, top
from truehalf.provenance.code import ROOT, code_digests, code_of

ROOMS = ("pipeline", "stages", "truehalf")
DVC = """
stages:
  a: {cmd: python -m stages.a}
  page: {cmd: python -m pipeline.page}
  lazy: {cmd: python -m stages lazy}
  always: {cmd: python -m stages.b, always_changed: true}
"""
FILES = {
    "stages/__init__.py": "",
    "stages/a.py": "from stages.b import (\n    one,  # a comment, with a comma\n    two as other,\n)\n"
    "\n\ndef run():\n    from stages.lazy import three\n",
    "stages/b.py": "import stages.c, os\n",
    "stages/c/__init__.py": "from stages.c import d\n",
    "stages/c/d.py": "PAGE = 'page.html.j2'\n",
    "stages/c/page.html.j2": "<html>",
    "stages/c/other.html.j2": "<html>",
    "stages/lazy.py": "",
    "stages/unread.py": "",
    "pipeline/page/__init__.py": "",
    "pipeline/page/__main__.py": "import pipeline.page.table as t\n",
    "pipeline/page/table.py": "",
    "dvc.yaml": DVC,
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_the_files_of_each_stage(root: Path) -> None:
    found = {name: content["files"] for name, content in code_digests(root).items()}
    of_a = ["a.py", "b.py", "c/__init__.py", "c/d.py", "c/page.html.j2", "lazy.py"]
    assert found == {
        "a": [f"stages/{name}" for name in of_a],
        "lazy": ["stages/lazy.py"],
        "page": ["pipeline/page/__init__.py", "pipeline/page/__main__.py", "pipeline/page/table.py"],
    }


@pytest.mark.parametrize("name", [name for name in FILES if name != "dvc.yaml"])
def test_it_changes_with_each_of_them(root: Path, name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    import shutil

    before, copy = code_digests(root), tmp_path_factory.mktemp("edited") / "root"
    shutil.copytree(root, copy)
    (copy / name).write_text(f"{FILES[name]}# edited\n")
    after = code_digests(copy)
    changed = {stage for stage in before if before[stage]["sha256"] != after[stage]["sha256"]}
    assert changed == {stage for stage in before if name in before[stage]["files"]}


def files_of(path: Path) -> set[Path]:
    """The project's files that a module imports, by its syntax tree."""
    places = [ROOT.joinpath(*name.split(".")) for name in imports_of(path) if "." in name and top(name) in ROOMS]
    return {each for place in places for each in (place.with_suffix(".py"), place / "__init__.py") if each.is_file()}


def test_it_holds_all_that_the_syntax_trees_import() -> None:
    """The project's own stages, whose imports are found by another way."""
    imported = functools.cache(files_of)
    for stage, content in code_digests().items():
        files = {ROOT / name for name in content["files"]}
        for path in (path for path in files if path.suffix == ".py"):
            for each in imported(path) - files:
                assert each not in code_of(each), f"{stage}: {path} imports {each}"
