"""calibrate: value ranges of every float tensor of the FP32 model, over real samples.

Facts of the FP32 model alone: no precision setting is read, so none re-runs this stage. Ranges are over finite values;
NaN and Inf are counted beside them (a mask of -Inf is legitimate inside), but an output that is not finite is an error.
Samples run one at a time, so that the sample of a maximum is the true one; two passes are made over them, the second
over the few tensors that need counting.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from stages.data.samples import Sample, batches, calibration_samples, stacked
from stages.io import Stage, StageError, load_model, stage_main, write_json
from stages.ort.ranges import (
    Counter,
    Counts,
    Scan,
    Scanner,
    float_tensors,
    nonfinite_constants,
    nonfinite_tensors,
    origins,
)
from stages.progress import track

LADDER = (128, 512, 2048, 8192, 32768, 65504)


def calibrate(
    model_path: Path | str,
    batches: Iterable[Mapping[str, np.ndarray]],
    *,
    names: Sequence[str],
    ladder: Sequence[float] = LADDER,
) -> dict[str, Any]:
    """Measure every FLOAT tensor of an FP32 model (graph inputs included, constants not) over samples.

    Args:
        model_path: the FP32 model.
        batches: arrays by input name, each with a leading axis of samples; read twice, so no one-shot iterator.
        names: one per sample, in order.
        ladder: magnitudes, ascending; the share of elements above each is counted.

    Returns:
        {"samples": N, "ladder": [...], "tensors": {name: {"min", "max", "absmax", "sample", "elements", "nan",
        "posinf", "neginf", "above": {"128": share, ...}}}}. min, max and absmax are over finite elements, and null,
        with `sample`, when there is none; `sample` holds the absmax; `elements` counts over all samples, and a share is
        (finite elements with |x| > rung) / elements.

    Raises:
        StageError: when an output is not finite (naming output, sample and first node), when names and samples differ
            in number, or when the model cannot be loaded or run.
    """
    if iter(batches) is batches:
        raise StageError("calibrate: batches are read twice; expected a list or the like, got a one-shot iterator")
    model = load_model(model_path)
    samples = _Samples(batches, names, _fixed_batch(model))
    tensors = float_tensors(model)
    facts = {name: _Facts() for name in tensors}
    counted = _first_pass(model, samples, tensors, facts, ladder)
    if counted:
        _second_pass(model, samples, facts, counted)
    return {
        "samples": len(names),
        "ladder": list(ladder),
        "tensors": {name: fact.entry(ladder) for name, fact in facts.items()},
    }


@dataclass
class _Facts:
    """What is known of one tensor so far."""

    low: float | None = None
    high: float | None = None
    absmax: float | None = None
    sample: str | None = None
    elements: int = 0
    suspect: bool = False
    nan: int = 0
    posinf: int = 0
    neginf: int = 0
    above: dict[float, int] = field(default_factory=dict)

    def widen(self, low: float, high: float, sample: str) -> None:
        self.low = low if self.low is None else min(self.low, low)
        self.high = high if self.high is None else max(self.high, high)
        absmax = max(abs(low), abs(high))
        if self.absmax is None or absmax > self.absmax:
            self.absmax, self.sample = absmax, sample

    def forget_extremes(self) -> None:
        self.low = self.high = self.absmax = self.sample = None

    def add(self, counts: Counts, sample: str) -> None:
        self.nan += counts.nan
        self.posinf += counts.posinf
        self.neginf += counts.neginf
        for rung, count in counts.above.items():
            self.above[rung] = self.above.get(rung, 0) + count
        if counts.low is not None and counts.high is not None:
            self.widen(counts.low, counts.high, sample)

    def entry(self, ladder: Sequence[float]) -> dict[str, Any]:
        share = {f"{rung:g}": self.above.get(rung, 0) / self.elements if self.elements else 0.0 for rung in ladder}
        return {
            "min": self.low,
            "max": self.high,
            "absmax": self.absmax,
            "sample": self.sample,
            "elements": self.elements,
            "nan": self.nan,
            "posinf": self.posinf,
            "neginf": self.neginf,
            "above": share,
        }


def _first_pass(
    model: ir.Model, samples: _Samples, tensors: list[str], facts: dict[str, _Facts], ladder: Sequence[float]
) -> dict[str, list[float]]:
    """Extremes of every tensor; returns what the second pass has to count: the rungs by tensor."""
    scanner = Scanner(model, tensors)
    for name, feeds in track(samples, "calibrate: extremes", len(samples)):
        scan = scanner.run(feeds)
        _require_finite_outputs(model, name, feeds, tensors, scan)
        columns = (column.tolist() for column in (scan.low, scan.high, scan.elements, scan.suspect))
        for fact, low, high, elements, suspect in zip(facts.values(), *columns, strict=True):
            fact.elements += elements
            fact.suspect |= suspect
            if elements and not suspect:
                fact.widen(low, high, name)
    needed = {}
    for tensor, fact in facts.items():
        rungs = [rung for rung in ladder if fact.suspect or (fact.absmax is not None and fact.absmax > rung)]
        if rungs or fact.suspect:
            needed[tensor] = rungs
    return needed


def _second_pass(model: ir.Model, samples: _Samples, facts: dict[str, _Facts], counted: dict[str, list[float]]) -> None:
    suspects = {tensor for tensor in counted if facts[tensor].suspect}
    for tensor in suspects:
        facts[tensor].forget_extremes()
    counter = Counter(model, counted, suspects)
    for name, feeds in track(samples, "calibrate: counts", len(samples)):
        for tensor, counts in counter.run(feeds).items():
            facts[tensor].add(counts, name)


# --- samples ----------------------------------------------------------------------------------------------------------


class _Samples:
    """(name, feeds) one at a time; where the model has a fixed batch of k, the sample k times over."""

    def __init__(self, batches: Iterable[Mapping[str, np.ndarray]], names: Sequence[str], fixed: int) -> None:
        self._batches, self._names, self._fixed = batches, names, fixed

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
        count = 0
        for feeds in self._batches:
            sizes = {name: len(array) for name, array in feeds.items()}
            if len(set(sizes.values())) != 1:
                raise StageError(f"calibrate: expected as many samples in every input, got {sizes}")
            for i in range(next(iter(sizes.values()))):
                if count == len(self._names):
                    raise StageError(f"calibrate: expected {count} samples, one for each name, got more")
                single = {name: np.repeat(array[i : i + 1], self._fixed, axis=0) for name, array in feeds.items()}
                yield self._names[count], single
                count += 1
        if count != len(self._names):
            raise StageError(f"calibrate: expected {len(self._names)} samples, one for each name, got {count}")


def _fixed_batch(model: ir.Model) -> int:
    """The leading axis of the inputs where the model fixes it, else 1."""
    leading = {value.shape[0] for value in model.graph.inputs if value.shape is not None and len(value.shape)}
    fixed = {axis for axis in leading if isinstance(axis, int)}
    return fixed.pop() if len(fixed) == 1 else 1


# --- outputs ----------------------------------------------------------------------------------------------------------


def _require_finite_outputs(
    model: ir.Model, sample: str, feeds: Mapping[str, np.ndarray], tensors: list[str], scan: Scan
) -> None:
    for name, output in scan.outputs.items():
        if not np.issubdtype(output.dtype, np.floating) or np.isfinite(output).all():
            continue
        nonfinite = nonfinite_tensors(model, feeds, tensors, scan) | nonfinite_constants(model)
        first = origins(model, nonfinite, [name])
        raise StageError(
            f"calibrate: output {name!r} of the FP32 model is not finite on sample {sample!r}: "
            f"{np.isnan(output).sum()} NaN and {np.isinf(output).sum()} Inf among {output.size} values; "
            f"{_origin(first)}. FP16 cannot be better: mend the model or its weights, or take the sample out"
        )


def _origin(first: Sequence[ir.Value]) -> str:
    if not first:
        return "the first node is inside a subgraph"
    value = first[0]
    node = value.producer()
    if node is None:
        return f"it begins in {'initializer' if value.is_initializer() else 'input'} {value.name!r}"
    return f"it begins at node {node.name!r} ({node.op_type}), tensor {value.name!r}, whose inputs are all finite"


# --- the stage --------------------------------------------------------------------------------------------------------


class _Batches:
    """The feeds of groups of samples, made anew each time they are iterated over."""

    def __init__(self, samples: Sequence[Sample], size: int) -> None:
        self._samples, self._size = samples, size

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        return (stacked(group) for group in batches(self._samples, self._size))


def run(stage: Stage) -> dict[str, Any]:
    samples = calibration_samples(stage.config, stage.root)
    path = stage.artifact("slim")
    ranges = calibrate(path, _Batches(samples, stage.config.calibrate.batch), names=[sample.name for sample in samples])
    write_json(stage.out() / "ranges.json", ranges)
    return report(ranges, load_model(path))


def report(ranges: Mapping[str, Any], model: ir.Model) -> dict[str, Any]:
    """The content of reports/calibrate.json: counts, and the ten largest tensors with their producers."""
    producers = {value.name: node.name or node.op_type for node in model.graph for value in node.outputs}
    tensors = ranges["tensors"]
    measured = {name: entry for name, entry in tensors.items() if entry["absmax"] is not None}
    largest = sorted(measured, key=lambda name: -measured[name]["absmax"])[:10]
    return {
        "samples": ranges["samples"],
        "tensors": len(tensors),
        "tensors_above_512": sum(entry["absmax"] > 512 for entry in measured.values()),
        "tensors_above_65504": sum(entry["absmax"] > 65504 for entry in measured.values()),
        "tensors_nonfinite": sum(bool(e["nan"] + e["posinf"] + e["neginf"]) for e in tensors.values()),
        "largest": [
            {"tensor": name, "node": producers.get(name), "sample": tensors[name]["sample"]}
            | {"absmax": tensors[name]["absmax"]}
            for name in largest
        ],
    }


def main() -> None:
    stage_main("calibrate", run)


if __name__ == "__main__":
    main()
