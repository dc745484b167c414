"""Record of a run in the tracking store: its parameters, metrics, texts and files, and its copy under runs/."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.caveats import has_failed
from pipeline.engine import engine_metrics, engine_stage
from pipeline.forms import Params, Reports, names_of, of_stage
from pipeline.workspace import STAGES, about_run, locked, reports_of_run
from truehalf.config.params import read_params
from truehalf.config.precision import OF_CONVERT_ALONE, Method
from truehalf.files import read_json, remove, swap_in, write_json

CONVERT = Method.convert.value
ABOUT = "record.json"  # in a folder of runs/: what only the workspace knew
NO_EFFECT = "no effect"  # of a parameter, in place of its value
ASIDE = ("tracking",)  # of params: it changes nothing that a run makes
_STAGE_METRICS = (
    *("ap50_95", "matched_fraction", "top1_agreement", "box_error_px_p99", "score_error_p99", "tensor_error"),
    "nonfinite",
)
_VERIFY_METRICS = (
    *("ap50_95", "ap50_95_fp32", "ap50_95_drop", "ap50", "ap50_fp32", "self_ap50_95", "self_ap50"),
    *("low_self_ap50_95_drop", "rank_error_p99"),
    *("matched_fraction", "missed", "extra", "label_flips", "top1_agreement", "tensor_error"),
    *("box_error_px_p50", "box_error_px_p99", "box_error_px_max"),
    *("score_error_p50", "score_error_p99", "score_error_max"),
    *("nan", "inf"),
)


@dataclass(frozen=True)
class Record:
    """One run.

    Attributes:
        folder: with params.yaml, reports/ and artifacts/: the workspace, or a folder of runs/.
        params: of params.yaml.
        reports: by stage, only of this run.
        failed_stage: the stage that crashed, if one did.
        tags: words for the filters of MLflow's UI.
        sweep: the id of the sweep that it is a job of.
        overrides: of the command line that started it.
    """

    folder: Path
    params: Params
    reports: Reports
    failed_stage: str | None
    tags: dict[str, str]
    sweep: str | None
    overrides: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """The same run, logged again, has the same, wherever it worked and is logged."""
        params = {key: value for key, value in self.params.items() if key not in ASIDE}
        content = [params, self.reports, self.failed_stage]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    @property
    def failed(self) -> bool:
        return bool(self.failed_stage) or has_failed(self.reports, self.params)

    @property
    def model_files(self) -> list[Path]:
        """The final ONNX file and its external data."""
        final = self.folder / "artifacts" / "cast_cleanup" / "model.onnx"
        if "cast_cleanup" not in self.reports:
            return []
        return [file for file in (final, final.with_name(f"{final.name}.data")) if file.exists()]

    @property
    def spec_file(self) -> Path:
        """The I/O spec of its model."""
        return self.folder / "artifacts" / "trace" / "io_spec.json"

    @property
    def files(self) -> list[Path]:
        """Reports, decisions, verdict, plots and the page."""
        files = [self.folder / "reports" / f"{stage}.json" for stage in self.reports]
        if "trace" in self.reports:
            files.append(self.spec_file)
        if "fp16" in self.reports:
            files.append(self.folder / "artifacts" / "fp16" / "decisions.json")
        if "verify" in self.reports:
            files += [self.folder / "artifacts" / "verify" / name for name in ("verdict.json", "details.json")]
            files += sorted((self.folder / "artifacts" / "verify" / "plots").glob("*"))
        return [file for file in files if file.is_file()] + ([self.page] if self.page else [])

    @property
    def page(self) -> Path | None:
        """The report page, of a run that has all its reports."""
        page = self.folder / "reports" / "report.html"
        return page if set(STAGES) <= set(self.reports) and page.is_file() else None

    @property
    def span(self) -> tuple[int, int]:
        """When the run began and ended, milliseconds since 1970: `inputs` writes its report in every run, as the first
        stage; the last report is as old as the run's end.
        """
        times = {file.name: int(file.stat().st_mtime * 1000) for file in self.files if file.parent.name == "reports"}
        end = max(times.values(), default=int(time.time() * 1000))
        return min(times.get("inputs.json", end), end), end


def of_workspace(folder: Path, failed_stage: str | None = None) -> Record:
    """The run that a workspace holds; reports from the crashed stage on belong to earlier runs and are left out."""
    params, reports = read_params(folder), reports_of_run(folder, failed_stage)
    about, words = about_run(), tags(folder, params, reports, failed_stage)
    return Record(folder, params, reports, failed_stage, words, about.get("sweep"), tuple(about.get("overrides", ())))


def collect(record: Record, project: Path, with_model: bool) -> Path:
    """Copy a run's parameters, reports, decisions and page to runs/<name>, which is replaced as a whole; return that.

    Args:
        with_model: the final ONNX file, too, for a run that is to be logged from there.
    """
    place = project / "runs" / name_of(record.params)
    place.parent.mkdir(exist_ok=True)
    names = ["params.yaml", "reports/error.json", "reports/track.json", "reports/report.html"]
    names += [] if record.failed_stage else ["reports/metrics.json"]
    files = {*record.files, *(record.folder / name for name in names), *(record.model_files if with_model else ())}
    about = {"failed_stage": record.failed_stage, "tags": record.tags, "sweep": record.sweep}
    with locked(place.parent / ".collect.lock", "track: another run is being copied to runs/; waiting"):
        building = place.with_name(f"{place.name}.partial")
        remove(building)
        for file in files:
            target = building / file.relative_to(record.folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            if file.exists():
                shutil.copy2(file, target)
        write_json(building / ABOUT, about | {"overrides": list(record.overrides)})
        swap_in(building, place)
    return place


def collected(place: Path) -> Record:
    """The run that `collect` copied to a folder of runs/.

    Raises:
        StageError: the folder holds none.
    """
    about = read_json(place / ABOUT)
    params, reports = read_params(place), reports_of_run(place, about["failed_stage"])
    return Record(
        place, params, reports, about["failed_stage"], about["tags"], about["sweep"], tuple(about["overrides"])
    )


def name_of(values: Params) -> str:
    """Name of a run's folder in runs/: model, decoder, precision, and a digest of all values but those of tracking."""
    params = {key: value for key, value in values.items() if key not in ASIDE}
    digest = hashlib.sha256(json.dumps(params, sort_keys=True).encode()).hexdigest()
    return f"{run_name(params)}-{digest[:8]}"


