"""Constants: largest weight; facts are read once, block by block."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from tests.messages import expect
from tests.truehalf.conversion.rules.judging import judge
from truehalf.conversion.rules.facts import _BLOCK, ConstantFacts, constant_facts

ADD = "(float[4] x) => (float[4] y) <float[4] w = {0, 0, 0, 0}> { [add] y = Add(x, w) [next] z = Relu(y) }"


def rule(weight: list[float], **rules: Any) -> str:
    return judge(ADD, weights={"w": np.array(weight, np.float32)}, **rules)["add"].rule


@pytest.mark.parametrize(
    ("weight", "found"),
    [
        ([1e6, 0, 0, 0], "init_max"),
        ([-1e6, 0, 0, 0], "init_max"),
        ([65504.0, 0, 0, 0], "none"),
        ([np.inf, -np.inf, np.nan, 3.0], "none"),  # exact in float16
        ([np.inf, -1e6, np.nan, 3.0], "init_max"),
    ],
)
def test_init_max(weight: list[float], found: str) -> None:
    assert rule(weight, init_max=65504.0) == found
    assert rule(weight) == "none"


def test_what_is_filled_in_or_moved_pins_its_readers() -> None:
    text = """(int64[2] s, float[2,2] x, bool b) => (float[2,2] y, float[2,2] z) <float[2,2] w = {1e6, 0, 0, 0}> {
        [fill] a = ConstantOfShape<value = float[1] {100000.0}>(s) [move] c = Transpose(a) [add] d = Add(x, c)
        [turn] e = Transpose(w) [mul] f = Mul(e, x) [far] y = Add(d, f)
        [if] z = If(b) < then_branch = t () => (float[2,2] tz) { [then] tz = Identity(w) },
            else_branch = e () => (float[2,2] ez) { [else] ez = Neg(x) }> }"""
    found = judge(text, init_max=65504.0)
    rules = {name: decision.rule for name, decision in found.items()}
    assert rules == dict.fromkeys(["fill", "move", "add", "turn", "mul", "then"], "init_max") | {
        "if": "none",
        "far": "none",
        "else": "none",
    }
    assert (found["fill"].tensor, found["add"].tensor) == ("fill.value", "c")


def test_init_max_pins_readers_alone_with_its_numbers() -> None:
    found = judge(ADD, weights={"w": np.array([1, 2, 3, 1e6], np.float32)}, init_max=512.0)
    assert found["next"].rule == "none"
    expect(found["add"].reason, None, "'w'", "1e+06", "init_max 512")
    assert (found["add"].value, found["add"].threshold, found["add"].tensor) == (1e6, 512.0, "w")


def test_what_a_node_holds_in_an_attribute_counts() -> None:
    text = "(int64[1] s) => (float[n] y) { [fill] y = ConstantOfShape<value = float[1] {100000.0}>(s) }"
    assert judge(text, init_max=65504.0)["fill"].tensor == "fill.value"


def test_what_stays_float32_anyway_is_not_judged() -> None:
    text = """(float[1,1,4,4] x) => (float[1,1,n,m] y) <float[4] scales = {1.0, 1.0, 4e5, 2.0}>
        { [resize] y = Resize(x, , scales) }"""
    assert judge(text, init_max=65504.0)["resize"].rule == "none"


def facts(array: Any) -> ConstantFacts:
    return constant_facts(ir.tensor(np.array(array, np.float32)))


def test_facts_over_several_blocks() -> None:
    array = np.ones(2 * _BLOCK + 3, np.float32)
    array[[0, _BLOCK, 2 * _BLOCK + 2]] = [-7.0, 1e-9, 9.0]
    array[1] = 0
    assert facts(array) == ConstantFacts(array.size, -7.0, 9.0)


@pytest.mark.parametrize("array", [[], [np.nan], [np.inf, -np.inf]])
def test_facts_without_finite_elements(array: list[float]) -> None:
    found = facts(array)
    assert (found.absmax, found.lowest, found.highest) == (0.0, 0.0, 0.0)
    assert found.neginf == (-np.inf in array)


def test_external_weights_are_let_go_after_reading(tmp_path: Path) -> None:
    array = np.arange(10, dtype=np.float32)
    (tmp_path / "w.bin").write_bytes(array.tobytes())
    tensor = ir.ExternalTensor("w.bin", 0, 40, ir.DataType.FLOAT, shape=ir.Shape([10]), name="w", base_dir=tmp_path)
    assert constant_facts(tensor).absmax == 9.0
    assert tensor.raw is None


def test_a_weight_is_read_once_for_all_rules_and_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[object] = []
    monkeypatch.setattr(
        "truehalf.conversion.rules.facts.constant_facts", lambda tensor: reads.append(tensor) or constant_facts(tensor)
    )
    text = "(float[1] x) => (float[1] y) <float[1] w = {3.0}> { a = Add(x, w) b = Mul(a, w) y = Max(b, w) }"
    judge(text, init_max=1e3, epsilons=True, masks=True)
    assert len(reads) == 1
