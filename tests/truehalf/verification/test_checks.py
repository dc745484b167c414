"""The checks of a verification on hand-made facts: each state, and what it makes of the verdict."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.measuring.shipped import shipped
from tests.messages import expect
from truehalf.codes import codes_in
from truehalf.config.schema import GatesConfig
from truehalf.verification.checks import checks_of, failures, same_detections, sums_not_rounded, unmet
from truehalf.verification.metrics.detections import Detections, match
from truehalf.verification.reaction import Reactions

LIMITS = GatesConfig(**shipped("verify/detection")["gates"])
FINE = {"state": "verified", "reason": "fine"}
MEASURES = ("ap50_95_drop", "matched_fraction", "extra_fraction", "label_flips", "nonfinite")


def gate(measures: str, passed: bool | None = True, reason: str = "held") -> dict[str, Any]:
    return {"measures": measures, "passed": passed, "reason": reason}


def rows(
    gates: list[dict[str, Any]] | None = None, reacted: Reactions | None = None, **facts: Any
) -> dict[str, dict[str, Any]]:
    known = {"evaluation": "fp32-cpu", "not_split": {}, "batches": FINE, "adversarial": FINE}
    checks = checks_of(gates or [gate(name) for name in MEASURES], known | facts, reacted or Reactions())
    return {check["check"]: check for check in checks}


def found(*boxes: tuple[float, int, float]) -> Detections:
    """Boxes of 10 pixels by (left edge, label, score)."""
    corners = np.array([[left, 0, left + 10, 10] for left, _, _ in boxes], np.float32).reshape(-1, 4)
    labels = np.array([label for _, label, _ in boxes], np.int64)
    return Detections(corners, labels, np.array([score for _, _, score in boxes], np.float32))


def same(before: Detections, now: Detections) -> dict[str, Any]:
    return same_detections([match(before, now, 0.5, 0.9)], LIMITS)


def test_every_check_has_its_row() -> None:
    assert {name: row["state"] for name, row in rows().items()} == dict.fromkeys(
        ("detections", "average_precision", "batch", "adversarial", "reaction", "accumulation"), "verified"
    )
    assert rows()["detections"]["reason"] == "held; held; held"


def test_a_check_of_gates_fails_with_one_of_them_else_is_open_with_one() -> None:
    unknown = gate("extra_fraction", None, "extra_fraction was not verified: random weights")
    open_ = [gate("ap50_95_drop"), gate("matched_fraction"), unknown, gate("label_flips")]
    assert rows(open_)["detections"]["state"] == "not verified"
    failed = [gate("ap50_95_drop"), gate("matched_fraction"), unknown, gate("label_flips", False, "1 flip")]
    row = rows(failed)["detections"]
    assert (row["state"], row["reason"]) == ("failed", "1 flip")
    alone = [gate("ap50_95_drop", None, "ap50_95_drop was not verified: no labels"), gate("matched_fraction")]
    row = rows(alone)["average_precision"]
    assert (row["state"], row["reason"]) == ("not verified", "no labels")


@pytest.mark.parametrize(
    ("evaluation", "not_split", "state", "facts"),
    [
        ("fp32-cpu", {}, "verified", ["FP16"]),
        ("cuda", {}, "verified", ["CUDA"]),
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


def test_each_evaluation_that_verifies_the_sums_has_its_own_reason() -> None:
    evaluations = ("fp32-cpu", "cuda", "emulated-fp16-pessimistic")
    assert len({rows(evaluation=evaluation)["accumulation"]["reason"] for evaluation in evaluations}) == 3


def test_of_many_nodes_the_first_are_named_and_the_others_counted() -> None:
    said = sums_not_rounded({f"/n{i}": "why" for i in range(12)})
    expect(said, "sums-not-rounded", 12, *(f"/n{i}: why" for i in range(10)), 2)
    assert "/n10" not in said


def test_failed_checks_that_are_no_gates_speak_for_themselves() -> None:
    checks = rows([gate("matched_fraction", False), gate("ap50_95_drop")], batches={"state": "failed", "reason": "8"})
    assert failures(list(checks.values())) == ["batch: 8"]


def test_what_must_be_verified_and_is_open_is_said_and_what_failed_is_not_said_again() -> None:
    open_, failed = {"state": "not verified", "reason": "none here"}, {"state": "failed", "reason": "8"}
    checks = list(rows(adversarial=open_, batches=failed).values())
    (sentence,) = unmet(checks, ["adversarial", "batch", "detections"])
    expect(sentence, None, "verify.require", "adversarial", "none here")
    assert unmet(checks, []) == []


def test_the_same_detections() -> None:
    before = found((0, 1, 0.9), (50, 2, 0.8))
    assert same(before, before)["state"] == "verified"
    for now in (
        found((0, 1, 0.9)),  # one is lost
        found((0, 1, 0.9), (50, 2, 0.8), (90, 0, 0.7)),  # one is new
        found((0, 1, 0.9), (50, 0, 0.8)),  # one is another class
    ):
        assert same(before, now)["state"] == "failed"


def test_where_nothing_was_found_nothing_may_appear() -> None:
    nothing = found()
    assert same(nothing, nothing)["state"] == "verified"
    row = same(nothing, found((0, 1, 0.9)))
    assert (row["state"], row["reference"], row["extra"]) == ("failed", 0, 1)
    expect(row["reason"], None, 1)


@pytest.mark.parametrize(
    ("reacted", "state", "said"),
    [
        (Reactions(failures={"y": "still"}, unknown={"z": "unknown"}), "failed", "still"),
        (Reactions(unknown={"z": "unknown"}, open="alike"), "not verified", "unknown; alike"),
        (Reactions(open="alike"), "not verified", "alike"),
    ],
)
def test_whether_outputs_react(reacted: Reactions, state: str, said: str) -> None:
    row = rows(reacted=reacted)["reaction"]
    assert (row["state"], row["reason"]) == (state, said)
    assert failures([row]) == (["reaction: still"] if state == "failed" else [])
