"""The one comparison on hand-made outputs: measures, findings, agreement and samples of each kind of output."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import onnx
import pytest

from tests.corpus.pairs import Pair
from tests.corpus.pairs.detections import as_queries, as_top_k, haunted, pairs, scene, spec_of
from tests.messages import expect
from tests.truehalf.verification.small_detector import OPTIONS
from truehalf.codes import codes_in
from truehalf.config.verification import GatesConfig, VerifyConfig
from truehalf.data.samples import Sample
from truehalf.io_spec.decode import decode
from truehalf.io_spec.spec import IoSpec
from truehalf.verification.chain.reference import Reference
from truehalf.verification.comparison import Comparison, ReferenceFacts, compare_outputs
from truehalf.verification.findings import FAILED, NOT_VERIFIED, VERIFIED, by_check, reasons_of, verdict_of
from truehalf.verification.gates import GATES, evaluate
from truehalf.verification.runs import Run
from truehalf.verification.samples import SampleFacts

CLASSES = {"outputs": [{"name": "y", "kind": "classes"}]}
PAIRS = list(pairs())
GOOD = {gate.measure: 1.0 if gate.limit.endswith("_min") else 0.0 for gate in GATES}
Outputs = Mapping[str, Any]


def compared(r: Outputs, o: Outputs, spec: Any, outputs_only: bool = False, **gates: Any) -> Comparison:
    rows = len(next(iter(r.values())))
    run = Run([f"s{i}" for i in range(rows)], rows, r, o, [f"{i}" for i in range(rows)])
    options = VerifyConfig(gates=GatesConfig(**gates))
    return compare_outputs([run], IoSpec.from_json(spec), options, outputs_only=outputs_only)


def states(comparison: Comparison) -> dict[str, str]:
    return {row["check"]: row["state"] for row in by_check(comparison.findings)}


def gates_of(comparison: Comparison) -> dict[str, Any]:
    return {each.facts["measures"]: each for each in comparison.findings if "gate" in each.facts}


# --- gates ------------------------------------------------------------------------------------------------------------


def test_measures_within_their_limits_pass_and_an_absent_one_is_not_verified() -> None:
    assert verdict_of(evaluate(GATES, GatesConfig(), GOOD)) == "passed"
    for gate in GATES:
        found = evaluate([gate], GatesConfig(), GOOD | {gate.measure: None}, {gate.measure: "there are no labels"})
        assert [each.state for each in found] == [NOT_VERIFIED]
        expect(found[0].reason, None, gate.measure, "there are no labels")
    assert verdict_of(evaluate(GATES, GatesConfig(), {})) == "not verified"


@pytest.mark.parametrize("gate", GATES, ids=lambda gate: f"{gate.check}-{gate.measure}")
def test_a_measure_beyond_its_limit_fails(gate: Any) -> None:
    limits = GatesConfig()
    limit = getattr(limits, gate.limit)
    beyond = limit - 0.001 if gate.limit.endswith("_min") else limit + 1
    for value in (beyond, float("nan")):
        (found,) = evaluate([gate], limits, {gate.measure: value})
        assert found.state == FAILED
        expect(found.reason, gate.code, gate.measure, f"{value:.4g}", f"{limit:.4g}")
    assert [each.state for each in evaluate([gate], limits, {gate.measure: limit})] == [VERIFIED]


def test_a_failed_gate_names_the_three_worst_samples() -> None:
    samples = [SampleFacts(f"s{i}", missed=i) for i in range(5)]
    gate = next(gate for gate in GATES if gate.worst == "missed")
    (found,) = evaluate([gate], GatesConfig(), {gate.measure: 1.0}, samples=samples)
    assert [each["sample"] for each in found.facts["worst"]] == ["s4", "s3", "s2"]
    assert found.facts["worst"][0]["error"] == "missed 4"


# --- tensors and classes ----------------------------------------------------------------------------------------------


def test_an_output_that_is_empty_was_not_compared() -> None:
    empty = {"y": np.zeros((2, 0), np.float32)}
    (finding,) = [each for each in compared(empty, empty, {}).findings if each.check == "tensors"]
    assert finding.state == "not verified" and codes_in(finding.reason) == ["nothing-compared"]


def test_each_output_has_a_gate_and_a_failed_one_its_worst() -> None:
    r = {name: np.arange(6, dtype=np.float32).reshape(3, 2) for name in "yz"}
    found = compared(r, r | {"z": r["z"] + np.float32([[0], [0.5], [0]])}, {})
    gates = {each.facts["output"]: each for each in found.findings if each.facts.get("measures") == "tensor_rms"}
    assert (gates["y"].state, gates["z"].state) == ("verified", "failed")
    assert gates["z"].facts["worst"][0]["sample"] == "s1" and 0.09 < gates["z"].facts["value"] < 0.1
    assert found.measures["tensor_rms"] == gates["z"].facts["value"] and found.worst == 1
    assert found.agreement()["state"] == "failed" and found.outputs["z"].passed is False


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_new_nan_or_inf_fails_and_names_its_sample(value: float) -> None:
    r = {"y": np.ones((3, 3), np.float32)}
    found = compared(r, {"y": np.where(np.arange(9).reshape(3, 3) == 7, value, r["y"])}, {})
    assert found.measures["tensor_rms"] == np.inf and found.measures["nonfinite"] == 1
    assert (states(found)["tensors"], states(found)["nonfinite"]) == ("failed", "failed")
    assert gates_of(found)["nonfinite"].facts["worst"] == [{"sample": "s2", "error": "nonfinite 1"}]
    assert not found.may_be_ties and found.agreement()["state"] == "failed"


def test_outputs_of_which_nothing_was_compared() -> None:
    values = {"a": [np.inf, np.nan], "b": [0.0, 0.0], "c": [0.0, np.inf], "d": [0, 0], "e": [0.5, np.nan]}
    r = {name: np.array([value]) for name, value in values.items()}
    open_ = [each for each in compared(r, r, {}).findings if "nothing-compared" in codes_in(each.reason)]
    for finding, name in zip(open_, "abc", strict=True):
        expect(finding.reason, "nothing-compared", f"output {name!r}")
        assert not finding.decides and finding.state == NOT_VERIFIED
    alone = {"a": np.array([[np.inf, np.nan]])}
    (finding,) = [each for each in compared(alone, alone, {}).findings if "nothing-compared" in codes_in(each.reason)]
    assert finding.decides


def test_class_logits_of_another_shape_have_no_best_class() -> None:
    r = {"y": np.eye(3, dtype=np.float32)}
    found = compared(r, {"y": np.zeros((3, 4), np.float32)}, CLASSES)
    expected = {"classes": "not verified", "tensors": "failed", "nonfinite": "verified", "reaction": "not verified"}
    assert states(found) == expected and not found.are_alike
    assert codes_in(next(each.reason for each in found.findings if each.check == "reaction")) == ["not-comparable"]


def test_another_best_class_is_a_flip_of_its_sample() -> None:
    r = {"y": 5 * np.eye(4, dtype=np.float32)}
    found = compared(r, {"y": r["y"][[0, 1, 3, 3]]}, CLASSES)
    assert states(found)["classes"] == "failed" and found.measures["top1_agreement"] == 0.75
    assert gates_of(found)["label_flips"].facts["worst"] == [{"sample": "s2", "error": "label flips 1"}]
    expect(found.agreement()["reason"], "beyond-gate", "1 of 4 best classes")


# --- samples ----------------------------------------------------------------------------------------------------------


def test_what_is_not_finite_comes_before_a_large_error_and_in_the_reference_it_is_no_fault() -> None:
    r = {"y": np.ones((3, 4), np.float32)}
    r["y"][0, 0] = np.inf
    o = r["y"].copy()
    o[1, 0] += 0.1
    assert compared(r, r, {}).worst is None
    assert compared(r, {"y": o}, {}).worst == 1
    o[2, 1], o[1, 0] = np.nan, 50
    assert compared(r, {"y": o}, {}).worst == 2


def test_errors_are_measured_by_the_scale_of_all_samples_and_of_runs() -> None:
    """As the yardstick does: half of a small value is no more than a hundredth of the output's scale."""
    r = {"y": np.array([[0.01, 0.01], [1.0, 1.0]], np.float32)}
    o = {"y": r["y"] * np.array([[1.5, 1.0], [1.02, 1.0]], np.float32)}
    assert compared(r, o, {}).worst == 1
    runs = [Run([f"f{i}"], 0, r, {"y": r["y"] + error}) for i, error in enumerate((0.1, 0.3, 0.2))]
    assert compare_outputs(runs, IoSpec(), VerifyConfig()).worst == 1


