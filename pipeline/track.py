"""Tracking: one MLflow run per pipeline run, from its record alone, and a copy of the run under runs/.

    python -m pipeline.track NAME      log a run of runs/ that could not be logged when it ended

Logging is idempotent: an MLflow run carries a digest of parameters and reports, and a second call finds it. A tracking
server that does not answer loses nothing: runs/<name> holds all that is logged.
"""

from __future__ import annotations

import contextlib
import getpass
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from pipeline.figures import accuracy_sentence, figures_of, mlflow_metrics
from pipeline.redact import first_line
from pipeline.run_record import ASIDE, CRASHED, Run, flat_params, read_json_or_none
from pipeline.workspace import PROJECT_VARIABLE, SWEEP_VARIABLE, root
from truehalf.codes import coded
from truehalf.files import file_sha256, locked, remove, swap_in, write_json
from truehalf.report.numbers import percent
from truehalf.report.terminal import parser_of, run_program

DIGEST_TAG, COMPLETE_TAG = "truehalf.digest", "truehalf.complete"  # COMPLETE is set last: without it a run is cut off
SWEEP_TAG, SOURCE_TAG, FILE_TAG = "truehalf.sweep", "truehalf.source_run_id", "model_sha256"
MODEL_FOLDER = "model"  # artifacts: the final file and its data
PAGE = "index.html"  # the report among the artifacts, which MLflow lists by name
LOGGED, ALREADY_LOGGED, NOT_LOGGED = "logged", "already logged", "not logged"
_ORIGIN = "record.json"  # in a folder of runs/: commit and sweep, which only the workspace knew
_PARENT_TAG, _NOTE_TAG = "mlflow.parentRunId", "mlflow.note.content"
_TRAINED = "\n\nTrained in: "
_ADDRESS_VARIABLE = "MLFLOW_TRACKING_URI"
# Columns of the list of runs at .../runs?viewStateShareKey=truehalf (`make ui` prints the address).
_VIEW_TAG = "mlflow.sharedViewState.truehalf"
_VIEW_COLUMNS = ("attributes.`Created`", "tags.`verdict`", "metrics.`ap`", "metrics.`matched`", "metrics.`fp16`")
_NAMED_OVERRIDES, _VALUE_WIDTH = 3, 24
_IN_NAME = ("model", "decoder", "precision", "model.name", "precision.dtype", "precision.method")
_NOT_IN_NAME = ("model.classes", "model.inputs", "model.outputs")  # all runs of one's own model have them


class Outcome(TypedDict):
    """Result of logging a run: reports/track.json.

    Attributes:
        status: LOGGED, ALREADY_LOGGED or NOT_LOGGED.
        message: one line for people.
        registered: {"name", "version"} of the registered model.
        missing: messages of advisory parts that raised an error.
    """

    status: str
    run_id: str | None
    experiment: str | None
    message: str
    registered: dict[str, str] | None
    missing: NotRequired[list[str]]


def main() -> int:
    parser = parser_of("pipeline.track", __doc__)
    parser.add_argument("name", metavar="NAME", help="folder of runs/")
    project, name = root(), parser.parse_args().name
    place = project / "runs" / name
    if not (place / "params.yaml").is_file():
        print(coded("file-missing", f"track: {place}: no such run; expected a folder of runs/"), file=sys.stderr)
        return 2
    outcome = log(Run.read(place), project, read_json_or_none(place / _ORIGIN) or {})
    write_json(place / "reports" / "track.json", outcome)
    print(f"track: {name}: {outcome['message']}")
    if outcome["status"] == NOT_LOGGED:
        return 1
    remove(place / "artifacts" / "cast_cleanup")  # MLflow has the model now
    return 0


def track(run: Run, missing: Sequence[str] = ()) -> Outcome:
    """Log the run of a workspace, write reports/track.json, and copy the run to the project's runs/<name>.

    Args:
        missing: messages of advisory parts that raised an error.
    """
    project = Path(os.environ.get(PROJECT_VARIABLE, run.folder))
    origin = {**commit_of(project), "sweep": os.environ.get(SWEEP_VARIABLE)}
    outcome = log(run, project, origin)
    if missing:
        outcome["missing"] = list(missing)
    write_json(run.folder / "reports" / "track.json", outcome)
    _collect(run, project, origin, with_model=outcome["status"] == NOT_LOGGED)
    return outcome


