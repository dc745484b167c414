"""Options of the export, by the words that configurations use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from truehalf.config.precision import Method, Precision
from truehalf.config.schema import Exporter, FailOn, LintConfig, SlimConfig, TraceConfig
from truehalf.exporting.half import HalfTracing
from truehalf.exporting.trace import Tracing, trace
from truehalf.io_spec.spec import IoSpec


def trace_config(exporter: str = "torchscript", opset: int = 17, axes: Mapping[str, Any] | None = None) -> TraceConfig:
    return TraceConfig(Exporter(exporter), opset, dynamic_axes=dict(axes or {}))


def tracing(
    exporter: str = "torchscript",
    opset: int = 17,
    lint_ignore: Sequence[str] = (),
    lint_fail_on: str = "never",
    **more: Any,
) -> Tracing:
    """`more`: atol, rtol, or a further field of Tracing."""
    tolerance = {name: more.pop(name) for name in ("atol", "rtol") if name in more}
    lint = LintConfig(list(lint_ignore), FailOn(lint_fail_on))
    return Tracing(TraceConfig(Exporter(exporter), opset, **tolerance), lint=lint, **more)


def half_tracing(
    method: str, axes: Mapping[str, Any], exporter: str = "torchscript", opset: int = 17, **precision: Any
) -> HalfTracing:
    """`precision`: keep_io_types, opset to raise to (raise_opset), skip_patterns, repair."""
    skipped, repair = precision.pop("skip_patterns", []), precision.pop("repair", None)
    options = Precision(method=Method(method), opset=precision.pop("raise_opset", None), **precision)
    return HalfTracing(options, trace_config(exporter, opset, axes), SlimConfig(list(skipped)), repair)


def trace_json(module: Any, example: Any, path: Any, **given: Any) -> dict[str, Any]:
    """The report of trace, as a stage writes it; `given`: its keywords, and those of `tracing`."""
    call = {name: given.pop(name) for name in ("spec", "check_feeds", "prepared") if name in given}
    call["spec"] = IoSpec.from_json(call["spec"])
    return trace(module, example, path, tracing(**given), **call).to_json()
