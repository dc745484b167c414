"""The gate's exit code."""

from pipeline.gate import failures
from tests.messages import expect

DONE = {"verify": {"status": "done"}, "engine": {"status": "planned", "reason": "no GPU"}}


def test_passed_and_planned_is_no_failure() -> None:
    assert failures(DONE, {}) == []


def test_failed_verify_and_failed_engine_are_named() -> None:
    failed = {
        "verify": {"status": "failed", "reasons": ["AP fell", "NaN"]},
        "engine": {"status": "failed", "reason": "no GPU"},
    }
    assert failures(failed, {}) == ["verify: AP fell", "verify: NaN", "engine: no GPU"]


def test_each_reason_of_a_failed_engine_is_named() -> None:
    engine = {"status": "failed", "reason": "a; b", "reasons": ["a", "b"], "parity": {"state": "failed", "reason": "b"}}
    assert failures(DONE | {"engine": engine}, {}) == ["engine: a", "engine: b"]


def test_a_missing_report_is_a_failure() -> None:
    (reason,) = failures({"engine": DONE["engine"]}, {})
    expect(reason, "file-missing", "verify", "reports/verify.json")


def test_what_had_to_be_verified_and_was_not_is_a_failure() -> None:
    required = {"verify": {"require": ["engine", "trace", "slim", "batch"]}}
    reports = DONE | {
        "trace": {"parity": {"status": "not verified", "reason": "random weights"}},
        "slim": {"parity": {"status": "verified"}},
    }
    of_engine, of_trace = failures(reports, required)
    expect(of_engine, "no-engine", "verify.require", "engine", "no GPU")
    expect(of_trace, None, "verify.require", "trace", "random weights")
    assert failures(reports, {"verify": {"require": []}}) == []
