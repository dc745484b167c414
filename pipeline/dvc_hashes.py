"""DVC's hashes of source files, in a workspace of its own: of each once.

DVC asks for the hash of each dependency up to five times, and of a file that many stages depend on each time anew: a
fifth of its time in a run in which nothing is left to do. In such a workspace nobody edits the sources, so they are
hashed once. What a stage makes, and what is a link to a place elsewhere, is looked at each time.
"""

from __future__ import annotations

import contextlib
import functools
import os
from typing import Any


def remember() -> None:
    """Let this process's DVC hash each source once.

    It reaches into DVC: where another release has other insides, everything stays as that has it, only slower.
    """
    with contextlib.suppress(ImportError, AttributeError):
        _remember()


def _remember() -> None:
    from dvc.dependency.base import Dependency

    of_dvc = Dependency._build
    hashed: dict[str, Any] = {}

    @functools.cache
    def made(repo: Any) -> list[str]:
        """What stages make. DVC would collect it anew whenever it has let go of its index."""
        return [f"{out.fs_path}/" for out in repo.index.outs]

    @functools.cache
    def is_source(repo: Any, path: str) -> bool:
        """Whether no stage makes it or anything in it, and it lies in the workspace itself."""
        below = any(f"{path}/".startswith(out) or out.startswith(f"{path}/") for out in made(repo))
        return not below and path == os.path.realpath(path)

    def build(dependency: Any, odb: Any, path: str, *arguments: Any, **options: Any) -> Any:
        if not is_source(dependency.repo, path):
            return of_dvc(dependency, odb, path, *arguments, **options)
        if path not in hashed:
            hashed[path] = of_dvc(dependency, odb, path, *arguments, **options)
        return hashed[path]

    Dependency._build = build
