"""Outputs of a chain that are no detections: class logits, and tensors of which nothing is known.

    tensor error   max |o - r| / max |r| of an output, r: reference, o: the file; max over all samples and outputs;
                   infinite where o is not finite, or has another shape
    label flips    of class logits: samples whose best class is another

    hidden         what the largest values of an output hide from that (truehalf.verification.metrics.scales): not
    verified

All outputs of a model that is no detector are looked at so; of a detector those that are neither boxes nor scores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from truehalf.config.schema import GatesConfig
from truehalf.io_spec.outputs import CLASSIFICATION, DETECTIONS, task_of
from truehalf.verification.chain.reference import Outputs
from truehalf.verification.findings import FAILED, NOT_VERIFIED, VERIFIED
from truehalf.verification.metrics.classification import classification_metrics
from truehalf.verification.metrics.scales import hidden_by_scale


def plain_outputs(spec: Mapping[str, Any]) -> list[str]:
    """Names of the outputs that are judged so."""
    detector = task_of(spec) == DETECTIONS
    return [output["name"] for output in spec["outputs"] if not (detector and output.get("kind"))]


def measure_plain(expected: Outputs, outputs: Outputs, spec: Mapping[str, Any]) -> dict[str, Any]:
    """Hold outputs against the reference's.

    Args:
        expected, outputs: [samples, ...] by name.

    Returns:
        tensor_errors by output, tensor_error: the largest (None without such outputs); classification:
        truehalf.verification.metrics.classification.classification_metrics, None of other models and other shapes.
    """
    errors = {name: float(_errors(expected[name], outputs.get(name)).max(initial=0.0)) for name in plain_outputs(spec)}
    return {
        "tensor_errors": errors,
        "tensor_error": max(errors.values(), default=None),
        "classification": _classification(expected, outputs, spec),
    }


def errors_by_sample(expected: Outputs, outputs: Outputs, spec: Mapping[str, Any], count: int) -> np.ndarray:
    """float64 [count]: the largest tensor error of each of the first samples."""
    rows = [_errors(expected[name][:count], outputs.get(name)) for name in plain_outputs(spec)]
    return np.asarray(np.maximum.reduce([np.zeros(count), *rows]))


def hidden_plain(
    expected: Outputs, outputs: Outputs, spec: Mapping[str, Any], tolerance: float, names: Sequence[str]
) -> str:
    """A sentence on the first output that holds a wrong part of a far smaller scale; empty where none does.

    Args:
        tolerance: the largest tensor error that passes.
        names: of the samples.
    """
    for name in plain_outputs(spec):
        pair = (expected[name][: len(outputs[name])], outputs[name])
        if hidden := hidden_by_scale(name, [pair], tolerance, [names[: len(outputs[name])]]):
            return hidden
    return ""


def same_plain(expected: Outputs, outputs: Outputs, spec: Mapping[str, Any], limits: GatesConfig) -> dict[str, Any]:
    """Whether outputs are the expected ones, within the gates: {state, reason, tensor_error}; not verified where one
    hides a wrong part.
    """
    facts = measure_plain(expected, outputs, spec)
    error, classes = facts["tensor_error"] or 0.0, facts["classification"]
    flips = classes["label_flips"] if classes else 0
    said = f"the outputs differ by {error:.2g} of their largest value"
    said += f", {flips} of {classes['samples']} best classes" if classes else ""
    good = error <= limits.tensor_error_max and flips <= limits.label_flips_max
    rows = [f"number {row}" for row in range(len(next(iter(outputs.values()))))]
    hidden = hidden_plain(expected, outputs, spec, limits.tensor_error_max, rows) if good else ""
    state = FAILED if not good else NOT_VERIFIED if hidden else VERIFIED
    return {"state": state, "reason": hidden or said, "tensor_error": error}


def _errors(expected: np.ndarray, outputs: np.ndarray | None) -> np.ndarray:
    """float64 [samples]: max |o - r| of each, as a share of the reference's largest value on all of them."""
    if outputs is None or outputs.shape != expected.shape:
        return np.full(len(expected), np.inf)
    a, b = (each.astype(np.float64).reshape(len(each), -1) for each in (expected, outputs))
    with np.errstate(invalid="ignore"):
        apart = np.where(a == b, 0.0, np.abs(a - b))
    largest = np.where(np.isnan(apart), np.inf, apart).max(axis=1, initial=0.0)
    scale = np.abs(a).max(initial=0.0)
    return np.asarray(np.where(largest == 0, 0.0, largest / scale if scale else np.inf))


def _classification(expected: Outputs, outputs: Outputs, spec: Mapping[str, Any]) -> dict[str, Any] | None:
    if task_of(spec) != CLASSIFICATION:
        return None
    name = next(output["name"] for output in spec["outputs"] if output.get("kind") == "classes")
    alike = name in outputs and outputs[name].shape == expected[name].shape
    return classification_metrics(expected[name], outputs[name]) if alike else None