def missing_address(tracking: Mapping[str, Any]) -> list[str]:
    """The error message where runs go to a server whose address the environment lacks; []: there is none."""
    name = tracking["uri_env"]
    if not name or os.environ.get(name):
        return []
    message = (
        f"tracking.uri_env: expected the server's address in the environment variable {name}, which is not set; "
        "export it, or set tracking=local"
    )
    return [coded("needs-value", message)]


def previous_run(run: Run) -> Run | None:
    """The newest run of runs/ of the same model and decoder with other parameters; None where there is none."""
    project = Path(os.environ.get(PROJECT_VARIABLE, run.folder))
    folders = [path.parent for path in (project / "runs").glob(f"*/{_ORIGIN}") if path.parent.name != run.slug]
    for folder in sorted(folders, key=lambda each: (each / _ORIGIN).stat().st_mtime_ns, reverse=True):
        earlier = Run.read(folder)
        same_decoder = earlier.params.get("decoder") == run.params.get("decoder")
        if same_decoder and earlier.model_digest == run.model_digest and earlier.reports.verify is not None:
            return earlier
    return None


def _collect(run: Run, project: Path, origin: Mapping[str, Any], with_model: bool) -> None:
    """Copy parameters, reports and page, and the model of a run that is not logged, to runs/<name>."""
    place = project / "runs" / run.slug
    place.parent.mkdir(exist_ok=True)
    names = ["params.yaml", "reports/track.json", "reports/error.json" if run.crash else "reports/metrics.json"]
    files = {*run.files, *(run.folder / name for name in names), *(run.model_files if with_model else ())}
    with locked(place.parent / ".collect.lock", "track: another run is being copied to runs/; waiting"):
        building = place.with_name(f"{place.name}.partial")
        remove(building)
        for file in files:
            if file.exists():
                target = building / file.relative_to(run.folder)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(file, target)
        write_json(building / _ORIGIN, dict(origin))
        swap_in(building, place)


# --- logging ----------------------------------------------------------------------------------------------------------


def log(run: Run, project: Path, origin: Mapping[str, Any]) -> Outcome:
    """Log a run to the store that its configuration names; an error of the store is an outcome, not an exception.

    Args:
        project: where the local store lies.
        origin: {git_commit, git_dirty, sweep}.
    """
    tracking = run.params["tracking"]
    address = os.environ.get(tracking["uri_env"] or "")
    if tracking["uri_env"] and not address:
        return _not_logged(run, f"the environment variable {tracking['uri_env']} is not set")
    _be_brief()
    try:
        import mlflow

        if address:
            with _logging_to(mlflow, address):
                return _log(mlflow, _experiment(mlflow, tracking["experiment"], None), run, origin)
        # Parallel first writers break a fresh database, and SQLite takes one writer at a time.
        with (
            locked(project / ".truehalf.mlflow.lock", "track: another run is being logged to mlflow.db; waiting"),
            _logging_to(mlflow, f"sqlite:///{project / 'mlflow.db'}"),
        ):
            experiment = _experiment(mlflow, tracking["experiment"], (project / "mlartifacts").as_uri())
            return _log(mlflow, experiment, run, origin)
    except Exception as error:  # MLflow raises its own errors, requests' and SQLAlchemy's; none may lose the export
        return _not_logged(run, first_line(error))


def _not_logged(run: Run, reason: str) -> Outcome:
    message = coded("not-logged", f"not logged: {reason}; later: python -m pipeline.track {run.slug}")
    return {"status": NOT_LOGGED, "run_id": None, "experiment": None, "message": message, "registered": None}


def _be_brief() -> None:
    """Give up on a dead server after seconds, not minutes, and log only errors, unless the user has set otherwise."""
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "ERROR")
    os.environ["MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT"] = "true"  # the address may hold a password


