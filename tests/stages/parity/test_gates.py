import pytest

from stages.parity.gates import evaluate, verdict
from tests.messages import expect

LIMITS = {"ap50_95_drop_max": 0.005, "matched_fraction_min": 0.99, "extra_fraction_max": 0.01, "label_flips_max": 0}
LIMITS |= {"nonfinite_max": 0}
GOOD = {"ap50_95_drop": 0.001, "matched_fraction": 0.995, "extra_fraction": 0.002, "label_flips": 0, "nonfinite": 0}


def outcome(**changes):
    return verdict(evaluate(LIMITS, GOOD | changes))["verdict"]


def test_all_within_limits_passes():
    assert outcome() == "passed"
    assert all(gate["passed"] is True and "worst" not in gate for gate in evaluate(LIMITS, GOOD))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ap50_95_drop", 0.0051),
        ("matched_fraction", 0.9899),
        ("extra_fraction", 0.011),
        ("label_flips", 1),
        ("nonfinite", 1),
        ("ap50_95_drop", float("nan")),
        ("matched_fraction", float("nan")),
    ],
)
def test_each_value_beyond_its_limit_fails(name, value):
    result = verdict(evaluate(LIMITS, GOOD | {name: value}))
    assert result["verdict"] == "failed"
    (reason,) = result["reasons"]
    limit = next(limit for gate, limit in LIMITS.items() if gate.startswith(name))
    expect(reason, None, name, f"{value:.4g}", f"{limit:.4g}")


@pytest.mark.parametrize(
    ("name", "value"), [("ap50_95_drop", 0.005), ("matched_fraction", 0.99), ("extra_fraction", 0.01)]
)
def test_the_limit_itself_passes(name, value):
    assert outcome(**{name: value}) == "passed"


@pytest.mark.parametrize("name", list(GOOD))
def test_a_missing_value_is_not_verified_never_passed(name):
    gates = evaluate(LIMITS, GOOD | {name: None}, reasons={name: "there are no labels"})
    result = verdict(gates)
    assert result["verdict"] == "not verified"
    expect(result["reasons"][0], None, name, "there are no labels")
    assert [gate["passed"] for gate in gates if gate["measures"] == name] == [None]


def test_absent_values_are_not_verified():
    assert verdict(evaluate(LIMITS, {}))["verdict"] == "not verified"


def test_no_gates_are_not_a_pass():
    assert verdict([])["verdict"] == "not verified"


def test_failure_outweighs_what_was_not_verified():
    result = verdict(evaluate(LIMITS, GOOD | {"ap50_95_drop": None, "nonfinite": 7}))
    assert result["verdict"] == "failed"
    failed, unknown = result["reasons"]
    expect(failed, None, "nonfinite", 7, 0)
    expect(unknown, None, "ap50_95_drop")


def test_a_failed_gate_names_the_three_worst():
    worst = [{"sample": f"s{i}", "output": "logits", "error": f"{i} NaN"} for i in range(5)]
    gates = evaluate(LIMITS, GOOD | {"nonfinite": 5}, worst={"nonfinite": worst})
    assert [item["sample"] for item in gates[-1]["worst"]] == ["s0", "s1", "s2"]
