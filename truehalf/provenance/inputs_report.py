"""Report of what a run reads from outside the chain, the content of reports/inputs.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypedDict

from truehalf.json_values import JsonObject, from_fields, no_facts, to_fields

if TYPE_CHECKING:
    from truehalf.provenance.fingerprints import Fingerprint, SamplesPrint


class DataSourceFacts(TypedDict, total=False):
    """data.source, and the samples that could not be read, by purpose."""

    source: str
    left_out: Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class InputsReport:
    """Fingerprints of weights, samples and code, and versions of packages.

    Attributes:
        trace, calibration, verification: samples of each purpose; None where the chain reads none for it.
        data: where the samples come from, and which of them could not be read.
        weights: files of the model, by place.
        custom_rule, metrics: code of the user's.
        software: versions by package.
        tracing_device: that a trace in FP16 runs on; None of other runs.
        machine: GPU, driver and versions of runtimes.
        model: {"sha256"}: digest that says which model this is.
    """

    trace: SamplesPrint | None = None
    calibration: SamplesPrint | None = None
    verification: SamplesPrint | None = None
    data: DataSourceFacts = field(default_factory=no_facts)
    weights: Mapping[str, Fingerprint] = field(default_factory=dict)
    custom_rule: JsonObject | None = None
    metrics: JsonObject = field(default_factory=dict)
    software: Mapping[str, str] = field(default_factory=dict)
    tracing_device: JsonObject | str | None = None
    machine: Mapping[str, Any] = field(default_factory=dict)
    model: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> JsonObject:
        return to_fields(self)

    @classmethod
    def from_json(cls, content: JsonObject) -> InputsReport:
        return from_fields(cls, content)
