"""What is said of suggested pins, by what a file converted with them does."""

from __future__ import annotations

from typing import Any

import pytest

from tests.messages import expect
from truehalf.codes import codes_in
from truehalf.verification.pinning.pins import confirmation, why_none_needed


def gate(name: str, passed: bool | None) -> dict[str, Any]:
    return {"gate": name, "passed": passed}


@pytest.mark.parametrize(
    ("verdict", "reasons", "gates", "facts"),
    [
        ("passed", [], [gate("a_max", True), gate("b_max", True)], []),
        (
            "not verified",
            ["b was not verified"],
            [gate("a_max", True), gate("b_max", None), gate("c_min", None)],
            ["b_max, c_min"],
        ),
        ("not verified", ["random"], [gate("a_max", None)], []),
        ("failed", ["b is 1", "more"], [gate("b_max", False)], ["b is 1"]),
        (None, ["model.onnx"], [], ["model.onnx"]),
    ],
)
def test_a_confirmation_claims_no_more_than_was_measured(
    verdict: str | None, reasons: list[str], gates: list[dict[str, Any]], facts: list[str]
) -> None:
    sentence = confirmation({"verdict": verdict, "reasons": reasons, "gates": gates})
    assert codes_in(sentence) == {"passed": ["pins-hold"], "not verified": ["pins-open"]}.get(str(verdict), [])
    expect(sentence, None, *facts)
    assert "a_max" not in sentence and "more" not in sentence


def test_a_search_that_rounds_less_than_the_run_that_failed_says_so() -> None:
    plain = why_none_needed("emulated-fp16").format(where="here")
    expect(plain, None, "here")
    assert "emulated-fp16" not in plain
    said = why_none_needed("emulated-fp16-pessimistic").format(where="the worst 4 samples")
    expect(said, None, "the worst 4 samples", "emulated-fp16-pessimistic")