@contextlib.contextmanager
def _logging_to(mlflow: Any, address: str) -> Iterator[None]:
    """Set MLflow's address, which it also writes into the environment, and put the earlier one back."""
    earlier = os.environ.get(_ADDRESS_VARIABLE)
    mlflow.set_tracking_uri(address)
    try:
        yield
    finally:
        mlflow.set_tracking_uri(None)
        if earlier is not None:
            os.environ[_ADDRESS_VARIABLE] = earlier


def _experiment(mlflow: Any, name: str, artifacts: str | None) -> str:
    """Id of the experiment, made on first use, with a view of its runs that shows verdict, ap, matched and fp16."""
    experiment = mlflow.get_experiment_by_name(name)
    if experiment is None:
        try:
            mlflow.create_experiment(name, artifact_location=artifacts)
        except mlflow.MlflowException:  # another run was first
            if mlflow.get_experiment_by_name(name) is None:
                raise
        experiment = mlflow.get_experiment_by_name(name)
    if _VIEW_TAG not in experiment.tags:
        view = {"selectedColumns": _VIEW_COLUMNS, "orderByKey": "attributes.start_time", "orderByAsc": False}
        with contextlib.suppress(mlflow.MlflowException):  # another run was first
            mlflow.MlflowClient().set_experiment_tag(experiment.experiment_id, _VIEW_TAG, json.dumps(view))
    return str(experiment.experiment_id)


def _log(mlflow: Any, experiment: str, run: Run, origin: Mapping[str, Any]) -> Outcome:
    """Log the run unless it is logged already, link the run that trained its model, and register it if asked to."""
    client, digest, tracking = mlflow.MlflowClient(), digest_of(run), run.params["tracking"]
    status, run_id, sweep = LOGGED, "", origin.get("sweep")
    for earlier in client.search_runs([experiment], f"tags.`{DIGEST_TAG}` = '{digest}'"):
        if earlier.data.tags.get(COMPLETE_TAG) == "true":
            status, run_id = ALREADY_LOGGED, earlier.info.run_id
            if sweep and _PARENT_TAG not in earlier.data.tags:
                client.set_tag(run_id, _PARENT_TAG, _sweep_run(client, experiment, sweep))
        else:
            client.delete_run(earlier.info.run_id)
    if status == LOGGED:
        run_id = _log_new(mlflow, experiment, run, origin)
    _link_source(mlflow, client, run_id, tracking.get("source_run_id"))
    message, registered = f"{status} as run {run_id} in {tracking['experiment']!r}", None
    if tracking["register"]:
        from pipeline.registry import NotRegistered, register

        try:
            registered = register(mlflow, run_id, run)
            message += f"; registered as {registered['name']} version {registered['version']}"
        except NotRegistered as reason:
            message += f"; NOT REGISTERED: {reason}"
    return {
        "status": status,
        "run_id": run_id,
        "experiment": tracking["experiment"],
        "message": message,
        "registered": registered,
    }


def _log_new(mlflow: Any, experiment: str, run: Run, origin: Mapping[str, Any]) -> str:
    """Log everything of a run; return the id of its MLflow run."""
    client, (start, end) = mlflow.MlflowClient(), _span(run)
    tags = tags_of(run, origin)
    system = {"mlflow.source.name": "pipeline", "mlflow.source.type": "LOCAL"}
    system |= {"mlflow.source.git.commit": tags["git_commit"]} if tags["git_commit"] != "none" else {}
    with contextlib.suppress(KeyError, OSError):  # the user of a container may have no name
        system["mlflow.user"] = getpass.getuser()
    system |= {_PARENT_TAG: _sweep_run(client, experiment, origin["sweep"])} if origin.get("sweep") else {}
    run_id = str(client.create_run(experiment, start, system, display_name(run)).info.run_id)
    with mlflow.start_run(run_id=run_id):
        mlflow.set_tags({DIGEST_TAG: digest_of(run), _NOTE_TAG: description(run)} | tags)
        mlflow.log_params(flat_params(run.params))
        mlflow.log_metrics(mlflow_metrics(run))
        for file in run.files:
            if file == run.page:
                mlflow.log_text(file.read_text(encoding="utf-8"), PAGE)
            else:
                mlflow.log_artifact(str(file), "verify/plots" if file.parent.name == "plots" else "reports")
        log_model(mlflow, run)
    client.set_terminated(run_id, "FAILED" if run.has_failed else "FINISHED", end)
    client.set_tag(run_id, COMPLETE_TAG, "true")
    return run_id


