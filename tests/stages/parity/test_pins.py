"""What is said of suggested pins, by what a file converted with them does."""

from __future__ import annotations

from typing import Any

import pytest

from stages.parity.pins import confirmation, why_none_needed


def gate(name: str, passed: bool | None) -> dict[str, Any]:
    return {"gate": name, "passed": passed}


@pytest.mark.parametrize(
    ("verdict", "reasons", "gates", "said"),
    [
        ("passed", [], [gate("a_max", True), gate("b_max", True)], "holds the gates on all samples. They were not"),
        (
            "not verified",
            ["b was not verified"],
            [gate("a_max", True), gate("b_max", None), gate("c_min", None)],
            "holds on all samples the gates that had a value; b_max, c_min had none.",
        ),
        ("not verified", ["random"], [gate("a_max", None)], "is open: none had a value"),
        ("failed", ["b is 1, expected at most 0", "more"], [gate("b_max", False)], "fails on all samples: b is 1, exp"),
        (None, ["the file cannot be loaded"], [], "could not be verified: the file cannot be loaded"),
    ],
)
def test_a_confirmation_claims_no_more_than_was_measured(
    verdict: str | None, reasons: list[str], gates: list[dict[str, Any]], said: str
) -> None:
    sentence = confirmation({"verdict": verdict, "reasons": reasons, "gates": gates})
    assert said in sentence
    assert ("holds the gates" in sentence and "is open" not in sentence) is (verdict == "passed")


def test_a_search_that_rounds_less_than_the_run_that_failed_says_so() -> None:
    assert "does not show there" in why_none_needed("emulated-fp16").format(where="here")
    said = why_none_needed("emulated-fp16-pessimistic").format(where="the worst 4 samples")
    assert "so the worst 4 samples hold the gates" in said and said.endswith("by evaluation emulated-fp16-pessimistic.")
