"""Record of a run in the tracking store: its parameters, metrics, texts and files.

A run that could not be logged is kept under runs/.pending until it is: a small copy of its workspace, with the words
that only the workspace knew.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pipeline.caveats import has_failed
from pipeline.engine import engine_metrics, engine_stage
from pipeline.forms import Params, Reports, names_of, of_stage
from pipeline.sweep.snapshot import SUBJECT, NoSnapshot, git
from pipeline.sweep.sweep import Sweep
from pipeline.workspace import STAGES, reports_of_run, write_params
from truehalf.config.params import read_params
from truehalf.config.precision import OF_CONVERT_ALONE, Method
from truehalf.files import remove, swap_in

CONVERT = Method.convert.value
PENDING = Path("runs") / ".pending"
_ABOUT = "record.json"
NO_EFFECT = "no effect"  # of a parameter, in place of its value
_ASIDE = ("tracking", "workspace", "search")  # of params: they change nothing that a run makes
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
        folder: with params.yaml, reports/ and artifacts/: the workspace, or what is kept of it.
        params: of params.yaml.
        reports: by stage, only of this run.
        failed_stage: the stage that crashed, if one did.
        tags: words for the filters of MLflow's UI.
        sweep: the id of the sweep that it is a job of.
    """

    folder: Path
    params: Params
    reports: Reports
    failed_stage: str | None
    tags: dict[str, str]
    sweep: str | None

    @property
    def digest(self) -> str:
        """The same run, logged again, has the same, wherever it worked and is logged."""
        params = {key: value for key, value in self.params.items() if key not in _ASIDE}
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
    sweep = Sweep.joined()
    words = tags(folder, params, reports, failed_stage)
    return Record(folder, params, reports, failed_stage, words, sweep.id if sweep else None)


def save_pending(record: Record, project: Path) -> Path:
    """Copy what is logged of a run, so that it can be logged when its workspace holds another; return the folder.

    Of one that is kept already, what this one says of tracking counts.
    """
    place = _place(record, project)
    if (place / _ABOUT).exists():
        write_params(place, record.params)
        return place
    building = place.with_name(f"{place.name}.partial")
    remove(building)
    for file in [*record.files, *record.model_files]:
        target = building / file.relative_to(record.folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, target)
    write_params(building, record.params)
    about = {"failed_stage": record.failed_stage, "tags": record.tags, "sweep": record.sweep}
    (building / _ABOUT).write_text(json.dumps(about, indent=2))
    swap_in(building, place)
    return place


def with_what_waits(record: Record, project: Path) -> Record:
    """A run that is to be registered, if that was asked for when it could not be logged."""
    place = _place(record, project)
    if not (place / _ABOUT).exists() or not read_params(place)["tracking"]["register"]:
        return record
    return replace(record, params={**record.params, "tracking": {**record.params["tracking"], "register": True}})


def pending_records(project: Path) -> list[Record]:
    """Runs that wait to be logged, oldest first."""
    places = [path.parent for path in (project / PENDING).glob(f"*/{_ABOUT}") if path.parent.suffix != ".partial"]
    found = []
    for place in sorted(places, key=lambda place: (place / _ABOUT).stat().st_mtime):
        about = json.loads((place / _ABOUT).read_text())
        reports = reports_of_run(place, about["failed_stage"])
        found.append(Record(place, read_params(place), reports, about["failed_stage"], about["tags"], about["sweep"]))
    return found


def move_pending(record: Record, project: Path) -> None:
    """Keep in a project what another workspace kept, as a whole or not at all. As with `save_pending`, what the later
    one says of tracking counts; that it is to be registered stays asked for.
    """
    place = project / PENDING / record.folder.name
    if (place / _ABOUT).exists():
        write_params(place, with_what_waits(record, project).params)
        return
    building = place.with_name(f"{place.name}.partial")
    remove(building)
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(record.folder, building)
    swap_in(building, place)


def delete_pending(record: Record, project: Path) -> None:
    """Remove what was kept of a run that is logged, at once or not at all."""
    place = _place(record, project)
    leaving = place.with_name(f"{place.name}.partial")
    shutil.rmtree(leaving, ignore_errors=True)
    with contextlib.suppress(FileNotFoundError):
        place.rename(leaving)
    shutil.rmtree(leaving, ignore_errors=True)


def _place(record: Record, project: Path) -> Path:
    """Where a run is kept until it is logged: one that goes to two servers or experiments waits for each by itself."""
    if record.folder.parent == project / PENDING:
        return record.folder
    tracking = record.params["tracking"]
    key = json.dumps([record.digest, tracking["uri_env"], tracking["experiment"]])
    return project / PENDING / hashlib.sha256(key.encode()).hexdigest()[:16]


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

    walk("", {key: value for key, value in params.items() if key not in _ASIDE})
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
    probe, sweep = reports.get("probe"), Sweep.joined()
    gpus = probe.get("gpus") if probe else None
    return {
        "model": params["model"]["name"],
        "decoder": params["decoder"]["name"],
        "precision": params["precision"]["dtype"],
        "method": params["precision"].get("method", CONVERT) if params["precision"]["dtype"] == "fp16" else "none",
        **(sweep.commit if sweep and sweep.commit else commit_of(folder)),
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


def commit_of(folder: Path, snapshot: str | None = None) -> dict[str, str]:
    """The commit that the code is from, of a snapshot that which it was made from, and whether the code differs.

    Args:
        folder: whose files are taken, as they are now.
        snapshot: of pipeline.sweep.snapshot; then what that commit has is taken.
    """
    code = ("--", "conf", "pipeline", "stages", "truehalf")
    revision = snapshot or "HEAD"
    try:
        commit, subject = git(folder, "rev-parse", revision), git(folder, "log", "-1", "--format=%s", revision)
        if subject.startswith(SUBJECT):
            commit = subject.removeprefix(SUBJECT)
            changed = git(folder, "diff", "--name-only", f"{revision}^", revision, *code)
        else:
            changed = "" if snapshot else git(folder, "status", "--porcelain", *code)
    except NoSnapshot:
        return {"git_commit": "none", "git_dirty": "unknown"}
    return {"git_commit": commit, "git_dirty": str(bool(changed)).lower()}