def log_model(mlflow: Any, run: Run) -> None:
    """Log the SHA-256 of the final file, and the file with its external data unless it is too large."""
    if not run.model_files:
        return
    mlflow.set_tag(FILE_TAG, sha256_of(run.model_files))
    if sum(file.stat().st_size for file in run.model_files) <= run.params["tracking"]["max_model_mb"] * 1e6:
        for file in run.model_files:
            mlflow.log_artifact(str(file), MODEL_FOLDER)


def sha256_of(files: Sequence[Path]) -> str:
    """SHA-256 of a file, as `sha256sum` prints it; of several, one over theirs."""
    digests = [file_sha256(file) for file in files]
    return digests[0] if len(digests) == 1 else hashlib.sha256(b"".join(map(bytes.fromhex, digests))).hexdigest()


def _span(run: Run) -> tuple[int, int]:
    """Start and end in milliseconds since 1970: `inputs` writes its report first in every run, the page is last."""
    times = {file.name: int(file.stat().st_mtime * 1000) for file in run.files if file.parent.name == "reports"}
    end = max(times.values(), default=int(time.time() * 1000))
    return min(times.get("inputs.json", end), end), end


def _sweep_run(client: Any, experiment: str, sweep: str) -> str:
    """Id of a sweep's own MLflow run, made by the first of its jobs that is logged."""
    query = [experiment], f"tags.`{SWEEP_TAG}` = '{sweep}'"
    if not client.search_runs(*query):
        made = client.create_run(experiment, run_name=sweep, tags={SWEEP_TAG: sweep}).info.run_id
        client.set_terminated(made)  # it only holds its jobs together
    oldest = min(client.search_runs(*query), key=lambda each: (each.info.start_time, each.info.run_id))
    return str(oldest.info.run_id)


def _link_source(mlflow: Any, client: Any, run_id: str, source: str | None) -> None:
    """Tag a run with the run that trained its model, and link that in its description where the store has it."""
    tags = client.get_run(run_id).data.tags
    if source is None or tags.get(SOURCE_TAG) == source:
        return
    client.set_tag(run_id, SOURCE_TAG, source)
    try:
        trained = client.get_run(source).info
        link = f"[{trained.run_name}](#/experiments/{trained.experiment_id}/runs/{source})"
    except mlflow.MlflowException:  # of another store
        link = f"`{source}`, which this store does not have"
    client.set_tag(run_id, _NOTE_TAG, f"{tags[_NOTE_TAG].partition(_TRAINED)[0]}{_TRAINED}{link}")


# --- names, tags, description -----------------------------------------------------------------------------------------


def digest_of(run: Run) -> str:
    """SHA-256 of parameters and reports: the same for a run that is logged again, wherever it ran."""
    params = {key: value for key, value in run.params.items() if key not in ASIDE}
    content = [params, run.json, run.crash.stage if run.crash else None]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def tags_of(run: Run, origin: Mapping[str, Any]) -> dict[str, str]:
    """Words about a run for the filters of MLflow's UI."""
    verify, engine, inputs = run.reports.verify, run.reports.engine, run.reports.inputs
    machine: Mapping[str, Any] = inputs.machine if inputs else {}
    precision = run.params["precision"]
    unmatched = (run.reports.fp16.unmatched_selectors if run.reports.fp16 else None) or []
    return {
        "model": run.params["model"]["name"],
        "model_digest": run.model_digest[:12] or "none",
        "decoder": run.params["decoder"]["name"],
        "precision": precision["dtype"],
        "method": precision.get("method", "convert") if precision["dtype"] == "fp16" else "none",
        "git_commit": str(origin.get("git_commit", "none")),
        "git_dirty": str(origin.get("git_dirty", "unknown")),
        "verdict": run.verdict,
        "failed_stage": run.crash.stage if run.crash else "none",
        "evaluation": (verify.evaluation if verify else None) or "none",
        "engine": (engine.status if engine else None) or "none",
        "engine_backend": ((engine.plan or {}).get("backend") if engine else None) or "none",
        "engine_parity": run.engine_state[0],
        "unmatched_selectors": ", ".join(map(str, unmatched)) or "none",
        "gpu": ", ".join(gpu["name"] for gpu in machine.get("gpus") or []) or "none",
        "tensorrt": str(machine.get("tensorrt") or "none"),
    }


