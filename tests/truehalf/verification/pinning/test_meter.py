"""Modules as a tree; errors, each measured once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.truehalf.verification.small_board import Double, bad
from truehalf.verification.pinning.meter import Meter, grouped

NODES = ["/enc/a/x", "/enc/a/y", "/enc/b/x", "/dec/x", "/dec/y", "top"]
WEIGHTS = dict(zip(NODES, (1.0, 8.0, 2.0, 3.0, 0.0, 0.5), strict=True))
FEEDS = {"x": np.zeros(1, np.float32)}


def additive(fp32: frozenset[str]) -> float:
    """Each node in FP16 adds its share."""
    return sum(weight for node, weight in WEIGHTS.items() if node not in fp32)


def test_modules_make_a_tree() -> None:
    whole = grouped(Double(NODES, additive))  # type: ignore[arg-type]
    assert (whole.scope, whole.nodes, whole.direct) == ("", tuple(NODES), ("top",))
    assert [part.scope for part in whole.inner] == ["enc", "dec"]
    assert [(part.scope, part.direct) for part in whole.inner[0].inner] == [
        ("enc.a", ("/enc/a/x", "/enc/a/y")),
        ("enc.b", ("/enc/b/x",)),
    ]


def test_a_module_that_holds_all_of_its_parent_is_passed_over() -> None:
    whole = grouped(Double(["/m/n/a/x", "/m/n/b/y"], additive))  # type: ignore[arg-type]
    assert [part.scope for part in whole.inner] == ["m.n.a", "m.n.b"]


def measured(board: Double, feeds: Any = FEEDS, base: Sequence[str] = ()) -> Meter:
    meter = Meter(board, feeds, frozenset(base), bad)  # type: ignore[arg-type]
    for node in NODES:
        meter.error([node])
    return meter


def test_what_was_measured_or_rounds_the_same_is_not_run_again() -> None:
    board = Double(NODES, additive)
    meter = measured(board, base=["/enc/a/y"])
    assert meter.error(["top"]) == 14.5 - 8.0 - 0.5
    assert meter.used == len(board.asked) == len(NODES), "the base alone is one of them"
    assert all("/enc/a/y" in asked for asked in board.asked)


def test_nan_counts_as_infinite() -> None:
    assert Meter(Double(NODES, lambda fp32: math.nan), FEEDS, frozenset(), bad).error(NODES) == math.inf  # type: ignore[arg-type]
