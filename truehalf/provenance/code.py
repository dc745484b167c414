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

from truehalf.files import file_sha256, read_yaml
from truehalf.json_values import JsonObject

ROOT = Path(__file__).resolve().parents[2]
_FRAME = "stages/frame.py"  # it checks the configuration and writes reports: nothing that it imports computes a result
_IMPORT = re.compile(r"^ *from ((?:pipeline|stages|truehalf)[\w.]*) import (\([^)]*\)|.+)", re.MULTILINE)


def code_digests(root: Path = ROOT) -> dict[str, JsonObject]:
    """By stage of dvc.yaml that runs when something has changed: "sha256" of all its code, and the "files" by name."""
    stages, digests = read_yaml(root / "dvc.yaml")["stages"], dict[str, JsonObject]()
    for name in (name for name, stage in stages.items() if not stage.get("always_changed")):
        files = code_of(stages[name]["cmd"], root)
        lines = {path.relative_to(root).as_posix(): _sha256(path) for path in files}
        digests[name] = {"sha256": hashlib.sha256(repr(lines).encode()).hexdigest(), "files": list(lines)}
    return digests


def code_of(command: str, root: Path = ROOT) -> list[Path]:
    """List what `python -m package.module`, or `python -m package module`, runs of the project; sorted."""
    module = root.joinpath(*".".join(command.split()[2:]).split(".")).with_suffix(".py")
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


_sha256 = cache(file_sha256)
