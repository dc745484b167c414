"""Packages that are extras (pyproject.toml): imported when a source needs one, and what to install where that fails.

torchvision's operators are compiled against one build of torch. Beside another one (a CPU build beside a CUDA build,
or another release) they cannot be loaded, and its import ends with "operator torchvision::nms does not exist".
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import importlib.util
import logging
from collections.abc import Iterator
from types import ModuleType

from truehalf.errors import StageError, failing


def extra(package: str, named: str, called: str) -> ModuleType:
    """A package.

    Args:
        package: as it is imported.
        named: its extra.
        called: what errors call it.

    Raises:
        StageError: when it is not installed, or cannot be imported, with what to install.
    """
    if importlib.util.find_spec(package) is None:
        message = f"model.source: {called} is not installed: pip install 'truehalf[{named}]'"
        raise StageError("package-missing", message)
    remedy = (
        f". torch {_version('torch')} and torchvision {_version('torchvision')} have to be of releases that belong "
        "together and of one build, both for the CPU or both for the same CUDA; install the two in one command: "
        "pip install --force-reinstall torch torchvision"
    )
    with failing("package-missing", f"model.source: {called} is installed and cannot be imported", remedy):
        return importlib.import_module(package)


@contextlib.contextmanager
def quiet(*names: str) -> Iterator[None]:
    """Within, the loggers of these names keep away all but errors."""
    levels = {logger: logger.level for logger in map(logging.getLogger, names)}
    for logger in levels:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in levels.items():
            logger.setLevel(level)


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)"
