"""Report of slimming and repair, the content of reports/slim.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from truehalf.json_values import JsonObject, from_fields, no_facts, to_fields

if TYPE_CHECKING:
    from truehalf.ir.facts import ModelFacts
    from truehalf.verification.metrics.tensors import Parity


@dataclass(frozen=True)
class SlimReport:
    """Report of onnxslim and the repairs.

    Attributes:
        status, reason: of a file that is passed on as it is: "skipped", and why; None otherwise.
        simplified: whether onnxslim made the model; None where it was not asked to.
        failed: why something was left out; None where nothing was.
        nodes_before, nodes_after: counts.
        ops_before, ops_after: nodes by operator.
        skipped_patterns: left out on request.
        left_out: patterns and passes that change what the model computes.
        repair: places repaired by pass, and places that a pass refused.
        parity: of the model before and after.
        model: facts of the new model.
    """

    status: str | None = None
    reason: str | None = None
    simplified: bool | None = None
    failed: str | None = None
    nodes_before: int | None = None
    nodes_after: int | None = None
    ops_before: Mapping[str, int] = field(default_factory=dict)
    ops_after: Mapping[str, int] = field(default_factory=dict)
    skipped_patterns: Sequence[str] = ()
    left_out: Sequence[str] = ()
    repair: JsonObject = field(default_factory=dict)
    parity: Parity = field(default_factory=no_facts)
    model: ModelFacts = field(default_factory=no_facts)

    def to_json(self) -> JsonObject:
        return to_fields(self)

    @classmethod
    def from_json(cls, content: JsonObject) -> SlimReport:
        return from_fields(cls, content)
