"""What nobody verified is said, and so is what the conversion warns of."""

import re

from pipeline.caveats import not_verified, parity, unmet, warnings
from pipeline.summary import print_summary
from tests.configurations import composed
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
    assert warnings({"engine": {"precision": {"warnings": ["few nodes are FP16"]}}}) == ["few nodes are FP16"]


def test_calibration_on_noise_is_warned_of_before_anything_else() -> None:
    noise = {"calibrate": {"status": "done", "warnings": ["calibrated on noise"]}}
    assert warnings(REPORTS | noise) == ["calibrated on noise", "node_block_list: x matches no node"]


def test_the_table_shows_not_verified_and_never_passed(capsys) -> None:  # type: ignore[no-untyped-def]
    print_summary(composed(), REPORTS, None)
    printed = capsys.readouterr().out
    assert "passed" not in printed and printed.count("not verified") >= 5
    assert "WARNING: node_block_list: x matches no node" in printed
    assert "slim" in printed and "not run" in printed
    assert re.search(r"engine .* built .* 1\.00 │\n", printed), "the engine's size stands in its row"


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
