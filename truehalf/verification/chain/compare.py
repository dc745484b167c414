"""compare: does an FP16 file compute what its FP32 file computes?

What is compared is what the I/O spec declares (truehalf.io_spec.outputs):

    detections      matched one to one and rank by rank, by the gates of conf/verify/detection.yaml, with average
                    precision against the reference's detections (self_ap); a label flip fails whatever the others
                    forgive
    classification  the yardstick, and the same best class on every sample
    tensors         the yardstick (truehalf.verification.metrics.yardstick)

    failed          something was measured and is beyond its limit
    not verified    nothing failed, but something that the verdict needs could not be measured
    passed          neither

The reference runs on ONNX Runtime's CPU provider in FP32, or emulated where it holds FP16 itself; the candidate by the
evaluation asked for, and where FP16 arithmetic decides its shapes on the CPU provider, too. Where axis 0 counts
samples, feeds are run in groups of `batch`, and as a file with a fixed batch asks for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedFunctionsPass, RemoveUnusedNodesPass

from truehalf.codes import coded, codes_in
from truehalf.config.verification import Evaluation, VerifyConfig
from truehalf.data.model_samples import image_inputs, model_samples
from truehalf.data.samples import Feeds, Samples, kept, refuse_nan
from truehalf.errors import StageError, attempted, refuse, some_of
from truehalf.io_spec.checks import check_reference, check_shapes, check_spec, check_values
from truehalf.io_spec.in_file import SPEC_KEY, given_spec, spec_inside
from truehalf.io_spec.outputs import (
    CLASSIFICATION,
    DECLARE,
    DETECTIONS,
    ROWS,
    TENSORS,
    is_of_one_image,
    skipped_outputs,
    task_of,
)
from truehalf.io_spec.proposal import described, may_detect, proposal_of
from truehalf.io_spec.spec import InputSpec, IoSpec
from truehalf.ir.facts import all_nodes, fixed_batch, label_of, lengths_of
from truehalf.ir.model_forms import ModelFile, file_of
from truehalf.ir.ops import Trait, has
from truehalf.ir.proto.plugins import name_alike, named, not_run, plugins_of
from truehalf.json_values import JsonObject
from truehalf.progress import track
from truehalf.verification import open_file
from truehalf.verification.chain.reference import with_shapes
from truehalf.verification.comparison import ReferenceFacts
from truehalf.verification.contradictions import class_names_in, contradictions
from truehalf.verification.findings import FAILED, NOT_VERIFIED, Finding, not_checked
from truehalf.verification.localize.place import LOOKED_FOR, place_of
from truehalf.verification.metrics.kinds import kinds_of
from truehalf.verification.near_ties import Rerun, compare_without_ties
from truehalf.verification.open_file import FP32_CPU, OpenFile, evaluation_of, judge_file
from truehalf.verification.report import Report
from truehalf.verification.runs import Arrays, Part, Run, part_of, run_both, samples_of
from truehalf.verification.user_metrics import user_metrics

_ALWAYS = "always"
_REFERENCE, _CANDIDATE = "reference", "candidate"
_KEPT = 2**28  # bytes of samples
_SHAPES = 3  # of a sentence
_DIFFER = {"outputs-differ", "beyond-gate"}
_UNEVEN = "output {!r}: its rows are as many as detections, or it counts them"


def compare(
    reference: Path | str | ModelFile | OpenFile,
    candidate: Path | str | ModelFile | OpenFile,
    inputs: Any,
    *,
    spec: JsonObject | Path | str | None = None,
    preprocessing: JsonObject | Path | str | None = None,
    locate: bool | str = True,
    options: VerifyConfig | None = None,
    judged: Sequence[Finding] | None = None,
) -> Report:
    """Hold a file against its FP32 reference, on the same inputs.

    Args:
        reference, candidate: ONNX files with inputs and outputs of the same names, order, rank and type; float16
            against float32 is no difference. They may be open already, the candidate by the evaluation of `options`.
        inputs: samples, see truehalf.data.model_samples: an .npz file, a folder of them, Polygraphy's JSON,
            arrays by input name or a list of such mappings; or a folder of images, or one image. The outputs of
            all samples are held in memory.
        spec: I/O spec that declares the kinds of outputs (truehalf.io_spec.outputs), as a mapping or a YAML or JSON
            file; default: the one in the reference's metadata, else the proposed one where outputs are plainly
            detections; {}: no kinds.
        preprocessing: of images (truehalf.data.preprocessing), as a mapping or a YAML or JSON file; default: what the
            I/O spec says of the input.
        locate: look for the node where it goes wrong: False, "always", or True: unless it passed, or what is wrong is
            no node's doing (boxes that the I/O spec misreads, inputs beyond FP16's largest).
        options: evaluation, of a candidate that holds FP16; score_threshold and iou_threshold, 0 to 1; gates, of
            which tensor_rms_max, 0 or more, is the yardstick's floor; batch: samples a run at
            most, where axis 0 counts samples: with images, and where kinds are declared (others run one by
            one).
        judged: findings on the candidate as it lies on disk, where it was judged already; None: it is judged first,
            and nothing is run of a file that fails there.

    Raises:
        StageError: bad options, files of different interfaces, inputs that do not fit or hold a NaN, a file that
            ONNX Runtime cannot load or run; each with everything that is wrong.
    """
    options = options or VerifyConfig()
    if locate not in (True, False, _ALWAYS):
        raise StageError("unknown-choice", f"locate: expected True, False or {_ALWAYS!r}, got {locate!r}")
    batch = int(options.batch)
    user_metrics(options.metrics)  # before the work
    source, other = (each.file if isinstance(each, OpenFile) else file_of(each) for each in (reference, candidate))
    judged = judge_file(other, source) if judged is None else judged
    if any(each.state == FAILED for each in judged):
        return Report(judged, evaluation_of(other, options.evaluation.value), "", FP32_CPU)
    stated = _spec_of(source, spec)
    ours, theirs = _opened(
        reference if isinstance(reference, OpenFile) else source,
        candidate if isinstance(candidate, OpenFile) else other,
        options.evaluation.value,
    )
    models = ours.file.model, theirs.file.model
    samples = kept(model_samples(inputs, models[0], stated.image_input, preprocessing), _KEPT)
    of_images = samples.preprocessing is not None
    is_declared = spec is not None or bool(stated.outputs) or not may_detect(models[0])
    feeds = _feeds(samples, ours.file, batch, of_images)
    proposed, why_not = (None, "") if is_declared else _proposed(ours, feeds, of_images, options)
    declared = proposed or stated
    batch = _batch_of(declared, (ours.file, theirs.file), batch)
    task, entry = task_of(declared), declared.image_input
    layout = (entry.layout or "") if samples.preprocessing is None else samples.preprocessing.layout
    of_model = next((str(value.name) for value in image_inputs(models[0])), "")
    image = of_model if of_images else entry.name or of_model
    by_samples = task != TENSORS or of_images
    feeds = _feeds(samples, ours.file, batch, by_samples)
    parts = _parts(feeds, theirs.file.model, batch, by_samples)
    runs = [replace(run, size=_size(run.shapes.get(image), layout)) for run in run_both(parts, ours.run, theirs.run)]
    for run in runs:
        check_values(run.reference, declared)
        check_reference(run.reference, declared)
    facts = ReferenceFacts(kinds=kinds_of(declared, models[0]))
    comparison = compare_without_ties(runs, Rerun(declared, lambda: ours, theirs), declared, options, facts)
    found = _without_draws([*comparison.findings, *theirs.findings()], *models)
    caveats = [] if of_images else [*_outside_range(feeds, entry)]
    caveats += _not_compared(task, ours, theirs, runs, why_not, proposed)
    caveats += [_UNEVEN.format(name) for name in skipped_outputs(declared)]
    if unrun := not_run(source.model) or not_run(other.model):
        found.append(Finding("", NOT_VERIFIED, unrun, no_node=True, explains=True))
    found += [*judged, *contradictions(source.model, other.model, stated)]
    found += [not_checked(each) for each in caveats]
    report = Report(
        *(found, theirs.evaluation, theirs.provider, ours.evaluation, comparison),
        preprocessing=None if samples.preprocessing is None else samples.preprocessing.as_dict(),
        proposed=None if proposed is None else proposed.to_json(),
        plugins=[named(each) for each in plugins_of(source.model)],
    )
    deciding = [each for each in found if each.state == FAILED or (each.state == NOT_VERIFIED and each.decides)]
    blamed = any(not each.no_node for each in deciding)
    if locate == _ALWAYS or (locate and blamed):
        places = [(run, row) for run in runs for row in range(len(run.places))]
        run, row = places[comparison.worst or 0]
        wide = theirs.beyond_float16(run.part.again().sample(row, 1))
        if wide and locate != _ALWAYS:
            skipped = f"the node that introduces the error, as {', '.join(map(repr, wide))} overflow"
            found.append(not_checked(coded("not-searched", f"{skipped}: fix the inputs first")))
            return report
        ours.close()
        theirs.close()
        search = partial(place_of, ours.file, theirs.file, comparison, theirs.evaluation)
        place = attempted(LOOKED_FOR, lambda text: found.append(not_checked(text)), search, "not-searched")
        return replace(report, place=place)
    return report


# --- what was asked for -----------------------------------------------------------------------------------------------


def _spec_of(reference: ModelFile, spec: JsonObject | Path | str | None) -> IoSpec:
    """Read the I/O spec in force and check it against the outputs; empty where there is none."""
    graph = reference.model.graph
    try:
        declared = spec_inside(reference.model) if spec is None else given_spec(spec)
        shapes = {str(value.name): lengths_of(value) for value in graph.inputs}
        check_spec(declared, [str(value.name) for value in graph.outputs], shapes)
        declared = with_shapes(declared, _stated(graph))
        check_shapes(replace(declared, outputs=tuple(each for each in declared.outputs if each.kind == ROWS)))
    except StageError as error:
        source = f"{SPEC_KEY} in the metadata of {reference.path}" if spec is None else "spec"
        said = f"{error}\n({source}; an empty I/O spec, {{}}, compares tensors)"
        raise StageError(error.code, "\n".join(filter(None, [said, not_run(reference.model)]))) from error
    return declared


def _opened(
    reference: ModelFile | OpenFile, candidate: ModelFile | OpenFile, evaluation: str
) -> tuple[OpenFile, OpenFile]:
    """Open both files, of one interface, where they are not open already."""
    first, second = (each.file if isinstance(each, OpenFile) else each for each in (reference, candidate))
    check_same_interface(first.written, second.written)
    name_alike(first.model, second.model)
    check_same_interface(first.model, second.model)
    emulated = Evaluation.emulated_fp16.value
    return _open(reference, emulated, _REFERENCE), _open(candidate, evaluation, _CANDIDATE)


def _batch_of(spec: IoSpec, files: Sequence[ModelFile], batch: int) -> int:
    """Count the samples of each run: 1 where the outputs are those of one image.

    Raises:
        StageError: in-conflict, where they are, and a file fixes its inputs to more.
    """
    if not is_of_one_image(spec):
        return batch
    for file in files:
        if (fixed := file.fixed_batch or 1) > 1:
            message = f"{file.path}: its inputs take {fixed} images, and the I/O spec says that its outputs are of one"
            raise StageError("in-conflict", message)
    return 1


def _proposed(file: OpenFile, feeds: Any, by_samples: bool, options: VerifyConfig) -> tuple[IoSpec | None, str]:
    """Propose the I/O spec of a reference whose outputs are plainly detections; else None, and the doubts."""
    model = file.file.model

    def run(feed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return file.run(Part((), samples_of(feed) if by_samples else 0, lambda: feed))

    found = proposal_of(model, feeds, run, class_names_in(model), options.score_threshold)
    task = task_of(found.spec)
    if task != DETECTIONS or found.doubts:
        return None, "" if task == CLASSIFICATION else "; ".join(found.doubts)
    return with_shapes(found.spec, _stated(model.graph)), ""


def _stated(graph: ir.Graph) -> dict[str, list[int | str]]:
    """Shapes of outputs that a file states."""
    outputs = (value for value in graph.outputs if value.shape is not None)
    return {str(v.name): [side if isinstance(side, int) else str(side) for side in v.shape or ()] for v in outputs}


# --- caveats ----------------------------------------------------------------------------------------------------------


def _not_compared(
    task: str, ours: OpenFile, theirs: OpenFile, runs: Sequence[Run], why_not: str, proposed: IoSpec | None
) -> Iterator[str]:
    """Yield what the comparison says nothing about, and why.

    Args:
        ours, theirs: the reference and the candidate.
        why_not: what speaks against detections, where none are declared; empty where nothing suggests them.
        proposed: I/O spec that was taken, where none was declared.
    """
    if task == TENSORS:
        compared = "detections or classes: no I/O spec declares any, so outputs were compared element by element"
        unclear = f" (they may be detections, but {why_not})" if why_not else ""
        yield f"{compared}{unclear}; the queries of a detector may rightly change places: {DECLARE}"
    if proposed is not None:
        caveat = f"whether outputs are what their values suggest, as no I/O spec declares them: {described(proposed)}"
        yield coded("spec-proposed", f"{caveat}; if that is wrong, {DECLARE}")
    if theirs.evaluation == FP32_CPU:
        yield "FP16: the candidate holds none"
    if ours.evaluation != FP32_CPU:
        yield "the FP32 model: the reference holds FP16 itself, and was emulated"
    if sizes := {theirs.file.fixed_batch or run.rows for run in runs if run.rows}:
        yield f"batch sizes other than {', '.join(map(str, sorted(sizes)))}, in which the samples ran"
    by_shapes: dict[str, list[str]] = {}
    for value in theirs.file.model.graph.inputs:
        name, skipped = str(value.name), 1 if runs[0].rows else 0
        shapes = {run.shapes[name][skipped:] for run in runs if name in run.shapes}
        if shapes and any(not isinstance(side, int) for side in (value.shape or ())[skipped:]):
            by_shapes.setdefault(some_of(map(str, map(list, sorted(shapes))), _SHAPES), []).append(repr(name))
    for ran, names in by_shapes.items():
        yield f"shapes of input {some_of(names, _SHAPES)} other than {ran}"


def _without_draws(found: Sequence[Finding], *models: ir.Model) -> list[Finding]:
    """Leave open what fails where a model draws random numbers (voices of VITS do): no two runs of it are alike, so
    outputs that differ say nothing of a file. NaN, Inf and shapes say what they say.
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
    """Yield the nodes that draw without a seed, of those that an output needs."""
    needed = model.clone()
    RemoveUnusedNodesPass()(needed)
    RemoveUnusedFunctionsPass()(needed)  # type: ignore[no-untyped-call]
    for node in all_nodes(needed):
        if has(node, Trait.RANDOM) and "seed" not in node.attributes:
            yield node


