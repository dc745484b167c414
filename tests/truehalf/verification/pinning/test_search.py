"""The search for pins: what is tried, what is left, and nodes that are pinned together or never."""

from __future__ import annotations

import math
from collections.abc import Collection

import numpy as np
import onnx.parser
import onnx_ir as ir
import pytest

from truehalf.verification.localize.both_files import BothFiles
from truehalf.verification.localize.node_errors import local_errors
from truehalf.verification.pinning.search import Pins, fewest, ranked, search_pins

NODES = 16
BODY = " ".join(f"[n{i}] t{i + 1} = Sin(t{i})" for i in range(NODES))
X = [{"t0": np.linspace(-1, 1, 8, dtype=np.float32)}]


def files_of(text: str, half: str | None = None) -> BothFiles:
    models = [
        ir.from_proto(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 23]> {each}'))
        for each in (text, half or text.replace("float[", "float16["))
    ]
    return BothFiles(*models)


CHAIN = files_of(f"g (float[8] t0) => (float[8] t{NODES}) {{ {BODY} }}")


def order_of(files: BothFiles, batches: list[dict[str, np.ndarray]]) -> list[tuple[str, ...]]:
    return list(ranked(files, batches, [], local_errors(files, batches)))


def searched(needed: set[str], too_many: int = NODES + 1) -> tuple[Pins, list[frozenset[str]]]:
    """What is found where these nodes have to be FP32, and what was tried."""
    tried: list[frozenset[str]] = []

    def holds(nodes: Collection[str]) -> bool | None:
        tried.append(frozenset(nodes))
        return None if len(nodes) >= too_many else needed <= set(nodes)

    return search_pins(CHAIN, X, [], local_errors(CHAIN, X), holds, math.inf), tried


@pytest.mark.parametrize("needed", [{"n3"}, {"n0", "n15"}, {"n4", "n5", "n6", "n11"}, {f"n{i}" for i in range(NODES)}])
def test_the_nodes_that_are_needed_and_no_others(needed: set[str]) -> None:
    pins, tried = searched(needed)
    assert set(pins.effects) == needed
    assert list(pins.effects) == sorted(pins.effects, key=lambda name: int(name[1:])), "in the order of the graph"
    assert frozenset(pins.effects) in tried and pins.conversions == len(tried) == len(set(tried))


def test_where_nothing_holds_or_too_much_would_be_fp32_there_are_no_pins() -> None:
    assert searched({"another"})[0].effects == {}
    pins, _ = searched({"n0", "n15", "n7", "n8"}, too_many=3)
    assert pins.effects == {} and 0 < pins.most_failed < 3


def test_pins_that_were_not_pruned_to_the_end_still_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("truehalf.verification.pinning.search._PRUNING", 2)
    pins, _ = searched({"n0", "n15"})
    assert {"n0", "n15"} < set(pins.effects)


@pytest.mark.parametrize("limit", [0, 1, 2, 7, 100])
def test_the_least_number_that_holds(limit: int) -> None:
    assert [fewest(limit, lambda count, least=least: count >= least) for least in range(1, limit + 1)] == list(
        range(1, limit + 1)
    )
    assert fewest(limit, lambda _: False) is None


def test_what_rounding_moves_most_comes_first() -> None:
    text = """g (float[8] t0) => (float[8] y) <float[1] k = {300}> {
        [large] a = Add(t0, k) [less] b = Sub(a, k) [small] y = Sin(b) }"""
    half = text.replace("float[", "float16[").replace("{300}", "{23728}")
    order = order_of(files_of(text, half), X)
    assert order == [("less",), ("large",), ("small",)], "of the difference, rounding does not explain the error"


CHOICE = """g (float[1,8] t0) => (int64[1,CHOSEN] y) <int64[1] k = {2}, float[1] l = {40}> {
    [scores] a = Add(t0, l) [turned] b = Reshape(a, as_it_is) [choice] CHOOSE }"""


@pytest.mark.parametrize("choose", ["v, y = TopK(b, k)", "y = ArgMax<axis = 1>(b)"])
def test_with_a_choice_goes_what_makes_its_input(choose: str) -> None:
    text = CHOICE.replace("CHOOSE", choose).replace("CHOSEN", "2" if "TopK" in choose else "1")
    text = text.replace("{2},", "{2}, int64[2] as_it_is = {1, 8},")
    half = text.replace("float[", "float16[").replace("{40}", "{20736}")
    close = [{"t0": np.float32([[0.501, 0.502, 0.503, 0.504, 0.1, 0.2, 0.3, 0.4]])}]
    order = order_of(files_of(text, half), close)
    assert ("choice", "turned", "scores") in order
    assert order[-1][0] == "choice", "among near ties"


def test_attention_is_never_pinned() -> None:
    text = """g (float[1,2,4,8] q) => (float[1,2,4,8] y) { [before] p = Sin(q) [sdpa] a = Attention(p, p, p) [after]
        y = Tanh(a) }"""
    q = [{"q": np.random.default_rng(0).normal(size=(1, 2, 4, 8)).astype(np.float32)}]
    names = {name for unit in order_of(files_of(text), q) for name in unit}
    assert {"before", "after"} <= names and "sdpa" not in names
