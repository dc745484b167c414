"""search=frontier: the cheapest FP16 file inside the gates, found by runs of the chain within a budget.

    1. the configuration as it is
    2. without precision.data_max: only lists, and what float16 cannot hold, keep nodes FP32. No step is cheaper
    3. if that fails: parts of the model are ranked by the error that FP16 puts into them for what FP32 costs there
       (stages.frontier); the first k of them are kept FP32, and the smallest k inside the gates is searched by
       halving. n runs that are left decide among 2^n parts

Every step is an ordinary run: DVC re-runs what its pins change, MLflow has it under the run of the search (or of the
sweep that the search is a job of), its reports lie under runs/. Only the chosen one is registered. That fewer parts
in FP32 never pass where more fail is assumed, and not checked.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from pipeline.compare.compared_runs import ComparedRun, of_folder
from pipeline.compare.frontier import COSTS, ERRORS, chosen, measured
from pipeline.forms import Params, Section
from pipeline.sweep.sweep import VARIABLE, Sweep
from truehalf.codes import coded
from truehalf.files import write_text
from truehalf.report.numbers import number
from truehalf.report.terminal import print_table

NONE: Section = {"name": "none", "runs": None, "samples": None}
_PINS = ("node_block_list", "scope_block_list")  # of precision, and of a part

Once = Callable[[Params], tuple[int, Path]]  # runs a configuration: its exit code, and the folder with its reports


@dataclass(frozen=True)
class Step:
    """A run of the search.

    Attributes:
        title: what it keeps FP32.
        values: its configuration.
        code: its exit code.
        folder: with its reports.
        run: its numbers and verdict.
    """

    title: str
    values: Params
    code: int
    folder: Path
    run: ComparedRun

    @property
    def passed(self) -> bool:
        return self.code == 0 and self.run.verdict == "passed"

    @property
    def without_fp16(self) -> bool:
        """Whether what it keeps FP32 is all of the model: no FP16 file, for which no engine is built."""
        return self.run.numbers.get("fp16/arithmetic_fp16_fraction") == 0.0


class Stopped(Exception):
    """The search cannot go on: Ctrl-C, the configuration itself crashes, or the chosen step does not come back."""

    def __init__(self, code: int, folder: Path) -> None:
        self.code, self.folder = code, folder


class NoRanking(Exception):
    """The parts could not be ranked; stages.frontier has printed why."""


def searching(values: Params) -> bool:
    return bool(values["search"]["name"] != "none")


def frontier(values: Params, once: Once, parts_of: Callable[[int, int], Sequence[Section]]) -> Step:
    """Search; return the step that is chosen, which the workspace then holds, or where none is inside the gates the
    last one.

    Args:
        values: a validated configuration with search=frontier.
        once: runs a configuration in the workspace of the search.
        parts_of: (count, samples) -> at most so many parts of the model in the workspace, those first that pay most:
            of each its entries of node_block_list and scope_block_list.

    Raises:
        Stopped: with the exit code and the folder of the step that ended it.
    """
    walk = _Walk(values, once)
    cheapest = walk.take("as configured", {})
    if cheapest.run.verdict == "not verified":
        message = "search: the gates cannot be judged (not verified, see above), so nothing is inside them"
        print(coded("nothing-verified", message), file=sys.stderr)
        return cheapest
    if values["precision"]["data_max"] is not None:
        cheapest = walk.take("no data_max", {"data_max": None})
    if not cheapest.passed:
        print("search: ranking the parts of the model", flush=True)
        parts = parts_of(2**walk.left, int(values["search"]["samples"] or 0))
        low, high = 0, len(parts)  # low fails; high, where it is all parts, is FP32
        while high - low > 1 and walk.left:
            middle = (low + high) // 2
            step = walk.take(f"{middle} of {len(parts)} parts", _pinned(values, parts[:middle]))
            low, high = (low, middle) if step.passed or step.without_fp16 else (middle, high)
    best = chosen([_judged(step) for step in walk.steps])
    if best is not None and (values["tracking"]["register"] or best != len(walk.steps) - 1):
        try:
            _take_back(walk.steps[best], values, once)
        except Stopped:
            _ended(walk.steps, best)  # what is chosen is known all the same
            raise
    return _ended(walk.steps, best)


def _take_back(step: Step, values: Params, once: Once) -> None:
    """Have the workspace hold the chosen step, which comes from the cache, and register it where that is asked for.

    Raises:
        Stopped: the workspace does not hold it.
    """
    print(f"search: back to {step.title}", flush=True)
    code, folder = once({**step.values, "tracking": values["tracking"]})
    if code:
        message = (
            f"search: the run back to {step.title}, the cheapest inside the gates, ended with {code}: the workspace "
            "does not hold it; the same search again goes on from here"
        )
        print(coded("step-not-restored", message), file=sys.stderr)
        raise Stopped(code, folder)


class _Walk:
    """The steps so far, and how many more the budget allows."""

    def __init__(self, values: Params, once: Once) -> None:
        self.values, self.once, self.budget = values, once, int(values["search"]["runs"] or 0)
        self.steps: list[Step] = []

    @property
    def left(self) -> int:
        return self.budget - len(self.steps)

    def take(self, title: str, precision: Section) -> Step:
        """Run the configuration with these keys of `precision`."""
        print(f"search: run {len(self.steps) + 1} of at most {self.budget}: in FP32 {title}", flush=True)
        step_values: Params = {
            **self.values,
            "search": NONE,
            "tracking": {**self.values["tracking"], "register": False},  # the newest version is to be the chosen one
            "precision": {**self.values["precision"], **precision},
        }
        code, folder = self.once(step_values)
        if code == 130:
            raise Stopped(code, folder)
        step = Step(title, step_values, code, folder, of_folder(folder.name, folder))
        self.steps.append(step)
        if len(self.steps) == 1 and step.run.verdict == "crashed":
            raise Stopped(code, folder)
        return step


def _pinned(values: Params, parts: Sequence[Section]) -> Section:
    """The section `precision` that keeps some parts FP32, beside what the configuration keeps."""
    pinned = {name: [entry for part in parts for entry in part[name]] for name in _PINS}
    return {"data_max": None} | {name: [*values["precision"][name], *entries] for name, entries in pinned.items()}


def _judged(step: Step) -> ComparedRun:
    """Its run, failed where its exit code says so."""
    verdict = step.run.verdict if step.passed or step.run.verdict != "passed" else "failed"
    return replace(step.run, verdict=verdict)


def _ended(steps: Sequence[Step], best: int | None) -> Step:
    """Print the steps; leave the chosen one's section `precision` beside its reports."""
    _print_table(steps, best)
    if best is None:
        remedy = "a larger search.runs divides the model into more and smaller parts"
        print(coded("none-passed", f"search: no run is inside the gates; {remedy}"), file=sys.stderr)
        return steps[-1]
    step = steps[best]
    file = step.folder / "experiment.yaml"
    write_text(file, _experiment(step))
    print(f"search: the cheapest run inside the gates: {step.title}: {step.folder}")
    print(f"search: to use it as experiment=NAME, copy {file} to conf/experiment/NAME.yaml")
    return step


