"""Caveats of a comparison beside its verdict: parts not compared, and inputs and outputs that prove little."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedFunctionsPass, RemoveUnusedNodesPass

from truehalf.codes import coded, codes_in
from truehalf.errors import some_of
from truehalf.io_spec.outputs import DECLARE, TENSORS
from truehalf.io_spec.proposal import described
from truehalf.io_spec.spec import InputSpec, IoSpec
from truehalf.ir.facts import all_nodes, label_of
from truehalf.ir.ops import Trait, has
from truehalf.verification.chain.model_pair import ModelPair
from truehalf.verification.contradictions import contradictions
from truehalf.verification.findings import FAILED, NOT_VERIFIED, Finding
from truehalf.verification.open_file import FP32_CPU

_SHAPES = 3  # of a sentence
_DIFFER = {"outputs-differ", "beyond-gate"}


def not_compared(task: str, files: ModelPair, why_not: str, proposed: IoSpec | None) -> Iterator[str]:
    """What a comparison that was run says nothing about, and why.

    Args:
        why_not: what speaks against detections, where none are declared; empty where nothing suggests them.
        proposed: I/O spec that was taken, where none was declared.
    """
    if task == TENSORS:
        compared = "detections or classes: no I/O spec declares any, so outputs were compared element by element"
        unclear = f" (they may be detections, but {why_not})" if why_not else ""
        yield f"{compared}{unclear}; the queries of a detector may rightly change places: {DECLARE}"
    if proposed is not None:
        yield coded(
            "spec-proposed",
            f"whether outputs are what their values suggest, as no I/O spec declares them: {described(proposed)}; if "
            f"that is wrong, {DECLARE}",
        )
    if files.candidate.evaluation == FP32_CPU:
        yield "FP16: the candidate holds none"
    if files.reference.evaluation != FP32_CPU:
        yield "the FP32 model: the reference holds FP16 itself, and was emulated"
    if files.batch_sizes:
        yield f"batch sizes other than {', '.join(map(str, sorted(files.batch_sizes)))}, in which the samples ran"
    by_shapes: dict[str, list[str]] = {}
    for name, shapes in files.shapes.items():
        by_shapes.setdefault(some_of((str(list(shape)) for shape in sorted(shapes)), _SHAPES), []).append(repr(name))
    for ran, names in by_shapes.items():
        yield f"shapes of input {some_of(names, _SHAPES)} other than {ran}"


def of_files(reference: ir.Model, candidate: ir.Model, spec: IoSpec) -> list[Finding]:
    """What two files say of themselves: axes that the candidate lost, and metadata that contradict."""
    return [*_lost_axes(reference, candidate), *contradictions(reference, candidate, spec)]


def _lost_axes(reference: ir.Model, candidate: ir.Model) -> list[Finding]:
    """Axes of inputs, and axes of outputs named as one of an input, that the reference leaves free and the candidate
    fixes.
    """
    free = {side for value in reference.graph.inputs for side in _symbols(value)}
    pairs = [("input", reference.graph.inputs, candidate.graph.inputs)]
    pairs.append(("output", reference.graph.outputs, candidate.graph.outputs))
    lost = []
    for what, ours, theirs in pairs:
        sides = {str(value.name): list(value.shape or ()) for value in theirs}
        for value in ours:
            for axis, (side, other) in enumerate(zip(value.shape or (), sides.get(str(value.name), ()), strict=False)):
                is_free = not isinstance(side, int) and (what == "input" or side.value in free)
                if is_free and isinstance(other, int):
                    lost.append(
                        f"axis {axis} of {what} {str(value.name)!r} is {other} in the candidate, free in the reference"
                    )
    return [Finding("", NOT_VERIFIED, coded("axis-fixed", reason), decides=False, no_node=True) for reason in lost]


def _symbols(value: ir.Value) -> list[str]:
    return [side.value for side in value.shape or () if not isinstance(side, int) and side.value is not None]


def without_draws(found: Sequence[Finding], *models: ir.Model) -> list[Finding]:
    """Findings where a model draws random numbers: no two runs of it are alike, so that outputs which differ say
    nothing of a file. NaN, Inf and shapes say what they say.
    """
    failed = [each for each in found if each.state == FAILED and each.check != "nonfinite"]
    apart = [each for each in failed if _DIFFER & {*codes_in(each.reason)}]
    drawing = next((node for model in models for node in _drawing(model)), None) if apart else None
    if drawing is None:
        return list(found)
    reason = f"{label_of(drawing)!r} ({drawing.op_type}) draws random numbers: no two runs are alike; give it a seed"
    why = Finding("", NOT_VERIFIED, coded("not-comparable", f"{reason} to compare them"), no_node=True, explains=True)
    return [why, *(replace(each, state=NOT_VERIFIED, no_node=True) if each in apart else each for each in found)]


def _drawing(model: ir.Model) -> Iterator[ir.Node]:
    """Nodes that draw without a seed, of those that an output needs."""
    needed = model.clone()
    RemoveUnusedNodesPass()(needed)
    RemoveUnusedFunctionsPass()(needed)  # type: ignore[no-untyped-call]
    for node in all_nodes(needed, functions=True):
        if has(node, Trait.RANDOM) and "seed" not in node.attributes:
            yield node


def outside_range(feeds: Iterable[Mapping[str, np.ndarray]], entry: InputSpec) -> list[str]:
    """Values that a model which normalises inside its graph was not made for.

    Args:
        entry: of the input in the I/O spec.
    """
    declared: Sequence[float] = entry.range or ()
    if not entry.is_normalized_inside or len(declared) != 2:
        return []
    arrays = [array for feed in feeds if (array := feed.get(entry.name)) is not None and array.size]
    if not arrays:
        return []
    (low, high), least, most = declared, min(a.min() for a in arrays), max(a.max() for a in arrays)
    slack = 1e-3 * (high - low)
    if least >= low - slack and most <= high + slack:
        return []
    return [
        f"inputs as the model expects them: {entry.name!r} goes from {least:.4g} to {most:.4g}, and the I/O spec "
        f"declares {low:g} to {high:g}"
    ]
