"""A separate workspace for one run: a git worktree of a snapshot, on the project's DVC cache.

No other run can see its params.yaml, and what other runs have made comes from the cache. It lies under .dvc/tmp, which
neither git nor DVC looks into.
"""

from __future__ import annotations

import configparser
import contextlib
import fcntl
import glob
import io
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pipeline.forms import Params
from pipeline.run import LOCK_FILE
from pipeline.sweep.snapshot import NoSnapshot, git
from pipeline.workspace import is_file_of, locked

FOLDER = Path(".dvc") / "tmp" / "workspaces"


@contextlib.contextmanager
def isolated(project: Path, snapshot: str, name: str, values: Params) -> Iterator[Path]:
    """Make a workspace and remove it afterwards.

    Args:
        project: whose files and cache it shares.
        snapshot: the commit that is checked out, see pipeline.sweep.snapshot.
        name: of the folder; that of another run which is at work is waited for.
        values: the configuration. What it names of the project and git does not know comes along as a link, of an ONNX
            file as a copy.
    """
    place = project / FOLDER / name
    place.parent.mkdir(parents=True, exist_ok=True)
    lock = place.with_name(f"{name}.lock")
    with locked(lock, f"pipeline: another run has the workspace {name}; waiting for it to end"):
        _remove(project, place)
        try:
            _worktree(project, "add", "--quiet", "--detach", str(place), snapshot)
            local = place / ".dvc" / "config.local"
            local.touch(mode=0o600)  # it may hold keys to a remote
            local.write_text(local_configuration(project, {"core": {"site_cache_dir": str(place / ".dvc/tmp/site")}}))
            link_inputs(project, place, values)
            yield place
        finally:
            _remove(project, place)
            lock.unlink(missing_ok=True)


def remove_abandoned(project: Path) -> list[str]:
    """Remove the workspaces of runs that were killed; return their names."""
    removed = []
    for lock in sorted((project / FOLDER).glob("*.lock")):
        with lock.open("a") as opened, contextlib.suppress(BlockingIOError):
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not is_file_of(opened.fileno(), lock) or _at_work(lock.with_suffix("")):
                continue
            _remove(project, lock.with_suffix(""))
            lock.unlink(missing_ok=True)
            removed.append(lock.stem)
    return removed


def cache_of(project: Path) -> Path:
    """DVC's cache, whether or not it exists yet, and whichever of DVC's configurations names it."""
    from dvc.config import Config

    cache = str(Config(str(project / ".dvc"))["cache"].get("dir", "cache"))
    return (project / ".dvc" / cache).resolve()


def local_configuration(project: Path, further: Mapping[str, Mapping[str, str]]) -> str:
    """Text of DVC's local configuration for a workspace outside the project: the project's cache and remotes.

    DVC does not use git there, from which nothing is committed: it would read git's whole index for each out.

    Args:
        further: {section: {option: value}}, above what the project says.
    """
    settings, local = (configparser.ConfigParser(interpolation=None) for _ in range(2))
    settings.read([project / ".dvc" / "config", project / ".dvc" / "config.local"])
    local.read(project / ".dvc" / "config.local")
    sections: dict[str, dict[str, str]] = {"core": {"no_scm": "true"}, "cache": {"dir": str(cache_of(project))}}
    for section in settings.sections():
        url = settings.get(section, "url", fallback=None)
        if url is not None and "://" not in url:
            sections[section] = {"url": str((project / ".dvc" / url).resolve())}
    for stated in (sections, further):
        local.read_dict(stated)
    text = io.StringIO()
    local.write(text)
    return text.getvalue()


def link_inputs(project: Path, place: Path, values: Any) -> None:
    """Link what the configuration names in the project and the snapshot does not have: ignored weights, images, of a
    folder what git ignores or what is too large for a snapshot.

    An ONNX file and what lies beside it under its name are copied, since onnx reads no weights through links.
    """
    for relative, as_copy in named_files(project, values).items():
        source, target = project / relative, place / relative
        if not any(parent.is_symlink() for parent in target.parents if place in parent.parents):
            _bring(source, target, as_copy)


def _bring(source: Path, target: Path, as_copy: bool) -> None:
    """Link or copy a file or folder; of a folder that the snapshot has in part, what it lacks."""
    if target.is_symlink() and not target.exists():  # relative, to somewhere outside of the project
        target.unlink()
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        if as_copy:
            shutil.copy2(source, target)
        else:
            target.symlink_to(source.resolve())
    elif source.is_dir() and not target.is_symlink():
        models = [file.stem for file in source.glob("*.onnx")]
        for entry in source.iterdir():
            if entry.name != "__pycache__":
                beside = entry.is_file() and entry.name.startswith(tuple(models))
                _bring(entry, target / entry.name, as_copy=beside)


def named_files(project: Path, values: Any) -> dict[Path, bool]:
    """Files and folders of the project that a configuration names, relative to it, and whether a link to them is not
    enough: so with an ONNX file and what lies beside it under its name.
    """
    found: dict[Path, bool] = {}
    for name in _texts(values):
        relative = Path(name)
        if not name or relative.is_absolute() or ".." in relative.parts or not relative.parts:
            continue
        source = project / relative
        if source.suffix == ".onnx" and source.is_file():
            beside = sorted(source.parent.glob(f"{glob.escape(source.stem)}*"))
            found |= {relative.parent / file.name: True for file in beside if file.is_file()}
        elif source.exists():
            found.setdefault(relative, False)
    return found


def _texts(values: Any) -> Iterator[str]:
    if isinstance(values, str):
        yield values
    elif isinstance(values, Mapping):
        for value in values.values():
            yield from _texts(value)
    elif isinstance(values, (list, tuple)):
        for value in values:
            yield from _texts(value)


def _at_work(place: Path) -> bool:
    """Whether DVC still runs there, though the job that started it was killed."""
    lock = place / LOCK_FILE
    if not lock.exists():
        return False
    with lock.open("a") as opened:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _remove(project: Path, place: Path) -> None:
    if place.exists():
        with locked(place / LOCK_FILE, f"pipeline: DVC of a killed run still works in {place.name}; waiting for it"):
            shutil.rmtree(place, ignore_errors=True)
    with contextlib.suppress(NoSnapshot):
        _worktree(project, "prune")


def _worktree(project: Path, *arguments: str) -> None:
    """`git worktree`, one at a time: beside a `prune`, an `add` fails now and then ("failed to read commondir")."""
    turn = project / FOLDER.parent / "truehalf.worktrees.lock"
    turn.parent.mkdir(parents=True, exist_ok=True)
    with turn.open("a") as opened:
        fcntl.flock(opened, fcntl.LOCK_EX)
        git(project, "worktree", *arguments)
