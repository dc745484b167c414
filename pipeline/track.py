"""track: the page of a run, its copy under runs/, and one MLflow run per pipeline run, only from params.yaml, reports/
and artifacts/; those of a sweep under one.

    python -m pipeline.track
    python -m pipeline.track NAME      a run under runs/ that could not be logged when it ended

Idempotent: the run carries a digest of params and reports, and a second call finds it. A tracking server that does not
answer loses nothing: runs/<name> has what is logged, until it is.
"""

from __future__ import annotations

import contextlib
import gc
import getpass
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pipeline.forms import Outcome, Section
from pipeline.report.page import draw
from pipeline.tracking.naming import PAGE, description, distinct_name, overrides
from pipeline.tracking.record import Record, collect, collected, flat_params, metrics, name_of, of_workspace
from pipeline.tracking.redact import first_line
from pipeline.tracking.registry import FOLDER, SHA256_TAG, NotRegistered, register, sha256_of
from pipeline.workspace import PROJECT_VARIABLE, locked, root
from truehalf.codes import coded
from truehalf.errors import StageError, attempted
from truehalf.files import remove, write_json
from truehalf.progress import step
from truehalf.report.terminal import parser_of, run_program

DIGEST_TAG = "truehalf.digest"
COMPLETE_TAG = "truehalf.complete"  # set last: a run without it was cut off and is logged anew
SWEEP_TAG = "truehalf.sweep"
SOURCE_TAG = "truehalf.source_run_id"
_PARENT_TAG, _NOTE_TAG = "mlflow.parentRunId", "mlflow.note.content"
_TRAINED = "\n\nTrained in: "
NOT_LOGGED = "not logged"  # status of an outcome
_ADDRESS_VARIABLE = "MLFLOW_TRACKING_URI"  # MLflow's


def main() -> None:
    parser = parser_of("pipeline.track", __doc__)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("name", nargs="?", metavar="NAME", help="of a folder of runs/; left out: the workspace's run")
    what.add_argument("--failed-stage", metavar="STAGE", help="log a run that crashed in this stage, as failed")
    arguments = parser.parse_args()
    folder = root()
    gc.set_threshold(100_000)  # MLflow imports 280,000 objects that stay; to look for garbage among them takes a sixth
    if arguments.name is not None:
        sys.exit(log_collected(folder, arguments.name))
    missing: list[str] = []
    with step("track"):
        if arguments.failed_stage is None:  # its page is drawn already
            attempted("the page", missing.append, lambda: draw(folder))
        outcome = track(folder, arguments.failed_stage, missing)
    print(*(f"track: {text}" for text in missing), sep="\n", end="\n" if missing else "", file=sys.stderr)
    print(f"{'track':<12}  reports/report.html, MLflow: {outcome['status']}")


def track(folder: Path, failed_stage: str | None = None, missing: Sequence[str] = ()) -> Outcome:
    """Log the workspace's run, write reports/track.json, and copy the run to the project's runs/<name>.

    Args:
        folder: the workspace.
        failed_stage: the stage that crashed; reports from it on belong to earlier runs and are left out.
        missing: texts on advisory parts that raised.
    """
    project = Path(os.environ.get(PROJECT_VARIABLE, folder))
    record = of_workspace(folder, failed_stage)
    outcome = log(record, project)
    if missing:
        outcome["missing"] = list(missing)
    write_json(folder / "reports" / "track.json", outcome)
    collect(record, project, with_model=outcome["status"] == NOT_LOGGED)
    return outcome


def log_collected(project: Path, name: str) -> int:
    """Log the run of runs/<name>, print what came of it, and return the exit code: 1 where it is still not logged."""
    place = project / "runs" / name
    try:
        record = collected(place)
    except StageError as error:
        print(f"track: {error}", file=sys.stderr)
        return 2
    outcome = log(record, project)
    write_json(place / "reports" / "track.json", outcome)
    print(f"track: {name}: {outcome['message']}")
    if outcome["status"] == NOT_LOGGED:
        return 1
    remove(place / "artifacts" / "cast_cleanup")  # MLflow has it
    return 0


