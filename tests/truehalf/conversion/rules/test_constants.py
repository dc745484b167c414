"""Constants: largest weight, whole numbers; facts are read once, block by block."""

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
    assert rule(weight, init_overflow="clamp") == "none"


def test_what_float16_cannot_hold_is_pinned_whatever_init_max_is() -> None:
    found = judge(ADD, weights={"w": np.array([1, 2, 3, -1e6], np.float32)})["add"]
    assert (found.rule, found.value, found.threshold, found.tensor) == ("init_overflow", 1e6, 65504.0, "w")
    expect(found.reason, None, "'w'", "1e+06 > 65504")
    assert rule([65504.0, np.inf, 0, 0]) == "none"
    assert rule([1e6, 0, 0, 0], rules="autocast") == "none"


@pytest.mark.parametrize("init_max", [None, 65504.0])
def test_what_is_filled_in_or_moved_pins_its_readers(init_max: float | None) -> None:
    text = """(int64[2] s, float[2,2] x, bool b) => (float[2,2] y, float[2,2] z) <float[2,2] w = {1e6, 0, 0, 0}> {
        [fill] a = ConstantOfShape<value = float[1] {100000.0}>(s) [move] c = Transpose(a) [add] d = Add(x, c)
        [turn] e = Transpose(w) [mul] f = Mul(e, x) [far] y = Add(d, f)
        [if] z = If(b) < then_branch = t () => (float[2,2] tz) { [then] tz = Identity(w) },
            else_branch = e () => (float[2,2] ez) { [else] ez = Neg(x) }> }"""
    found = judge(text, init_max=init_max)
    rules = {name: decision.rule for name, decision in found.items()}
    kept = "init_overflow" if init_max is None else "init_max"
    assert rules == dict.fromkeys(["fill", "move", "add", "turn", "mul", "if", "then"], kept) | {
        "far": "none",
        "else": "none",
    }
    assert (found["fill"].tensor, found["add"].tensor) == ("fill.value", "c")


def test_init_max_pins_readers_alone_with_its_numbers() -> None:
    found = judge(ADD, weights={"w": np.array([1, 2, 3, 1e6], np.float32)}, init_max=512.0)
    assert found["next"].rule == "none"
    expect(found["add"].reason, None, "'w'", "1e+06", "init_max 512")
    assert (found["add"].value, found["add"].threshold, found["add"].tensor) == (1e6, 512.0, "w")


def test_weights_that_will_be_clamped_are_judged_as_65504() -> None:
    assert rule([1e6, 0, 0, 0], init_max=65504.0, init_overflow="clamp") == "none"
    assert rule([1e6, 0, 0, 0], init_max=512.0, init_overflow="clamp") == "init_max"


@pytest.mark.parametrize(
    ("weight", "found"),
    [
        ([2049.0, 1, 2, 3], "integers"),
        ([2048.0, 1, 2, 3], "none"),
        ([4096.0, 1, 2, 3], "none"),  # even numbers up to 4096 are exact
        ([2049.0, 0.5, 2, 3], "none"),  # no whole numbers
        ([1e6, 1, 2, 3], "integers"),
    ],
)
def test_whole_numbers(weight: list[float], found: str) -> None:
    assert rule(weight, integers=True, init_overflow="clamp") == found
    assert rule(weight, init_overflow="clamp") == "none"


def test_a_single_number_is_no_coordinate() -> None:
    text = "(float[4] x) => (float[4] y) <float w = {2049.0}> { [add] y = Add(x, w) }"
    assert judge(text, integers=True)["add"].rule == "none"


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
    assert facts(array) == ConstantFacts(array.size, 9.0, -7.0, 9.0)


def test_facts_of_whole_numbers_need_every_block() -> None:
    array = np.zeros(2 * _BLOCK, np.float32)
    array[0] = 2049
    assert facts(array).integers_changed
    array[-1] = 0.5
    assert not facts(array).integers_changed