def run_name(params: Params) -> str:
    """Model, decoder and precision; of an FP16 that was traced, how."""
    *names, made = names_of(params)
    return "-".join([*names, *made.split(" by ")])


def flat_params(params: Params) -> dict[str, str]:
    """Dotted keys; lists as JSON."""
    flat: dict[str, str] = {}

    def walk(prefix: str, value: Any) -> None:
        if isinstance(value, Mapping) and value:
            for key, item in value.items():
                walk(f"{prefix}.{key}" if prefix else str(key), item)
        else:
            flat[prefix] = value if isinstance(value, str) else json.dumps(value)

    walk("", {key: value for key, value in params.items() if key not in ASIDE})
    return flat


def in_effect(flat: Mapping[str, str]) -> dict[str, str]:
    """What runs are compared by: of keys that have none (in FP32, or traced in FP16) NO_EFFECT in place of the value.

    MLflow has the value, the default, or it would take all of them for what two runs differ in.
    """
    idle: list[str] = []
    if flat.get("precision.dtype") == "fp32":
        idle = [key for key in flat if key.startswith("precision.") and key != "precision.dtype"]
    elif flat.get("precision.method", CONVERT) != CONVERT:
        alone = tuple(f"precision.{key}" for key in OF_CONVERT_ALONE)
        idle = [key for key in flat if key in alone or key.startswith(("model.fp32_pins.", "decoder.fp32_pins."))]
    return {**flat, **dict.fromkeys(idle, NO_EFFECT)}


