"""track: one flat MLflow run per pipeline run, from params.yaml and reports/ alone.

    python -m pipeline.track

Idempotent: the run carries a digest of params and reports, and a second call finds it. A tracking server that does not
answer loses nothing: the files stay, and the same command logs them later.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from conf.rules import OF_CONVERT_ALONE
from conf.schema import Method
from pipeline.caveats import unmet
from pipeline.engine import engine_hop, engine_metrics
from pipeline.workspace import PROJECT_VARIABLE, STAGES, locked, read_params, reports_of_run, root, write_text

CONVERT = Method.convert.value
DIGEST_TAG = "truehalf.digest"
COMPLETE_TAG = "truehalf.complete"  # set last: a run without it was cut off and is logged anew
_VERIFY_METRICS = (
    *("ap50", "ap50_fp32", "ap50_95", "ap50_95_fp32", "ap50_95_drop", "self_ap50", "self_ap50_95"),
    *("matched_fraction", "missed", "extra", "label_flips", "top1_agreement", "tensor_error"),
    *("box_error_px_p50", "box_error_px_p99", "box_error_px_max"),
    *("score_error_p50", "score_error_p99", "score_error_max"),
    *("nan", "inf"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--failed-stage", metavar="STAGE", help="log a run that crashed in this stage, as failed")
    arguments = parser.parse_args()
    folder = root()
    outcome = track(folder, arguments.failed_stage)
    write_text(folder / "reports" / "track.json", json.dumps(outcome, indent=2) + "\n")
    print(f"track: {outcome['message']}", file=sys.stderr if outcome["status"] == "pending" else sys.stdout)


def track(folder: Path, failed_stage: str | None = None) -> dict[str, Any]:
    """Log the workspace's run.

    Args:
        folder: the workspace.
        failed_stage: the stage that crashed; reports from it on belong to earlier runs and are left out.

    Returns:
        {"status": "logged" | "already logged" | "pending", "run_id", "experiment", "message"}.
    """
    params, reports = read_params(folder), reports_of_run(folder, failed_stage)
    digest = hashlib.sha256(json.dumps([params, reports, failed_stage], sort_keys=True).encode()).hexdigest()
    settings = params["tracking"]
    uri_env = settings["uri_env"]
    if uri_env and not os.environ.get(uri_env):
        return _pending(f"the environment variable {uri_env} is not set")
    _be_brief()
    try:
        import mlflow

        if uri_env:
            mlflow.set_tracking_uri(os.environ[uri_env])
            experiment = _experiment(mlflow, settings["experiment"], None)
        else:  # parallel first writers break a fresh database: one at a time
            home = Path(os.environ.get(PROJECT_VARIABLE, folder))
            with locked(home / ".truehalf.mlflow.lock", "track: another run prepares mlflow.db; waiting"):
                mlflow.set_tracking_uri(f"sqlite:///{home / 'mlflow.db'}")
                experiment = _experiment(mlflow, settings["experiment"], (home / "mlartifacts").as_uri())
        return _log(mlflow, experiment, folder, params, reports, failed_stage, digest)
    except Exception as error:  # MLflow raises its own, requests' and SQLAlchemy's; none may lose the export
        return _pending(_first_line(error))


def _pending(reason: str) -> dict[str, Any]:
    message = f"the run is not logged yet: {reason}. The reports are kept; log them with: python -m pipeline.track"
    return {"status": "pending", "run_id": None, "experiment": None, "message": message}


def _be_brief() -> None:
    """Give up on a dead server after seconds, not minutes, and log errors alone, unless the user has said otherwise."""
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "ERROR")


def _first_line(error: Exception) -> str:
    """The first line of an error, without credentials that an address may hold."""
    text = (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
    for word in text.split():
        if "@" in word and "://" in word:
            scheme, rest = word.split("://", 1)
            text = text.replace(word, f"{scheme}://***@{rest.rsplit('@', 1)[1]}")
    return text


def _experiment(mlflow: Any, name: str, artifacts: str | None) -> str:
    """Id of the experiment, made (and the database initialised) on first use."""
    found = mlflow.get_experiment_by_name(name)
    if found:
        return str(found.experiment_id)
    return str(mlflow.create_experiment(name, artifact_location=artifacts))


def _log(
    mlflow: Any,
    experiment: str,
    folder: Path,
    params: dict[str, Any],
    reports: dict[str, dict[str, Any]],
    failed_stage: str | None,
    digest: str,
) -> dict[str, Any]:
    client = mlflow.MlflowClient()
    for earlier in client.search_runs([experiment], f"tags.`{DIGEST_TAG}` = '{digest}'"):
        if earlier.data.tags.get(COMPLETE_TAG) == "true":
            return _outcome("already logged", earlier.info.run_id, params, "already logged as run")
        client.delete_run(earlier.info.run_id)
    failed = failed_stage or any(reports.get(stage, {}).get("status") == "failed" for stage in ("verify", "engine"))
    failed = failed or bool(unmet(params, reports))
    model_file = folder / "artifacts" / "cast_cleanup" / "model.onnx"
    with mlflow.start_run(experiment_id=experiment, run_name=run_name(params)) as run:
        mlflow.set_tags({DIGEST_TAG: digest} | tags(folder, params, reports, failed_stage))
        mlflow.log_params(flat_params(params))
        mlflow.log_metrics(metrics(reports))
        for file in _artifacts(folder, reports):
            mlflow.log_artifact(str(file), "verify/plots" if file.parent.name == "plots" else "reports")
        if "cast_cleanup" in reports:
            _log_model(mlflow, model_file, params["tracking"]["max_model_mb"])
        mlflow.set_tag(COMPLETE_TAG, "true")
        run_id = str(run.info.run_id)
        if failed:
            mlflow.end_run("FAILED")
    return _outcome("logged", run_id, params, "logged as a failed run" if failed else "logged as run")


def _outcome(status: str, run_id: str, params: dict[str, Any], message: str) -> dict[str, Any]:
    name = params["tracking"]["experiment"]
    return {"status": status, "run_id": run_id, "experiment": name, "message": f"{message} {run_id} in {name!r}"}


def run_name(params: dict[str, Any]) -> str:
    """Model, decoder and precision; of an FP16 that was traced, how."""
    precision = params["precision"]
    traced = precision["dtype"] == "fp16" and precision.get("method", CONVERT) != CONVERT
    names = [params["model"]["name"], params["decoder"]["name"], precision["dtype"]]
    return "-".join([*names, *([precision["method"]] if traced else [])])


def flat_params(params: Mapping[str, Any]) -> dict[str, str]:
    """Dotted keys; lists as JSON. Keys without effect (in FP32, or traced in FP16) say so, to compare well."""
    flat: dict[str, str] = {}

    def walk(prefix: str, value: Any) -> None:
        if isinstance(value, Mapping) and value:
            for key, item in value.items():
                walk(f"{prefix}.{key}" if prefix else str(key), item)
        else:
            flat[prefix] = value if isinstance(value, str) else json.dumps(value)

    walk("", {key: value for key, value in params.items() if key not in ("tracking", "workspace")})
    precision = params["precision"]
    idle: list[str] = []
    if precision["dtype"] == "fp32":
        idle = [f"precision.{key}" for key in precision if key != "dtype"]
    elif precision.get("method", CONVERT) != CONVERT:
        idle = [f"precision.{key}" for key in OF_CONVERT_ALONE if key in precision]
        idle += [key for key in flat if key.startswith(("model.fp32_pins.", "decoder.fp32_pins."))]
    return flat | dict.fromkeys(idle, "no effect")


def metrics(reports: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """The same names in every run; one is absent only where the run has no such number."""
    found: dict[str, Any] = {}
    for stage in STAGES:
        report = reports.get(stage, {})
        model = report.get("model", {})
        found[f"seconds/{stage}"] = report.get("seconds")
        found[f"size_mb/{stage}"] = model.get("size_mb")
        found[f"nodes/{stage}"] = model.get("nodes")
        found[f"casts/{stage}"] = model.get("casts")
    verify, cleanup = reports.get("verify", {}), reports.get("cast_cleanup", {})
    found |= {f"verify/{name}": verify.get(name) for name in _VERIFY_METRICS}
    found |= {f"verify/max_abs_error/{name}": value for name, value in verify.get("max_abs_error", {}).items()}
    fp16 = reports.get("fp16", {})
    found["fp16/nodes_fp16_fraction"] = fp16.get("model", {}).get("fp16_fraction")
    found["fp16/arithmetic_fp16_fraction"] = fp16.get("fp16_arithmetic")
    for name, cost in fp16.get("costs", {}).items():  # of the placement that was made, and of the naive one
        found[f"fp16/casts/{name}"] = cost["casts"]
        found[f"fp16/cast_mb/{name}"] = cost["cast_bytes"] / 1e6
        found[f"fp16/cost_mb/{name}"] = cost["bytes"] / 1e6
    found["cast_cleanup/casts_before"] = cleanup.get("casts_before")
    found["cast_cleanup/casts_after"] = cleanup.get("casts_after")
    found |= engine_metrics(reports.get("engine", {}))
    return {name: float(value) for name, value in found.items() if isinstance(value, (int, float))}


def tags(
    folder: Path, params: dict[str, Any], reports: dict[str, dict[str, Any]], failed_stage: str | None
) -> dict[str, str]:
    """What a run is, in words: for the MLflow UI's filters."""
    verify, engine, probe = (reports.get(stage, {}) for stage in ("verify", "engine", "probe"))
    gpus = probe.get("gpus")
    return {
        "model": params["model"]["name"],
        "decoder": params["decoder"]["name"],
        "precision": params["precision"]["dtype"],
        "method": params["precision"].get("method", CONVERT) if params["precision"]["dtype"] == "fp16" else "none",
        "git_commit": _git(folder, "rev-parse", "HEAD") or "none",
        "git_dirty": str(bool(_git(folder, "status", "--porcelain", "--", "conf", "pipeline", "stages"))).lower(),
        "verdict": "crashed" if failed_stage else str(verify.get("verdict", "not verified")),
        "failed_stage": failed_stage or "none",
        "evaluation": str(verify.get("evaluation", "none")),
        "provider": str(verify.get("provider", "none")),
        "engine": str(engine.get("status", "none")),
        "engine_backend": str(engine.get("backend", "none")),
        "engine_provider": str(engine.get("provider", "none")),
        "engine_parity": str(engine_hop(reports)["state"]),
        "unmatched_selectors": ", ".join(map(str, reports.get("fp16", {}).get("unmatched_selectors", []))) or "none",
        "gpu": ", ".join(gpu["name"] for gpu in gpus) if gpus else "none",
        "tensorrt": str(probe.get("tensorrt") or "none"),
    }


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _artifacts(folder: Path, reports: Mapping[str, Any]) -> list[Path]:
    """Reports of this run, its decisions, verdict and plots."""
    files = [folder / "reports" / f"{stage}.json" for stage in reports]
    if "fp16" in reports:
        files.append(folder / "artifacts" / "fp16" / "decisions.json")
    if "verify" in reports:
        files += [folder / "artifacts" / "verify" / name for name in ("verdict.json", "details.json")]
        files += sorted((folder / "artifacts" / "verify" / "plots").glob("*"))
        files.append(folder / "reports" / "verify.html")
    if set(STAGES) <= set(reports):
        files.append(folder / "reports" / "report.html")
    return [file for file in files if file.is_file()]


def _log_model(mlflow: Any, model_file: Path, max_mb: float) -> None:
    """The final ONNX file and its external data when small enough; in any case one SHA-256 over those of the files."""
    files = [file for file in (model_file, model_file.with_name(f"{model_file.name}.data")) if file.exists()]
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as opened:
            digest.update(hashlib.file_digest(opened, "sha256").digest())
    mlflow.set_tag("model_sha256", digest.hexdigest())
    if sum(file.stat().st_size for file in files) <= max_mb * 1e6:
        for file in files:
            mlflow.log_artifact(str(file), "model")


if __name__ == "__main__":
    main()
