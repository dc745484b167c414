"""Record of one run: the only reader of params.yaml, reports/ and artifacts/ after the stages.

Terminal, page, metrics.json, MLflow and the difference of two runs are drawn from `Run` and from its figures
(pipeline/figures.py).
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

from truehalf.calibration.calibrate_report import CalibrateReport
from truehalf.codes import coded, codes_in
from truehalf.config.params import COMPOSED, read_composed, read_params
from truehalf.config.precision import Method
from truehalf.conversion.report import CastsReport, Decision, Fp16Report
from truehalf.engines.engine_report import EngineReport
from truehalf.errors import StageError
from truehalf.exporting.trace_report import TraceReport
from truehalf.provenance.inputs_report import InputsReport
from truehalf.report.engine import state_of
from truehalf.slimming.slim_report import SlimReport
from truehalf.verification.stage_numbers import VerifyReport

STAGES = ("trace", "slim", "calibrate", "fp16", "cast_cleanup", "reference", "verify", "engine")
PASSED, FAILED, NOT_VERIFIED, CRASHED = "passed", "failed", "not verified", "crashed"
ASIDE = ("tracking", COMPOSED)  # sections of params.yaml that change nothing a run makes
FINAL = Path("artifacts", "cast_cleanup", "model.onnx")
_LEFT_TO_ENGINE = "the TensorRT engine: "  # caveat of verify that the engine stage's own report replaces


@dataclass(frozen=True)
class Crash:
    """Stage that ended a run, its message and exit code (2: bad input): reports/error.json."""

    stage: str
    message: str
    exit_code: int = 1


@dataclass(frozen=True)
class StageFacts:
    """Facts that every report has: status, reason, seconds, and counts of the model file that the stage made."""

    status: str = "done"
    reason: str = ""
    seconds: float | None = None
    model: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Reports:
    """reports/<stage>.json, read; None where a stage has not run in this run, or its file is broken."""

    inputs: InputsReport | None = None
    trace: TraceReport | None = None
    slim: SlimReport | None = None
    calibrate: CalibrateReport | None = None
    fp16: Fp16Report | None = None
    cast_cleanup: CastsReport | None = None
    verify: VerifyReport | None = None
    engine: EngineReport | None = None


@dataclass(frozen=True)
class Run:
    """One run.

    Attributes:
        folder: a workspace, or a folder of runs/.
        params: content of params.yaml but its section `composed`; {} where it is missing or broken.
        json: reports/<stage>.json by stage; of a run that crashed those from before the crash.
        crash: None where no stage ended the run with an error.
        overrides: arguments of the command line that composed params.yaml.
    """

    folder: Path
    params: dict[str, Any]
    json: dict[str, dict[str, Any]] = field(default_factory=dict)
    crash: Crash | None = None
    overrides: tuple[str, ...] = ()

    @classmethod
    def read(cls, folder: Path) -> Run:
        """Read the run of a workspace or of a folder of runs/, whatever of it is there."""
        params: dict[str, Any] = {}
        overrides: tuple[str, ...] = ()
        with contextlib.suppress(StageError):
            params = read_params(folder)
            overrides = tuple((read_composed(folder) or {}).get("overrides", ()))
        error = read_json_or_none(folder / "reports" / "error.json")
        crash = None if error is None else Crash(**error)
        stages = ["inputs", *STAGES]
        if crash is not None:  # what later stages left is of an earlier run
            stages = stages[: stages.index(crash.stage)] if crash.stage in stages else []
        reports = {stage: read_json_or_none(folder / "reports" / f"{stage}.json") for stage in stages}
        return cls(
            folder, params, {stage: report for stage, report in reports.items() if report is not None}, crash, overrides
        )

    @functools.cached_property
    def reports(self) -> Reports:
        types = {name: get_args(union)[0] for name, union in get_type_hints(Reports).items()}  # of `Report | None`
        return Reports(**{stage: types[stage].from_json(self.json[stage]) for stage in types if stage in self.json})

    @functools.cached_property
    def stages(self) -> dict[str, StageFacts]:
        """Facts by stage, of the stages that ran."""
        names = [each.name for each in fields(StageFacts)]
        ran = {stage: self.json[stage] for stage in STAGES if stage in self.json}
        return {
            stage: StageFacts(**{name: report[name] for name in names if report.get(name) is not None})
            for stage, report in ran.items()
        }

    def model_facts(self, stage: str) -> Mapping[str, Any]:
        """Counts of the file that a stage made; {} where it made none."""
        return self.stages[stage].model if stage in self.stages else {}

    # --- verdict ------------------------------------------------------------------------------------------------------

    @functools.cached_property
    def verdict(self) -> str:
        """PASSED, FAILED, NOT_VERIFIED or CRASHED."""
        if self.crash:
            return CRASHED
        if self.failures or self.reports.verify is None:
            return FAILED
        return str(self.reports.verify.verdict)

    @property
    def has_failed(self) -> bool:
        """True for FAILED and CRASHED: no file is delivered, and the exit code is 1."""
        return self.verdict in (FAILED, CRASHED)

    @property
    def reasons(self) -> list[str]:
        """Reasons of the verdict; [] where the run passed."""
        if self.crash:
            return [self.crash.message]
        if self.failures or self.reports.verify is None:
            return self.failures
        return [] if self.verdict == PASSED else list(self.reports.verify.reasons)

    @functools.cached_property
    def failures(self) -> list[str]:
        """A line for each reason of a failed verify or engine, and for each entry of verify.require that is open."""
        lines = []
        for stage in ("verify", "engine"):
            report = self.json.get(stage)
            if report is None:
                lines.append(coded("file-missing", f"{stage}: reports/{stage}.json is missing or broken"))
            elif report.get("status") == FAILED:
                lines += [f"{stage}: {reason}" for reason in report.get("reasons") or [report.get("reason", FAILED)]]
        return lines + self.unmet

    @property
    def unmet(self) -> list[str]:
        """Entries of verify.require that another stage than verify had to verify, and did not."""
        required = self.params.get("verify", {}).get("require", [])
        reasons = {name: self._unverified_reason(name) for name in required}
        return [
            f"verify.require names {name}, and it was not verified: {reason}"
            for name, reason in reasons.items()
            if reason is not None
        ]

    def _unverified_reason(self, name: str) -> str | None:
        """Reason why trace, slim or engine is not verified; None where it is, and for what verify judges itself."""
        if name == "engine":
            state, reason = self.engine_state
            return None if state == "verified" else reason
        if name not in ("trace", "slim"):
            return None
        parity = self.json.get(name, {}).get("parity") or {}
        if parity.get("status") == "verified":
            return None
        return str(parity.get("reason") or f"reports/{name}.json does not say so")

    @functools.cached_property
    def engine_state(self) -> tuple[str, str]:
        """("verified" | "failed" | "not verified", reason) of the engine."""
        return state_of(self.reports.engine)

    @functools.cached_property
    def not_verified(self) -> list[str]:
        """A line for everything that no stage verified, with its reason."""
        lines = []
        for stage in ("trace", "slim"):
            parity = self.json.get(stage, {}).get("parity") or {}
            if parity.get("status") == NOT_VERIFIED:
                lines.append(f"{stage}: {parity.get('reason', 'no reason given')}")
        trace, verify, engine = self.reports.trace, self.reports.verify, self.reports.engine
        lines += [f"trace: {note}" for note in (trace.notes if trace else None) or [] if codes_in(note)]
        if verify is None:
            lines.append(coded("not-run", "the final file: verify has not run"))
        engine_gaps = None if engine is None else engine.not_verified
        caveats = [] if verify is None else verify.not_verified
        lines += [each for each in caveats if engine_gaps is None or not each.startswith(_LEFT_TO_ENGINE)]
        return lines + list(engine_gaps or [])

    @property
    def warnings(self) -> list[str]:
        """Warnings of slim, calibrate and fp16: steps left out, samples of noise, list entries that match no node."""
        reports = self.reports
        slim_failure = reports.slim.failed if reports.slim else None
        return [
            *([f"slim: {slim_failure}"] if slim_failure else []),
            *((reports.calibrate.warnings if reports.calibrate else None) or []),
            *((reports.fp16.warnings if reports.fp16 else None) or []),
        ]

    # --- names --------------------------------------------------------------------------------------------------------

    @property
    def names(self) -> list[str]:
        """Model, decoder where one is chosen, precision and how it was made where that is not the default."""
        model, decoder, precision = (self.params.get(section, {}) for section in ("model", "decoder", "precision"))
        made = str(precision.get("dtype", ""))
        method = precision.get("method", Method.convert.value)
        if made == "fp16" and method != Method.convert.value:
            made += f" by {method}"
        return [str(name) for name in (model.get("name"), decoder.get("name"), made) if name and name != "none"]

    @property
    def title(self) -> str:
        return " · ".join(self.names) or "truehalf"

    @property
    def name(self) -> str:
        """Model, decoder and precision, such as ltdetr_nano-dfine-fp16 or onnx-fp16-half."""
        return "-".join(self.names).replace(" by ", "-")

    @property
    def slug(self) -> str:
        """Name of the run's folder in runs/: its name and a digest of all parameters but those of ASIDE."""
        content = json.dumps({key: value for key, value in self.params.items() if key not in ASIDE}, sort_keys=True)
        return f"{self.name}-{hashlib.sha256(content.encode()).hexdigest()[:8]}"

    @property
    def model_digest(self) -> str:
        """SHA-256 that says which model this is (reports/inputs.json); "" where the stage inputs has not run."""
        return self.reports.inputs.model.get("sha256", "") if self.reports.inputs else ""

    # --- artifacts ----------------------------------------------------------------------------------------------------

    @functools.cached_property
    def decisions(self) -> list[Decision] | None:
        """Rows of decisions.json; None where fp16 has not run."""
        rows: list[Decision] | None = self._artifact("fp16", "decisions.json")
        return rows

    @functools.cached_property
    def spec(self) -> dict[str, Any] | None:
        """I/O spec of the model, as trace has written it."""
        return self._mapping("trace", "io_spec.json")

    @functools.cached_property
    def verdict_file(self) -> dict[str, Any]:
        """Content of artifacts/verify/verdict.json; {} where verify has not run."""
        return self._mapping("verify", "verdict.json") or {}

    @functools.cached_property
    def details(self) -> dict[str, Any]:
        """Content of artifacts/verify/details.json: samples, images; {} where verify has not run."""
        return self._mapping("verify", "details.json") or {}

    @functools.cached_property
    def outline(self) -> dict[str, Any] | None:
        """Outline of the final file's graph, as verify has written it."""
        return self._mapping("verify", "graph.json")

    @property
    def model_files(self) -> list[Path]:
        """Final ONNX file and its external data; [] where none was made."""
        if "cast_cleanup" not in self.json:
            return []
        final = self.folder / FINAL
        return [file for file in (final, final.with_name(f"{final.name}.data")) if file.exists()]

    @property
    def page(self) -> Path:
        return self.folder / "reports" / "report.html"

    @property
    def files(self) -> list[Path]:
        """Files to keep and to log: reports, spec, decisions, verdict, plots and the page."""
        verify = self.folder / "artifacts" / "verify"
        files = [self.folder / "reports" / f"{stage}.json" for stage in self.json]
        files += [self.folder / "artifacts/trace/io_spec.json"] if "trace" in self.json else []
        files += [self.folder / "artifacts/fp16/decisions.json"] if "fp16" in self.json else []
        if "verify" in self.json:
            files += [verify / "verdict.json", verify / "details.json", *sorted((verify / "plots").glob("*"))]
        return [file for file in (*files, self.page) if file.is_file()]

    def _artifact(self, stage: str, file: str) -> Any:
        return read_json_or_none(self.folder / "artifacts" / stage / file) if stage in self.json else None

    def _mapping(self, stage: str, file: str) -> dict[str, Any] | None:
        content = self._artifact(stage, file)
        return content if isinstance(content, dict) else None


# --- parameters -------------------------------------------------------------------------------------------------------


def flat_params(params: Mapping[str, Any]) -> dict[str, str]:
    """Parameters by dotted key, but those of ASIDE; texts as they are, other values as JSON."""
    flat: dict[str, str] = {}

    def walk(prefix: str, value: Any) -> None:
        if isinstance(value, Mapping) and value:
            for key, item in value.items():
                walk(f"{prefix}.{key}" if prefix else str(key), item)
        else:
            flat[prefix] = value if isinstance(value, str) else json.dumps(value)

    walk("", {key: value for key, value in params.items() if key not in ASIDE})
    return flat


def read_json_or_none(path: Path) -> Any:
    """Content of a JSON file; None where it is missing or broken."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError, ValueError):
        return json.loads(path.read_text(encoding="utf-8"))
    return None