def metrics(reports: Reports) -> dict[str, float]:
    """The same names in every run; one is absent only where the run has no such number.

    MLflow lists them by name, and plots the first that it was given: `accuracy` of the final file, which comes first in
    both.
    """
    verify, cleanup = reports.get("verify", {}), reports.get("cast_cleanup", {})
    found: dict[str, Any] = {f"accuracy/{name}": verify.get(name) for name in _VERIFY_METRICS}
    found |= {f"accuracy/metrics/{name.replace(':', '.')}": value for name, value in verify.get("metrics", {}).items()}
    found |= {f"accuracy/max_abs_error/{name}": value for name, value in verify.get("max_abs_error", {}).items()}
    engine = reports.get("engine", {})
    for stage, numbers in {**verify.get("stages", {}), "engine": engine.get("parity") or {}}.items():
        found |= {f"accuracy_by_stage/{stage}/{name}": numbers.get(name) for name in _STAGE_METRICS}
        errors = numbers.get("max_abs_error") or {}
        found |= {f"accuracy_by_stage/{stage}/max_abs_error/{name}": value for name, value in errors.items()}
    for stage in STAGES:
        report = of_stage(reports, stage) or {}
        model = report.get("model", {})
        found[f"seconds/{stage}"] = report.get("seconds")
        found |= {f"{name}/{stage}": model.get(name) for name in ("size_mb", "nodes", "casts")}
    fp16 = reports.get("fp16", {})
    found["fp16/nodes_fp16_fraction"] = fp16.get("model", {}).get("fp16_fraction")
    found["fp16/arithmetic_fp16_fraction"] = fp16.get("fp16_arithmetic")
    for name, cost in fp16.get("costs", {}).items():  # of the placement that was made, and of the naive one
        found[f"fp16/casts/{name}"] = cost["casts"]
        found[f"fp16/cast_mb/{name}"] = cost["cast_bytes"] / 1e6
        found[f"fp16/cost_mb/{name}"] = cost["bytes"] / 1e6
    found["cast_cleanup/casts_before"] = cleanup.get("casts_before")
    found["cast_cleanup/casts_after"] = cleanup.get("casts_after")
    found |= engine_metrics(engine)
    return {name: float(value) for name, value in found.items() if isinstance(value, (int, float))}


def tags(folder: Path, params: Params, reports: Reports, failed_stage: str | None) -> dict[str, str]:
    """What a run is, in words: for the MLflow UI's filters."""
    verify, engine = reports.get("verify", {}), reports.get("engine", {})
    probe = reports.get("probe")
    gpus = probe.get("gpus") if probe else None
    return {
        "model": params["model"]["name"],
        "decoder": params["decoder"]["name"],
        "precision": params["precision"]["dtype"],
        "method": params["precision"].get("method", CONVERT) if params["precision"]["dtype"] == "fp16" else "none",
        **(about_run().get("commit") or commit_of(folder)),
        "verdict": "crashed" if failed_stage else str(verify.get("verdict", "not verified")),
        "failed_stage": failed_stage or "none",
        "evaluation": str(verify.get("evaluation", "none")),
        "provider": str(verify.get("provider", "none")),
        "engine": str(engine.get("status", "none")),
        "engine_backend": str(engine.get("backend", "none")),
        "engine_provider": str(engine.get("provider", "none")),
        "engine_parity": str(engine_stage(reports)["state"]),
        "unmatched_selectors": ", ".join(map(str, reports.get("fp16", {}).get("unmatched_selectors", []))) or "none",
        "gpu": ", ".join(gpu["name"] for gpu in gpus) if gpus else "none",
        "tensorrt": str(probe.get("tensorrt") or "none") if probe else "none",
    }


def commit_of(folder: Path) -> dict[str, str]:
    """Tags with git's commit of a folder, and whether the code in it differs from that commit."""
    code = ("--", "conf", "pipeline", "stages", "truehalf")
    told = [_git(folder, "rev-parse", "HEAD"), _git(folder, "status", "--porcelain", *code)]
    if told[0] is None or told[1] is None:
        return {"git_commit": "none", "git_dirty": "unknown"}
    return {"git_commit": told[0], "git_dirty": str(bool(told[1])).lower()}


def _git(folder: Path, *arguments: str) -> str | None:
    """Output of git; None where it fails or is not installed."""
    try:
        done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
