"""JSON that stages write and the pipeline reads, by key: facts of files, parity, decisions, what conversion has done.

A run may be of another version, and a stage may not have run: whoever reads a file takes no key for certain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

from truehalf.json_values import JsonObject


class ModelFacts(TypedDict, total=False):
    """Counts of truehalf.ir.facts.model_facts, and the file's size in MB, large weights included."""

    nodes: int
    casts: int
    float_nodes: int
    fp16_nodes: int
    fp16_fraction: float | None
    untyped_nodes: int
    ops: dict[str, int]
    size_mb: float


class Parity(TypedDict, total=False):
    """Whether two networks compute the same: "verified", or "not verified" and why.

    Shares are of values for which the tolerance holds, of queries that were matched and that stand in another row;
    max_abs is the largest difference by output; of other heights and widths `sizes` has the same beside `inputs`.
    """

    status: str
    reason: str
    samples: int
    batch_sizes: list[int]
    provider: str
    share: float
    matched_queries: float
    moved_queries: float
    max_abs: dict[str, float]
    inputs: dict[str, list[int]]
    sizes: list[Parity]


class Decision(TypedDict, total=False):
    """A row of decisions.json: why a node has its precision ("fp16", "fp32", or "any")."""

    node: str
    op: str
    scope: str | None
    precision: str
    rule: str
    value: float | None
    threshold: float | None
    tensor: str | None
    sample: str | None
    reason: str | None


class SlimReport(TypedDict, total=False):
    """What onnxslim and the repairs did: nodes and operators by type before and after, patterns skipped on request,
    patterns and passes left out because they change what the model computes, places repaired by pass and refused;
    `failed`: why something was left out.
    """

    simplified: bool
    failed: str
    nodes_before: int
    nodes_after: int
    ops_before: dict[str, int]
    ops_after: dict[str, int]
    skipped_patterns: list[str]
    left_out: list[str]
    repair: JsonObject
    parity: Parity
    model: ModelFacts


class Fp16Report(TypedDict, total=False):
    """What the conversion, or a trace in FP16, has done; of a model that is passed on status, reason, warnings, model.

    Attributes:
        status: "done", or "skipped" with a reason.
        verdicts: nodes by the rule that decided; placement: free, and cheaper in FP32.
        fp32_nodes_total, fp32_nodes: nodes that stay FP32: how many, and the first 20 with reasons.
        fp16_fraction, fp16_arithmetic: share of the float nodes, and of float operations, 0 to 1.
        costs: bytes, casts, cast_bytes, fp32_owners: "placed", "naive" and "unforced" (least, nothing forced).
        casts_to_fp16, casts_to_fp32: Casts of the file.
        weights: constants by stored type; elements that underflowed, became subnormal or were clamped.
        masks: attention masks, and what became of each.
        unfused_attention: by name of a Softmax: what rules its fused kernel out.
        ranges: tensors with and without a measured range.
        unmatched_selectors: list entries that match nothing.
        method, device, exporter, norms, slim: of a trace in FP16 (methods half and autocast).
        warnings: what to look at.
        not_done: what was asked for and could not be done.
    """

    status: str
    reason: str
    verdicts: dict[str, int]
    fp32_nodes_total: int
    fp32_nodes: list[Decision]
    fp16_fraction: float | None
    fp16_arithmetic: float | None
    placement: str
    costs: dict[str, dict[str, int]]
    casts_to_fp16: int
    casts_to_fp32: int
    weights: dict[str, int]
    masks: list[str]
    unfused_attention: dict[str, str]
    ranges: dict[str, int]
    unmatched_selectors: list[str]
    method: str
    device: str
    exporter: str
    norms: Mapping[str, int]
    slim: SlimReport
    warnings: list[str]
    not_done: list[str]
    model: ModelFacts


