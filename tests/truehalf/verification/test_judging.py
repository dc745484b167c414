"""What any verification judges by: one strategy for each task, on hand-made runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tests.corpus.pairs.detections import as_queries, haunted, scene, spec_of
from truehalf.codes import codes_in
from truehalf.config.verification import GatesConfig, VerifyConfig
from truehalf.io_spec.spec import IoSpec
from truehalf.verification.findings import Finding, by_check, verdict_of
from truehalf.verification.judging.judge import judge, judge_reactions
from truehalf.verification.measured import Measured
from truehalf.verification.runs import Run

CLASSES = {"outputs": [{"name": "y", "kind": "classes"}]}


def measured(r: Mapping[str, Any], o: Mapping[str, Any], spec: Any, **gates: Any) -> Measured:
    rows = len(next(iter(r.values())))
    run = Run([f"s{i}" for i in range(rows)], rows, r, o, [f"{i}" for i in range(rows)])
    return Measured([run], IoSpec.from_json(spec), VerifyConfig(gates=GatesConfig(**gates)))


def states(found: list[Finding]) -> dict[str, str]:
    return {row["check"]: row["state"] for row in by_check(found)}


def test_an_output_that_is_empty_was_not_compared() -> None:
    empty = {"y": np.zeros((2, 0), np.float32)}
    (finding,) = [one for one in judge(measured(empty, empty, {})) if one.check == "tensors"]
    assert finding.state == "not verified" and codes_in(finding.reason) == ["nothing-compared"]


def test_each_output_has_a_gate_and_a_failed_one_its_worst() -> None:
    r = {name: np.arange(6, dtype=np.float32).reshape(3, 2) for name in "yz"}
    found = judge(measured(r, r | {"z": r["z"] + np.float32([[0], [0.5], [0]])}, {}))
    gates = {one.facts["output"]: one for one in found if one.facts.get("measures") == "tensor_rms"}
    assert (gates["y"].state, gates["z"].state) == ("verified", "failed")
    assert gates["z"].facts["worst"][0]["sample"] == "s1" and 0.09 < gates["z"].facts["value"] < 0.1


def test_class_logits_of_another_shape_have_no_best_class() -> None:
    r = {"y": np.eye(3, dtype=np.float32)}
    found = judge(measured(r, {"y": np.zeros((3, 4), np.float32)}, CLASSES))
    assert states(found) == {"classes": "not verified", "tensors": "failed", "nonfinite": "verified"}
    reacted = judge_reactions(measured(r, {"y": np.zeros((3, 4), np.float32)}, CLASSES))
    assert [codes_in(one.reason) for one in reacted] == [["not-comparable"]]


def test_detections_of_another_shape_are_not_compared() -> None:
    r = as_queries(scene())
    found = judge(measured(r, r | {"boxes": r["boxes"][:, :-1]}, spec_of(r)))
    opened = [one for one in found if one.state == "not verified"]
    assert verdict_of(found) == "failed" and {code for one in opened for code in codes_in(one.reason)} == {
        "no-labels",
        "not-comparable",
    }


def test_as_many_new_nan_of_a_detector_pass_as_the_gate_allows() -> None:
    r = as_queries(scene())
    name = next(each["name"] for each in spec_of(r)["outputs"] if each["kind"] == "logits")
    o = {**r, name: r[name].copy()}
    sample, query = np.unravel_index(r[name].max(axis=2).argmin(), r[name].shape[:2])
    o[name][sample, query, 0] = np.nan
    for allowed, state in ((0, "failed"), (1, "verified")):
        found = judge(measured(r, o, spec_of(r), nonfinite_max=allowed))
        assert states(found)["nonfinite"] == state
        assert any("where the reference is finite" in one.reason for one in found) == (allowed == 0)


def test_what_is_below_the_score_threshold_is_judged_where_nothing_is_above() -> None:
    start = scene()
    quiet = replace(start, scores=start.scores * np.float32(0.45))
    sides = [as_queries(each) for each in (quiet, haunted(quiet, np.random.default_rng(0)))]
    seen = measured(*sides, spec_of(sides[0]))
    assert seen.summary["reference"] == 0
    low = next(one for one in judge(seen) if one.facts.get("measures") == "low_self_ap50_95_drop")
    assert low.facts["value"] is not None
