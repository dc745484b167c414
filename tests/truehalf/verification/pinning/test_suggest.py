"""Suggestions: enough, no entry too many, and nothing where FP32 itself does not hold."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.embedded import embedded, scenes
from tests.measuring.converted import to_fp16
from tests.truehalf.verification.small_board import Double, bad
from truehalf.emulation.sessions import EmulatedSession
from truehalf.files import read_json
from truehalf.ir.model_file import load_model
from truehalf.ir.normalize import PREPARE
from truehalf.ir.selectors import Lists, select, selectors
from truehalf.runtime.ort import Session
from truehalf.verification.pinning.suggest import Suggestion, suggest
from truehalf.verification.pinning.switchboard import Switchboard

FEEDS = {"x": np.zeros(1, np.float32)}
NODES = [f"/m.{i}/{part}/{name}" for i in range(4) for part in ("attn", "mlp") for name in ("a", "b", "c", "d")]


def needs(*sets: set[str]) -> Any:
    """An error of 1 for each of the sets that is not in FP32 as a whole."""
    return lambda fp32: float(sum(not fp32 >= one for one in sets))


def found(nodes: list[str], formula: Any, base: tuple[str, ...] = (), **options: Any) -> Suggestion | None:
    board = Double(nodes, formula)
    result = suggest(board, FEEDS, base, bad, lambda outputs: bad(outputs) == 0, **options)  # type: ignore[arg-type]
    if result is not None:
        assert result.runs == len(board.asked)
    return result


def test_the_nodes_that_are_needed_and_no_others() -> None:
    wanted = {"/m.1/attn/b", "/m.1/attn/c", "/m.3/mlp/a"}
    result = found(NODES, needs({"/m.1/attn/b", "/m.1/attn/c"}, {"/m.3/mlp/a"}))
    assert result is not None
    assert result.minimal
    assert result.nodes == sorted(wanted)
    assert result.node_block_list == [r"^/m\.1/attn/b$", r"^/m\.1/attn/c$", r"^/m\.3/mlp/a$"]
    assert result.scope_block_list == []
    assert json.loads(json.dumps(asdict(result))) == asdict(result)


def test_where_each_fault_alone_spoils_everything() -> None:
    wanted = {"/m.0/attn/a", "/m.0/attn/b", "/m.2/mlp/d", "/m.3/attn/c"}
    result = found(NODES, lambda fp32: 0.0 if fp32 >= wanted else np.nan)
    assert result is not None
    assert result.nodes == sorted(wanted)


def test_a_module_that_is_needed_as_a_whole_is_one_entry() -> None:
    module = {node for node in NODES if node.startswith("/m.2/attn")}
    result = found(NODES, needs(module | {"/m.0/mlp/a"}))
    assert result is not None
    assert result.scope_block_list == ["m.2.attn"]
    assert result.node_block_list == [r"^/m\.0/mlp/a$"]
    assert result.nodes == [node for node in NODES if node in module | {"/m.0/mlp/a"}]


def test_a_scope_that_would_match_elsewhere_is_not_used() -> None:
    nodes = ["/attn/a", "/attn/b", "/x/attn/a", "/x/b"]
    result = found(nodes, needs({"/attn/a", "/attn/b"}))
    assert result is not None
    assert (result.scope_block_list, result.node_block_list) == ([], ["^/attn/a$", "^/attn/b$"])


def test_pins_come_on_top_of_the_base() -> None:
    base = ("/m.1/attn/a", "/m.1/attn/b")
    result = found(NODES, needs({*base, "/m.1/attn/c"}), base)
    assert result is not None
    assert result.nodes == ["/m.1/attn/c"]


def test_an_entry_that_only_harm_done_by_others_calls_for_goes_with_them() -> None:
    """A pair that is FP32 only in part is worse than none of it: dropping both at once is tried, too."""
    pair = {"/m.0/attn/a", "/m.0/mlp/a"}

    def formula(fp32: frozenset[str]) -> float:
        return float(len(fp32 & pair) == 1) + float("/m.3/mlp/d" not in fp32)

    result = found(NODES, formula)
    assert result is not None
    for node in result.nodes:
        assert formula(frozenset(result.nodes) - {node}) > 0


def test_nothing_to_do_and_nothing_that_helps() -> None:
    nothing = found(NODES, lambda fp32: 0.0)
    assert nothing == Suggestion([], [], [], minimal=True, runs=1)
    assert found(NODES, lambda fp32: 1.0) is None


def test_runs_that_are_used_up_are_no_proof_that_nothing_helps() -> None:
    assert found(NODES, needs({"/m.0/attn/a"}), runs=1) == Suggestion([], [], [], minimal=False, runs=1)
    assert found(NODES, lambda fp32: 1.0, runs=1) == Suggestion([], [], [], minimal=False, runs=1)
    assert found(NODES, lambda fp32: 1.0, runs=2) is None, "every node in FP32 was tried"


def test_when_the_runs_are_used_up_the_list_still_holds() -> None:
    formula = needs({"/m.0/attn/a", "/m.3/mlp/d"})
    result = found(NODES, formula, runs=16)
    assert result is not None
    assert not result.minimal
    assert result.runs <= 16
    assert formula(frozenset(result.nodes)) == 0
    assert len(result.nodes) > 2


# --- the shipped overflow ---------------------------------------------------------------------------------------------

OVERFLOW = ("experiment=overflow_naive",)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_overflow_experiment_is_healed_by_the_suggested_pins(tmp_path: Path) -> None:
    source, feeds = embedded(tmp_path / "fp32.onnx", *OVERFLOW), scenes(1, *OVERFLOW)
    exact = Session(source).run(feeds)

    def error(outputs: dict[str, np.ndarray]) -> float:
        """Values that are not finite count most; queries change places, so scores are compared sorted."""
        broken = sum(int((~np.isfinite(value)).sum()) for value in outputs.values())
        a, b = (np.sort(np.nan_to_num(values["logits"]).ravel()) for values in (outputs, exact))
        return 1e3 * broken + float(np.abs(a - b).max())

    def gates_hold(outputs: dict[str, np.ndarray]) -> bool:
        return error(outputs) < 0.25

    free: dict[str, Any] = {"rules": "autocast", "data_max": None, "init_max": None, "placement": "eager"}
    to_fp16(source, tmp_path / "naive.onnx", decisions_path=tmp_path / "decisions.json", **free)
    base = [row["node"] for row in read_json(tmp_path / "decisions.json") if row["precision"] == "fp32"]
    assert error(EmulatedSession(tmp_path / "naive.onnx").run(feeds)) > 1e3

    board = Switchboard(source)
    result = suggest(board, feeds, base, error, gates_hold)
    assert result is not None
    assert result.minimal
    assert result.runs == board.runs
    assert 0 < len(result.nodes) < 60

    pins: dict[str, Any] = {"node_block_list": result.node_block_list, "scope_block_list": result.scope_block_list}
    entries = [(name, entry) for name, listed in pins.items() for entry in listed]
    pinned = [nodes_of(source, name, entry) for name, entry in entries]
    assert set().union(*pinned) & set(board.nodes) == set(result.nodes)
    for position in range(len(entries)):  # none can be dropped
        left = set(base).union(*pinned[:position], *pinned[position + 1 :])
        assert not gates_hold(board.run(feeds, left)), entries[position]

    to_fp16(source, tmp_path / "healed.onnx", **free, **pins)
    healed = tmp_path / "healed.onnx"
    same_kernels: dict[str, Any] = {"optimize": False, "session.disable_prepacking": "1"}
    assert gates_hold(EmulatedSession(healed, **same_kernels).run(feeds))
    assert all(np.isfinite(value).all() for value in EmulatedSession(healed).run(feeds).values())


def nodes_of(source: Path, name: str, entry: str) -> set[str]:
    """What an entry of a block list pins."""
    model = load_model(source)
    PREPARE(model)
    kind = name.removesuffix("_block_list")
    block, _ = selectors(Lists(node=(entry,)) if kind == "node" else Lists(scope=(entry,)), Lists())
    return {str(node.name) for node in select(model, block).nodes}
