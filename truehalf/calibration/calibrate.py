"""Ranges of every float tensor over samples: what calibration measures (the content of ranges.json).

NaN and Inf inside are legitimate (a mask of -Inf), but an output that is not finite is an error, or a warning where
that is asked for.

Samples run one at a time, so that the sample of a maximum is the true one: one pass takes extremes, and sums inside
nodes (truehalf.calibration.sums). Samples in which a tensor holds NaN or Inf are counted; its extremes are those of
the others.

Of an If the branch that all samples take is measured, as if it stood in the graph. Other branches, and the bodies of
Loop and Scan, are not.

What a Reshape or a Transpose outputs holds the elements of its input and is not measured again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Literal

import numpy as np
import onnx_ir as ir

from truehalf.calibration.branches import with_branches
from truehalf.calibration.instrument import LARGEST, main_values
from truehalf.calibration.ranges import Scan, Scanner, float_tensors, roots
from truehalf.calibration.ranges_form import InnerSum, RangesJson, TensorRange
from truehalf.calibration.sums import Reduction, reductions
from truehalf.errors import StageError
from truehalf.ir.facts import constant_of, reached, values_read
from truehalf.ir.model_file import load_model
from truehalf.ir.normalize import PREPARE
from truehalf.ir.opset import ToOpset
from truehalf.progress import track
from truehalf.runtime.ort import refusal
from truehalf.runtime.types import infer_open_types

_OPSET_MIN = 9  # which has Where; an older model is measured at this one, where its tensors keep their names
_RUNS_FROM = 7  # in ONNX Runtime; what cannot be raised from here on (Scan of opset 8) is measured as it is
_LISTED = 5  # tensors in a warning


def calibrate(
    model: Path | str | ir.Model,
    feeds: Sequence[Mapping[str, np.ndarray]],
    *,
    nonfinite_outputs: Literal["error", "warn"] = "error",
) -> RangesJson:
    """Measure every FLOAT tensor of an FP32 model (graph inputs included, constants not) over samples.

    Args:
        model: path, or model in memory (its unknown value types are filled in; nodes without a name have no inner
            sums).
        feeds: complete inputs by name, one run each, named by `feeds.names` where it has them, else "0", "1", ... A
            tensor without an element measures nothing.
        nonfinite_outputs: whether NaN or Inf in an output of the model is an error or a warning.

    Returns:
        the content of ranges.json.

    Raises:
        StageError: when an output is not finite (naming output, sample and first node), when there is no feed, or when
            the model cannot be loaded or run.
    """
    if not len(feeds):
        raise StageError("too-few-samples", "calibrate: expected at least one sample, got none")
    if not isinstance(model, ir.Model):
        model = load_model(model)
        PREPARE(model)
    if (opset := model.graph.opset_imports.get("", _OPSET_MIN)) < _OPSET_MIN:
        try:
            model = ToOpset(_OPSET_MIN)(model.clone()).model
        except StageError:
            if opset < _RUNS_FROM:
                raise
    infer_open_types(model)
    names = getattr(feeds, "names", None) or [str(number) for number in range(len(feeds))]
    try:
        model = with_branches(model, feeds)
        run = _Run(model, nonfinite_outputs)
        run.measure(names, feeds)
    except StageError as error:
        raise refusal(error, model, "convert without calibration, or give ranges") from error
    return {
        "samples": len(feeds),
        "warnings": run.warnings,
        "tensors": {name: run.ranges[root].to_json() for name, root in run.roots.items()},
        "inner": {name: asdict(found) for name, found in run.inner.items()},
    }


class _Run:
    """What is measured over the samples.

    Attributes:
        roots: for every tensor the one that is measured in its place.
        ranges: of the measured tensors.
        inner: as in ranges.json.
    """

    def __init__(self, model: ir.Model, nonfinite_outputs: str) -> None:
        self._model, self._nonfinite_outputs = model, nonfinite_outputs
        floats, untyped = float_tensors(model)
        self.roots = roots(model, floats)
        self.ranges = {root: TensorRange() for root in dict.fromkeys(self.roots.values())}
        self.inner: dict[str, InnerSum] = {}
        self.warnings: list[str] = []
        if untyped:
            names = ", ".join(map(repr, untyped[:_LISTED])) + (", ..." if len(untyped) > _LISTED else "")
            self.warnings.append(f"{len(untyped)} tensors of unknown type are not measured: {names}; add value_info")
        self._warned: set[str] = set()

    def measure(self, names: Sequence[str], samples: Sequence[Mapping[str, np.ndarray]]) -> None:
        """Extremes of every tensor, and sums inside nodes."""
        inner = [each for each in reductions(self._model) if each.node.name and constant_of(each.source) is None]
        scanner = Scanner(self._model, list(self.ranges), inner)
        for name, feeds in zip(names, track(samples, "calibrate", len(samples)), strict=True):
            scan = scanner.run(feeds)
            self._check_outputs(name, scan)
            columns = (column.tolist() for column in (scan.low, scan.high, scan.elements, scan.nonfinite))
            spoiled = set[str]()
            for tensor, low, high, elements, nonfinite in zip(list(self.ranges), *columns, strict=True):
                self.ranges[tensor] = _with(self.ranges[tensor], low, high, elements, nonfinite, name)
                spoiled |= {tensor} if nonfinite else set()
            for each, value in zip(inner, scan.inner, strict=True):
                if value != LARGEST or self.roots.get(str(each.source.name)) not in spoiled:
                    self._add_inner(each, value, name)

    def _add_inner(self, reduction: Reduction, value: float | None, sample: str) -> None:
        known = self.inner.get(str(reduction.node.name))
        if value is not None and (known is None or known.value is None or value > known.value):
            self.inner[str(reduction.node.name)] = InnerSum(reduction.quantity, value, sample)

    def _check_outputs(self, sample: str, scan: Scan) -> None:
        for name, output in scan.outputs.items():
            if name in self._warned or not isinstance(output, np.ndarray):
                continue
            if output.dtype.kind != "f" or np.isfinite(output).all():
                continue
            text = (
                f"output {name!r} of the FP32 model is not finite on sample {sample!r}: {np.isnan(output).sum()} NaN "
                f"and {np.isinf(output).sum()} Inf among {output.size} values; {self._origin(name, scan)}"
            )
            if self._nonfinite_outputs == "error":
                remedy = "FP16 cannot be better: fix the model or its weights, or take the sample out"
                raise StageError("not-finite", f"calibrate: {text}. {remedy}")
            self._warned.add(name)
            self.warnings.append(text)

    def _origin(self, output: str, scan: Scan) -> str:
        """Name the first node on the way to an output that writes NaN or Inf."""
        spoiled = {name for name, nonfinite in zip(self.ranges, scan.nonfinite, strict=True) if nonfinite}
        values = main_values(self._model)

        def sources(value: ir.Value) -> list[ir.Value]:
            node = value.producer()
            read = [] if node is None else values_read(node)
            return [each for each in read if self.roots.get(str(each.name)) in spoiled]

        way = set(reached([values[output]], sources))
        first = next(value for value in values.values() if value in way)
        node = first.producer()
        if node is None:
            return f"it begins in input {first.name!r}"
        return f"it begins at node {node.name!r} ({node.op_type}), tensor {first.name!r}"


def _with(known: TensorRange, low: float, high: float, elements: int, nonfinite: bool, sample: str) -> TensorRange:
    """A range with one sample more."""
    known = replace(known, elements=known.elements + elements)
    if nonfinite:
        return replace(known, nonfinite=known.nonfinite + 1, sample=known.sample or sample)
    if not elements:
        return known
    absmax = max(abs(low), abs(high))
    if known.absmax is None or known.min is None or known.max is None:
        return replace(known, min=low, max=high, absmax=absmax, sample=sample)
    known = replace(known, min=min(known.min, low), max=max(known.max, high))
    return replace(known, absmax=absmax, sample=sample) if absmax > (known.absmax or 0.0) else known
