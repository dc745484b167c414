"""The report of the FP16 conversion: a row for each node, counts, and what could not be judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from truehalf.json_values import JsonObject, from_fields, no_facts, to_fields

if TYPE_CHECKING:
    import onnx_ir as ir

    from truehalf.conversion.rules import base
    from truehalf.ir.facts import ModelFacts
    from truehalf.slimming.slim_report import SlimReport


LISTED_NODES = 20  # of the nodes that stay FP32, in the report

# --- what a conversion reports ----------------------------------------------------------------------------------------


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


@dataclass(frozen=True)
class Fp16Report:
    """What the conversion, or a trace in FP16, has done; of a model that is passed on status, reason, warnings, model.

    Attributes:
        status: "done", or "skipped" with a reason.
        verdicts: nodes by the rule that decided; placement: free, and cheaper in FP32.
        fp32_nodes_total, fp32_nodes: nodes that stay FP32: how many, and the first 20 with reasons.
        fp16_fraction, fp16_arithmetic: share of the float nodes, and of float operations, 0 to 1.
        costs: bytes, casts, cast_bytes, fp32_owners of the placement that was made ("placed") and of the naive one.
        casts_to_fp16, casts_to_fp32: Casts of the file.
        masks: constants of attention masks that were clamped.
        unfused_attention: by name of a Softmax: what rules its fused kernel out.
        unmatched_selectors: list entries that match nothing.
        check: of samples of calibration, in a pipeline: the fields of QuickCheck.
        method, device, exporter, norms, slim: of a trace in FP16 (methods half and autocast).
        warnings: what to look at.
        not_done: what was asked for and could not be done.
        model: facts of the new model.
    """

    status: str = "done"
    reason: str | None = None
    verdicts: Mapping[str, int] = field(default_factory=dict)
    fp32_nodes_total: int | None = None
    fp32_nodes: Sequence[Decision] = ()
    fp16_fraction: float | None = None
    fp16_arithmetic: float | None = None
    costs: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    casts_to_fp16: int | None = None
    casts_to_fp32: int | None = None
    masks: Sequence[str] = ()
    unfused_attention: Mapping[str, str] = field(default_factory=dict)
    unmatched_selectors: Sequence[str] = ()
    check: JsonObject | None = None
    method: str | None = None
    device: str | None = None
    exporter: str | None = None
    norms: Mapping[str, int] = field(default_factory=dict)
    slim: JsonObject | None = None
    warnings: Sequence[str] = ()
    not_done: Sequence[str] = ()
    model: ModelFacts = field(default_factory=no_facts)

    def to_json(self) -> JsonObject:
        return to_fields(self)

    @classmethod
    def from_json(cls, content: JsonObject) -> Fp16Report:
        return from_fields(cls, content)


@dataclass(frozen=True)
class CastsReport:
    """What the clean-up of Casts did, the content of reports/cast_cleanup.json.

    Attributes:
        status, reason: of a file that is passed on as it is: "skipped", and why; None otherwise.
        casts_before, casts_after: all Cast and CastLike nodes.
        rules: how often each was applied, by name.
        repeated_nodes_dropped: nodes of a file that repeated another one.
        strict: whether only rules that change no value were applied.
        model: facts.
    """

    status: str | None = None
    reason: str | None = None
    casts_before: int = 0
    casts_after: int = 0
    rules: Mapping[str, int] = field(default_factory=dict)
    repeated_nodes_dropped: int = 0
    strict: bool = False
    model: ModelFacts = field(default_factory=no_facts)

    def to_json(self) -> JsonObject:
        return to_fields(self)

    @classmethod
    def from_json(cls, content: JsonObject) -> CastsReport:
        return from_fields(cls, content)


@dataclass(frozen=True)
class QuickCheck:
    """What a few emulated samples show of a converted model.

    Attributes:
        state: "verified", "failed" (beyond the tolerance; of a drawn sample: NaN or Inf where FP32 is finite) or "not
            verified".
        sample: its name, or how many there are.
        is_drawn: no sample was given, and one was drawn.
        reason: why it is not verified, or what is wrong, with its code.
        first_bad_node: where it goes wrong; None where that was not looked for, or not found.
        node_block_list: entries with which a file was converted and within half the tolerance on them; () where none
            hold.
        remedy: what to do where there are none, with its code.
        pinned: nodes that stay FP32 in the file because an earlier check found that they must.
    """

    state: str
    sample: str
    is_drawn: bool
    reason: str = ""
    first_bad_node: str | None = None
    node_block_list: tuple[str, ...] = ()
    remedy: str = ""
    pinned: tuple[str, ...] = ()


@dataclass(frozen=True)
class ConvertReport:
    """What `convert` did, step by step.

    Attributes:
        source: nodes and casts of the model that was given.
        slim: of onnxslim and the repairs; None where nothing was slimmed.
        fp16: of the conversion.
        cast_cleanup: of the Casts.
        check: of one sample; None where it was left out, or nothing was converted.
    """

    source: Mapping[str, int]
    slim: SlimReport | None
    fp16: Fp16Report
    cast_cleanup: CastsReport
    check: QuickCheck | None = None

    def to_json(self) -> JsonObject:
        return to_fields(self)


# --- decisions --------------------------------------------------------------------------------------------------------


def entry(node: ir.Node, precision: str, decision: base.Decision) -> Decision:
    """Make the row of decisions.json of a node whose precision is known."""
    from truehalf.ir.selectors import scope_of

    return {
        "node": node.name or "",
        "op": node.op_type,
        "scope": scope_of(node),
        "precision": precision,
        "rule": decision.rule,
        "value": decision.value,
        "threshold": decision.threshold,
        "tensor": decision.tensor,
        "sample": decision.sample,
        "reason": decision.reason,
    }


def fp32_rows(rows: Sequence[Decision]) -> list[Decision]:
    """Nodes that stay FP32: name, operator, rule and reason of each."""
    return [
        {"node": row["node"], "op": row["op"], "rule": row["rule"], "reason": row["reason"]}
        for row in rows
        if row["precision"] == "fp32"
    ]


def skipped_report(path: Path) -> Fp16Report:
    """What the stage fp16 reports of a file that it passes on as it is, under precision=fp32."""
    from truehalf.ir.facts import model_facts
    from truehalf.ir.model_file import load_model
    from truehalf.ir.normalize import InferTypes

    model = load_model(path)
    InferTypes()(model)
    reason = "precision=fp32: the file is passed on as it is"
    no_casts = dict.fromkeys(("bytes", "casts", "cast_bytes", "fp32_owners"), 0)
    return Fp16Report(
        status="skipped",
        reason=reason,
        fp16_arithmetic=0.0,
        model=model_facts(model, path),
        costs={"placed": no_casts, "naive": no_casts},
    )
