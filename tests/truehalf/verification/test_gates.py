import pytest

from tests.messages import expect
from tests.truehalf.verification.detected import REFERENCE, detections, edited
from truehalf.config.verification import GatesConfig
from truehalf.verification.findings import by_check, open_of, reasons_of, verdict_of
from truehalf.verification.judging.gates import detection_values, evaluate
from truehalf.verification.judging.worst import Worst
from truehalf.verification.metrics.detections import match, summarize

LIMITS = {"ap50_95_drop_max": 0.005, "matched_fraction_min": 0.99, "extra_fraction_max": 0.01, "label_flips_max": 0}
LIMITS |= {"nonfinite_max": 0, "low_self_ap50_95_drop_max": 0.01, "box_error_p99_max": 0.005, "box_shift_max": 0.001}
LIMITS |= {"score_error_p99_max": 0.05, "rank_error_p99_max": 0.05}
GATES = GatesConfig(**LIMITS)
GOOD = {"ap50_95_drop": 0.001, "matched_fraction": 0.995, "extra_fraction": 0.002, "label_flips": 0, "nonfinite": 0}
GOOD |= {"low_self_ap50_95_drop": 0.0001, "score_error_p99": 0.01, "rank_error_p99": 0.01}
GOOD |= {"box_error_p99": 0.001, "box_shift": 0.0}


def outcome(**changes):
    return verdict_of(evaluate(GATES, GOOD | changes))


def test_all_within_limits_passes():
    assert outcome() == "passed"
    assert all(gate.state == "verified" and "worst" not in gate.facts for gate in evaluate(GATES, GOOD))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ap50_95_drop", 0.0051),
        ("matched_fraction", 0.9899),
        ("extra_fraction", 0.011),
        ("label_flips", 1),
        ("nonfinite", 1),
        ("low_self_ap50_95_drop", 0.011),
        ("score_error_p99", 0.051),
        ("rank_error_p99", 0.051),
        ("box_error_p99", 0.0051),
        ("box_shift", 0.0011),
        ("score_error_p99", float("nan")),
        ("ap50_95_drop", float("nan")),
        ("matched_fraction", float("nan")),
    ],
)
def test_each_value_beyond_its_limit_fails(name, value):
    gates = evaluate(GATES, GOOD | {name: value})
    assert verdict_of(gates) == "failed"
    (reason,) = reasons_of(gates)
    limit = next(limit for gate, limit in LIMITS.items() if gate.startswith(name))
    expect(reason, None, name, f"{value:.4g}", f"{limit:.4g}")


@pytest.mark.parametrize(
    ("name", "value"), [("ap50_95_drop", 0.005), ("matched_fraction", 0.99), ("extra_fraction", 0.01)]
)
def test_the_limit_itself_passes(name, value):
    assert outcome(**{name: value}) == "passed"


@pytest.mark.parametrize("name", list(GOOD))
def test_a_missing_value_is_not_verified_never_passed(name):
    gates = evaluate(GATES, GOOD | {name: None}, reasons={name: "there are no labels"})
    assert verdict_of(gates) == "not verified"
    assert reasons_of(gates) == open_of(gates)
    expect(reasons_of(gates)[0], None, "there are no labels")
    (row,) = [row for row in by_check(gates) if row["state"] != "verified"]
    assert (row["state"], row["reason"]) == ("not verified", "there are no labels")


def test_absent_values_are_not_verified():
    assert verdict_of(evaluate(GATES, {})) == "not verified"


def test_no_gates_are_not_a_pass():
    assert verdict_of([]) == "not verified"


def test_failure_outweighs_what_was_not_verified():
    gates = evaluate(GATES, GOOD | {"ap50_95_drop": None, "nonfinite": 7})
    assert verdict_of(gates) == "failed"
    failed, unknown = reasons_of(gates)
    expect(failed, None, "nonfinite", 7, 0)
    expect(unknown, None, "average precision")


def test_a_failed_gate_names_the_three_worst():
    worst = {"nonfinite": [Worst(f"s{i}", "logits", f"{i} NaN") for i in range(5)]}
    gates = evaluate(GATES, GOOD | {"nonfinite": 5}, worst=lambda name: worst[name])
    assert [item["sample"] for item in gates[-1].facts["worst"]] == ["s0", "s1", "s2"]


def test_values_of_detections():
    nothing = detection_values({})
    assert nothing and not any(value is not None for value in nothing.values())
    assert detection_values(summarize([match(detections(), detections())])) == nothing, "nothing on either side"
    invented = detection_values(summarize([match(detections(), REFERENCE)]))
    assert invented == nothing | {"extra_fraction": 1.0}, "no reference detection: what is found is extra"
    values = detection_values(summarize([match(REFERENCE, edited(0, score=0.55, shift=1))]))
    assert set(values) == set(nothing) and values["score_error_p99"] == pytest.approx(0.4, abs=0.01)
    assert values["box_error_p99"] == pytest.approx(1 / 120, rel=0.05) and values["matched_fraction"] == 1
