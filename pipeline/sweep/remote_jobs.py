"""Jobs of a sweep on workers that may not see the project: what they are sent, and what is made of their answers."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

from pipeline.compose import effective
from pipeline.forms import Params
from pipeline.job import claim_of, collect_reports, name_of
from pipeline.sweep.isolated import cache_of, local_configuration, named_files
from pipeline.sweep.ray_worker import Answer, Order, unpack
from pipeline.sweep.snapshot import git
from pipeline.sweep.sweep import VARIABLE, JobResult, Sweep
from pipeline.track import adopt_runs, catch_up
from pipeline.tracking.record import commit_of, pending_records
from pipeline.tracking.redact import redact_credentials
from pipeline.workspace import AWAY_VARIABLE, LOCKS, PROJECT_VARIABLE, lock_in, rights_of
from truehalf.codes import coded
from truehalf.config.typed import ConfigErrors
from truehalf.json_values import JsonObject
from truehalf.models.configuration import validated

MOST_SENT_BYTES = 2_000_000_000  # of ignored files, all jobs together: they lie in the memory of Ray's object store
_LINK_MODE = "120000"  # git's


class RemoteJobs:
    """The jobs of one sweep, as seen from the project."""

    def __init__(self, sweep: Sweep, share_cache: bool) -> None:
        self.sweep, self.project, self.share_cache = sweep, Path(sweep.project), share_cache
        self._lacking: dict[Path, list[Path]] = {}
        self._put: dict[str, Any] = {}
        self._room = MOST_SENT_BYTES
        self._commit = commit_of(self.project, sweep.snapshot)
        self.token = lock_in(cache_of(self.project), sweep.id)

    @classmethod
    def of_this_sweep(cls, share_cache: bool = True) -> RemoteJobs:
        sweep = Sweep.joined()
        assert sweep is not None, "pipeline.sweep.hook runs before any launcher"
        return cls(sweep, share_cache)

    def archive(self) -> bytes:
        """The files of the snapshot, as tar."""
        command = ["git", "archive", "--format=tar", self.sweep.snapshot]
        return subprocess.run(command, cwd=self.project, capture_output=True, check=True).stdout

    def named(self, values: Params) -> tuple[str, ...]:
        """What a configuration names in the project and the snapshot does not have: ignored weights, images."""
        return tuple(str(name) for name in named_files(self.project, values) if self._unknown(name))

    def _unknown(self, name: Path) -> list[Path]:
        """The files of a file or folder that the snapshot does not have."""
        if name not in self._lacking:
            place = self.project / name
            files = [file for file in place.rglob("*") if file.is_file()] if place.is_dir() else [place]
            self._lacking[name] = [
                file for file in files if file.relative_to(self.project) not in self._known and file.suffix != ".pyc"
            ]
        return self._lacking[name]

    @functools.cached_property
    def _known(self) -> set[Path]:
        """The files of the snapshot; without its links, which may lead nowhere on another machine."""
        listed = git(self.project, "ls-tree", "-r", "-z", self.sweep.snapshot)
        rows = [row.partition("\t") for row in listed.split("\0") if row]
        return {Path(name) for facts, _, name in rows if not facts.startswith(_LINK_MODE)}

    def brought(self, values: Params, put: Callable[[bytes], Any]) -> list[Any]:
        """What `put` made of what a configuration names and the snapshot does not have; of each once for all jobs."""
        names = self.named(values)
        for name in names:
            if name not in self._put:
                packed = self._packed(name)
                self._put[name] = None if packed is None else put(packed)
        return [self._put[name] for name in names if self._put[name] is not None]

    def _packed(self, name: str) -> bytes | None:
        """What the snapshot lacks of a file or folder, as tar; None where with what was packed before it is too much
        for Ray, and that is printed.
        """
        files = self._unknown(Path(name))
        size = sum(file.stat().st_size for file in files)
        if size > self._room:
            note = f"{name} ({size / 1e9:.1f} GB) is not sent to workers: a sweep sends {MOST_SENT_BYTES / 1e9:g} GB"
            print(coded("too-large", f"sweep: {note}; give it an absolute path that they see"), file=sys.stderr)
            return None
        self._room -= size
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w", dereference=True) as tar:
            for file in files:
                tar.add(file, str(file.relative_to(self.project)))
        return archive.getvalue()

    def is_another(self, number: int, overrides: list[str], values: Params) -> bool:
        """Whether a job's configuration is that of an earlier one, which runs it: then that is noted."""
        try:
            known = effective(validated(cast("JsonObject", values)))
        except ConfigErrors:
            return False  # its worker says what is wrong with it
        first = self.sweep.first_with(claim_of(known), number)
        if first != number:
            self.sweep.note(JobResult(number, overrides, name_of(known), 0, 0.0, same_as=first))
        return first != number

    def order(self, number: int, overrides: list[str]) -> Order:
        """Environment of a worker."""
        return Order(
            arguments=[*overrides, "workspace=here", f"hydra.job.num={number}"],
            dvc=local_configuration(self.project, {"cache": {"dir": "cache"}}),
            dvc_shared=local_configuration(self.project, {}),
            token=str(self.token) if self.share_cache else "",
            sweep=replace(self.sweep, parallel=False, snapshot="", commit=self._commit).text(),
            variables=(VARIABLE, PROJECT_VARIABLE, AWAY_VARIABLE),
        )

    def unpack(self, number: int, overrides: list[str], answer: Answer) -> None:
        """Keep what a worker sent: reports in runs/, what DVC made in the cache, runs that are to be logged."""
        exit_code, log, brought = answer
        self.sweep.log_of(number).write_text(log)
        with tempfile.TemporaryDirectory(dir=self.sweep.folder) as name:
            folder = Path(name)
            unpack(brought, folder)
            noted = replace(self.sweep, project=name).folder / f"{number}.json"
            if not noted.exists():
                self.lost(number, overrides, RuntimeError(f"the pipeline ended with {exit_code}"))
                return
            result = JobResult(**json.loads(noted.read_text()) | {"overrides": overrides})
            _move_missing(folder / ".dvc" / "cache", cache_of(self.project))
            adopt_runs(folder, self.project)
            if result.name is not None and result.exit_code != 130:  # or it was refused, or stopped
                collect_reports(folder, self.project / "runs" / result.name)
            for params in (folder / "runs").glob("*/params.yaml"):  # each step of a search has a folder
                collect_reports(params.parent, self.project / "runs" / params.parent.name)
            self.sweep.note(result)

    def lost(self, number: int, overrides: list[str], error: Exception) -> None:
        """Note a job whose worker sent nothing."""
        reason = str(error).strip().rpartition("\n")[2]  # of a remote error, the last line says what it was
        self.sweep.note_lost(number, overrides, f"{type(error).__name__}: {redact_credentials(reason)}")

    def track(self) -> None:
        """Log what the workers could not log themselves."""
        if pending_records(self.project):
            catch_up(self.project)
        with contextlib.suppress(FileNotFoundError):
            self.token.unlink()


def _move_missing(source: Path, cache: Path) -> None:
    """Move files to where a cache lacks them, each whole; outputs (files/) before what names them (runs/)."""
    cache.mkdir(parents=True, exist_ok=True)
    for file in sorted(source.rglob("*")):
        place = cache / file.relative_to(source)
        if file.is_file() and not place.exists() and file.parent.name != LOCKS:  # which have a worker's rights
            with rights_of(cache):
                place.parent.mkdir(parents=True, exist_ok=True)
            building = cache / f"{uuid4().hex}.partial"  # a unique name, in a place where DVC looks for nothing
            shutil.move(file, building)
            building.replace(place)