class SameOutputs(TypedDict, total=False):
    """Whether a run outputs what is expected: state and reason; where it ran what was found, of detections or of other
    outputs (truehalf.verification.judging.judge.same_outputs).
    """

    state: str
    reason: str
    matched_fraction: float | None
    extra: float | None
    reference: float | None
    tensor_error: float | None
    nonfinite: int


class AdversarialFacts(SameOutputs, total=False):
    """On the adversarial samples."""

    samples: int
    max_abs_error: dict[str, float]


class Spread(TypedDict):
    p50: float
    p99: float
    max: float


class DetectionSummary(TypedDict, total=False):
    """Metrics of detections of a set of images (truehalf.verification.metrics.detections.summarize).

    Attributes:
        reference, candidate: detections with a score at or above the threshold t (0.5).
        matched: of the reference, with a partner: same class, IoU at the threshold, scores both >= t or at most 0.05
            apart.
        missed: without a partner: label_flips (another class there), displaced (less overlap) and absent.
        extra: of the candidate, without a partner.
        matched_fraction, extra_fraction: of the reference's detections, of the candidate's.
        iou: of pairs: min, p01, p50.
        box_error_px: of pairs: largest difference of a corner coordinate in pixels, p50, p99, max.
        box_error: the same as a share of the largest coordinate of all reference boxes.
        box_shift: largest mean error of a corner, as such a share, less what chance explains.
        score_error: of pairs: |difference| of scores, 0 to 1.
        low_score_error: of reference scores from 0.1 to t: |difference| to the nearest score of its class and place.
        rank_error: |difference| of the i-th best scores of an image, from 0.05 on, the largest left out.
        rank_changes: pairs of matched detections whose scores have the other order.
        self_ap50, self_ap50_95: COCO average precision with the reference's detections as labels: likeness.
        self_ap50_95_drop: of the reference against itself, minus the candidate's.
        low_self_ap50_95_drop: 1 minus self AP50-95 with the reference's detections from 0.1 on as labels.
    """

    images: int
    reference: int
    candidate: int
    matched: int
    missed: int
    label_flips: int
    displaced: int
    absent: int
    extra: int
    matched_fraction: float | None
    extra_fraction: float | None
    iou: dict[str, float] | None
    box_error_px: Spread | None
    box_error: Spread | None
    box_shift: float | None
    score_error: Spread | None
    low_score_error: Spread | None
    rank_error: Spread | None
    rank_changes: int
    reason: str
    self_ap50: float | None
    self_ap50_95: float | None
    self_ap50_95_drop: float | None
    low_self_ap50_95_drop: float | None


class SuggestedPins(TypedDict, total=False):
    """What came of the search for pins: status "found", "not confirmed" or "none"; selectors are the lists for the
    command line; verdict (None where the new file cannot be made or run) and reasons are of the confirmation.
    """

    status: str
    sentence: str
    selectors: str
    node_block_list: list[str]
    scope_block_list: list[str]
    nodes: list[str]
    minimal: bool
    runs: int
    verdict: str | None
    reasons: list[str]


class StageNumbers(TypedDict, total=False):
    """Headline of a file that verify measured; of the engine with its state and reason."""

    state: str
    reason: str
    matched_fraction: float | None
    box_error_px_p99: float | None
    score_error_p99: float | None
    top1_agreement: float | None
    max_abs_error: dict[str, float]
    max_abs_error_all_queries: dict[str, float]
    ap50: float | None
    ap50_95: float | None
    ap50_95_fp32: float | None
    self_ap50_95: float | None
    tensor_error: float | None
    nonfinite: int


_LISTED_NODES = 20


def fp32_nodes(rows: Sequence[Decision]) -> Fp16Report:
    """The nodes that stay FP32: how many, and the first of them."""
    kept = [row for row in rows if row["precision"] == "fp32"]
    listed: list[Decision] = [
        {"node": row["node"], "op": row["op"], "rule": row["rule"], "reason": row["reason"]}
        for row in kept[:_LISTED_NODES]
    ]
    return {"fp32_nodes_total": len(kept), "fp32_nodes": listed}
