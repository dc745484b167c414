"""A farm that executes jobs on paper: workers, stages behind locks, a file server, a tracking server.

Jobs in order, each on the first free worker; stage after stage, each behind its lock, as in
pipeline/cache/shared_repro.py: the first job with the same input executes it, the others wait and then check its outs
out of the cache beside each other; one file server for the cache (bytes and operations, first come, first served); one
tracking server.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict, deque
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

CHAIN = (
    *(
        "inputs",
        "trace",
        "slim",
        "calibrate",
        "fp16",
        "cast_cleanup",
        "reference",
        "verify_fp32",
        "verify",
        "probe",
        "engine",
        "report",
    ),
    *("track", "gate"),
)
OF_MODEL = ("trace", "slim", "calibrate")  # no precision setting re-runs them


# --- events -----------------------------------------------------------------------------------------------------------

Step = Generator[Any, None, None]


class Clock:
    """Runs generators that yield seconds to pass, or a Slots to wait for."""

    def __init__(self) -> None:
        self.now, self._order = 0.0, 0
        self._events: list[tuple[float, int, Step]] = []

    def start(self, step: Step, after: float = 0.0) -> None:
        self._order += 1
        heapq.heappush(self._events, (self.now + after, self._order, step))

    def run(self) -> None:
        while self._events:
            self.now, _, step = heapq.heappop(self._events)
            for wanted in step:
                if isinstance(wanted, Slots):
                    if not wanted.take(step):
                        break
                else:
                    self.start(step, wanted)
                    break


class Slots:
    """So many at a time, first come, first served."""

    def __init__(self, clock: Clock, count: int) -> None:
        self._clock, self._free, self._queue = clock, count, deque[Step]()
        self.busy_s = 0.0

    def take(self, step: Step) -> bool:
        if self._free:
            self._free -= 1
            return True
        self._queue.append(step)
        return False

    def free(self) -> None:
        if self._queue:
            self._clock.start(self._queue.popleft())
        else:
            self._free += 1

    def serve(self, seconds: float) -> Step:
        """Wait for a slot and hold it so long."""
        yield self
        yield seconds
        self.busy_s += seconds
        self.free()


# --- the farm ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """A variant: of each stage what it is made from (None: it runs always), and the seconds of its process."""

    inputs: Mapping[str, str | None]
    seconds: Mapping[str, float]


@dataclass(frozen=True)
class Farm:
    """What the jobs run on.

    Attributes:
        workspace_s: of a job, before and after DVC.
        dvc_start_s, dvc_stage_s: of DVC's process, and of each stage in it.
        made: of each stage, bytes and files that go into the cache.
        tracked_s, tracking_slots: of a run in the tracking server, and how many it takes at a time; 0: none waits.
        local_cache: a worker reads from the file server what it has not read or made before, and what is a job's own
            (all but OF_MODEL) stays with it.
        lock_on_hit: a stage that is in the cache is checked out behind its lock, one job after the other.
    """

    workers: int
    workspace_s: float
    dvc_start_s: float
    dvc_stage_s: float
    made: Mapping[str, tuple[float, float]]
    tracked_s: float
    tracking_slots: int
    server_mb_s: float = math.inf
    worker_mb_s: float = math.inf
    operations_s: float = math.inf
    operations_a_stage: float = 0.0
    local_cache: bool = False
    lock_on_hit: bool = False


@dataclass
class Outcome:
    """Seconds: of the whole, and by what all workers together did; `executed` counts stages."""

    makespan_s: float = 0.0
    spent: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    executed: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    busy: dict[str, float] = field(default_factory=dict)


def simulate(jobs: Sequence[Job], farm: Farm) -> Outcome:
    """All jobs, in order, each on the first free worker."""
    return _Run(jobs, farm).outcome()


class _Run:
    def __init__(self, jobs: Sequence[Job], farm: Farm) -> None:
        self.farm, self.clock, self.found = farm, Clock(), Outcome()
        self.waiting = deque(jobs)
        self.made: set[tuple[str, str]] = set()
        self.locks: dict[tuple[str, str], Slots] = {}
        self.files, self.operations = Slots(self.clock, 1), Slots(self.clock, 1)
        self.tracking = Slots(self.clock, max(1, farm.tracking_slots))

    def outcome(self) -> Outcome:
        for _ in range(self.farm.workers):
            self.clock.start(self._worker())
        self.clock.run()
        found, spent = self.found, self.found.spent
        found.makespan_s = self.clock.now
        spent["idle at the end"] = self.farm.workers * found.makespan_s - sum(spent.values())
        slots = max(1, self.farm.tracking_slots)
        for name, server, count in (
            ("bytes of the file server", self.files, 1),
            ("operations of the file server", self.operations, 1),
            ("tracking server", self.tracking, slots),
        ):
            found.busy[name] = server.busy_s / found.makespan_s / count if found.makespan_s else 0.0
        return found

    def _worker(self) -> Step:
        seen: set[tuple[str, str]] = set()
        while self.waiting:
            yield from self._job(self.waiting.popleft(), seen)

    def _timed(self, what: str, step: Step) -> Step:
        begun = self.clock.now
        yield from step
        self.found.spent[what] += self.clock.now - begun

    def _job(self, job: Job, seen: set[tuple[str, str]]) -> Step:
        yield from self._timed("workspace and DVC", _pass(self.farm.workspace_s + self.farm.dvc_start_s))
        for stage in CHAIN:
            if stage not in job.seconds:
                continue
            made_from = job.inputs[stage]
            if made_from is None:
                yield from self._execute(job, stage)
            else:
                yield from self._shared(job, stage, (stage, made_from), seen)

    def _shared(self, job: Job, stage: str, key: tuple[str, str], seen: set[tuple[str, str]]) -> Step:
        lock = self.locks.setdefault(key, Slots(self.clock, 1))
        held = self.farm.lock_on_hit or key not in self.made
        if held:
            yield from self._timed("waiting for another job's stage", _wait(lock))
        if key in self.made:
            if held and not self.farm.lock_on_hit:
                lock.free()
                held = False
            yield from self._timed("workspace and DVC", _pass(self.farm.dvc_stage_s))
            if key not in seen or not self.farm.local_cache:
                yield from self._timed("file server", self._transfer(stage))
        else:
            yield from self._execute(job, stage)
            if stage in OF_MODEL or not self.farm.local_cache:
                yield from self._timed("file server", self._transfer(stage))
            self.made.add(key)
        seen.add(key)
        if held:
            lock.free()

    def _execute(self, job: Job, stage: str) -> Step:
        self.found.executed[stage] += 1
        yield from self._timed("workspace and DVC", _pass(self.farm.dvc_stage_s))
        yield from self._timed("stages", _pass(job.seconds[stage]))
        if stage == "track" and self.farm.tracking_slots:
            yield from self._timed("tracking server", self.tracking.serve(self.farm.tracked_s))

    def _transfer(self, stage: str) -> Step:
        size, files = self.farm.made.get(stage, (0.0, 0.0))
        yield from self.operations.serve((self.farm.operations_a_stage + 2 * files) / self.farm.operations_s)
        in_server = size / 1e6 / self.farm.server_mb_s
        yield from self.files.serve(in_server)
        yield max(0.0, size / 1e6 / self.farm.worker_mb_s - in_server)


def _pass(seconds: float) -> Step:
    yield seconds


def _wait(slots: Slots) -> Step:
    yield slots
