"""Files that the user's code comes from, found without running any of it.

A module of the workspace stands for its file, and for each module of the workspace that its import statements name; a
package, of the workspace or not, for all of its files. Of the product's code none is the user's: stages depend on that
by themselves (dvc.yaml).
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import PathFinder
from pathlib import Path

from truehalf.user_code import PRODUCT, importing_from, is_installed


def user_files(names: Sequence[str], root: Path) -> list[Path]:
    """Files and folders that each module:function comes from; none of an unknown module.

    Args:
        root: the workspace, an absolute path.
    """
    found: dict[Path, None] = {}
    importlib.invalidate_caches()  # a file may have come since the folder was last looked at
    with importing_from(root):
        named = {_top(name.partition(":")[0]) for name in names}
        waiting, seen = [_top(name.partition(":")[0]) for name in names], set()
        while waiting:
            top = waiting.pop(0)
            place = None if top in seen else _place(top)
            seen.add(top)
            if place is None or any(place.resolve().is_relative_to(room) for room in PRODUCT):
                continue
            if _in_workspace(place, root):
                files = [place] if place.is_file() else sorted(place.rglob("*.py"))
                found |= dict.fromkeys(files)
                waiting += [name for file in files for name in _imported(file)]
            elif top in named:
                found[place] = None
    return list(found)


def _top(module: str) -> str:
    return module.partition(".")[0]


def _place(top: str) -> Path | None:
    """File of a top-level module, or folder of a package; None of an unknown one, and of one built into Python."""
    spec = PathFinder.find_spec(top)
    if spec is None:  # an editable install may have a separate finder
        try:
            spec = importlib.util.find_spec(top)
        except (ImportError, ValueError):
            return None
    if spec is None:
        return None
    if spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations)))
    return Path(spec.origin) if spec.origin is not None and Path(spec.origin).is_file() else None


def _in_workspace(place: Path, root: Path) -> bool:
    """True if a module is in the workspace, and not in an environment that lies there."""
    environments = [Path(each) for each in (sys.prefix, sys.base_prefix) if Path(each) != root]
    is_inside = place.is_relative_to(root) and not is_installed(str(place.relative_to(root)))
    return is_inside and not any(each.is_relative_to(root) and place.is_relative_to(each) for each in environments)


def _imported(file: Path) -> Iterator[str]:
    """Top-level names of all import statements in a file; none of one that Python cannot read."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (_top(alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield _top(node.module)
