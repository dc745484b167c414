"""`dvc repro` beside others on one cache: a stage that several jobs have in common runs in one of them.

    python -m pipeline.cache.shared_repro [--pull | --pull-outs] [--verbose]

DVC decides what is out of date and executes it, in DVC's order. Around each stage stands a lock, whose name is a
digest of what DVC's run-cache knows a stage by: command, parameters, dependencies and outs. Who comes second waits, and
finds in the cache what the first has made; all later ones take it from there beside each other, as long as the cache
has it. The locks are files in the cache; that of a process which has died is free.

With --pull, what other machines have run comes from the remote, stage by stage, under the same lock. `dvc repro --pull`
copies every entry of the remote's run-cache each time, and ends where the remote does not answer.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pipeline.cache import dvc_yaml
from pipeline.cache.remote_cache import pull_entries, restore_from_remote
from pipeline.summary.stage_lines import CACHED, FAILED, STOPPED, UNCHANGED, StageLines
from pipeline.workspace import lock_in, locked
from truehalf.progress import PLACE_VARIABLE
from truehalf.report.terminal import parser_of, run_program

# How a stage ends that Ctrl-C stopped: 130, or killed by the signal, where it came while Python ran an exec(): the
# interpreter then ends itself by SIGINT, whatever code was handed to sys.exit.
_STOPPED_ENDS = (f"exited with {128 + signal.SIGINT}", f"exited with {-signal.SIGINT}")


def main() -> int:
    from dvc.cli import main as dvc
    from dvc.commands.repro import CmdRepro
    from dvc.exceptions import ReproductionError
    from dvc.repo import Repo
    from dvc.repo import reproduce as of_dvc
    from dvc.stage.exceptions import StageCmdFailedError

    parser = parser_of("pipeline.cache.shared_repro", "Others go to `dvc repro`.")
    parser.add_argument("--pull", action="store_true", help="take what other machines have run from the remote")
    parser.add_argument("--pull-outs", action="store_true", help="the same, where the entries are here already")
    parser.add_argument("--verbose", action="store_true", help="print what DVC says, too")
    options, further = parser.parse_known_args()
    dvc_yaml.remember()
    unpatched = Repo.reproduce

    def reproduce(repo: Repo, *arguments: Any, **options_of_dvc: Any) -> Any:
        if options.pull:
            pull_entries(repo)
        lines = StageLines(len(repo.index.stages), Path(repo.root_dir))
        try:
            return unpatched(repo, *arguments, **options_of_dvc, repro_fn=_told(one_at_a_time, lines))
        finally:
            lines.flush()

    def one_at_a_time(stage: Any, **options: Any) -> Any:
        key = None if options.get("dry") or options.get("no_commit") else _key(stage)
        if key is None:
            return of_dvc._reproduce_stage(stage, **options)
        store = stage.repo.cache.local
        store.makedirs(store.path)  # by DVC, which knows whether a group shares it (cache.shared)
        lock = lock_in(_cache(stage), key)
        if not _was_made(lock):
            with locked(lock, f"{stage.name}: another job runs the same; waiting for it"):
                if not _was_made(lock):
                    done = of_dvc._reproduce_stage(stage, **options)
                    lock.write_text("\n".join(_files(stage)))
                    return done
        return of_dvc._reproduce_stage(stage, **options)

    def run(command: Any) -> int:
        """`dvc repro` without its last words, below those of the run: they ask to commit dvc.lock and to push, or say
        of a stage that it failed, which has said why.
        """
        command.repo.scm_context.quiet = True
        if not options.verbose:
            logging.getLogger("dvc").setLevel(logging.WARNING)
        try:
            command.repo.reproduce(**command._common_kwargs, **command._repro_kwargs)
        except ReproductionError as error:
            if not isinstance(error.__cause__, StageCmdFailedError):
                raise
            return 1
        return 0

    Repo.reproduce, CmdRepro.run = reproduce, run
    if options.pull or options.pull_outs:
        restore_from_remote()
    return int(dvc(["repro", *([] if options.verbose else ["--quiet"]), *further]))


def _told(reproduce: Callable[..., Any], lines: StageLines) -> Callable[..., Any]:
    """A stage's reproduction with its line on the terminal."""

    def told(stage: Any, **options: Any) -> Any:
        name, started = str(stage.name), time.monotonic()
        os.environ[PLACE_VARIABLE] = lines.begin(name)
        with _commands(lambda: lines.starts(verdict=not stage.outs)) as ran:
            try:
                done = reproduce(stage, **options)
            except Exception as error:
                if stage.outs:
                    stopped = str(error).endswith(_STOPPED_ENDS)
                    lines.end(name, time.monotonic() - started, STOPPED if stopped else FAILED)
                raise
        if not ran:
            lines.idle(name, UNCHANGED if done is None else CACHED)
        elif stage.outs:
            lines.end(name, time.monotonic() - started)
        return done

    return told


@contextlib.contextmanager
def _commands(starts: Callable[[], None]) -> Iterator[list[str]]:
    """Call `starts` where DVC runs a stage's command, whose names are yielded: it takes others from its cache."""
    from dvc.stage import run as of_dvc

    names: list[str] = []
    unpatched = of_dvc.cmd_run  # commands get this process's environment

    def cmd_run(stage: Any, *arguments: Any, **options: Any) -> None:
        names.append(stage.name)
        starts()
        unpatched(stage, *arguments, **options)

    of_dvc.cmd_run = cmd_run
    try:
        yield names
    finally:
        of_dvc.cmd_run = unpatched


def _was_made(lock: Path) -> bool:
    """Whether a job has finished the stage and the cache has still what it made: no job has to wait for another then.

    The lock names the files. `dvc gc` may have removed them.
    """
    names = lock.read_text().splitlines() if lock.exists() else []
    return bool(names) and all((lock.parent.parent / name).exists() for name in names)


def _files(stage: Any) -> list[str]:
    """What a finished stage comes back from: its folder in the run-cache and its outputs, relative to the cache."""
    from dvc.stage.cache import _can_hash, _get_stage_hash

    if not _can_hash(stage):
        return []
    store, runs = stage.repo.cache.local, stage.repo.stage_cache
    found = [runs._get_cache_dir(_get_stage_hash(stage))]
    for value in (out.hash_info.value for out in stage.outs if out.use_cache):
        if not value:  # it was not saved: no job may take the stage for done
            return []
        found.append(store.oid_to_path(value))
        if value.endswith(".dir"):
            found += [store.oid_to_path(row["md5"]) for row in json.loads(Path(found[-1]).read_text())]
    return [str(Path(file).relative_to(_cache(stage))) for file in found]


def _cache(stage: Any) -> Path:
    return Path(stage.repo.cache.local.path).parent.parent


def _key(stage: Any) -> str | None:
    """Of what makes an entry of the run-cache; None for a stage that has none, as it runs always.

    DVC's digest is not asked for: it takes what is saved in the stage, and after saving that a change would not show.
    """
    from dvc.exceptions import DvcException

    if stage.always_changed or not stage.outs:
        return None
    try:
        read = {dep.def_path: str(dep.get_hash().value) for dep in stage.deps}
    except (DvcException, OSError):  # a dependency is missing, which is for DVC to say
        return None
    made = sorted(out.def_path for out in stage.outs)
    return hashlib.sha256(json.dumps([stage.name, stage.cmd, read, made], sort_keys=True).encode()).hexdigest()


if __name__ == "__main__":
    run_program(main)
