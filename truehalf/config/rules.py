"""Rules between sections. Each yields messages, with their codes, that say what to do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from truehalf.codes import coded
from truehalf.config.engine import shown
from truehalf.config.options import default_of
from truehalf.config.precision import OF_CONVERT_ALONE, Method, Precision, PrecisionName
from truehalf.config.schema import Config, Exporter
from truehalf.config.typed import plain

# LayerNormalization is one node from 17 on. In torch 2.13 the TorchScript exporter ends at 20, dynamo begins at 18.
_OPSETS = {Exporter.torchscript: (17, 20), Exporter.dynamo: (18, 23)}


def _rules_of_precision(c: Config) -> Iterator[str]:
    if c.precision.dtype is PrecisionName.fp16 and not c.simplify:
        yield coded(
            "in-conflict",
            "simplify: precision=fp16 needs simplify=true: unfolded constants (positions, anchors, masks) would be "
            "rounded one operation at a time; set simplify=true or precision=fp32",
        )
    if c.precision.weights_as_inputs:
        yield coded(
            "in-conflict",
            "precision.weights_as_inputs: expected false, as no file of the chain lists weights among its inputs; "
            "`truehalf convert --weights-as-inputs model.onnx` keeps them there",
        )


def _rules_of_method(c: Config) -> Iterator[str]:
    method = c.precision.method
    if c.precision.dtype is not PrecisionName.fp16 or method is Method.convert:
        return
    remedy = f"it has no effect under precision.method={method}; leave it out, or set precision.method=convert"
    for option in fields(Precision):
        default, value = default_of(option), plain(getattr(c.precision, option.name))
        if option.name in OF_CONVERT_ALONE and value != default:
            message = f"precision.{option.name}: expected {shown(default)}, its default, got {shown(value)}: {remedy}"
            yield coded("in-conflict", message)
    if c.model.source == "onnx":
        message = f"precision.method: {method} traces a module; for model.source=onnx set precision.method=convert"
        yield coded("in-conflict", message)


def _rules_of_opset(c: Config) -> Iterator[str]:
    low, high = _OPSETS[c.trace.exporter]
    if not low <= c.trace.opset <= high:
        message = f"trace.opset: trace.exporter={c.trace.exporter} writes opset {low} to {high}, got {c.trace.opset}"
        yield coded("out-of-range", message)


RULES = (_rules_of_precision, _rules_of_method, _rules_of_opset)