def _outside_range(feeds: Sequence[Mapping[str, np.ndarray]], entry: InputSpec) -> Iterator[str]:
    """Yield a sentence where values are none that a model which normalises inside its graph was made for."""
    if not entry.is_normalized_inside or entry.range is None or len(entry.range) != 2:
        return
    arrays = [feed[entry.name] for feed in feeds if entry.name in feed and feed[entry.name].size]
    least, most = min((a.min() for a in arrays), default=np.inf), max((a.max() for a in arrays), default=-np.inf)
    low, high = entry.range
    slack = 1e-3 * (high - low)
    if least < low - slack or most > high + slack:
        ran = f"{entry.name!r} goes from {least:.4g} to {most:.4g}, and the I/O spec declares {low:g} to {high:g}"
        yield f"inputs as the model expects them: {ran}"


# --- inputs -----------------------------------------------------------------------------------------------------------


def _feeds(samples: Samples, reference: ModelFile, batch: int, by_samples: bool) -> Feeds:
    """Batch the samples: images in batches, arrays in feeds as they stand, or in the batch that the reference fixes,
    filled where axis 0 of outputs may count no samples.
    """
    size = fixed_batch(reference.model) if samples.preprocessing is None else batch
    return Feeds(samples, size, fixed=not by_samples)