def commit_of(folder: Path) -> dict[str, str]:
    """git's commit of a folder, and whether the code in it differs from that commit."""
    code = ("--", "conf", "pipeline", "stages", "truehalf")
    commit, changes = _git(folder, "rev-parse", "HEAD"), _git(folder, "status", "--porcelain", *code)
    if commit is None or changes is None:
        return {"git_commit": "none", "git_dirty": "unknown"}
    return {"git_commit": commit, "git_dirty": str(bool(changes)).lower()}


def _git(folder: Path, *arguments: str) -> str | None:
    """Output of git; None where it fails or is not installed."""
    try:
        done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def shown_overrides(run: Run) -> dict[str, str]:
    """Value by key or group of the command line, but those that the run's name says, and those of FP16 in FP32."""
    unread = [*ASIDE, *(["precision"] if run.params["precision"]["dtype"] == "fp32" else [])]
    pairs = (each.lstrip("+~").partition("=")[::2] for each in run.overrides)
    named = {key.partition("@")[0]: value for key, value in pairs}
    return {key: value for key, value in named.items() if key not in _IN_NAME and key.partition(".")[0] not in unread}


def display_name(run: Run) -> str:
    """Name of the MLflow run: model, decoder, precision, and the first overrides of the command line, such as
    ltdetr_nano-dfine-fp16-data_max=128.
    """
    changed = {key: value for key, value in shown_overrides(run).items() if key not in _NOT_IN_NAME}
    words = [f"{key.removeprefix('precision.')}={_short(value)}" for key, value in changed.items()]
    more = [f"+{len(words) - _NAMED_OVERRIDES}"] if len(words) > _NAMED_OVERRIDES else []
    return "-".join([run.name, *words[:_NAMED_OVERRIDES], *more])


def _short(value: str) -> str:
    """A value for a name: the last part of a path, a short list, or the number of a list's entries."""
    if value.startswith("["):
        listed = value.strip("[]").replace(" ", "")
        return listed if len(listed) <= _VALUE_WIDTH else f"{listed.count(',') + 1} entries"
    text = value.rpartition("/")[2]
    return text if len(text) <= _VALUE_WIDTH else f"{text[:_VALUE_WIDTH]}…"


def description(run: Run) -> str:
    """Markdown for the run's page in MLflow: verdict, accuracy, share in FP16, overrides."""
    verify, engine, share = run.reports.verify, run.reports.engine, figures_of(run)["fp16"]
    how = f" in {run.crash.stage}" if run.crash and run.verdict == CRASHED else ""
    if not how:
        evaluation, status = verify.evaluation if verify else "not evaluated", engine.status if engine else "not run"
        how = f" ({evaluation}), engine: {status}"
    listed = ", ".join(f"`{key}={value}`" for key, value in shown_overrides(run).items())
    lines = [f"**{run.verdict}**{how}", accuracy_sentence(run)]
    lines += [f"{percent(share)} of the arithmetic in FP16"] if share is not None else []
    lines += [f"Overrides: {listed}"] if listed else []
    lines += [f"Report: artifact `{PAGE}`"] if run.page.is_file() else []
    return "\n\n".join(lines)


if __name__ == "__main__":
    run_program(main)
