"""DVC's run-cache, shared by machines through the project's default remote.

    python -m pipeline.cache.remote_cache pull
    python -m pipeline.cache.remote_cache push [dvc.lock ...]

Layout on the remote and transfers are DVC's; which files travel is decided here. `dvc push
--run-cache` sends every entry anew, one after the other, before any output, and of outputs only
those of the workspace. Here what the other side lacks travels, outputs before the entries that name them.

A remote that fails loses nothing: a line on stderr says what, and what to do, and the run goes on.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pipeline.forms import Section
from pipeline.tracking.redact import redact_credentials
from pipeline.workspace import root
from truehalf.codes import coded
from truehalf.errors import first_line, typed_line
from truehalf.files import read_yaml
from truehalf.report.terminal import parser_of, run_program

_ENTRY = re.compile(r"runs/[0-9a-f]{2}/[0-9a-f]{64}/[0-9a-f]{64}")


class RemoteFails(Exception):
    """What a remote cannot do, where no library has an error for it."""


def without_remote(workspace: Section, project: Path) -> list[str]:
    """What is wrong where `workspace.pull` or `workspace.push` asks for a remote and the project has none."""
    asked = " and ".join(f"workspace.{key}" for key in ("pull", "push") if workspace.get(key))
    if not asked:
        return []
    from dvc.config import Config, ConfigError

    try:
        named = Config(str(project / ".dvc"))["core"].get("remote")  # whichever of its files says it
    except ConfigError as error:
        return [coded("file-unreadable", f"{asked}: DVC cannot read its configuration: {error}")]
    message = f"{asked}: expected a default DVC remote, got none; add one: `dvc remote add -d NAME URL`"
    return [] if named else [coded("no-remote", message)]


# --- from the remote --------------------------------------------------------------------------------------------------


def pull_entries(repo: Any) -> bool:
    """Copy the entries of the remote's run-cache that the project's cache lacks; false where the remote fails."""
    try:
        remote, cache = _store_of_entries(repo), repo.cache.legacy
        lacking = sorted(_entries(remote) - _entries(cache))
        _copy(lacking, remote, cache)
    except Exception as error:  # DVC, fsspec and the clients of clouds each raise other errors
        return _failed("pull", error, "what other machines have run is made here")
    print(f"remote: {len(lacking)} stages that other machines ran are new here", flush=True)
    return True


def restore_from_remote() -> None:
    """From now on DVC takes outputs of a stage that its run-cache knows from the remote, where the cache lacks them.

    When the remote fails, that is printed once; this stage is run, and the remote is not asked again.
    """
    from dvc.data_cloud import DataCloud
    from dvc.stage.cache import StageCache
    from dvc_data.hashfile.transfer import TransferResult

    from_cache, from_remote = StageCache.restore, DataCloud.pull
    answers = True

    def restore(cache: Any, stage: Any, run_cache: bool = True, pull: bool = False, dry: bool = False) -> None:
        from_cache(cache, stage, run_cache, pull=True, dry=dry)  # once: a second time it takes the last outputs for new

    def pull(cloud: Any, objects: Iterable[Any], **options: Any) -> Any:
        nonlocal answers
        lacking = {each for each in objects if not cloud.repo.cache.local.exists(each.value)}
        if lacking and answers:
            try:
                return from_remote(cloud, objects, **options)
            except Exception as error:
                answers = _failed("pull", error, "what it does not give is made here")
        return TransferResult(set(), lacking)

    StageCache.restore, DataCloud.pull = restore, pull


# --- to the remote ----------------------------------------------------------------------------------------------------


def push(repo: Any, locks: Iterable[Path]) -> bool:
    """Send the entries of the run-cache that the remote lacks, with their outputs; false where the remote fails.

    Outputs go first, and no entry goes when one of them was not taken: no machine finds an entry without its outputs.

    Args:
        locks: dvc.lock files, whose outputs are sent where the remote lacks them, whichever process sent their entries.
    """
    try:
        remote, cache = _store_of_entries(repo), repo.cache.legacy
        lacking = _entries(cache) - _entries(remote)
        objects = {entry: _objects(repo, _read(Path(cache.path) / entry)) for entry in lacking}
        stages = [stage for lock in locks for stage in _read(lock).get("stages", {}).values()]
        _push_objects(repo, set().union(*objects.values(), *(_objects(repo, stage) for stage in stages)))
        sent = sorted(entry for entry in lacking if objects[entry])
        _copy(sent, cache, remote)
    except Exception as error:
        later = "`python -m pipeline.cache.remote_cache push` sends it later"
        return _failed("push", error, f"what was made is in the cache here, and {later}")
    print(f"remote: {len(sent)} stages that ran here are new there", flush=True)
    return True


def _push_objects(repo: Any, objects: set[Any]) -> None:
    reasons, log = _Reasons(), logging.getLogger("dvc_data")
    others, log.handlers = log.handlers, [reasons]  # it would print a line for each file
    try:
        failed = repo.cloud.push(objects).failed if objects else ()
    finally:
        log.handlers = others
    if failed:
        raise RemoteFails(f"{len(failed)} of {len(objects)} files were not taken: {reasons.last}")


class _Reasons(logging.Handler):
    """Keeps why a file was not transferred, which DVC only logs."""

    last = "DVC does not say why"

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1]:
            self.last = _one_line(record.exc_info[1])


def _objects(repo: Any, stage: Mapping[str, Any]) -> set[Any]:
    """Hashes of a stage's outputs and of the files in them; none where the cache has not all of them."""
    from dvc_data.hashfile.hash_info import HashInfo
    from dvc_data.hashfile.tree import Tree
    from dvc_objects.errors import ObjectFormatError

    cache = repo.cache.local
    found = {HashInfo("md5", out["md5"]) for out in stage.get("outs", ()) if out.get("hash") == "md5"}
    try:
        found |= {file for folder in found if folder.isdir for _, _, file in Tree.load(cache, folder)}
    except (FileNotFoundError, ObjectFormatError):
        return set()
    return found if all(cache.exists(each.value) for each in found) else set()


