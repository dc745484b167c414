"""The checks of a verification on hand-made facts: each state, and what it makes of the verdict."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.messages import expect
from truehalf.codes import coded, codes_in
from truehalf.ir.model_forms import ModelFile
from truehalf.verification.chain.stage import unmet
from truehalf.verification.findings import (
    FAILED,
    NOT_VERIFIED,
    VERIFIED,
    Finding,
    by_check,
    not_checked,
    open_of,
    reasons_of,
    verdict_of,
)
from truehalf.verification.open_file import OpenFile


def findings(evaluation: str = "fp32-cpu", **facts: Any) -> list[Finding]:
    runner: Any = SimpleNamespace(**{"provider": "any", "not_split": {}, "cpu_nodes": None} | facts)
    return OpenFile(ModelFile(Path("m.onnx")), evaluation, runner).findings()


def rows(**facts: Any) -> dict[str, dict[str, Any]]:
    return {row["check"]: row for row in by_check(findings(**facts))}


def test_a_check_fails_with_one_of_its_findings_else_is_open_with_one() -> None:
    held, failed = Finding("a", VERIFIED, "held"), Finding("a", FAILED, "1 flip")
    unknown = Finding("a", NOT_VERIFIED, "x was not verified: random weights", facts={"why": "random weights"})
    other = Finding("b", VERIFIED, "fine")

    def row(*own: Finding) -> tuple[str, str]:
        found, last = by_check([*own, other])
        assert (last["check"], last["state"]) == ("b", "verified")
        return found["state"], found["reason"]

    assert row(held, held) == ("verified", "held")
    assert row(held, unknown, failed) == ("failed", "1 flip")
    assert row(unknown, held, unknown) == ("not verified", "random weights")


def test_what_does_not_decide_leaves_the_verdict_and_is_said() -> None:
    held, failed = Finding("a", VERIFIED, "held"), Finding("c", FAILED, "8", decides=False)
    aside = Finding("b", NOT_VERIFIED, "aside [no-labels]", decides=False)
    deciding = Finding("b", NOT_VERIFIED, "open")
    assert verdict_of([held, aside]) == "passed" and reasons_of([held, aside]) == []
    assert verdict_of([aside]) == "not verified", "nothing was looked at that decides"
    assert verdict_of([held, aside, deciding]) == "not verified" and reasons_of([aside, deciding]) == ["open"]
    assert open_of([held, aside, deciding]) == ["open", aside.reason], "what decides comes first"
    assert verdict_of([held, failed, deciding]) == "failed" and reasons_of([deciding, failed]) == ["8", "open"]
    assert aside.as_dict()["codes"] == ["no-labels"]


def test_what_no_check_looks_at_is_said_and_what_explains_a_failure_is_said_first() -> None:
    held, failed, beside = Finding("a", VERIFIED), Finding("a", FAILED, "8"), not_checked("the engine")
    wide = not_checked("inputs are wide", explains=True)
    assert verdict_of([held, beside, wide]) == "passed" and reasons_of([held, beside, wide]) == []
    assert reasons_of([held, beside, failed, wide]) == ["inputs are wide", "8"]
    assert open_of([beside, held, beside]) == ["the engine"], "once"
    assert [row["check"] for row in by_check([held, beside])] == ["a"]


def test_gates_without_a_value_say_their_reason_once() -> None:
    gates = [Finding("a_b", NOT_VERIFIED, f"{name} was not verified: x", facts={"why": "x"}) for name in ("c", "d")]
    assert open_of(gates) == reasons_of(gates) == ["a b: x"]


@pytest.mark.parametrize(
    ("evaluation", "not_split", "state", "facts"),
    [
        ("fp32-cpu", {}, "verified", ["FP16"]),
        ("cuda", {}, "verified", ["cuda"]),
        ("emulated-fp16", {}, "not verified", ["FP16", "verify.evaluation=emulated-fp16-pessimistic"]),
        ("emulated-fp16-pessimistic", {}, "verified", ["FP16"]),
        ("emulated-fp16-pessimistic", {"/lrn": "LRN"}, "not verified", ["FP16", 1, "/lrn: LRN"]),
    ],
)
def test_accumulation_is_verified_only_where_every_sum_was_rounded_or_ran(
    evaluation: str, not_split: dict[str, str], state: str, facts: list[object]
) -> None:
    row = rows(evaluation=evaluation, not_split=not_split)["accumulation"]
    assert row["state"] == state and codes_in(row["reason"]) == ["sums-not-rounded"] * (state == "not verified")
    expect(row["reason"], None, *facts)


@pytest.mark.parametrize("evaluation", ["emulated-fp16", "emulated-fp16-pessimistic"])
def test_a_sum_of_more_terms_than_are_rounded_is_no_pass(evaluation: str) -> None:
    left = {"/lrn": "LRN", "/cumsum": coded("sums-not-rounded", "a sum of 5000 terms")}
    for not_split, decides in ((left, True), ({"/lrn": "LRN"}, False)):
        found = findings(evaluation=evaluation, not_split=not_split)
        assert [finding.decides for finding in found if finding.check == "accumulation"] == [decides]


def test_nodes_of_a_cuda_session_that_ran_on_the_cpu_are_said() -> None:
    assert open_of(findings(evaluation="cuda")) == []
    (said,) = open_of(findings(evaluation="cuda", cpu_nodes=[f"n{i} (Mul)" for i in range(12)]))
    expect(said, None, "CPU", "12 nodes", *(f"n{i} (Mul)" for i in range(10)), 2)
    assert "n10" not in said


def test_what_must_be_verified_and_is_open_is_said_and_what_failed_is_not_said_again() -> None:
    found = [Finding("detections", VERIFIED, "held"), Finding("batch", FAILED, "8")]
    found.append(Finding("adversarial", NOT_VERIFIED, "none here", decides=False))
    (finding,) = unmet(found, ["adversarial", "batch", "detections"])
    expect(finding.reason, None, "verify.require", "adversarial", "none here")
    assert finding.state == "failed" and unmet(found, []) == []
    (finding,) = unmet(found, ["classes"])
    expect(finding.reason, None, "classes")
