"""The gate's exit code."""

from pipeline.gate import failures

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
    assert failures({"engine": DONE["engine"]}, {}) == ["verify: reports/verify.json is missing or broken"]


def test_what_had_to_be_verified_and_was_not_is_a_failure() -> None:
    required = {"verify": {"require": ["engine", "trace", "slim", "batch"]}}
    reports = DONE | {
        "trace": {"parity": {"status": "not verified", "reason": "random weights"}},
        "slim": {"parity": {"status": "verified"}},
    }
    assert failures(reports, required) == [
        "verify.require names engine, and it was not verified: no engine was built: no GPU",
        "verify.require names trace, and it was not verified: random weights",
    ]
    assert failures(reports, {"verify": {"require": []}}) == []
