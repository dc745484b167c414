"""Proposed I/O spec of an ONNX file, from a run on some samples.

What outputs may be is read from their shapes, names and values (truehalf.io_spec.proposed); how boxes are read, from
the boxes themselves (truehalf.io_spec.boxes).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir as ir

from truehalf.codes import coded
from truehalf.config.verification import VerifyConfig
from truehalf.errors import StageError
from truehalf.io_spec.boxes import in_words, layouts_of
from truehalf.io_spec.columns import ROWS, apart, in_parts
from truehalf.io_spec.decode import confident
from truehalf.io_spec.nms_plugins import told_by_plugins
from truehalf.io_spec.outputs import DETECTIONS, by_kind, task_of
from truehalf.io_spec.proposed import Proposal, proposed
from truehalf.io_spec.spec import LAYOUT, IoSpec, OutputSpec, TensorSpec
from truehalf.ir.facts import all_nodes, is_op
from truehalf.ir.ops import MOVES, Trait, has

_SAMPLES = 8  # that are run
_WIDTHS_OF_IMAGE = (4, 5, 6, 7)  # boxes; score, label and number of the image beside them
_MOST_FOUND = 0.5  # of a detector's queries: a trained one finds nothing with most of them
_Run = Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]


def proposal_of(
    model: ir.Model,
    feeds: Iterable[Mapping[str, np.ndarray]],
    run: _Run,
    class_names: Sequence[str] = (),
    score_threshold: float | None = None,
) -> Proposal:
    """What a run on the first samples suggests; of detections with what speaks against them as doubts.

    Args:
        feeds: of which the first are run, until there are eight samples.
        run: outputs of the model by name.
        class_names: that its file holds.
        score_threshold: 0 to 1, of the boxes that are looked at; None: the default of verification.
    """
    feeds_run = first_samples(feeds)
    others = [str(v.name) for v in model.graph.outputs if not isinstance(v.type, (ir.TensorType, type(None)))]

    def ran(feeds: Sequence[Mapping[str, np.ndarray]]) -> list[dict[str, np.ndarray]]:
        return [{name: array for name, array in run(feed).items() if name not in others} for feed in feeds]

    try:
        runs = ran(feeds_run)
    except StageError:  # of a file that runs image by image
        if not (feeds_run := _alone(feeds_run)):
            raise
        runs = ran(feeds_run)
    proposal = proposed(inputs_of(model), _joined(feeds_run), _joined(runs), class_names, made_by=_made_by(model))
    told = told_by_plugins(model, _joined(runs), proposal)
    proposal = told or proposal
    proposal.notes.extend(
        coded("not-supported", f"output {name!r} is no tensor: leave it out of the file") for name in others
    )
    proposal.notes.extend(_other_rows(feeds_run[0], runs[0]))
    if task_of(proposal.spec) != DETECTIONS and _may_be_of_one_image(model, runs[0]):
        again, alone, runs_alone = _image_by_image(model, feeds_run, ran, class_names)
        if again is not None:
            proposal, feeds_run, runs = replace(again, notes=proposal.notes), alone, runs_alone
    for name in runs[0]:
        if not all(np.isfinite(outputs[name]).all() for outputs in runs if outputs[name].dtype.kind == "f"):
            proposal.notes.append(
                coded("not-finite", f"output {name!r} holds NaN or Inf; look at weights and preprocessing")
            )
    if task_of(proposal.spec) != DETECTIONS:
        return proposal
    parts = apart(proposal.spec)
    runs = [in_parts(outputs, parts) for outputs in runs]
    if not all(np.isfinite(outputs[each.name]).all() for outputs in runs for each in by_kind(parts).values()):
        proposal.doubts.append("not all values are finite")
        return proposal
    threshold = VerifyConfig().score_threshold if score_threshold is None else score_threshold
    image, axis = proposal.spec.image_input, 1 if proposal.spec.image_input.layout == "NHWC" else 2
    is_image = image.kind == "images"
    sizes = [
        (feed[image.name].shape[axis], feed[image.name].shape[axis + 1]) if is_image else None for feed in feeds_run
    ]
    share = np.concatenate([confident(outputs, parts, threshold).ravel() for outputs in runs]).mean()
    if not told and "logits" in by_kind(parts) and share > _MOST_FOUND:
        proposal.doubts.append(f"{share:.0%} of the rows score {threshold:g} or more; of a trained detector's, few do")
    sized, boxes = list(zip(runs, sizes, strict=True)), _holding_boxes(proposal.spec)
    layouts = layouts_of(sized, parts, threshold)
    proposal.reasons[boxes.name] += f"; {in_words(layouts)}"
    if told:
        fitting = (each for each in layouts if each[0] == boxes.format)
        return replace(proposal, spec=_with_layout(proposal.spec, *next(fitting, (boxes.format, boxes.normalized))))
    # Small boxes of cxcywh lie where such of x, y, width, height may, too, which no network is known to put out.
    if [box_format for box_format, _ in layouts] in (["cxcywh"], ["xyxy"], ["xywh"], ["cxcywh", "xywh"]):
        return replace(proposal, spec=_with_layout(proposal.spec, *layouts[0]))
    proposal.doubts.append(
        f"output {boxes.name!r}: its values do not say how boxes are to be read: {in_words(layouts)}"
    )
    of_all = layouts or layouts_of(sized, parts, 0.0)
    known = boxes.format if boxes.format == "cxcywh" or len(of_all) < 2 else None
    return replace(proposal, spec=_with_layout(proposal.spec, known, boxes.normalized))


def _made_by(model: ir.Model) -> dict[str, str]:
    """By output the operator that makes it, behind nodes that only move values, and casts."""
    operators = {}
    for value in model.graph.outputs:
        node = value.producer()
        while node is not None and is_op(node, *MOVES, "Cast") and node.inputs and node.inputs[0] is not None:
            node = node.inputs[0].producer()
        operators[str(value.name)] = "" if node is None else node.op_type
    return operators


def _may_be_of_one_image(model: ir.Model, outputs: Mapping[str, np.ndarray]) -> bool:
    """Whether outputs may hold boxes without an axis of images, and inputs may take one image, as the file states."""
    sides = [value.shape[0] for value in model.graph.inputs if value.shape and not value.is_initializer()]
    takes_one = all(side == 1 or not isinstance(side, int) for side in sides)
    return takes_one and any(array.ndim == 2 and array.shape[1] in _WIDTHS_OF_IMAGE for array in outputs.values())


def _image_by_image(
    model: ir.Model,
    feeds: Sequence[Mapping[str, np.ndarray]],
    ran: Callable[[Sequence[Mapping[str, np.ndarray]]], list[dict[str, np.ndarray]]],
    class_names: Sequence[str],
) -> tuple[Proposal | None, list[Mapping[str, np.ndarray]], list[dict[str, np.ndarray]]]:
    """What runs of each sample alone suggest, where that is detections without an axis of images; these feeds, and what
    comes out.
    """
    alone = _alone(feeds)
    try:
        runs = ran(alone)
    except StageError:  # a model that takes no single sample
        runs = []
    of_images, counts = _of_one_image(runs) if runs else ([], [])
    if not of_images:
        return None, alone, runs
    found = proposed(inputs_of(model), _joined(alone), _joined(runs), class_names, of_images, counts)
    return found if task_of(found.spec) == DETECTIONS else None, alone, runs


def _alone(feeds: Sequence[Mapping[str, np.ndarray]]) -> list[Mapping[str, np.ndarray]]:
    """Each sample of these feeds in a feed of its own; none where axis 0 does not count samples."""
    rows = [{array.shape[:1] for array in feed.values()} for feed in feeds]
    if any(len(each) != 1 or () in each for each in rows):
        return []
    counts = [next(iter(each))[0] for each in rows]
    return [
        {name: array[row : row + 1] for name, array in feed.items()}
        for feed, count in zip(feeds, counts, strict=True)
        for row in range(count)
    ]


def _of_one_image(runs: Sequence[Mapping[str, np.ndarray]]) -> tuple[list[str], list[str]]:
    """Outputs of runs of one sample each whose rows are not one; and integers that count these rows."""
    uneven = [name for name in runs[0] if any(run[name].ndim and len(run[name]) != 1 for run in runs)]
    counts = [
        name
        for name, value in runs[0].items()
        if name not in uneven and value.dtype.kind in "iu" and all(_counts(run[name], run, uneven) for run in runs)
    ]
    return uneven, counts


def _counts(number: np.ndarray, run: Mapping[str, np.ndarray], rows: Sequence[str]) -> bool:
    return number.size == 1 and number.item() in [len(run[name]) for name in rows]


def _other_rows(feed: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]) -> Iterator[str]:
    """Outputs without a row for each sample, of which the pipeline takes none."""
    counts = {array.shape[:1] for array in feed.values()}
    for name, array in outputs.items():
        if len(counts) == 1 and array.shape[:1] not in counts:
            shape, samples = list(array.shape), next(iter(counts))[0]
            expected = "the pipeline expects as many on axis 0: fill up to a fixed number, or leave it out"
            yield coded("wrong-shape", f"output {name!r} is {shape} for {samples} samples; {expected}")


def first_samples(feeds: Iterable[Mapping[str, np.ndarray]]) -> list[Mapping[str, np.ndarray]]:
    """As many as make up eight samples."""
    taken: list[Mapping[str, np.ndarray]] = []
    for feed in feeds:
        taken.append(feed)
        if sum(max((array.shape[0] for array in each.values() if array.ndim), default=1) for each in taken) >= _SAMPLES:
            break
    return taken


def may_detect(model: ir.Model) -> bool:
    """Whether an output may hold boxes, as far as the file states shapes; not of a model that draws random numbers, of
    which a run before the comparison would take some.
    """
    if any(has(node, Trait.RANDOM) for node in all_nodes(model, functions=True)):
        return False
    shapes = [None if value.shape is None else list(value.shape) for value in model.graph.outputs]
    return any(shape is None or _may_hold_boxes(shape) for shape in shapes)


def _may_hold_boxes(shape: Sequence[int | ir.SymbolicDim]) -> bool:
    """Alone, or with what belongs to them; after non-maximum suppression perhaps without an axis of images."""
    if len(shape) == 2:
        return not isinstance(shape[1], int) or shape[1] in _WIDTHS_OF_IMAGE
    return list(shape[2:]) == [1, 4] or (
        len(shape) == 3 and (shape[2] == 4 or any(not isinstance(side, int) or side > 4 for side in shape[1:]))
    )


def _holding_boxes(spec: IoSpec) -> OutputSpec:
    kinds = by_kind(spec)
    return kinds.get("boxes") or kinds[ROWS]


def described(spec: IoSpec) -> str:
    """What the outputs of detections are, in words."""
    keys = (*LAYOUT, "batched")
    parts = []
    for output in by_kind(spec).values():
        how = [f"{key} {_told(value)}" for key in keys if (value := getattr(output, key)) is not None]
        parts.append(f"{output.name!r} as {', '.join([str(output.kind), *how])}")
    return "; ".join(parts)


def _told(value: str | bool | int | tuple[str, ...]) -> str:
    return " ".join(value) if isinstance(value, tuple) else str(value).lower()


def _with_layout(spec: IoSpec, box_format: str | None, normalized: bool | None) -> IoSpec:
    boxes = _holding_boxes(spec)
    read = replace(boxes, format=box_format, normalized=normalized)
    return replace(spec, outputs=tuple(read if each is boxes else each for each in spec.outputs))


def inputs_of(model: ir.Model) -> list[TensorSpec]:
    """Inputs without a default, as the file states them."""
    return [
        TensorSpec(str(value.name), None, np.dtype(value.dtype.numpy()).name, _sides(value.shape))
        for value in model.graph.inputs
        if not value.is_initializer() and value.dtype is not None
    ]


def _sides(shape: Any) -> tuple[int | str, ...] | None:
    return None if shape is None else tuple(side if isinstance(side, int) else str(side.value or "?") for side in shape)


def _joined(runs: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Arrays of all runs; those of the one with most values where sizes differ."""
    names = runs[0]
    alike = {
        name: len({(run[name].ndim, run[name].shape[1:]) for run in runs}) == 1 and runs[0][name].ndim > 0
        for name in names
    }
    most = max(runs, key=lambda run: sum(array.size for array in run.values()))
    return {name: np.concatenate([run[name] for run in runs]) if alike[name] else most[name] for name in names}
