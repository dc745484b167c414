"""What is said of suggested pins, by what a file converted with them does."""

from __future__ import annotations

import pytest

from tests.messages import expect
from truehalf.codes import codes_in
from truehalf.verification.findings import FAILED, NOT_VERIFIED, VERIFIED, Finding
from truehalf.verification.pinning.pins import confirmation, why_none_needed


def gate(name: str, passed: bool | None, reason: str = "") -> Finding:
    state = {True: VERIFIED, False: FAILED, None: NOT_VERIFIED}[passed]
    return Finding("detections", state, reason, facts={"gate": name})


@pytest.mark.parametrize(
    ("codes", "found", "facts"),
    [
        (["pins-hold"], [gate("a_max", True), gate("b_max", True)], []),
        (["pins-open"], [gate("a_max", True), gate("b_max", None), gate("c_min", None)], ["b_max, c_min"]),
        (["pins-open"], [gate("a_max", None)], []),
        ([], [gate("b_max", False, "b is 1"), gate("c_max", False, "more")], ["b is 1"]),
    ],
)
def test_a_confirmation_claims_no_more_than_was_measured(
    codes: list[str], found: list[Finding], facts: list[str]
) -> None:
    sentence = confirmation(found)
    assert codes_in(sentence) == codes
    expect(sentence, None, *facts)
    assert "a_max" not in sentence and "more" not in sentence


def test_a_search_that_rounds_less_than_the_run_that_failed_says_so() -> None:
    plain = why_none_needed("emulated-fp16").format(where="here")
    expect(plain, None, "here")
    assert "emulated-fp16" not in plain
    said = why_none_needed("emulated-fp16-pessimistic").format(where="the worst 4 samples")
    expect(said, None, "the worst 4 samples", "emulated-fp16-pessimistic")