# --- detections -------------------------------------------------------------------------------------------------------


def arrays_of(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    """What a replayed model puts out, as a chain reads it."""
    rows = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    return {value.name: rows[f"{value.name}_rows"].astype(np.float32) for value in model.graph.output}


def compared_by_chain(reference: Reference, outputs: Outputs) -> Comparison:
    return reference.compare(reference.runs(lambda _: outputs, len(reference.names), ""), OPTIONS)


def reference_of(outputs: dict[str, np.ndarray], declared: Any, labelled: bool = False) -> Reference:
    names = [f"made/{i}" for i in range(len(outputs["boxes"]))]
    spec = IoSpec.from_json(declared)
    found = decode(outputs, spec)
    truth = [each.at(each.scores >= 0.5) for each in found]
    samples = [Sample(name, {}, None, None) for name in names]
    return Reference(samples, names, names, outputs, spec, found, truth if labelled else None)


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.name)
def test_the_chain_judges_a_planted_pair_as_compare_does(pair: Pair) -> None:
    expected, other = arrays_of(pair.reference), arrays_of(pair.candidate)
    found = compared_by_chain(reference_of(expected, pair.spec), other).findings
    judged = [each for each in found if each.check != "reaction"]
    assert verdict_of(judged) == pair.expected, reasons_of(judged)


