"""After a failed stage: its last good files, back from DVC's cache.

DVC deletes a stage's outs before it runs the command. (`persist: true` would keep them, but takes the stage out of
DVC's run-cache, and every change of decoder or precision would compute again what was computed before.) When the
command then fails, dvc.lock still says what the outs were, and the cache still has them; so a failed stage puts them
back.
"""

from __future__ import annotations

import configparser
import json
import shutil
from pathlib import Path

import yaml

_SUFFIX = ".restored"


def restore_outs(root: Path, stage: str) -> list[str]:
    """Put back the missing outs of a stage that dvc.lock describes and the cache holds; return their paths.

    What exists is not changed. Without a dvc.lock, or where the cache lacks a file, nothing happens.
    """
    restored = []
    for out in _locked_outs(root, stage):
        place = root / out["path"]
        if not place.exists() and "md5" in out and _copy(_cache(root), out["md5"], place):
            restored.append(out["path"])
    return restored


def _locked_outs(root: Path, stage: str) -> list[dict[str, str]]:
    lock = root / "dvc.lock"
    if not lock.exists():
        return []
    stages = (yaml.safe_load(lock.read_text()) or {}).get("stages", {})
    outs: list[dict[str, str]] = stages.get(stage, {}).get("outs", [])
    return outs


def _cache(root: Path) -> Path:
    """Folder of DVC's content-addressed files (layout of DVC 3)."""
    folder = Path("cache")
    for name in ("config", "config.local"):
        parser = configparser.ConfigParser()
        parser.read(root / ".dvc" / name)
        folder = Path(parser.get("cache", "dir", fallback=str(folder)))
    return root / ".dvc" / folder / "files" / "md5"


def _copy(cache: Path, md5: str, place: Path) -> bool:
    """A file, or a folder (its md5 ends in .dir and names a list of files), built beside its place and moved there."""
    building = place.with_name(place.name + _SUFFIX)
    listed = _object(cache, md5)
    if not listed.exists():
        return False
    if not md5.endswith(".dir"):
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(listed, building)
        building.rename(place)
        return True
    entries = json.loads(listed.read_text())
    if not all(_object(cache, entry["md5"]).exists() for entry in entries):
        return False
    shutil.rmtree(building, ignore_errors=True)
    for entry in entries:
        target = building / entry["relpath"]
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(_object(cache, entry["md5"]), target)
    building.rename(place)
    return True


def _object(cache: Path, md5: str) -> Path:
    return cache / md5[:2] / md5[2:]
