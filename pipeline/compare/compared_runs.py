"""Runs to compare: from the folders under runs/ and the workspace itself, or from MLflow."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pipeline.caveats import has_failed
from pipeline.track import COMPLETE_TAG, DIGEST_TAG, SWEEP_TAG, be_brief
from pipeline.tracking.naming import PAGE
from pipeline.tracking.record import Record, flat_params, in_effect, metrics, run_name
from pipeline.tracking.redact import first_line
from pipeline.workspace import crash_of, reports_of_run
from truehalf.codes import coded, codes_in
from truehalf.config.params import read_params
from truehalf.errors import StageError
from truehalf.report.forms import Decision

_IGNORED = ("tracking.", "workspace.", "search.")
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
        digest: equal where two are the same run.
        page: its report page, a path or an address; None where there is none.
        decisions: reads why each node has its precision; None where the run decided nothing.
    """

    name: str
    title: str
    params: dict[str, str]
    numbers: dict[str, float]
    verdict: str
    decisions: Callable[[], list[Decision] | None] = field(repr=False, compare=False)
    reason: str = ""
    digest: str = ""
    page: str | None = None

    @property
    def has_failed(self) -> bool:
        return self.verdict in ("failed", "crashed")

    @property
    def group(self) -> str:
        """Runs of other models, or judged by other samples or another number of them, are no rivals."""
        counts = (self.params.get(key, "") for key in ("data.verification_samples", "verify.first_samples"))
        known = [f"{min(numbers)} samples"] if (numbers := [int(each) for each in counts if each.isdecimal()]) else []
        source = [self.params[key] for key in ("data.source",) if key in self.params]
        return ", ".join([self.params.get("model.name", self.title), *source, *known])


def gathered(project: Path) -> list[ComparedRun]:
    """All runs under runs/, then those of all experiments of MLflow's that are no run of these.

    Raises:
        NothingToCompare: where there is neither. Where only MLflow cannot be read, a message says so.
    """
    found: list[ComparedRun] = []
    reasons: list[NothingToCompare] = []
    for runs_of in (of_folders, of_mlflow):
        try:
            known = {run.digest for run in found}
            found += [run for run in runs_of(project) if run.digest not in known]
        except NothingToCompare as error:
            reasons.append(error)
    if not found:
        raise reasons[0]
    for reason in reasons:
        if "no-runs" not in codes_in(str(reason)):
            print(f"compare: {reason}", file=sys.stderr)
    return found


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
    except (AssertionError, AttributeError, KeyError, TypeError, ValueError, StageError) as error:
        expected = "expected params.yaml and reports as a run leaves them"
        message = f"compare: {place} is left out: {expected}; got {first_line(error)}; delete the folder"
        print(coded("file-unreadable", message), file=sys.stderr)


def of_folder(name: str, place: Path) -> ComparedRun:
    """The run whose params and reports a folder holds."""
    crash = crash_of(place)
    failed_stage = crash["stage"] if crash else None
    params, reports = read_params(place), reports_of_run(place, failed_stage)
    verdict, reason = str(reports.get("verify", {}).get("verdict", "crashed")), ""
    if crash:
        verdict, reason = "crashed", f"{crash['stage']}: {crash['message']}".splitlines()[0]
    elif has_failed(reports, params):
        verdict = "failed"
    file = place / "artifacts" / "fp16" / "decisions.json"

    def decisions() -> list[Decision] | None:
        try:
            return _read(file) if "fp16" in reports and file.exists() else None
        except ValueError as error:
            message = f"{file}: expected decisions as a run leaves them; got {first_line(error)}"
            raise NothingToCompare(coded("file-unreadable", message)) from error

    options, numbers = _compared(flat_params(params)), metrics(reports)
    page = place / "reports" / "report.html"
    record = Record(place, params, reports, failed_stage, {}, None)
    shown = str(page) if page.exists() else None
    return ComparedRun(name, run_name(params), options, numbers, verdict, decisions, reason, record.digest, shown)


def _without_doubles(runs: list[ComparedRun]) -> list[ComparedRun]:
    """Without the workspace's run where a folder under runs/ holds the same."""
    others = [run for run in runs if run.name != "here"]
    return [run for run in runs if run.name != "here" or all(run.params != other.params for other in others)]


def of_mlflow(project: Path, experiment: str | None = None) -> list[ComparedRun]:
    """All runs of an experiment, or of all of them.

    They are on the server that MLFLOW_TRACKING_URI names, else in the project's mlflow.db.

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
        known = [each for each in client.search_experiments() if experiment in (None, each.name)]
        if not known:
            names = ", ".join(each.name for each in client.search_experiments())
            message = f"{where} has no experiment {experiment!r}; it has {names}"
            raise NothingToCompare(coded("unknown-choice", message))
        runs = _runs_of(client, [each.experiment_id for each in known])
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


def _runs_of(client: Any, experiments: list[str]) -> list[Any]:
    """Without those that only hold the jobs of a sweep together."""
    found, token = [], None
    while True:
        page = client.search_runs(experiments, max_results=1000, page_token=token)
        found += [run for run in page if SWEEP_TAG not in run.data.tags]
        token = page.token
        if not token:
            return found


def _why_none(experiment: str | None, runs: Sequence[Any]) -> str:
    where = "MLflow" if experiment is None else f"experiment {experiment!r}"
    if not runs:
        return f"{where} has no run"
    return (
        f"{where} has {counted(len(runs))}, none of them logged as a whole: they are still being "
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
    name, digest, page = str(run.info.run_name), run.data.tags.get(DIGEST_TAG, ""), _page_of(address, run.info)
    return ComparedRun(run.info.run_id, name, params, numbers, verdict, decisions, "", digest, page)


def _page_of(address: str, info: Any) -> str | None:
    """The page that a run has logged, where that is a file here; else the run on its server."""
    artifacts, server = urlsplit(info.artifact_uri), urlsplit(address)
    if artifacts.scheme == "file" and (file := Path(unquote(artifacts.path)) / PAGE).exists():
        return str(file)
    if server.scheme not in ("http", "https"):
        return None
    place = f"{server.netloc.rpartition('@')[2]}{server.path.rstrip('/')}"  # without user and password
    return f"{server.scheme}://{place}/#/experiments/{info.experiment_id}/runs/{info.run_id}"


def _read(file: Path) -> list[Decision] | None:
    """Decisions; a file that was passed on as it is has none."""
    found: list[Decision] = json.loads(file.read_text())
    return found or None


def _compared(params: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in in_effect(params).items() if not key.startswith(_IGNORED)}