def _parts(feeds: Feeds, candidate: ir.Model, batch: int, by_samples: bool) -> Iterator[Part]:
    """Yield the checked inputs of each run: `batch` samples at most, where axis 0 of inputs and outputs counts samples,
    else as few as the reference takes.

    Raises:
        StageError: a NaN in a feed, a feed that the candidate cannot take.
    """
    for number in track(range(len(feeds)), "compare"):
        feed: Arrays = feeds[number]
        rows, names = samples_of(feed) if by_samples else 0, feeds.sample_names[number]
        if len(names) < rows:
            names = [f"{names[0]}[{i}]" for i in range(rows)]
        refuse_nan(feed, names)
        _check_shapes(feed, candidate, 1 if rows else 0)
        for start in range(0, rows, batch):
            load = partial(_rows_of, feeds, number, start, batch)
            yield Part(names[start : start + batch], min(batch, rows - start), load, (number, start))
        if not rows:
            yield Part(names[:1], 0, partial(feeds.__getitem__, number), (number, 0))


def _rows_of(feeds: Feeds, number: int, start: int, count: int) -> Arrays:
    return part_of(feeds[number], start, count)


def _check_shapes(feed: Arrays, candidate: ir.Model, first: int) -> None:
    """Refuse a feed with other sides than the candidate fixes, from axis `first` on."""
    for value in candidate.graph.inputs:
        shape = feed[str(value.name)].shape if value.name in feed else None
        if shape is None or value.shape is None:
            continue
        sides = list(zip(value.shape, shape, strict=False))[first:]
        if len(value.shape) != len(shape) or any(isinstance(a, int) and a != b for a, b in sides):
            wanted = [side if isinstance(side, int) else str(side.value or "?") for side in value.shape]
            wrong = f"input {value.name!r}: the candidate expects {wanted}, got {list(shape)}"
            raise StageError("wrong-shape", wrong)


