"""Report of what a run reads from outside the chain: what is read of reports/inputs.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from truehalf.json_values import JsonObject, from_fields, to_fields


@dataclass(frozen=True)
class InputsReport:
    """Facts of a run's inputs.

    Attributes:
        trace, calibration, verification: samples of each purpose (truehalf.provenance.fingerprints.fingerprint_data).
        data: "source", and "left_out": samples that could not be used, by reason.
        machine: GPU, driver and versions of runtimes.
        model: "sha256": digest that says which model this is.
    """

    trace: Mapping[str, Any] = field(default_factory=dict)
    calibration: Mapping[str, Any] = field(default_factory=dict)
    verification: Mapping[str, Any] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)
    machine: Mapping[str, Any] = field(default_factory=dict)
    model: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> JsonObject:
        return to_fields(self)

    @classmethod
    def from_json(cls, content: JsonObject) -> InputsReport:
        return from_fields(cls, content)