# --- entries of a run-cache -------------------------------------------------------------------------------------------


def _store_of_entries(repo: Any) -> Any:
    """The remote's folder that holds runs/."""
    from dvc.fs import HTTPFileSystem

    store = repo.cloud.get_remote_odb(None, "push --run-cache", hash_name="md5-dos2unix")
    if isinstance(store.fs, HTTPFileSystem):
        raise RemoteFails("DVC keeps no run-cache on HTTP remotes")
    return store


def _entries(store: Any) -> set[str]:
    """Names of the entries: runs/<2 digits>/<key>/<value>. What is still being written has another."""
    try:
        found = store.fs.find(store.fs.join(store.path, "runs"))
    except FileNotFoundError:
        return set()
    names = (store.fs.as_posix(store.fs.relpath(path, store.path)) for path in found)
    return {name for name in names if _ENTRY.fullmatch(name)}


def _copy(names: list[str], source: Any, target: Any) -> None:
    from dvc.fs import generic

    if names:
        places = [[store.fs.join(store.path, *name.split("/")) for name in names] for store in (source, target)]
        generic.copy(source.fs, places[0], target.fs, places[1])


def _read(path: Path) -> dict[str, Any]:
    """An entry or a dvc.lock, which are alike; empty where there is none."""
    if not path.exists():
        return {}
    loaded = read_yaml(path)
    return loaded if isinstance(loaded, dict) else {}


# --- messages ---------------------------------------------------------------------------------------------------------


def _failed(key: str, error: BaseException, consequence: str) -> bool:
    message = f"pipeline: workspace.{key}: the DVC remote fails ({_one_line(error)}); {consequence}"
    print(coded("remote-fails", message), file=sys.stderr)
    sys.stderr.flush()
    return False


def _one_line(error: BaseException) -> str:
    """Type and first line of an error, without the password of an address."""
    return redact_credentials(first_line(error) if isinstance(error, RemoteFails) else typed_line(error))


def main() -> int:
    """Pull or push; 1 where the remote fails, 2 where there is none."""
    parser = parser_of("pipeline.cache.remote_cache", "DVC's run-cache on a remote.")
    parser.add_argument("what", choices=("pull", "push"), help="fetch what is missing, or send it")
    parser.add_argument("locks", nargs="*", type=Path, help="push: dvc.lock files, by default that of this workspace")
    options = parser.parse_args()
    from dvc.repo import Repo

    project = root()
    if missing := without_remote({"pull": options.what == "pull", "push": options.what == "push"}, project):
        print(*missing, sep="\n", file=sys.stderr)
        return 2
    with Repo(str(project)) as repo:
        done = pull_entries(repo) if options.what == "pull" else push(repo, options.locks or [project / "dvc.lock"])
    return 0 if done else 1


if __name__ == "__main__":
    run_program(main)