@pytest.mark.parametrize("put_out", [as_queries, as_top_k])
def test_low_scores_are_judged_beside_true_labels(put_out: Any) -> None:
    start = scene()
    expected, other = (put_out(each) for each in (start, haunted(start, np.random.default_rng(0))))
    gates = gates_of(compared_by_chain(reference_of(expected, spec_of(expected), labelled=True), other))
    held = [gates[name].state for name in ("ap50_95_drop", "low_self_ap50_95_drop", "rank_error_p99")]
    assert held == ["verified", "failed", "failed"] and gates["rank_error_p99"].facts["worst"]


@pytest.mark.parametrize("put_out", [as_queries, as_top_k])
def test_detections_where_the_reference_has_none_fail(put_out: Any) -> None:
    start = scene()
    quiet, loud = (put_out(each) for each in (replace(start, scores=start.scores / 10), start))
    found = compared(quiet, loud, spec_of(quiet))
    assert (gates_of(found)["extra_fraction"].state, gates_of(found)["matched_fraction"].state) == (
        "failed",
        "not verified",
    )
    assert found.agreement(empty_is_same=True)["state"] == "failed"
    nothing = compared(quiet, quiet, spec_of(quiet), outputs_only=True)
    expect(nothing.agreement()["reason"], "nothing-compared", 0.5)
    assert nothing.agreement()["state"] == "not verified"
    assert nothing.agreement(empty_is_same=True)["state"] == "verified"


def test_another_batch_is_held_to_the_same_gates() -> None:
    start = scene()
    lowered = replace(start, scores=np.minimum(start.scores, np.float32(0.6)))
    r, o = as_top_k(start), as_top_k(lowered)
    assert compared(r, r, spec_of(r), outputs_only=True).agreement()["state"] == "verified"
    row = compared(r, o, spec_of(r), outputs_only=True).agreement()
    assert row["state"] == "failed" and row["matched_fraction"] == 1.0
    forgiving = {name: 1.0 for name in asdict(GatesConfig()) if "_error_" in name}
    assert compared(r, o, spec_of(r), outputs_only=True, **forgiving).agreement()["state"] == "verified"


def test_detections_of_another_shape_are_not_compared() -> None:
    r = as_queries(scene())
    found = compared(r, r | {"boxes": r["boxes"][:, :-1]}, spec_of(r))
    opened = {code for each in found.findings if each.state == "not verified" for code in codes_in(each.reason)}
    assert verdict_of(found.findings) == "failed" and opened == {"no-labels", "not-comparable"}
    assert not found.are_alike and found.detections == []


def test_as_many_new_nan_of_a_detector_pass_as_the_gate_allows() -> None:
    r = as_queries(scene())
    name = next(each["name"] for each in spec_of(r)["outputs"] if each["kind"] == "logits")
    o = {**r, name: r[name].copy()}
    sample, query = np.unravel_index(r[name].max(axis=2).argmin(), r[name].shape[:2])
    o[name][sample, query, 0] = np.nan
    for allowed, state in ((0, "failed"), (1, "verified")):
        found = compared(r, o, spec_of(r), nonfinite_max=allowed)
        assert states(found)["nonfinite"] == state
        assert any("where the reference is finite" in each.reason for each in found.findings) == (allowed == 0)


def test_what_is_below_the_score_threshold_is_judged_where_nothing_is_above() -> None:
    start = scene()
    quiet = replace(start, scores=start.scores * np.float32(0.45))
    sides = [as_queries(each) for each in (quiet, haunted(quiet, np.random.default_rng(0)))]
    found = compared(*sides, spec_of(sides[0]))
    assert found.measures["reference"] == 0
    assert gates_of(found)["low_self_ap50_95_drop"].facts["value"] is not None


def test_counts_are_those_of_the_reference_by_itself() -> None:
    r = as_queries(scene())
    spec = IoSpec.from_json(spec_of(r))
    plain = decode(r, spec)
    run = Run([f"s{i}" for i in range(len(plain))], len(plain), r, r)
    facts = ReferenceFacts(decided_on=3, count=2)
    assert compare_outputs([run], spec, VerifyConfig(), facts).measures["reference"] == 2


@pytest.mark.parametrize(("kind", "error"), [("sigmoid", 0.125), ("softmax", 0.0)])
def test_which_queries_are_confident_follows_the_declared_activation(kind: str, error: float) -> None:
    """Two logits of 1: sigmoid says 0.73 of each, softmax 0.42 beside a class that means none."""
    scores = {"name": "logits", "kind": "logits", "activation": kind, "no_object": kind == "softmax"}
    spec = {
        "inputs": [{"name": "images", "shape": ["N", 3, 8, 8]}],
        "outputs": [scores, {"name": "boxes", "kind": "boxes"}],
    }
    r = {"logits": np.array([[[1.0, 1.0, 0.0], [9.0, 0.0, 0.0]]], np.float32), "boxes": np.full((1, 2, 4), 0.5)}
    o = r | {"logits": r["logits"] + np.array([[[0.125], [0.0]]], np.float32)}
    assert compared(r, o, spec, outputs_only=True).measures["max_abs_error"]["logits"] == error
