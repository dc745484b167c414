"""What nobody verified is said, and so is what the conversion warns of."""

from pipeline.caveats import failures, not_verified, parity, unmet, warnings
from tests.messages import expect

UNVERIFIED = {"status": "done", "seconds": 1.0, "parity": {"status": "not verified", "reason": "random weights"}}
REPORTS = {
    "trace": UNVERIFIED,
    "fp16": {"status": "done", "warnings": ["node_block_list: x matches no node"]},
    "verify": {"status": "done", "verdict": "not verified", "not_verified": ["detections: none"]},
    "engine": {"status": "built", "not_verified": ["the engine's outputs"], "tensorrt": "11", "engine_mb": 1.0},
}


def test_every_stage_is_heard() -> None:
    of_trace, *others = not_verified(REPORTS)
    expect(of_trace, None, "trace", "random weights")
    assert others == ["detections: none", "the engine's outputs"]
    assert warnings(REPORTS) == ["node_block_list: x matches no node"]
    (item,) = not_verified({})
    expect(item, "not-run", "verify")
    assert warnings({}) == []


def test_calibration_on_noise_is_warned_of_before_anything_else() -> None:
    noise = {"calibrate": {"status": "done", "warnings": ["calibrated on noise"]}}
    assert warnings(REPORTS | noise) == ["calibrated on noise", "node_block_list: x matches no node"]


def test_the_engines_own_word_takes_the_place_of_verifys() -> None:
    verify = {"not_verified": ["the TensorRT engine: this stage judges the ONNX file", "batch sizes other than 1"]}
    assert not_verified({"verify": verify}) == verify["not_verified"]
    engine = {"status": "planned", "reason": "no GPU", "not_verified": ["the engine: none was built: no GPU"]}
    assert not_verified({"verify": verify, "engine": engine}) == [
        "batch sizes other than 1",
        "the engine: none was built: no GPU",
    ]
    verified = {"status": "built", "parity": {"state": "verified"}, "not_verified": []}
    assert not_verified({"verify": verify, "engine": verified}) == ["batch sizes other than 1"]


def test_a_verified_engine_meets_what_was_required() -> None:
    required = {"verify": {"require": ["engine"]}}
    assert unmet(required, {"engine": {"status": "built", "parity": {"state": "verified"}}}) == []
    (said,) = unmet(
        required, {"engine": {"status": "built", "parity": {"state": "not verified", "reason": "no labels"}}}
    )
    expect(said, None, "verify.require", "engine", "no labels")


def test_the_stage_table_says_what_is_known_of_an_engine() -> None:
    assert parity("engine", {"engine": {"status": "planned", "reason": "no GPU"}}) == ""
    for state in ("verified", "failed", "not verified"):
        engine = {"status": "failed" if state == "failed" else "built", "parity": {"state": state, "reason": "x"}}
        assert parity("engine", {"engine": engine}) == state


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