def without_address(tracking: Section) -> list[str]:
    """What is wrong where runs are logged to a server and the environment does not say to which: known before any
    work.
    """
    name = tracking["uri_env"]
    if not name or os.environ.get(name):
        return []
    message = (
        f"tracking.uri_env: expected the server's address in the environment variable {name}, which is not set; "
        "export it, or set tracking=local"
    )
    return [coded("variable-unset", message)]


def log(record: Record, project: Path) -> Outcome:
    """Log a run where its configuration says, and return what came of it, as `track` does."""
    settings = record.params["tracking"]
    uri_env = settings["uri_env"]
    if uri_env and not os.environ.get(uri_env):
        return _not_logged(record, f"the environment variable {uri_env} is not set")
    _be_brief()
    try:
        import mlflow

        if uri_env:
            with _logging_to(mlflow, os.environ[uri_env]):
                return _log(mlflow, _experiment(mlflow, settings["experiment"], None), record)
        # Parallel first writers break a fresh database, and SQLite takes one writer at a time.
        with (
            locked(project / ".truehalf.mlflow.lock", "track: another run is being logged to mlflow.db; waiting"),
            _logging_to(mlflow, f"sqlite:///{project / 'mlflow.db'}"),
        ):
            return _log(mlflow, _experiment(mlflow, settings["experiment"], (project / "mlartifacts").as_uri()), record)
    except Exception as error:  # MLflow raises its errors, requests' and SQLAlchemy's; none may lose the export
        return _not_logged(record, first_line(error))


@contextlib.contextmanager
def _logging_to(mlflow: Any, address: str) -> Iterator[None]:
    """MLflow logs to an address. It writes that into the environment, where the next record looks for its server."""
    given = os.environ.get(_ADDRESS_VARIABLE)
    mlflow.set_tracking_uri(address)
    try:
        yield
    finally:
        mlflow.set_tracking_uri(None)
        if given is not None:
            os.environ[_ADDRESS_VARIABLE] = given


def _not_logged(record: Record, reason: str) -> Outcome:
    message = coded("not-logged", f"not logged: {reason}; later: python -m pipeline.track {name_of(record.params)}")
    return {"status": NOT_LOGGED, "run_id": None, "experiment": None, "message": message, "registered": None}


def _be_brief() -> None:
    """Give up on a dead server after seconds, not minutes, and log only errors, unless the user has set otherwise."""
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "ERROR")
    os.environ["MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT"] = "true"  # the address may hold a password


def _experiment(mlflow: Any, name: str, artifacts: str | None) -> str:
    """Id of the experiment, made (and the database initialised) on first use."""
    found = mlflow.get_experiment_by_name(name)
    if found is None:
        try:
            return str(mlflow.create_experiment(name, artifact_location=artifacts))
        except mlflow.MlflowException:  # another run was first
            found = mlflow.get_experiment_by_name(name)
            if found is None:
                raise
    return str(found.experiment_id)


def _log(mlflow: Any, experiment: str, record: Record) -> Outcome:
    client = mlflow.MlflowClient()
    digest, params = record.digest, record.params
    for earlier in client.search_runs([experiment], f"tags.`{DIGEST_TAG}` = '{digest}'"):
        if earlier.data.tags.get(COMPLETE_TAG) == "true":
            if record.sweep is not None and _PARENT_TAG not in earlier.data.tags:
                client.set_tag(earlier.info.run_id, _PARENT_TAG, _parent(client, experiment, record.sweep))
            _link_source(mlflow, earlier.info.run_id, record)
            return _outcome(mlflow, "already logged", earlier.info.run_id, record)
        client.delete_run(earlier.info.run_id)
    parent = {} if record.sweep is None else {_PARENT_TAG: _parent(client, experiment, record.sweep)}
    start, end = record.span
    told = overrides(record)
    name = distinct_name(params, told)
    run_id = str(client.create_run(experiment, start, _system_tags(record) | parent, name).info.run_id)
    with mlflow.start_run(run_id=run_id):
        mlflow.set_tags({DIGEST_TAG: digest, _NOTE_TAG: description(record, told)} | record.tags)
        mlflow.log_params(flat_params(params))
        mlflow.log_metrics(metrics(record.reports))
        for file in record.files:
            if file == record.page:
                mlflow.log_text(file.read_text(), PAGE)
            else:
                mlflow.log_artifact(str(file), "verify/plots" if file.parent.name == "plots" else "reports")
        _log_model(mlflow, record.model_files, params["tracking"]["max_model_mb"])
        _link_source(mlflow, run_id, record)
    client.set_terminated(run_id, "FAILED" if record.failed else "FINISHED", end)
    client.set_tag(run_id, COMPLETE_TAG, "true")
    return _outcome(mlflow, "logged", run_id, record)


