"""Files that the user's code comes from, found without running any of it: a module's file, at the top of the workspace
all modules there, or all sources of its top-level package. Of the product's code none is the user's: stages depend on
that by themselves (dvc.yaml).
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from importlib.machinery import PathFinder
from pathlib import Path

from truehalf.user_code import PRODUCT, importing_from


def user_files(names: Sequence[str], root: Path) -> list[Path]:
    """List the files that each module:function comes from; none of an unknown module.

    Args:
        root: the workspace, an absolute path, searched before what is installed.
    """
    importlib.invalidate_caches()  # a file may have come since the folder was last looked at
    files: dict[Path, None] = {}
    for top in dict.fromkeys(name.partition(":")[0].partition(".")[0] for name in names):
        with importing_from(root):
            spec = PathFinder.find_spec(top) or importlib.util.find_spec(top)  # an editable install has another finder
        places = [] if spec is None else spec.submodule_search_locations or filter(None, [spec.origin])
        for place in map(Path, places):
            if place.is_dir():
                modules = sorted(place.rglob("*.py"))
            else:
                modules = sorted(root.glob("*.py")) if place.parent == root else [place]
            if not any(place.resolve().is_relative_to(room) for room in PRODUCT):
                files |= dict.fromkeys(modules)
    return [file for file in files if file.is_file()]
