"""Runs to compare: from the folders under runs/ and the workspace itself, or from MLflow."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from pipeline.caveats import unmet
from pipeline.forms import failed
from pipeline.track import COMPLETE_TAG, SWEEP_TAG, be_brief
from pipeline.tracking.record import flat_params, metrics, run_name
from pipeline.tracking.redact import first_line
from pipeline.workspace import read_params, reports_of_run
from truehalf.codes import coded
from truehalf.report.forms import Decision

_IGNORED = ("tracking.", "workspace.", "search.")
_IDLE = "no effect"
_LONG = 60  # characters of a value that are shown
_NAMES = ("model.name", "decoder.name")
# Keys of the model, and those whose defaults are made of them (conf/).
_OF_MODEL = (
    *("model.", "decoder.", "trace.input_shape", "trace.dynamic_axes", "engine.profiles"),
    *("data.calibration_samples", "data.verification_samples"),
)
_DECISIONS = "reports/decisions.json"


class NothingToCompare(Exception):
    """Why there are no runs: what was looked for, where, and what to do."""


@dataclass(frozen=True)
class ComparedRun:
    """One run.

    Attributes:
        name: of its folder under runs/, or its id in MLflow.
        title: model, decoder and precision.
        params: dotted keys, values as text.
        numbers: metrics by MLflow's names, and nothing where a run has no such number.
        verdict: passed, failed, not verified, or crashed.
        reason: why it crashed.
        decisions: reads why each node has its precision; None where the run decided nothing.
    """

    name: str
    title: str
    params: dict[str, str]
    numbers: dict[str, float]
    verdict: str
    decisions: Callable[[], list[Decision] | None] = field(repr=False, compare=False)
    reason: str = ""


def of_folders(project: Path) -> list[ComparedRun]:
    """All runs under runs/, by name, and that of the workspace as "here" when it has one.

    Raises:
        NothingToCompare: where there is none.
    """
    places = _places(project / "runs")
    if (project / "reports" / "verify.json").exists() and (project / "params.yaml").exists():
        places["here"] = project
    found = _without_doubles([run for name, place in sorted(places.items()) for run in _readable(name, place)])
    if not found:
        message = (
            f"{project / 'runs'} holds no run; a sweep leaves its runs there: python -m pipeline -m "
            "hydra/launcher=joblib precision=fp32,fp16. For runs that MLflow has: --experiment truehalf"
        )
        raise NothingToCompare(coded("no-runs", message))
    return found


def _places(runs: Path) -> dict[str, Path]:
    """Folders of runs by name. One that was killed while it replaced an earlier one has left that beside it."""
    folders = sorted(path.parent for path in runs.glob("*/params.yaml") if path.parent.suffix != ".partial")
    whole = {folder.name: folder for folder in folders if folder.suffix != ".replaced"}
    return {folder.stem: folder for folder in folders if folder.suffix == ".replaced"} | whole


def _readable(name: str, place: Path) -> Iterator[ComparedRun]:
    """The run of a folder; None where its files are damaged, with a message: the others can still be compared."""
    try:
        yield of_folder(name, place)
    except (AssertionError, AttributeError, KeyError, TypeError, ValueError, yaml.YAMLError) as error:
        expected = "expected params.yaml and reports as a run leaves them"
        message = f"compare: {place} is left out: {expected}; got {first_line(error)}; delete the folder"
        print(coded("file-unreadable", message), file=sys.stderr)


def of_folder(name: str, place: Path) -> ComparedRun:
    """The run whose params and reports a folder holds."""
    error = place / "reports" / "error.json"
    crash = json.loads(error.read_text()) if error.exists() else None
    params, reports = read_params(place), reports_of_run(place, None if crash is None else crash["stage"])
    verdict, reason = str(reports.get("verify", {}).get("verdict", "crashed")), ""
    if crash is not None:
        verdict, reason = "crashed", f"{crash['stage']}: {crash['message']}".splitlines()[0]
    elif failed(reports) or unmet(params, reports):
        verdict = "failed"
    file = place / "artifacts" / "fp16" / "decisions.json"

    def decisions() -> list[Decision] | None:
        try:
            return _read(file) if "fp16" in reports and file.exists() else None
        except ValueError as error:
            message = f"{file}: expected decisions as a run leaves them; got {first_line(error)}"
            raise NothingToCompare(coded("file-unreadable", message)) from error

    options, numbers = _compared(flat_params(params)), metrics(reports)
    return ComparedRun(name, run_name(params), options, numbers, verdict, decisions, reason)


def _without_doubles(runs: list[ComparedRun]) -> list[ComparedRun]:
    """Without the workspace's run where a folder under runs/ holds the same."""
    others = [run for run in runs if run.name != "here"]
    return [run for run in runs if run.name != "here" or all(run.params != other.params for other in others)]