def _experiment(step: Step) -> str:
    given = step.values["precision"]
    section = {name: given.get(name) for name in ("data_max", *_PINS)}
    head = f"# @package _global_\n# Found by search=frontier: {step.title}.\n"
    return head + yaml.safe_dump({"precision": section}, sort_keys=False, width=120)


def _print_table(steps: Sequence[Step], best: int | None) -> None:
    runs = [step.run for step in steps]
    axes = [*measured(ERRORS, runs), *measured(COSTS, runs)]
    columns = dict.fromkeys(("", "kept FP32", "verdict"), "left") | {axis.label: "right" for axis in axes}
    rows = [
        ["*" if i == best else "", step.title, step.run.verdict, *(number(axis.of(step.run.numbers)) for axis in axes)]
        for i, step in enumerate(steps)
    ]
    print_table("search=frontier", columns, rows)


@contextlib.contextmanager
def tracked(values: Params, project: Path, overrides: Sequence[str]) -> Iterator[None]:
    """Where this is no job of a sweep: the runs of a search, tracked as those of a sweep are."""
    if Sweep.joined() is not None:
        yield
        return
    digest = hashlib.sha256(json.dumps(dict(values), sort_keys=True).encode()).hexdigest()[:12]
    os.environ[VARIABLE] = Sweep(f"search-{digest}", str(project), "", False, list(overrides)).text()
    try:
        yield
    finally:
        del os.environ[VARIABLE]
