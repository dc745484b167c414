"""A sweep: what its jobs share. What became of each is a file in the sweep's folder.

It travels in a variable of the environment, which every launcher hands on to its jobs.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from pipeline.workspace import locked
from truehalf.codes import coded
from truehalf.files import write_text
from truehalf.json_values import Json

VARIABLE = "TRUEHALF_SWEEP"


@dataclass
class JobResult:
    """What became of a job; while it runs, what is known of it.

    Attributes:
        name: of the run; None where the configuration is refused.
        reason: why it failed.
        same_as: the job that runs the same configuration.
    """

    number: int
    overrides: list[str]
    name: str | None = None
    exit_code: int = 0
    seconds: float = 0.0
    reason: str | None = None
    same_as: int | None = None

    def to_json(self) -> dict[str, Json]:
        """`same_as` only where there is one."""
        return {name: value for name, value in asdict(self).items() if name != "same_as" or value is not None}


@dataclass(frozen=True)
class Sweep:
    """What the jobs of a sweep share.

    Attributes:
        id: "sweep-" and a digest of the arguments and the snapshot; the same sweep again has the same. Of a search that
            is no job of a sweep, "search-" and one of its configuration.
        project: an absolute path.
        snapshot: the commit that all jobs work on; empty where they work in the project itself.
        parallel: jobs may run side by side, each in a workspace.
        arguments: of the command line.
        pulled: the cache has what the remote's run-cache knew when the sweep began.
        pushes: what the jobs made is sent to the remote when the last has ended.
        commit: of the snapshot, as tags of a run, for jobs that see no repository; empty for others.
        start: from 1; each start of the same sweep has separate results and logs, since jobs may outlive what started
            them.
    """

    id: str
    project: str
    snapshot: str
    parallel: bool
    arguments: list[str]
    pulled: bool = False
    pushes: bool = False
    commit: dict[str, str] = field(default_factory=dict)
    start: int = 1

    @classmethod
    def joined(cls) -> Sweep | None:
        """The sweep that this process works for; None outside of one."""
        content = os.environ.get(VARIABLE)
        return None if content is None else cls(**json.loads(content))

    def text(self) -> str:
        """What the variable holds."""
        return json.dumps(asdict(self))

    @property
    def starts(self) -> Path:
        """A folder with that of each start."""
        return Path(self.project) / "runs" / ".sweeps" / self.id

    @property
    def folder(self) -> Path:
        """Results and logs of the jobs."""
        return self.starts / str(self.start)

    @contextlib.contextmanager
    def begun(self) -> Iterator[Sweep]:
        """The next start of the sweep, with its folder; while the same sweep is at work, say so and wait."""
        self.starts.mkdir(parents=True, exist_ok=True)
        waiting = f"sweep: {self.id}, the same sweep, is at work; waiting for it to end. It leaves its results in runs/"
        with locked(self.starts / "lock", waiting):
            earlier = (int(path.name) for path in self.starts.iterdir() if path.name.isdigit())
            start = replace(self, start=max(earlier, default=0) + 1)
            start.folder.mkdir()
            yield start

    def log_of(self, number: int) -> Path:
        return self.folder / f"{number}.log"

    def first_with(self, name: str, number: int) -> int:
        """The job that runs a configuration: of those with the same name the first to ask, which may be this one."""
        claim = self.folder / f"{name}.job"
        with contextlib.suppress(FileExistsError):
            claim.symlink_to(str(number))  # a link appears whole, with what it says
        return int(claim.readlink().name)

    def note(self, result: JobResult) -> None:
        """Keep what became of a job."""
        write_text(self.folder / f"{result.number}.json", json.dumps(result.to_json(), indent=2))
        if self.parallel:
            print(_line(result), flush=True)

    def note_lost(self, number: int, overrides: list[str], reason: str) -> None:
        """Note a job whose process or machine was lost; one that had noted its end before keeps it."""
        if number not in self.results():
            self.note(JobResult(number, overrides, None, 1, 0.0, coded("job-lost", reason)))

    def results(self) -> dict[int, JobResult]:
        """Of the jobs that ended, by their number. What another job runs ends as that one does."""
        written = [JobResult(**json.loads(path.read_text())) for path in self.folder.glob("*.json")]
        found = {result.number: result for result in sorted(written, key=lambda result: result.number)}
        ended = {}
        for number, result in found.items():
            if result.same_as is None:
                ended[number] = result
            elif (first := found.get(result.same_as)) is not None:
                ended[number] = replace(result, exit_code=first.exit_code, reason=f"the same as #{result.same_as}")
        return ended


def _line(result: JobResult) -> str:
    job = f"sweep: #{result.number} {' '.join(result.overrides)}"
    if result.same_as is not None:
        return f"{job}: the same as #{result.same_as}"
    state = "done" if result.exit_code == 0 else f"failed ({result.exit_code})"
    reason = f": {result.reason}" if result.reason else ""
    return f"{job}: {state} in {result.seconds:g} s{reason}"
