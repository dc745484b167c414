"""Ranges of every float tensor over samples: what calibration measures (the content of ranges.json).

Ranges are over finite values; NaN and Inf are counted beside them (a mask of -Inf is legitimate inside), but an output
that is not finite is an error, or a warning where that is asked for.

Samples run one at a time, so that the sample of a maximum is the true one. The first pass over them takes extremes, and
where small elements matter (truehalf.calibration.hazards.sensitive) counts those that float16 loses; nodes that amplify
rounding are computed in float16, too (truehalf.calibration.rounding.errors). The second goes on
from tensors that the first one kept (truehalf.calibration.checkpoints), and counts in the few tensors that need it:

    absmax > rung                        share of elements above the rung
    absmax > 2048                        whether all elements are integers: float16 does not hold all of these
    bound of a sum in a node > 8192      the largest sum (truehalf.calibration.hazards.reductions)
    NaN or Inf seen, or not ruled out    their numbers, and the extremes of the other elements

Of an If the branch that all samples take is measured, as if it stood in the graph. Other branches, and the bodies of
Loop and Scan, are not.

What a Reshape or a Transpose outputs holds the elements of its input and is not measured again.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Literal

import numpy as np
import onnx_ir as ir

from truehalf.calibration.branches import with_branches
from truehalf.calibration.checkpoints import checkpoints
from truehalf.calibration.hazards import Reduction, reductions, sensitive
from truehalf.calibration.nonfinite import nonfinite_constants, nonfinite_tensors, origins
from truehalf.calibration.ranges import Counter, Scan, Scanner, float_tensors, roots
from truehalf.calibration.ranges_form import InnerSum, RangesJson
from truehalf.calibration.rounding.errors import RoundingErrors
from truehalf.calibration.samples import Samples, empty_inputs
from truehalf.calibration.tensor_facts import TensorFacts
from truehalf.errors import StageError
from truehalf.float16 import INTEGERS_MAX
from truehalf.ir.facts import constant_of
from truehalf.ir.model_file import load_model
from truehalf.ir.normalize import PREPARE
from truehalf.ir.opset import ToOpset
from truehalf.progress import track
from truehalf.runtime.ort.operators import refusal
from truehalf.runtime.ort.types import infer_open_types

LADDER = (128, 512, 2048, 8192, 32768, 65504)
_OPSET_MIN = 9  # which has Where; an older model is measured at this one, where its tensors keep their names
_RUNS_FROM = 7  # in ONNX Runtime; what cannot be raised from here on (Scan of opset 8) is measured as it is
_LISTED = 5  # tensors in a warning
_INNER_MIN = 8192  # a sum that cannot exceed this is not measured
_KEPT_BYTES_MAX = 1 << 30  # of checkpoints between the passes; samples beyond it run from their inputs again


def calibrate(
    model: Path | str | ir.Model,
    feeds: Iterable[Mapping[str, np.ndarray]],
    *,
    names: Sequence[str] | None = None,
    ladder: Sequence[float] = LADDER,
    nonfinite_outputs: Literal["error", "warn"] = "error",
) -> RangesJson:
    """Measure every FLOAT tensor of an FP32 model (graph inputs included, constants not) over samples.

    Args:
        model: path, or model in memory (its unknown value types are filled in; nodes without a name have no inner
            sums).
        feeds: complete inputs by name, one run each; read twice, so no one-shot iterator.
        names: one for each feed, in order; None: `feeds.names` where it has them, else "0", "1", ...
        ladder: magnitudes, ascending; the share of elements above each is counted.
        nonfinite_outputs: whether NaN or Inf in an output of the model is an error or a warning.

    Returns:
        the content of ranges.json.

    Raises:
        StageError: when an output is not finite (naming output, sample and first node), when names and feeds differ
            in number, when there is no feed or one without rows, or when the model cannot be loaded or run.
    """
    if iter(feeds) is feeds:
        raise StageError(
            "wrong-type", "calibrate: feeds are read twice; expected a list or the like, got a one-shot iterator"
        )
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
    samples = Samples(feeds, names)
    try:
        model = with_branches(model, samples)
        run = _Run(model, samples, ladder, nonfinite_outputs)
        run.first_pass()
        run.second_pass()
    except StageError as error:
        raise refusal(error, model, "convert without calibration, or give ranges") from error
    return {
        "samples": len(samples),
        "ladder": list(ladder),
        "warnings": run.warnings,
        "tensors": {name: run.facts[root].range(ladder).to_json() for name, root in run.roots.items()},
        "inner": {name: asdict(found) for name, found in run.inner.items()},
        "rounding": {name: found.to_json() for name, found in run.errors.measured(samples, run.kept).items()},
    }


class _Run:
    """Two passes over the samples.

    Attributes:
        roots: for every tensor the one that is measured in its place.
        facts: of the measured tensors.
        inner: as in ranges.json.
        errors: of float16, at nodes that amplify them.
        kept: checkpoints of the first samples, in their order.
    """

    def __init__(self, model: ir.Model, samples: Samples, ladder: Sequence[float], nonfinite_outputs: str) -> None:
        self._model, self._samples, self._ladder = model, samples, ladder
        self._nonfinite_outputs = nonfinite_outputs
        untyped: list[str] = []
        self.roots = roots(model, float_tensors(model, untyped))
        self.facts = {root: TensorFacts() for root in dict.fromkeys(self.roots.values())}
        self.inner: dict[str, InnerSum] = {}
        self.errors = RoundingErrors(model)
        self.warnings: list[str] = []
        if untyped:
            names = ", ".join(map(repr, untyped[:_LISTED])) + (", ..." if len(untyped) > _LISTED else "")
            self.warnings.append(f"{len(untyped)} tensors of unknown type are not measured: {names}; add value_info")
        self._warned: set[str] = set()
        self.kept: list[Mapping[str, np.ndarray]] = []

    def first_pass(self) -> None:
        """Extremes of every tensor, and where the second pass goes on from."""
        named = [self.roots[name] for value in sensitive(self._model) if (name := str(value.name)) in self.roots]
        small, replays = list(dict.fromkeys(named)), self.errors.always
        bytes_left = _KEPT_BYTES_MAX
        keep = checkpoints(self._model, bytes_left / len(self._samples))
        scanner = Scanner(self._model, list(self.facts), keep, small, replays)
        for name, feeds in track(self._samples, "calibrate: extremes", len(self._samples)):
            scan = scanner.run(feeds)
            bytes_left -= sum(array.nbytes for array in scan.kept.values())
            if bytes_left >= 0:
                self.kept.append(scan.kept)
            self._check_rows(name, feeds, scan)
            self._check_outputs(name, feeds, scan)
            columns = (column.tolist() for column in (scan.low, scan.high, scan.elements, scan.suspect))
            for fact, low, high, elements, suspect in zip(self.facts.values(), *columns, strict=True):
                fact.elements += elements
                fact.elements_of_one_run = max(fact.elements_of_one_run, elements)
                fact.suspect |= suspect
                if elements and not suspect:
                    fact.widen(low, high, name)
            for tensor, counted in scan.small.items():
                self.facts[tensor].add_small(counted, name)
            self.errors.add(replays, scan.errors, name)

    def second_pass(self) -> None:
        """Counts, where the extremes call for them."""
        rungs = {}
        for tensor, fact in self.facts.items():
            wanted = [rung for rung in self._ladder if fact.suspect or (fact.absmax is not None and fact.absmax > rung)]
            if wanted or fact.suspect:
                rungs[tensor] = wanted
        suspects = {tensor for tensor in rungs if self.facts[tensor].suspect}
        integers = {t for t in rungs if t in suspects or (self.facts[t].absmax or 0) > INTEGERS_MAX}
        inner = [each for each in reductions(self._model) if each.node.name and not self._proves_harmless(each)]
        self.errors.find_cancelling(self._absmax)
        replays = self.errors.cancelling
        if not (rungs or inner or replays):
            return
        for tensor in suspects:
            self.facts[tensor].forget_extremes()
        starts = itertools.chain(self.kept, itertools.repeat({}))
        given: list[str] | None = None
        for name, feeds in track(self._samples, "calibrate: counts", len(self._samples)):
            start = next(starts)
            if given != list(start):
                given = list(start)
                counter = Counter(
                    self._model, rungs, suspects, integers=integers, inner=inner, replays=replays, given=given
                )
            counted, sums, lost = counter.measure({**feeds, **start})
            self.errors.add(replays, lost, name)
            for tensor, counts in counted.items():
                self.facts[tensor].add(counts, name)
            for each, value in zip(inner, sums, strict=True):
                self._add_inner(each, value, name)

    def _absmax(self, value: ir.Value) -> float | None:
        constant = constant_of(value)
        if constant is not None:
            return float(np.abs(constant).max(initial=0.0))
        root = self.roots.get(str(value.name))
        return None if root is None else self.facts[root].absmax

    def _proves_harmless(self, reduction: Reduction) -> bool:
        source, keys = reduction.source, reduction.keys
        root = self.roots.get(str(source.name))
        if root is None and not (keys and constant_of(source) is not None):
            return ir.convenience.get_const_tensor(source) is not None
        measured = [self.facts[self.roots[name]] for each in (source, *keys) if (name := str(each.name)) in self.roots]
        if any(fact.suspect for fact in measured):
            return False
        low, high, elements = self._extremes(source)
        if low is None or high is None:
            return True  # it never had an element
        largest_key = max((self._absmax(key) or 0.0 for key in keys), default=0.0)
        return reduction.bound(low, high, elements, largest_key) <= _INNER_MIN

    def _extremes(self, value: ir.Value) -> tuple[float | None, float | None, int]:
        """Of a measured tensor or a constant, and how many elements one run has."""
        root = self.roots.get(str(value.name))
        if root is None:
            largest = self._absmax(value) or 0.0
            return -largest, largest, 0 if value.const_value is None else value.const_value.size
        fact = self.facts[root]
        return fact.low, fact.high, fact.elements_of_one_run

    def _add_inner(self, reduction: Reduction, value: float | None, sample: str) -> None:
        known = self.inner.get(str(reduction.node.name))
        if value is not None and (known is None or known.value is None or value > known.value):
            self.inner[str(reduction.node.name)] = InnerSum(reduction.quantity, value, sample)

    def _check_rows(self, sample: str, feeds: Mapping[str, np.ndarray], scan: Scan) -> None:
        """A sample with an empty input has no rows where nothing comes out, or no tensor of a node has an element."""
        empty = empty_inputs(self._model, feeds)
        read = {str(value.name) for value in self._model.graph.inputs}
        computed = (count for name, count in zip(self.facts, scan.elements, strict=True) if name not in read)
        if empty and not (any(map(np.size, scan.outputs.values())) and any(computed)):
            message = f"calibrate: sample {sample!r} has no rows to measure: {', '.join(empty)}"
            raise StageError("too-few-samples", f"{message}; expected at least one row in each sample")

    def _check_outputs(self, sample: str, feeds: Mapping[str, np.ndarray], scan: Scan) -> None:
        for name, output in scan.outputs.items():
            if name in self._warned or not isinstance(output, np.ndarray):
                continue
            if output.dtype.kind != "f" or np.isfinite(output).all():
                continue
            text = (
                f"output {name!r} of the FP32 model is not finite on sample {sample!r}: {np.isnan(output).sum()} NaN "
                f"and {np.isinf(output).sum()} Inf among {output.size} values; {self._origin(name, feeds, scan)}"
            )
            if self._nonfinite_outputs == "error":
                remedy = "FP16 cannot be better: fix the model or its weights, or take the sample out"
                raise StageError("not-finite", f"calibrate: {text}. {remedy}")
            self._warned.add(name)
            self.warnings.append(text)

    def _origin(self, output: str, feeds: Mapping[str, np.ndarray], scan: Scan) -> str:
        found = nonfinite_tensors(self._model, feeds, list(self.facts), scan)
        found = {name for name, root in self.roots.items() if root in found} | nonfinite_constants(self._model)
        first = origins(self._model, found, [output])
        if not first:
            return "the first node is inside a subgraph, or its tensor is no FLOAT"
        value, node = first[0], first[0].producer()
        if node is None:
            return f"it begins in {'initializer' if value.is_initializer() else 'input'} {value.name!r}"
        return f"it begins at node {node.name!r} ({node.op_type}), tensor {value.name!r}, whose inputs are all finite"
