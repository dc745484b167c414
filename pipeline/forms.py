"""JSON and YAML that stages leave, as far as the pipeline reads it: params.yaml and reports/<stage>.json.

A run may be of another version, and a stage may not have run: no key is there for certain.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NotRequired, TypeAlias, TypedDict, cast

from truehalf.engines.engine_report import EngineReport
from truehalf.report.forms import Fp16Report, ModelFacts, SlimReport
from truehalf.runtime.machine import Machine

if TYPE_CHECKING:
    from truehalf.provenance.fingerprints import SamplesPrint

# Of params.yaml: a section, and all of it; truehalf.config.schema.Config has the keys and their types.
Section: TypeAlias = dict[str, Any]
Params: TypeAlias = dict[str, Any]


class Baked(TypedDict, total=False):
    """Where Python decided while a model was traced."""

    installed: list[str]
    settled: list[str]
    inputs: list[str]


class StageReport(SlimReport, Fp16Report, total=False):
    """Of a stage that makes a file, or measures one; what only one stage says is optional."""

    stage: str
    reasons: list[str]
    seconds: float
    engine_mb: float
    notes: list[str]
    not_verified: list[str]
    baked: Baked
    casts_before: int
    casts_after: int


class Crash(TypedDict):
    """What ended a run, the content of reports/error.json."""

    stage: str
    message: str


class About(TypedDict, total=False):
    """What the programs of a run cannot read from its workspace.

    Attributes:
        overrides: of the command line.
        sweep: id of the sweep that the run is a job of.
        commit: tags of the project's commit, of a workspace without git.
    """

    overrides: list[str]
    sweep: str
    commit: dict[str, str]


class Outcome(TypedDict):
    """What came of logging a run, the content of reports/track.json.

    status: "logged", "already logged" or "not logged". registered: {"name", "version"} of the registered model.
    missing: what raised and is not there; a key only where something is.
    """

    status: str
    run_id: str | None
    experiment: str | None
    message: str
    registered: dict[str, str] | None
    missing: NotRequired[list[str]]


class Source(TypedDict, total=False):
    source: str
    left_out: dict[str, list[str]]


class Inputs(TypedDict, total=False):
    """reports/inputs.json, as far as it speaks of samples."""

    trace: SamplesPrint
    calibration: SamplesPrint
    verification: SamplesPrint
    data: Source


Verification: TypeAlias = Mapping[str, Any]  # truehalf.verification.report.Report.to_json


class Reports(TypedDict, total=False):
    """reports/<stage>.json by stage."""

    trace: StageReport
    slim: StageReport
    calibrate: StageReport
    fp16: StageReport
    cast_cleanup: StageReport
    verify: Verification
    engine: EngineReport
    probe: Machine
    inputs: Inputs


def of_stage(reports: Reports, stage: str) -> StageReport | None:
    """The report of any stage, with what all have in common; None where it has not run."""
    return cast("StageReport | None", reports.get(stage))


def model_of(report: StageReport | None) -> ModelFacts:
    """Facts of the file that a stage made; of an engine its size; none of a stage that has not run."""
    report = report or {}
    return report.get("model") or ({"size_mb": report["engine_mb"]} if "engine_mb" in report else {})


def names_of(params: Params) -> list[str]:
    """Model, decoder where one is chosen, precision and how it was made where that is not the default; of params.yaml
    what is there.
    """
    model, decoder, precision = (params.get(section, {}) for section in ("model", "decoder", "precision"))
    made = str(precision.get("dtype", ""))
    if made == "fp16" and precision.get("method", "convert") != "convert":
        made += f" by {precision['method']}"
    return [str(name) for name in (model.get("name"), decoder.get("name"), made) if name and name != "none"]