def of_mlflow(project: Path, experiment: str) -> list[ComparedRun]:
    """All runs of an experiment, on the server that MLFLOW_TRACKING_URI names, else in the project's mlflow.db.

    Raises:
        NothingToCompare: where there is no such experiment, it has no run that is logged as a whole, or the server does
            not answer. So does `decisions` of a run.
    """
    be_brief()
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    uri, file = os.environ.get("MLFLOW_TRACKING_URI"), project / "mlflow.db"
    if not uri and not file.exists():
        raise NothingToCompare(coded("no-runs", f"{file} is not there: no run was tracked yet"))
    where = "the server of MLFLOW_TRACKING_URI" if uri else str(file)
    with _reading(where):
        import mlflow

        address = uri or f"sqlite:///{file}"
        client = mlflow.MlflowClient(tracking_uri=address)
        known = client.get_experiment_by_name(experiment)
        if known is None:
            names = ", ".join(each.name for each in client.search_experiments())
            message = f"{where} has no experiment {experiment!r}; it has {names}"
            raise NothingToCompare(coded("unknown-choice", message))
        runs = _runs_of(client, known.experiment_id)
    found = [run for run in runs if run.data.tags.get(COMPLETE_TAG) == "true"]
    if not found:
        raise NothingToCompare(coded("no-runs", f"{where}: {_why_none(experiment, runs)}"))
    return [_of_mlflow(mlflow, address, where, run) for run in found]


@contextlib.contextmanager
def _reading(where: str) -> Iterator[None]:
    """Say what fails in a line that no password is in, and without the error that it was, which may hold one."""
    try:
        yield
    except NothingToCompare:
        raise
    except Exception as error:  # MLflow raises its errors, requests' and SQLAlchemy's
        raise NothingToCompare(coded("server-fails", f"{where} cannot be read: {first_line(error)}")) from None


def _runs_of(client: Any, experiment_id: str) -> list[Any]:
    """Without those that only hold the jobs of a sweep together."""
    found, token = [], None
    while True:
        page = client.search_runs([experiment_id], max_results=1000, page_token=token)
        found += [run for run in page if SWEEP_TAG not in run.data.tags]
        token = page.token
        if not token:
            return found


def _why_none(experiment: str, runs: Sequence[Any]) -> str:
    if not runs:
        return f"experiment {experiment!r} has no run"
    return (
        f"experiment {experiment!r} has {counted(len(runs))}, none of them logged as a whole: they are still being "
        "logged, were cut off, or are not of this pipeline; "
        "python -m pipeline.track --pending logs anew what was cut off"
    )


def counted(runs: int) -> str:
    return "1 run" if runs == 1 else f"{runs} runs"


