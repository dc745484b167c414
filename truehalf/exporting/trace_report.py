"""Report of an export, the content of reports/trace.json."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from truehalf.codes import coded
from truehalf.errors import some_of
from truehalf.json_values import JsonObject, from_fields, no_facts, to_fields

if TYPE_CHECKING:
    from truehalf.ir.facts import ModelFacts
    from truehalf.patterns.report import LintSummary
    from truehalf.verification.metrics.tensors import Parity


SHOWN = 10  # places of a sentence


@dataclass(frozen=True)
class Baked:
    """Result of the comparison on further inputs.

    Attributes:
        inputs: what was compared beside the samples.
        skipped: inputs that prove nothing (torch fails, is not finite, or differs from itself when the input is off by
            rounding), with the reason.
        open, installed: sentences on places, each with file and line.
    """

    inputs: Sequence[str] = ()
    skipped: Sequence[str] = ()
    open: Sequence[str] = ()
    installed: Sequence[str] = ()

    @property
    def reason(self) -> str:
        """Why a trace is not verified, in a sentence; empty where nothing is open."""
        if not self.open:
            return ""
        return coded(
            "trace-open",
            "the file keeps what Python decided while it was traced, and agreement with torch on "
            f"{len(self.inputs)} further inputs is no proof: {some_of(self.open, SHOWN, '; ')}; use tensors instead",
        )


@dataclass(frozen=True)
class TraceReport:
    """What was written, and what was compared.

    Attributes:
        exporter: its name; PASSED_ON of truehalf.exporting.trace for a file.
        opset: of the default domain.
        parameters: how many numbers the model has.
        unread_inputs: inputs that no output depends on, which are inputs of the file all the same.
        parity: of the file and the module, on every sample.
        baked: what the trace has fixed; None of a file that is passed on.
        lint: the TensorRT compatibility of the file.
        model: facts, and size_mb.
        notes: what is to be known of it: tensors that are empty on every sample, sentences of the model's source.
    """

    exporter: str = ""
    opset: int | None = None
    parameters: int | None = None
    unread_inputs: Sequence[str] = ()
    parity: Parity = field(default_factory=no_facts)
    baked: Baked | None = None
    lint: LintSummary = field(default_factory=no_facts)
    model: ModelFacts = field(default_factory=no_facts)
    notes: Sequence[str] = ()

    def to_json(self) -> JsonObject:
        return to_fields(self)

    @classmethod
    def from_json(cls, content: JsonObject) -> TraceReport:
        return from_fields(cls, content, baked=partial(from_fields, Baked))
