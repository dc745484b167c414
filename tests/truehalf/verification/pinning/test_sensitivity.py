"""Sensitivity: modules before nodes, the worst first, within a budget, resumed from a file."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

from tests.messages import raises
from tests.truehalf.verification.small_board import Double, bad
from truehalf.verification.pinning.sensitivity import grouped, sensitivity
from truehalf.verification.pinning.switchboard import Switchboard

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


def test_everything_is_measured_modules_first_and_the_worst_module_opened_first() -> None:
    board = Double(NODES, additive)
    found = sensitivity(board, FEEDS, [], bad, runs=100)  # type: ignore[arg-type]
    assert (found.base_error, found.all_fp32_error, found.complete) == (14.5, 0.0, True)
    groups = [(row["group"], row["error_removed"]) for row in found.rows if "group" in row]
    assert groups == [("enc", 11.0), ("dec", 3.0), ("enc.a", 9.0), ("enc.b", 2.0)]
    nodes = {row["node"]: row["error_removed"] for row in found.rows if "node" in row}
    assert nodes == WEIGHTS
    assert list(nodes)[:2] == ["/enc/a/x", "/enc/a/y"]
    assert [row["runs"] for row in found.rows] == [3, 4, 5, 6, 7, 8, 8, 9, 10, 11]  # enc.b is one node
    assert found.runs == len(board.asked) == 11
    assert [next(iter(row.values())) for row in found.worst(3)] == ["enc", "enc.a", "/enc/a/y"]


def test_the_base_stays_and_its_nodes_are_not_measured() -> None:
    board = Double(NODES, additive)
    found = sensitivity(board, FEEDS, ["/enc/a/y"], bad, runs=100)  # type: ignore[arg-type]
    assert found.base_error == 6.5
    assert all("/enc/a/y" in asked for asked in board.asked)
    assert not any(row.get("node") == "/enc/a/y" for row in found.rows)
    assert next(row["nodes"] for row in found.rows if row.get("group") == "enc") == 2


def test_a_budget_goes_half_to_modules_and_then_to_the_nodes_of_the_worst() -> None:
    board = Double(NODES, additive)
    found = sensitivity(board, FEEDS, [], bad, runs=8)  # type: ignore[arg-type]
    assert (found.runs, found.complete, len(board.asked)) == (8, False, 8)
    assert [next(iter(row.values())) for row in found.rows] == [
        "enc", "dec", "enc.a", "/enc/a/x", "/enc/a/y", "/enc/b/x"
    ]  # fmt: skip
    with raises("out-of-range", 2, 1):
        sensitivity(board, FEEDS, [], bad, runs=1)  # type: ignore[arg-type]


def test_what_stays_infinite_removes_nothing_and_nan_counts_as_infinite() -> None:
    def formula(fp32: frozenset[str]) -> float:
        return 0.25 if fp32 >= {"/dec/x", "/dec/y"} else math.nan

    found = sensitivity(Double(NODES, formula), FEEDS, [], bad, runs=100)  # type: ignore[arg-type]
    removed = {next(iter(row.values())): row["error_removed"] for row in found.rows}
    assert found.base_error == math.inf
    assert removed["dec"] == math.inf
    assert {value for name, value in removed.items() if name != "dec"} == {0.0}


def test_a_killed_call_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.json"
    whole = sensitivity(Double(NODES, additive), FEEDS, [], bad, runs=100)  # type: ignore[arg-type]

    class Killed(Exception):
        pass

    def until_killed(fp32: frozenset[str]) -> float:
        if len(first.asked) == 6:
            raise Killed
        return additive(fp32)

    first = Double(NODES, until_killed)
    with pytest.raises(Killed):
        sensitivity(first, FEEDS, [], bad, runs=100, checkpoint=path)  # type: ignore[arg-type]
    assert len(json.loads(path.read_text())["errors"]) == 5
    second = Double(NODES, additive)
    assert sensitivity(second, FEEDS, [], bad, runs=100, checkpoint=path) == whole  # type: ignore[arg-type]
    assert len(second.asked) == 11 - 5


@pytest.mark.parametrize("change", ["feeds", "base", "model", "error"])
def test_a_checkpoint_of_something_else_is_not_used(change: str, tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.json"
    sensitivity(Double(NODES, additive), FEEDS, [], bad, runs=100, checkpoint=path)  # type: ignore[arg-type]
    board = Double(NODES, additive)
    board.digest = "another" if change == "model" else board.digest
    feeds = {"x": np.ones(1, np.float32)} if change == "feeds" else FEEDS
    base = ["top"] if change == "base" else []
    sensitivity(board, feeds, base, other if change == "error" else bad, runs=100, checkpoint=path)  # type: ignore[arg-type]
    assert len(board.asked) > 1


def other(outputs: dict[str, np.ndarray]) -> float:
    return bad(outputs)


def test_on_a_real_switchboard_the_module_that_overflows_removes_the_error() -> None:
    proto = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]> g (float[4] x) => (float[4] y)
        <float[1] k = {3000.0}, float[1] q = {0.0003}, float[1] w = {0.3}>
        { ["/a/Mul"] a = Mul(x, w) ["/b/up"] u = Mul(a, k) ["/b/down"] d = Mul(u, q) ["/c/Neg"] y = Neg(d) }""")
    board = Switchboard(ir.from_proto(proto))
    feeds = {"x": np.array([1, -2, 3, 100], np.float32)}
    exact = board.run(feeds, board.nodes)["y"]

    def error(outputs: dict[str, np.ndarray]) -> float:
        return float(np.abs(outputs["y"] - exact).max() / np.abs(exact).max())

    found = sensitivity(board, feeds, [], error, runs=50)
    removed = {next(iter(row.values())): row["error_removed"] for row in found.rows}
    assert found.base_error == math.inf
    assert removed["b"] == math.inf
    assert removed["/b/up"] == removed["/b/down"] == removed["/c/Neg"] == 0
    assert board.runs - 1 == found.runs < 2 + len(found.rows)  # some nodes alone change no rounding
