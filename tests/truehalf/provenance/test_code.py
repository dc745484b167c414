"""The digest of a stage's code changes with all that the stage runs, and with nothing else."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from tests.test_imports import imports_of, top
from truehalf.provenance.code import ROOT, code_digests

ROOMS = ("pipeline", "stages", "truehalf")
FILES = {
    "stages/a.py": "from stages.frame import run\nfrom stages.b import (\n    one,  # of two, say\n    two,\n)\n",
    "stages/b.py": "def run():\n    from stages import c as late\n",
    "stages/c/__init__.py": "",
    "stages/c/by_name.py": "",
    "stages/frame.py": "from stages.unread import check\n",
    "stages/lazy.py": "",
    "stages/unread.py": "",
    "dvc.yaml": "stages: {a: {cmd: python -m stages.a}, lazy: {cmd: python -m stages lazy}, "
    "always: {cmd: python -m stages.b, always_changed: true}}",
}
READ = ["stages/a.py", "stages/b.py", "stages/c/__init__.py", "stages/c/by_name.py", "stages/frame.py"]


def written(folder: Path, edited: str = "") -> Path:
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{text}# edited\n" if name == edited else text)
    return folder


def test_the_files_of_each_stage(tmp_path: Path) -> None:
    found = {name: content["files"] for name, content in code_digests(written(tmp_path)).items()}
    assert found == {"a": READ, "lazy": ["stages/lazy.py"]}


@pytest.mark.parametrize(("name", "stages"), [("stages/c/by_name.py", {"a"}), ("stages/unread.py", set())])
def test_it_changes_with_each_of_them(name: str, stages: set[str], tmp_path: Path) -> None:
    before, after = code_digests(written(tmp_path / "one")), code_digests(written(tmp_path / "two", name))
    assert {stage for stage in before if before[stage]["sha256"] != after[stage]["sha256"]} == stages


def files_of(path: Path) -> set[Path]:
    """The project's modules that a module imports, by its syntax tree."""
    places = [ROOT.joinpath(*name.split(".")) for name in imports_of(path) if "." in name and top(name) in ROOMS]
    return {each.with_suffix(".py") for each in places if each.with_suffix(".py").is_file()}


def test_it_holds_all_that_the_syntax_trees_import() -> None:
    """The project's own stages, whose imports are found by another way."""
    imported = functools.cache(files_of)
    for stage, content in code_digests().items():
        files = {ROOT / name for name in content["files"]}
        for path in files - {ROOT / "stages/frame.py"}:
            assert imported(path) <= files, f"{stage}: {path}"
