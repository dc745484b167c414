"""Parts of a model: each node in one of them, those first that are most wrong for what they cost."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from tests.truehalf.verification.small_board import Double, bad
from truehalf.verification.pinning.meter import Meter
from truehalf.verification.pinning.ranking import Part, ranked

NODES = ["/enc/a/x", "/enc/a/y", "/enc/b/x", "/dec/x", "/dec/y", "top"]
WEIGHTS = dict(zip(NODES, (1.0, 8.0, 2.0, 3.0, 0.0, 0.5), strict=True))
COSTS = dict(zip(NODES, (10, 10, 100, 1, 1000, 10), strict=True))
FEEDS = {"x": np.zeros(1, np.float32)}


def additive(fp32: frozenset[str]) -> float:
    """Each node in FP16 adds its share."""
    return sum(weight for node, weight in WEIGHTS.items() if node not in fp32)


def of_board(board: Double, count: int, base: Sequence[str] = ()) -> list[Part]:
    return ranked(Meter(board, FEEDS, frozenset(base), bad), COSTS, count)  # type: ignore[arg-type]


def test_with_parts_enough_every_node_is_one_and_they_stand_by_error_for_cost() -> None:
    found = of_board(Double(NODES, additive), 100)
    assert [part.nodes for part in found] == [
        ("/dec/x",), ("/enc/a/y",), ("/enc/a/x",), ("top",), ("/enc/b/x",), ("/dec/y",)
    ]  # fmt: skip
    assert [(part.error, part.cost) for part in found][:2] == [(3.0, 1), (8.0, 10)]


@pytest.mark.parametrize("count", range(1, 8))
def test_each_node_that_is_not_in_the_base_is_in_one_part(count: int) -> None:
    found = of_board(Double(NODES, additive), count, base=["/enc/b/x"])
    assert sorted(node for part in found for node in part.nodes) == sorted(set(NODES) - {"/enc/b/x"})
    assert len(found) == min(count, 5)


def test_an_error_is_that_of_the_part_alone_in_fp16() -> None:
    board = Double(NODES, additive)
    found = of_board(board, 3)
    for part in found:
        assert part.error == sum(WEIGHTS[node] for node in part.nodes)
        assert frozenset(NODES).difference(part.nodes) in board.asked


def test_a_whole_module_is_pinned_by_its_scope_and_other_nodes_by_their_names() -> None:
    parts = of_board(Double(NODES, additive), 5)
    found = {part.nodes: part for part in parts}
    module, node = found["/enc/a/x", "/enc/a/y"], found["top",]
    assert (module.scope_block_list, module.node_block_list) == (["enc.a"], [])
    assert (node.scope_block_list, node.node_block_list) == ([], ["^top$"])


def test_what_overflows_alone_stands_first_and_is_parted_first() -> None:
    def overflows(fp32: frozenset[str]) -> float:
        return additive(fp32) if "/dec/y" in fp32 else math.nan

    found = of_board(Double(NODES, overflows), 4)
    assert found[0].nodes == ("/dec/y",) and math.isinf(found[0].error)
