"""The processes that ran for a command and what they took (observer/), and the stages that DVC had to run."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

OBSERVER = Path(__file__).resolve().parent / "observer"
_STAGES_OF_PIPELINE = ("report", "track", "gate")
ALWAYS = ("inputs", "probe", "track", "gate")  # always_changed in dvc.yaml: they look at what DVC cannot know


@dataclass(frozen=True)
class Process:
    """One Python process. Seconds since the epoch, from when Python had started to when it began to end; processor_s is
    its own, without its children; waited_s is what it waited for them, from their start to their end.
    """

    module: str
    folder: str
    start: float
    end: float
    processor_s: float
    waited_s: float = 0.0

    @property
    def stage(self) -> str | None:
        """The stage that it executed."""
        room, _, name = self.module.partition(".")
        return name if room == "stages" or (room == "pipeline" and name in _STAGES_OF_PIPELINE) else None

    @property
    def wall_s(self) -> float:
        return self.end - self.start


@dataclass(frozen=True)
class Done:
    """What a command took: its time, that of all processors for it and its children, and the processes."""

    exit_code: int
    start: float
    end: float
    processor_s: float
    load_before: float
    load_after: float
    processes: list[Process]

    @property
    def wall_s(self) -> float:
        return self.end - self.start

    def facts(self) -> dict[str, Any]:
        """For the results."""
        return {
            **{"wall_s": round(self.wall_s, 1), "processor_s": round(self.processor_s, 1)},
            **{"load_average_before": self.load_before, "load_average_after": self.load_after},
        }


def observed(arguments: Sequence[str], folder: Path, notes: Path) -> Done:
    """Run `python -m pipeline <arguments>` in a folder; its output goes to a file beside the notes."""
    notes.unlink(missing_ok=True)
    environment = os.environ | {"PYTHONPATH": str(OBSERVER), "OBSERVED_PROCESSES": str(notes)}
    load, used = os.getloadavg()[0], processor_s()
    start = time.time()
    with notes.with_suffix(".log").open("w") as log:
        command = [sys.executable, "-m", "pipeline", "--verbose", *arguments]
        done = subprocess.run(command, cwd=folder, env=environment, stdout=log, stderr=subprocess.STDOUT)
    end = time.time()
    after = round(os.getloadavg()[0], 2)
    return Done(
        done.returncode, start, end, processor_s() - used, round(load, 2), after, read(notes.read_text().splitlines())
    )


def processor_s() -> float:
    """Of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def read(lines: Iterable[str]) -> list[Process]:
    """Of those that were noted, the ones of this project."""
    found = []
    for line in lines:
        said = json.loads(line)
        module = said["command"][1] if said["command"][:1] == ["-m"] and len(said["command"]) > 1 else ""
        if module.startswith(("stages.", "pipeline.")):
            times = (said["start"], said["end"], said["processor_s"], said.get("waited_s", 0.0))
            found.append(Process(module, said["folder"], *times))
    return found


def executed(processes: Iterable[Process]) -> Counter[str]:
    """How often each stage was executed."""
    return Counter(process.stage for process in processes if process.stage)


def inputs_of(lock: Mapping[str, Any]) -> dict[str, str]:
    """Of each stage in a dvc.lock a digest of what it was made from: its command, dependencies and params."""
    told = {}
    for stage, entry in lock["stages"].items():
        read_files = {dep["path"]: dep.get("md5") for dep in entry.get("deps", [])}
        text = json.dumps([entry["cmd"], read_files, entry.get("params", {})], sort_keys=True, default=str)
        told[stage] = hashlib.sha256(text.encode()).hexdigest()
    return told


def distinct(locks: Iterable[Path]) -> Counter[str]:
    """How many different inputs each stage has in these dvc.lock files; stages that run always are left out."""
    seen = {pair for lock in locks for pair in inputs_of(yaml.safe_load(lock.read_text())).items()}
    return Counter(stage for stage, _ in seen if stage not in ALWAYS)
