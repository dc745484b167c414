"""Runs to compare: from the folders under runs/ and the workspace itself, or from MLflow."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.caveats import unmet
from pipeline.record import flat_params, metrics, run_name
from pipeline.workspace import read_params, read_reports

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
    decisions: Callable[[], list[dict[str, Any]] | None] = field(repr=False, compare=False)
    reason: str = ""


def of_folders(project: Path) -> list[ComparedRun]:
    """All runs under runs/, by name, and that of the workspace as "here" when it has one.

    Raises:
        NothingToCompare: where there is none.
    """
    places = {path.parent.name: path.parent for path in (project / "runs").glob("*/params.yaml")}
    if (project / "reports" / "verify.json").exists() and (project / "params.yaml").exists():
        places["here"] = project
    found = [of_folder(name, place) for name, place in sorted(places.items())]
    found = _without_doubles(found)
    if not found:
        raise NothingToCompare(
            f"{project / 'runs'} holds no run; a sweep leaves its runs there: python -m pipeline -m "
            "hydra/launcher=joblib precision=fp32,fp16. For runs that MLflow has: --experiment truehalf"
        )
    return found


def of_folder(name: str, place: Path) -> ComparedRun:
    """The run whose params and reports a folder holds."""
    params, reports = read_params(place), read_reports(place)
    verdict = str(reports.get("verify", {}).get("verdict", "crashed"))
    error, reason = place / "reports" / "error.json", ""
    if error.exists():
        said = json.loads(error.read_text())
        verdict, reason = "crashed", f"{said['stage']}: {said['message']}".splitlines()[0]
    elif "failed" in (reports.get(stage, {}).get("status") for stage in ("verify", "engine")) or unmet(params, reports):
        verdict = "failed"
    file = place / "artifacts" / "fp16" / "decisions.json"

    def decisions() -> list[dict[str, Any]] | None:
        return _read(file) if file.exists() else None

    told, numbers = _compared(flat_params(params)), metrics(reports)
    return ComparedRun(name, run_name(params), told, numbers, verdict, decisions, reason)


def _without_doubles(runs: list[ComparedRun]) -> list[ComparedRun]:
    """Without the workspace's run where a folder under runs/ holds the same."""
    others = [run for run in runs if run.name != "here"]
    return [run for run in runs if run.name != "here" or all(run.params != other.params for other in others)]


def of_mlflow(project: Path, experiment: str) -> list[ComparedRun]:
    """All runs of an experiment, on the server that MLFLOW_TRACKING_URI names, else in the project's mlflow.db.

    Raises:
        NothingToCompare: where there is no such experiment, or it has no finished run.
    """
    os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    import mlflow

    address = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{project / 'mlflow.db'}"
    where = "the server of MLFLOW_TRACKING_URI" if "MLFLOW_TRACKING_URI" in os.environ else str(project / "mlflow.db")
    if "MLFLOW_TRACKING_URI" not in os.environ and not (project / "mlflow.db").exists():
        raise NothingToCompare(f"{where} is not there: no run was tracked yet")
    client = mlflow.MlflowClient(tracking_uri=address)
    known = client.get_experiment_by_name(experiment)
    if known is None:
        names = ", ".join(each.name for each in client.search_experiments())
        raise NothingToCompare(f"{where} has no experiment {experiment!r}; it has {names}")
    found, token = [], None
    while True:
        page = client.search_runs([known.experiment_id], max_results=1000, page_token=token)
        found += [run for run in page if run.data.tags.get("truehalf.complete") == "true"]
        token = page.token
        if not token:
            break
    if not found:
        raise NothingToCompare(f"{where}: experiment {experiment!r} has no finished run")
    return [_of_mlflow(mlflow, address, run) for run in found]


def _of_mlflow(mlflow: Any, address: str, run: Any) -> ComparedRun:
    verdict = run.data.tags.get("verdict", "not verified")
    if run.info.status == "FAILED" and verdict == "passed":
        verdict = "failed"  # the engine, or what verify.require names
    client = mlflow.MlflowClient(tracking_uri=address)

    def decisions() -> list[dict[str, Any]] | None:
        if not any(file.path == _DECISIONS for file in client.list_artifacts(run.info.run_id, "reports")):
            return None  # a run in FP32
        place = f"runs:/{run.info.run_id}/{_DECISIONS}"
        return _read(Path(mlflow.artifacts.download_artifacts(place, tracking_uri=address)))

    params, numbers = _compared(run.data.params), dict(run.data.metrics)
    return ComparedRun(run.info.run_id, str(run.info.run_name), params, numbers, verdict, decisions)


def _read(file: Path) -> list[dict[str, Any]] | None:
    """Decisions; a file that was passed on as it is has none."""
    found: list[dict[str, Any]] = json.loads(file.read_text())
    return found or None


def _compared(params: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in params.items() if not key.startswith(_IGNORED)}


def labels(runs: Sequence[ComparedRun]) -> list[str]:
    """Of each run what distinguishes it: the params that differ between the runs, under the shortest clear name.

    A param counts among the runs in which it has an effect. One that says what another says already (the checkpoint
    that belongs to a decoder) is left out, and of a model whatever its name stands for; of a run, lists that are empty.
    """
    keys = sorted({key for run in runs for key in run.params}, key=_place_of)
    told: dict[str, list[str]] = {}
    for key in keys:
        values = [run.params.get(key, _IDLE) for run in runs]
        if len({value for value in values if value != _IDLE}) < 2 or _follows(key, values, told):
            continue
        if not any(_says_the_same(values, others) for others in told.values()):
            told[key] = values
    told = {key: _short(values) for key, values in told.items()}
    last = [key.rsplit(".", 1)[-1] for key in told]
    named = {key: key if name == "name" or last.count(name) > 1 else name for key, name in zip(told, last, strict=True)}
    return [
        ", ".join(f"{named[key]}={values[i]}" for key, values in told.items() if values[i] not in (_IDLE, "[]"))
        or run.title
        for i, run in enumerate(runs)
    ]


def _short(values: list[str]) -> list[str]:
    """Values to be read in a line: of a long list how many entries it has."""
    shown = [_counted(value) if len(value) > _LONG else value for value in values]
    clear = len(set(shown)) == len(set(values))
    if clear:
        return shown
    digests = [hashlib.sha256(value.encode()).hexdigest()[:4] for value in values]
    return [f"{said} ({digest})" for said, digest in zip(shown, digests, strict=True)]


def _counted(value: str) -> str:
    with contextlib.suppress(json.JSONDecodeError):
        entries = json.loads(value)
        if isinstance(entries, list):
            return f"{len(entries)} entries"
    return f"{value[:_LONG]}…"


def _place_of(key: str) -> tuple[int, str]:
    """What is chosen first is told first."""
    first = ("model.name", "decoder.name", "precision.dtype", "precision.method")
    return (first.index(key) if key in first else len(first) + (not key.startswith("precision.")), key)


def _follows(key: str, values: Sequence[str], told: Mapping[str, Sequence[str]]) -> bool:
    """Whether a param is of the model, or made of one that is, and the names of model and decoder settle it."""
    names = [told[name] for name in _NAMES if name in told]
    if key in _NAMES or not key.startswith(_OF_MODEL) or not names:
        return False
    return len(set(zip(*names, strict=True))) == len(set(zip(*names, values, strict=True)))


def _says_the_same(values: Sequence[str], others: Sequence[str]) -> bool:
    """Whether two params vary together, and each value of one is part of that of the other."""
    pairs = set(zip(values, others, strict=True))
    together = len(pairs) == len(set(values)) == len(set(others))
    return together and all(a in b or b in a for a, b in pairs)