@pytest.mark.parametrize("array", [[], [np.nan], [np.inf, -np.inf]])
def test_facts_without_finite_elements(array: list[float]) -> None:
    found = facts(array)
    assert (found.absmax, found.lowest, found.highest, found.integers_changed) == (0.0, 0.0, 0.0, False)
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
    judge(text, init_max=1e3, integers=True, epsilons=True, masks=True)
    assert len(reads) == 1


BOUND = "(float[4] x) => (float[4] y) <float big = {3.4e38}, float low = {-3.4e38}, float one = {1}> "
IDLE = {
    "Clip, both": "[n] y = Clip(x, low, big)",
    "Clip, upper": "[n] y = Clip(x, one, big)",
    "Clip, only upper": "[n] y = Clip(x, , big)",
    "Clip, lower": "[n] y = Clip(x, low, one)",
    "Min": "[n] y = Min(x, big)",
    "Min of three": "[n] y = Min(big, x, one)",
    "Max": "[n] y = Max(low, x)",
    "moved": "b = Identity(big) [n] y = Clip(x, , b)",
    "computed": "r = Relu(x) [n] y = Min(r, big)",
}


@pytest.mark.parametrize("case", IDLE)
@pytest.mark.parametrize("limit", [3.4e38, 1e6, 65504.0, 7e4])
def test_a_bound_that_no_float16_reaches_pins_nothing(case: str, limit: float) -> None:
    weights = {"big": np.array(limit, np.float32), "low": np.array(-limit, np.float32)}
    assert judge(f"{BOUND} {{ {IDLE[case]} }}".replace("[n]", '["n"]'), weights=weights)["n"].rule == "none"


@pytest.mark.parametrize(
    "node",
    [
        "y = Clip(x, big)",  # a lower bound of 3.4e38
        "y = Clip(x, , low)",
        "y = Max(x, big)",
        "y = Min(x, low)",
        "y = Min(big, big)",
        "y = Add(x, big)",
        "y = Clip(big, one)",
    ],
)
def test_one_that_binds_or_is_a_value_pins_its_node(node: str) -> None:
    assert judge(f'{BOUND} {{ ["n"] {node} }}')["n"].rule == "init_overflow"


IDLE_BY_ELEMENT = {
    "Min": ("Min(x, w)", [3e38, 3e38, 3e38, 3e38]),
    "Min of some": ("Min(w, x)", [6, -1, 1e6, 3e38]),
    "Max": ("Max(x, w)", [-3e38, -1e6, -3e38, -3e38]),
    "Max of some": ("Max(x, w, one)", [-3e38, 0, 1, 2]),
    "Max, infinite": ("Max(x, w)", [-np.inf, -1e9, 0, 2]),
}


@pytest.mark.parametrize("case", IDLE_BY_ELEMENT)
def test_a_bound_for_each_element_that_no_float16_reaches_pins_nothing(case: str) -> None:
    node, bound = IDLE_BY_ELEMENT[case]
    text = f'(float[4] x) => (float[4] y) <float one = {{1}}, float[4] w = {{0, 0, 0, 0}}> {{ ["n"] y = {node} }}'
    assert judge(text, weights={"w": np.array(bound, np.float32)})["n"].rule == "none"


@pytest.mark.parametrize("seed", range(6))
def test_bounds_of_which_one_binds_pin(seed: int) -> None:
    """As an upper bound -1e6 is always reached, as a lower one 1e6."""
    random = np.random.default_rng(seed)
    node, sign = ("Min", 1) if seed % 2 else ("Max", -1)
    bound = random.choice([3e38, 1e6, 70000, 5, -5], 4)
    bound[random.integers(4)] = 1e6
    text = f'(float[2,4] x) => (float[2,4] y) <float[4] w = {{0, 0, 0, 0}}> {{ ["n"] y = {node}(x, w) }}'
    assert judge(text, weights={"w": np.array(sign * bound, np.float32)})["n"].rule == "none"
    bound[random.integers(4)] = random.choice([-3e38, -1e6])
    assert judge(text, weights={"w": np.array(sign * bound, np.float32)})["n"].rule == "init_overflow"
