"""Digests of the code that each stage runs: its module and all that this imports of the project, read from the sources.

A stage depends on one file, artifacts/inputs/code/<stage>.json, and so re-runs when any of that code changes. A package
that is imported itself stands for all of its modules, as truehalf.models.sources imports them by name. A file too many
re-runs a stage without need, a file too few would hand on a stale result.
"""

from __future__ import annotations

import hashlib
import re
from functools import cache
from pathlib import Path
from typing import TypedDict

from truehalf.files import file_sha256, read_yaml

ROOT = Path(__file__).resolve().parents[2]
_FRAME = "stages/frame.py"  # it checks the configuration and writes reports: nothing that it imports computes a result
_IMPORT = re.compile(r"^ *from ((?:pipeline|stages|truehalf)[\w.]*) import (\([^)]*\)|.+)", re.MULTILINE)


class CodeDigest(TypedDict):
    """artifacts/inputs/code/<stage>.json."""

    sha256: str
    files: list[str]


def code_digests(root: Path = ROOT) -> dict[str, CodeDigest]:
    """By stage of dvc.yaml that runs when something has changed: SHA-256 of all its code, and the files by name."""
    stages, digests = read_yaml(root / "dvc.yaml")["stages"], dict[str, CodeDigest]()
    for name in (name for name, stage in stages.items() if not stage.get("always_changed")):
        lines = {
            path.relative_to(root).as_posix(): _sha256(path)
            for path in code_of(module_of(stages[name]["cmd"], root), root)
        }
        digests[name] = {"sha256": hashlib.sha256(repr(lines).encode()).hexdigest(), "files": list(lines)}
    return digests


def module_of(command: str, root: Path = ROOT) -> Path:
    """The file that `python -m package.module` runs, or `python -m package module`."""
    return root.joinpath(*".".join(command.split()[2:]).split(".")).with_suffix(".py")


def code_of(module: Path, root: Path = ROOT) -> list[Path]:
    """List a module and what it imports of the project, transitively; sorted."""
    found, waiting = set[Path](), [module]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting += () if path == root / _FRAME else _imported(path, root)
    return sorted(found)


@cache
def _imported(path: Path, root: Path) -> list[Path]:
    """List the files that the import statements of a module may mean."""
    files: list[Path] = []
    for package, names in _IMPORT.findall(path.read_text()):
        place = root.joinpath(*package.split("."))
        inner = [place / name for name in re.findall(r"\w+", names)]
        inner = [each for each in inner if each.is_dir() or each.with_suffix(".py").is_file()]
        for each in (place / "__init__", *(inner or [place])):
            files += each.glob("*.py") if each.is_dir() else [each.with_suffix(".py")]
    return [file for file in files if file.is_file()]


@cache
def _sha256(path: Path) -> str:
    return file_sha256(path)
