"""Files that the user's code comes from, found without running any of it.

of the workspace    the module's file, the packages around it, and what these import of the workspace, transitively, as
                    their import statements say; of a package (with an __init__.py) all .py files, wherever one of it
                    is named or imported
installed           the package that the module is in, with all its files; of a module in no package its file

The product's code is none of the user's; a stage depends on it anyway (dvc.yaml).
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from truehalf.user_code import PRODUCT, importing_from, is_installed


def watched(names: Sequence[str], root: Path) -> list[Path]:
    """Files and folders that each module:function comes from, in the order in which they are found; none of an unknown
    module.

    Args:
        root: the workspace, an absolute path.
    """
    found: dict[Path, None] = {}
    importlib.invalidate_caches()  # a file may have come since the folder was last looked at
    with importing_from(root):
        for name in names:
            module = name.partition(":")[0]
            chain = _chain(module)
            last = _file(chain[-1]) if chain else None
            if last is not None and not _in_workspace(last, root):
                found[_installed(chain)] = None
            else:
                _follow(module, root, found)
    return list(found)


def _follow(name: str, root: Path, found: dict[Path, None]) -> None:
    """Add the files of a module of the workspace, and of those that it imports."""
    waiting, seen = [name], set()
    while waiting:
        module = waiting.pop(0)
        if module in seen:
            continue
        seen.add(module)
        for named, file, is_package in _files(module, root):
            if file not in found:
                found[file] = None
                waiting += _imports(file, named, is_package)


def _files(module: str, root: Path) -> Iterator[tuple[str, Path, bool]]:
    """Name, file and whether it is a package, of what is read when a module of the workspace is imported, and of what
    lies in its package, which it may import in ways that no statement says.
    """
    for spec in _chain(module):
        file = _file(spec)
        if file is None or not _in_workspace(file, root):
            continue
        if spec.submodule_search_locations is None:
            yield spec.name, file, False
            continue
        for each in sorted(file.parent.rglob("*.py")):
            parts = each.relative_to(file.parent).with_suffix("").parts
            inner = parts[:-1] if parts[-1] == "__init__" else parts
            yield ".".join((spec.name, *inner)), each, parts[-1] == "__init__"
        return


def _chain(module: str) -> list[ModuleSpec]:
    """The specs of the packages around a module and of the module, outermost first, as far as there are any."""
    parts, chain = module.split("."), []
    locations: list[str] | None = None
    for depth in range(1, len(parts) + 1):
        inner = parts[depth - 1]  # the full name of a namespace would have to be imported for the search
        spec = _outermost(inner) if locations is None else PathFinder.find_spec(inner, locations)
        if spec is None:
            break
        locations = None if spec.submodule_search_locations is None else list(spec.submodule_search_locations)
        spec.name = ".".join(parts[:depth])
        chain.append(spec)
        if locations is None:
            break
    return chain


def _outermost(name: str) -> ModuleSpec | None:
    """Of a name without a dot, which imports nothing; of one that is imported already, where it would come from now."""
    spec = PathFinder.find_spec(name)
    if spec is None:  # an editable install may have a separate finder
        with contextlib.suppress(ImportError, ValueError):
            spec = importlib.util.find_spec(name)
    return spec


def _file(spec: ModuleSpec) -> Path | None:
    """None of a namespace, and of what is built into Python."""
    path = None if spec.origin is None else Path(spec.origin)
    return path if path is not None and path.is_file() else None


def _in_workspace(file: Path, root: Path) -> bool:
    """Whether it is the user's, in the workspace; the packages of an environment there are installed."""
    if not file.is_relative_to(root) or any(file.resolve().is_relative_to(room) for room in PRODUCT):
        return False
    environments = [Path(each) for each in (sys.prefix, sys.base_prefix)]
    if any(each != root and each.is_relative_to(root) and file.is_relative_to(each) for each in environments):
        return False
    return not is_installed(str(file.relative_to(root)))


def _installed(chain: Sequence[ModuleSpec]) -> Path:
    """The folder of the outermost package with an __init__.py, or of the namespace, or the file of a lone module."""
    for spec in chain:
        file = _file(spec)
        if file is not None and spec.submodule_search_locations is not None:
            return file.parent
    last = _file(chain[-1])
    assert last is not None, "called for a module with a file"
    return last.parent if len(chain) > 1 else last


def _imports(file: Path, name: str, is_package: bool) -> list[str]:
    """Names that may be modules, of all import statements in a file; none of one that Python cannot read."""
    if file.suffix != ".py":
        return []
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):
        return []
    package = name.split(".") if is_package else name.split(".")[:-1]
    found: dict[str, None] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= dict.fromkeys(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            around = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*around, *([node.module] if node.module else [])])
            found |= dict.fromkeys([base, *(f"{base}.{alias.name}" for alias in node.names if alias.name != "*")])
    return [each for each in found if each]
