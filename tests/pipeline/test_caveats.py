"""What nobody verified is said, and so is what the conversion warns of."""

from pipeline.caveats import engine_hop, not_verified, warnings
from pipeline.summary import print_summary
from tests.conftest import composed

UNVERIFIED = {"status": "done", "seconds": 1.0, "parity": {"status": "not verified", "reason": "random weights"}}
REPORTS = {
    "trace": UNVERIFIED,
    "fp16": {"status": "done", "warnings": ["node_block_list: x matches no node"]},
    "verify": {"status": "done", "verdict": "not verified", "not_verified": ["detections: none"]},
    "engine": {"status": "built", "not_verified": ["the engine's outputs"], "tensorrt": "11", "engine_mb": 1.0},
}


def test_every_stage_is_heard() -> None:
    assert not_verified(REPORTS) == ["trace: random weights", "detections: none", "the engine's outputs"]
    assert warnings(REPORTS) == ["node_block_list: x matches no node"]
    assert not_verified({}) == ["the final file: verify has not run"] and warnings({}) == []


def test_the_table_shows_not_verified_and_never_passed(capsys) -> None:  # type: ignore[no-untyped-def]
    print_summary(composed(), REPORTS, None)
    printed = capsys.readouterr().out
    assert "passed" not in printed and printed.count("not verified") >= 5
    assert "WARNING: node_block_list: x matches no node" in printed
    assert "slim" in printed and "not run" in printed


def test_the_engine_has_its_line_in_every_state() -> None:
    for reports, reason in (
        ({}, "the engine stage has not run"),
        ({"engine": {"status": "planned", "reason": "no GPU"}}, "no engine was built: no GPU"),
        ({"engine": {"status": "refused", "reason": "it failed verify"}}, "no engine was built: it failed verify"),
        (REPORTS, "the engine's outputs"),
    ):
        assert engine_hop(reports) == {"state": "not verified", "reason": reason}
