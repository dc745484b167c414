"""What is said of suggested pins, by what a file converted with them does."""

from __future__ import annotations

import pytest

from tests.messages import expect
from truehalf.codes import codes_in
from truehalf.verification.chain.failing import confirmation
from truehalf.verification.findings import FAILED, NOT_VERIFIED, VERIFIED, Finding


def gate(name: str, passed: bool | None, reason: str = "") -> Finding:
    state = {True: VERIFIED, False: FAILED, None: NOT_VERIFIED}[passed]
    return Finding("detections", state, reason, facts={"gate": name})


@pytest.mark.parametrize(
    ("codes", "found", "facts"),
    [
        (["pins-hold"], [gate("a_max", True), gate("b_max", True)], []),
        (["pins-open"], [gate("a_max", True), gate("b_max", None), gate("c_min", None)], ["b_max, c_min"]),
        (["pins-open"], [gate("b_max", None)], ["b_max"]),
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
