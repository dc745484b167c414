"""The chain's verdict on the planted pairs of detectors: its gates hold what those of `compare` do."""

from dataclasses import asdict, replace
from typing import Any

import numpy as np
import onnx
import pytest

from tests.corpus.pairs import Pair
from tests.corpus.pairs.detections import USED, as_queries, as_top_k, haunted, pairs, scene, spec_of
from tests.messages import expect
from tests.truehalf.verification.small_detector import OPTIONS
from truehalf.data.samples import Sample
from truehalf.io_spec.spec import IoSpec
from truehalf.verification.chain.reference import Reference
from truehalf.verification.chain.stage_results import measure
from truehalf.verification.findings import Finding, reasons_of, verdict_of
from truehalf.verification.judging.judge import same_detections
from truehalf.verification.metrics.decoded import found_in
from truehalf.verification.metrics.detections import match

PAIRS = list(pairs())


def arrays_of(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    """What a replayed model puts out, as a chain reads it."""
    rows = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    return {value.name: rows[f"{value.name}_rows"].astype(np.float32) for value in model.graph.output}


def reference_of(outputs: dict[str, np.ndarray], declared: Any, labelled: bool = False) -> Reference:
    count = len(outputs["boxes"])
    names = [f"made/{i}" for i in range(count)]
    spec = IoSpec.from_json(declared)
    found = found_in(outputs, spec)
    kept = [each.scores >= 0.5 for each in found]
    truth = [
        replace(f, boxes_px=f.boxes_px[k], labels=f.labels[k], scores=f.scores[k])
        for f, k in zip(found, kept, strict=True)
    ]
    samples = [Sample(name, {}, None, None) for name in names]
    return Reference(samples, names, names, outputs, spec, found, truth if labelled else None, None)


def held(reference: Reference, outputs: dict[str, np.ndarray]) -> list[Finding]:
    return measure(reference, outputs, OPTIONS).judged()


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.name)
def test_the_chain_judges_a_planted_pair_as_compare_does(pair: Pair) -> None:
    expected, other = arrays_of(pair.reference), arrays_of(pair.candidate)
    reference = reference_of(expected, pair.spec)
    if expected["boxes"].shape != other["boxes"].shape:
        (fault,) = measure(reference, other, OPTIONS).facts["shape_faults"]
        expect(fault, "outputs-differ", expected["boxes"].shape[1], other["boxes"].shape[1])
        return
    judged = held(reference, other)
    assert verdict_of(judged) == pair.expected, reasons_of(judged)


@pytest.mark.parametrize("put_out", [as_queries, as_top_k])
def test_low_scores_are_judged_beside_true_labels(put_out: Any) -> None:
    start = scene()
    expected, other = (put_out(each) for each in (start, haunted(start, np.random.default_rng(0))))
    judged = held(reference_of(expected, spec_of(expected), labelled=True), other)
    by_name = {gate.facts["measures"]: gate for gate in judged if "gate" in gate.facts}
    states = [by_name[name].state for name in ("ap50_95_drop", "low_self_ap50_95_drop", "rank_error_p99")]
    assert states == ["verified", "failed", "failed"] and by_name["rank_error_p99"].facts["worst"]


@pytest.mark.parametrize("put_out", [as_queries, as_top_k])
def test_detections_where_the_reference_has_none_fail(put_out: Any) -> None:
    start = scene()
    expected, other = (put_out(each) for each in (replace(start, scores=start.scores / 10), start))
    found = held(reference_of(expected, spec_of(expected)), other)
    judged = {gate.facts["measures"]: gate for gate in found if "gate" in gate.facts}
    assert judged["extra_fraction"].state == "failed" and judged["matched_fraction"].state == "not verified"


def test_another_batch_is_held_to_the_same_gates() -> None:
    start = scene()
    lowered = replace(start, scores=np.minimum(start.scores, np.float32(0.6)))
    sides = [found_in(as_top_k(each), IoSpec.from_json(spec_of(as_top_k(each)))) for each in (start, lowered)]
    limits = OPTIONS.gates
    assert same_detections([match(a, a) for a in sides[0]], limits)["state"] == "verified"
    row = same_detections([match(a, b) for a, b in zip(*sides, strict=True)], limits)
    assert row["state"] == "failed" and row["matched_fraction"] == 1.0
    forgiving = replace(limits, **{name: 1.0 for name in asdict(limits) if "_error_" in name})
    assert same_detections([match(a, b) for a, b in zip(*sides, strict=True)], forgiving)["state"] == "verified"


def test_a_class_that_has_no_label_is_seen_by_rank_alone() -> None:
    pair = next(pair for pair in PAIRS if pair.name == "top-k-haunted-by-another-class")
    expected, other = arrays_of(pair.reference), arrays_of(pair.candidate)
    assert (other["labels"] == USED).any() and not (expected["labels"] == USED).any()
    judged = held(reference_of(expected, pair.spec), other)
    failed = {gate.facts["measures"] for gate in judged if gate.state == "failed"}
    assert failed == {"rank_error_p99"}
