"""Caveats of a run beside its numbers: why it fails, files verified and not, selectors that matched nothing."""

from __future__ import annotations

from pipeline.engine import engine_stage, was_made
from pipeline.forms import Params, Reports, StageReport, of_stage
from truehalf.codes import coded, codes_in
from truehalf.report.forms import StageNumbers

_NOT_VERIFYS = "the TensorRT engine: "  # verify leaves it to the engine stage, whose verdict counts once there is one


def _report(stage: str, reports: Reports) -> StageReport:
    return of_stage(reports, stage) or {}


def parity(stage: str, reports: Reports) -> str:
    """What is known of a stage's file: compared with torch (trace), its source (slim), or the reference (verify)."""
    verify = reports.get("verify", {})
    if (report := of_stage(reports, stage)) is None:
        return ""
    if stage == "cast_cleanup":
        return str(verify.get("verdict", "not verified"))
    if stage == "fp16":
        measured: StageNumbers = verify.get("stages", {}).get("fp16", {})
        shares = (measured.get("matched_fraction"), "matched"), (measured.get("top1_agreement"), "same class")
        for share, text in shares:
            if share is not None:
                return f"{100 * share:.2f} % {text}"
        return "not verified"
    if stage == "engine":
        return str(engine_stage(reports)["state"]) if was_made(reports["engine"]) else ""
    return str(report.get("parity", {}).get("status", ""))


def not_verified(reports: Reports) -> list[str]:
    """What was not verified and why, from every stage that says so; never empty of a reason."""
    items = []
    for stage in ("trace", "slim"):
        parity = _report(stage, reports).get("parity", {})
        if parity.get("status") == "not verified":
            items.append(f"{stage}: {parity.get('reason', 'no reason given')}")
    items += [f"trace: {note}" for note in _report("trace", reports).get("notes", []) if codes_in(note)]
    if "verify" not in reports:
        items.append(coded("not-run", "the final file: verify has not run"))
    engine = _report("engine", reports).get("not_verified")
    caveats = _report("verify", reports).get("not_verified", [])
    items += [item for item in caveats if engine is None or not item.startswith(_NOT_VERIFYS)]
    return items + list(engine or [])


def decided(reports: Reports) -> list[str]:
    """Where Python decided while the model was traced, with file and line, and nothing is open: outputs agreed."""
    baked = reports.get("trace", {}).get("baked", {})
    places = [("in a package", place) for place in baked.get("installed", [])]
    places += [("settled", place) for place in baked.get("settled", [])]
    return [f"{place} ({where})" for where, place in places]


def warnings(reports: Reports) -> list[str]:
    """What slim left out; what calibration warns of: samples of noise; the conversion: entries that match no node (a
    typo, most likely), opsets, outputs not finite.
    """
    slim = [f"slim: {why}"] if (why := _report("slim", reports).get("failed")) else []
    return [*slim, *reports.get("calibrate", {}).get("warnings", []), *reports.get("fp16", {}).get("warnings", [])]


def failures(reports: Reports, params: Params) -> list[str]:
    """Why the run fails: a line for each reason of a failed stage, and for each thing that had to be verified and was
    not; empty when it does not fail.
    """
    found = []
    for stage in ("verify", "engine"):
        report = of_stage(reports, stage)
        if report is None:
            found.append(coded("file-missing", f"{stage}: reports/{stage}.json is missing or broken"))
        elif report.get("status") == "failed":
            found += [f"{stage}: {reason}" for reason in report.get("reasons") or [report.get("reason", "failed")]]
    return found + unmet(params, reports)


def has_failed(reports: Reports, params: Params) -> bool:
    """Whether verify or the engine says so, or what had to be verified was not."""
    states = [_report(stage, reports).get("status") for stage in ("verify", "engine")]
    return "failed" in states or bool(unmet(params, reports))


def unmet(params: Params, reports: Reports) -> list[str]:
    """What verify.require names, another stage than verify had to verify, and did not; verify fails by itself."""
    reasons = {name: _open(name, reports) for name in params.get("verify", {}).get("require", [])}
    return [
        f"verify.require names {name}, and it was not verified: {reason}" for name, reason in reasons.items() if reason
    ]


def _open(name: str, reports: Reports) -> str | None:
    """Why a stage beside verify did not verify its file; None where it did, or where verify answers for it."""
    if name == "engine":
        measured = engine_stage(reports)
        return None if measured["state"] == "verified" else measured["reason"]
    if name not in ("trace", "slim"):
        return None
    parity = _report(name, reports).get("parity", {})
    if parity.get("status") == "verified":
        return None
    return str(parity.get("reason") or f"the report of {name} does not say so")
