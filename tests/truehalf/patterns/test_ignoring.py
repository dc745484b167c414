"""Findings that nobody wants to hear of."""

from __future__ import annotations

import dataclasses

import pytest

from tests.messages import expect, raises
from truehalf.patterns import RULES, Finding
from truehalf.patterns.ignoring import parse_ignores, split_ignored

FINDING = Finding("grid-sample", "warning", "/decoder/GridSample_1", "GridSample", "decoder.layers.0", "", "", "")
OTHER = dataclasses.replace(FINDING, rule="float64", node="/encoder/Cast", scope="encoder")


@pytest.mark.parametrize(
    ("entry", "taken"),
    [
        ("grid-sample", 1),
        ("grid-sample@GridSample_1$", 1),
        (r"grid-sample@layers\.0", 1),  # the scope
        ("grid-sample@encoder", 0),
        ("float64@decoder", 0),
        ("float64@^encoder$", 1),
    ],
)
def test_an_entry_takes_away_what_it_says(entry: str, taken: int) -> None:
    kept, counts = split_ignored([FINDING, OTHER], parse_ignores([entry], RULES))
    assert counts == {entry: taken} and len(kept) == 2 - taken


def test_every_entry_counts_what_it_matches() -> None:
    _, counts = split_ignored([FINDING, FINDING], parse_ignores(["grid-sample", "grid-sample@decoder"], RULES))
    assert counts == {"grid-sample": 2, "grid-sample@decoder": 2}


def test_all_faults_are_named_at_once() -> None:
    with raises("bad-syntax", "lint.ignore") as caught:
        parse_ignores(["grid-samples", "float64@(", "nothing-like-it"], RULES)
    meant, unreadable, unknown = str(caught.value).splitlines()[1:]
    expect(meant, None, "'grid-samples'", "'grid-sample'")
    expect(unreadable, None, "'float64@('", "position 0")  # of the regular expression
    expect(unknown, None, "'nothing-like-it'", *RULES)
    assert "float64" not in meant