def _size(shape: Sequence[int] | None, layout: str) -> tuple[int, int] | None:
    """Height and width of an image of four axes; None of other inputs."""
    if shape is None or len(shape) != 4:
        return None
    height, width = shape[1:3] if layout == "NHWC" else shape[2:4]
    return height, width


# --- interfaces -------------------------------------------------------------------------------------------------------


def check_same_interface(reference: ir.Model, candidate: ir.Model) -> None:
    """Hold the inputs and outputs of two models against each other: names, order, rank and type; float16 against
    float32 is no difference, nor are sides, nor what is stated of an output's shape: a run tells which it has.

    Raises:
        StageError: listing every difference.
    """
    problems: list[str] = []
    for what in ("input", "output"):
        a, b = (_values(model, what) for model in (reference, candidate))
        lacking = dict.fromkeys(a, _CANDIDATE) | dict.fromkeys(b, _REFERENCE)
        missing = {name: file for name, file in lacking.items() if (name in a) != (name in b)}
        for name, file in missing.items():
            problems.append(coded("wrong-name", f"{what} {name!r}: the {file} has none of this name"))
        if not missing and [*a] != [*b]:
            order = f"{what}s in another order: expected {', '.join(a)}, got {', '.join(b)}"
            problems.append(coded("other-order", order))
        for name in [name for name in a if name in b]:
            problems += [f"{what} {name!r}: {text}" for text in _differences(a[name], b[name], what)]
    refuse("not-comparable", "the two files differ in their inputs and outputs", problems)


def _values(model: ir.Model, what: str) -> dict[str, ir.Value]:
    values = model.graph.inputs if what == "input" else model.graph.outputs
    return {str(value.name): value for value in values if what == "output" or not value.is_initializer()}


def _differences(a: ir.Value, b: ir.Value, what: str) -> Iterator[str]:
    if what == "input" and a.shape is not None and b.shape is not None and len(a.shape) != len(b.shape):
        yield coded("wrong-shape", f"expected {len(a.shape)} axes, got {len(b.shape)}")
    types = [value.dtype.name if value.dtype is not None else None for value in (a, b)]
    plain = [{"FLOAT16": "FLOAT"}.get(name, name) if name else None for name in types]
    if None not in plain and plain[0] != plain[1]:
        yield coded("wrong-dtype", f"expected {types[0]}, got {types[1]}")


def _open(file: ModelFile | OpenFile, asked: str, which: str) -> OpenFile:
    """Open a file on the backend that is asked for, whatever it holds: nothing falls back without a word."""
    if isinstance(file, OpenFile):
        return file
    return OpenFile(file, asked if asked in open_file.BACKENDS else evaluation_of(file, asked), called=which)