def _system_tags(record: Record) -> dict[str, str]:
    """What MLflow's pages show of where a run comes from."""
    commit, tags = record.tags["git_commit"], {"mlflow.source.name": "pipeline", "mlflow.source.type": "LOCAL"}
    with contextlib.suppress(KeyError, OSError):  # a container's user may have no name
        tags["mlflow.user"] = getpass.getuser()
    return tags if commit == "none" else tags | {"mlflow.source.git.commit": commit}


def _link_source(mlflow: Any, run_id: str, record: Record) -> None:
    """Tag a run with the one that trained its model, and link that in its description where this store has it."""
    source, client = record.params["tracking"].get("source_run_id"), mlflow.MlflowClient()
    if source is None or (tags := client.get_run(run_id).data.tags).get(SOURCE_TAG) == source:
        return
    client.set_tag(run_id, SOURCE_TAG, source)
    try:
        trained = client.get_run(source).info
        link = f"[{trained.run_name}](#/experiments/{trained.experiment_id}/runs/{source})"
    except mlflow.MlflowException:  # of another server
        link = f"`{source}`, which this store does not have"
    text = tags[_NOTE_TAG].partition(_TRAINED)[0]
    client.set_tag(run_id, _NOTE_TAG, f"{text}{_TRAINED}{link}")


def _parent(client: Any, experiment: str, sweep: str) -> str:
    """Id of a sweep's run, made by the first of its jobs to get here."""
    if not (found := _sweep_runs(client, experiment, sweep)):
        created = client.create_run(experiment, run_name=sweep, tags={SWEEP_TAG: sweep}).info.run_id
        client.set_terminated(created)  # it only holds its jobs together: each of these has a status
        found = _sweep_runs(client, experiment, sweep)
    return str(found[0].info.run_id)


def _sweep_runs(client: Any, experiment: str, sweep: str) -> list[Any]:
    """The oldest first."""
    found = client.search_runs([experiment], f"tags.`{SWEEP_TAG}` = '{sweep}'")
    return sorted(found, key=lambda run: (run.info.start_time, run.info.run_id))


def _outcome(mlflow: Any, status: str, run_id: str, record: Record) -> Outcome:
    """The message on a logged run, which becomes a registered model where that is asked for and its gates passed."""
    experiment = record.params["tracking"]["experiment"]
    what = f"{status} as {'a failed run' if record.failed else 'run'} {run_id} in {experiment!r}"
    registered = None
    if record.params["tracking"]["register"]:
        try:
            registered = register(mlflow, run_id, record)
            what += f"; registered as {registered['name']} version {registered['version']}"
        except NotRegistered as reason:
            what += f"; NOT REGISTERED: {reason}"
    return {"status": status, "run_id": run_id, "experiment": experiment, "message": what, "registered": registered}


def _log_model(mlflow: Any, files: list[Path], max_mb: float) -> None:
    """The final ONNX file and its external data when small enough; in any case their SHA-256."""
    if not files:
        return
    mlflow.set_tag(SHA256_TAG, sha256_of(files))
    if sum(file.stat().st_size for file in files) <= max_mb * 1e6:
        for file in files:
            mlflow.log_artifact(str(file), FOLDER)


if __name__ == "__main__":
    run_program(main)
