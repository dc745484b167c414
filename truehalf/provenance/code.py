"""Digests of the code that each stage runs: its module, and what that imports of the project, read from the sources.

A stage depends on one file, artifacts/inputs/code/<stage>.json, and so re-runs when any of that code changes. Imports
are found by their text, those in docstrings among them: a file too many re-runs a stage without need, a file too few
would hand on a stale result.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TypedDict

from truehalf.files import read_yaml

ROOT = Path(__file__).resolve().parents[2]
_ROOMS = ("pipeline", "stages", "truehalf")
# What imports others by their name, which no text shows.
_BY_NAME = {"truehalf/models/source.py": "truehalf/models/sources/*.py"}
# What they do changes no result: they refuse, show, take turns, or find what artifacts/inputs holds.
_NO_RESULT = {
    *(
        "stages/__init__.py",
        "stages/__main__.py",
        "stages/lines.py",
        "pipeline/workspace.py",
        "truehalf/codes.py",
        "truehalf/progress.py",
    ),
    *("truehalf/config/*", "truehalf/models/configuration.py", "truehalf/models/sources/__init__.py"),
    *("truehalf/provenance/code.py", "truehalf/provenance/user_files.py"),
    "truehalf/runtime/machine.py",
}
_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+(?P<package>[\w.]+)[ \t]+import[ \t]+(?P<names>\([^)]*\)|[^\n#]+)"
    r"|import[ \t]+(?P<modules>[^\n#]+))",
    re.MULTILINE,
)


class CodeDigest(TypedDict):
    """artifacts/inputs/code/<stage>.json."""

    sha256: str
    files: list[str]


def code_digests(root: Path = ROOT) -> dict[str, CodeDigest]:
    """By stage of dvc.yaml that runs when something has changed: the SHA-256 of all its code, and the files by name."""
    stages = read_yaml(root / "dvc.yaml")["stages"]
    modules = {name: module_of(stage["cmd"], root) for name, stage in stages.items() if not stage.get("always_changed")}
    return {name: _digest(code_of(module, root), root) for name, module in modules.items()}


def module_of(command: str, root: Path = ROOT) -> Path:
    """The file that `python -m package.module` runs, or `python -m package module`."""
    place = root.joinpath(*".".join(command.split()[2:]).split("."))
    return place / "__main__.py" if place.is_dir() else place.with_suffix(".py")


def code_of(module: Path, root: Path = ROOT) -> list[Path]:
    """A module and what it imports of the project, transitively, with the templates that each names; sorted."""
    found, waiting = set[Path](), [module]
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found.add(path)
        if path.suffix == ".py":
            waiting += _read(path, root)
    return sorted(path for path in found if not _is_without_result(path, root))


@functools.cache
def _is_without_result(path: Path, root: Path) -> bool:
    place = path.relative_to(root)
    return any(place.match(each) for each in _NO_RESULT)


@functools.cache
def _read(path: Path, root: Path) -> list[Path]:
    """What a module imports, names beside itself, and takes by name."""
    text = path.read_text()
    beside = [each for each in path.parent.iterdir() if each.suffix == ".j2" and each.name in text]
    by_name = _BY_NAME.get(path.relative_to(root).as_posix())
    inside = [each for each in path.parents if each.is_relative_to(root) and each != root]
    # the __init__.py of a room names the API, which it imports when asked for; no stage does
    packages = [each / "__init__.py" for each in inside if each.parent != root]
    packages = [each for each in packages if each.is_file()]
    return [*packages, *_imported(text, root), *beside, *(root.glob(by_name) if by_name else ())]


def _imported(text: str, root: Path) -> Iterator[Path]:
    for match in _IMPORT.finditer(text):
        package, names, modules = match.group("package", "names", "modules")
        if package is not None:
            words = (
                part.split()[0] for part in re.sub(r"#[^\n]*", "", names).strip("() \n").split(",") if part.split()
            )
            dotted = [package, *(f"{package}.{word}" for word in words)]
        else:
            dotted = [part.split()[0] for part in modules.split(",") if part.split()]
        for name in dotted:
            if name.partition(".")[0] in _ROOMS and "." in name:
                yield from _files(name, root)


@functools.cache
def _files(name: str, root: Path) -> list[Path]:
    place = root.joinpath(*name.split("."))
    return [path for path in (place.with_suffix(".py"), place / "__init__.py") if path.is_file()]


def _digest(files: list[Path], root: Path) -> CodeDigest:
    digest = hashlib.sha256()
    names = [path.relative_to(root).as_posix() for path in files]
    for name, path in zip(names, files, strict=True):
        digest.update(f"{name} {_sha256(path)} ".encode())
    return {"sha256": digest.hexdigest(), "files": names}


@functools.cache
def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