def _of_mlflow(mlflow: Any, address: str, where: str, run: Any) -> ComparedRun:
    verdict = run.data.tags.get("verdict", "not verified")
    if run.info.status == "FAILED" and verdict == "passed":
        verdict = "failed"  # the engine, or what verify.require names
    client = mlflow.MlflowClient(tracking_uri=address)

    def decisions() -> list[Decision] | None:
        with _reading(where):
            if not any(file.path == _DECISIONS for file in client.list_artifacts(run.info.run_id, "reports")):
                return None  # a run in FP32
            place = f"runs:/{run.info.run_id}/{_DECISIONS}"
            return _read(Path(mlflow.artifacts.download_artifacts(place, tracking_uri=address)))

    params, numbers = _compared(run.data.params), dict(run.data.metrics)
    return ComparedRun(run.info.run_id, str(run.info.run_name), params, numbers, verdict, decisions)


def _read(file: Path) -> list[Decision] | None:
    """Decisions; a file that was passed on as it is has none."""
    found: list[Decision] = json.loads(file.read_text())
    return found or None


def _compared(params: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in params.items() if not key.startswith(_IGNORED)}


def labels(runs: Sequence[ComparedRun]) -> list[str]:
    """Of each run what distinguishes it: the params that differ between the runs, under the shortest clear name.

    A param counts among the runs in which it has an effect. One that says what another says already (the checkpoint
    that belongs to a decoder) is left out, and of a model whatever its name stands for; of a run, lists that are empty.
    """
    keys = sorted({key for run in runs for key in run.params}, key=_place_of)
    differing: dict[str, list[str]] = {}
    for key in keys:
        values = [run.params.get(key, _IDLE) for run in runs]
        if len({value for value in values if value != _IDLE}) < 2 or _follows(key, values, differing):
            continue
        if not any(_says_the_same(values, others) for others in differing.values()):
            differing[key] = values
    differing = {key: _short(values) for key, values in differing.items()}
    last = [key.rsplit(".", 1)[-1] for key in differing]
    named = {
        key: key if name == "name" or last.count(name) > 1 else name for key, name in zip(differing, last, strict=True)
    }
    return [
        ", ".join(f"{named[key]}={values[i]}" for key, values in differing.items() if values[i] not in (_IDLE, "[]"))
        or run.title
        for i, run in enumerate(runs)
    ]


def _short(values: list[str]) -> list[str]:
    """Values to be read in a line: of a long list how many entries it has."""
    shown = [_counted(value) if len(value) > _LONG else value for value in values]
    if len(set(shown)) == len(set(values)):
        return shown
    digests = [hashlib.sha256(value.encode()).hexdigest()[:4] for value in values]
    return [
        value if text == value else f"{text} ({digest})"
        for value, text, digest in zip(values, shown, digests, strict=True)
    ]


def _counted(value: str) -> str:
    with contextlib.suppress(json.JSONDecodeError):
        entries = json.loads(value)
        if isinstance(entries, list):
            return f"{len(entries)} {'entry' if len(entries) == 1 else 'entries'}"
    return f"{value[:_LONG]}…"


def _place_of(key: str) -> tuple[int, str]:
    """What is chosen first stands first."""
    first = ("model.name", "decoder.name", "precision.dtype", "precision.method")
    return (first.index(key) if key in first else len(first) + (not key.startswith("precision.")), key)


def _follows(key: str, values: Sequence[str], differing: Mapping[str, Sequence[str]]) -> bool:
    """Whether a param is of the model, or made of one that is, and the names of model and decoder settle it."""
    names = [differing[name] for name in _NAMES if name in differing]
    if key in _NAMES or not key.startswith(_OF_MODEL) or not names:
        return False
    return len(set(zip(*names, strict=True))) == len(set(zip(*names, values, strict=True)))


def _says_the_same(values: Sequence[str], others: Sequence[str]) -> bool:
    """Whether two params vary together, and each value of one is part of that of the other."""
    pairs = set(zip(values, others, strict=True))
    together = len(pairs) == len(set(values)) == len(set(others))
    return together and all(a in b or b in a for a, b in pairs)
