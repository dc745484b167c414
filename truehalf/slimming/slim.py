"""Simplify an ONNX model with onnxslim, repair it for TensorRT, and compare the result with the source.

onnxslim works in memory. What it loses is put back: module scopes in the names of nodes that it made, metadata_props,
value types, inputs that nothing reads. Then the passes of truehalf.patterns run, also where simplify=false leaves
onnxslim out.

A result that differs from the source beyond the tolerance, or that onnxslim cannot make, is made again with less, and
the report names what was left out: onnxslim's shape inference, the repairs, onnxslim, or both.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from truehalf.codes import coded
from truehalf.config.schema import DEFAULT_PASSES, SlimConfig
from truehalf.data.samples import Sample, filled
from truehalf.errors import StageError, typed_line, typed_text
from truehalf.files import check_outputs, written_whole
from truehalf.ir.facts import all_nodes, cloned, fixed_batch, model_facts
from truehalf.ir.inlining import WeightsApart
from truehalf.ir.model_file import adopt_proto, save_model, source_weights
from truehalf.ir.model_forms import ModelFile
from truehalf.ir.normalize import InferTypes, LiftConstants, NameNodes, Names
from truehalf.ir.proto.one_image import IMAGE, take_axis
from truehalf.ir.proto.refusals import checker_refusal
from truehalf.ir.slots import schema_of
from truehalf.patterns import check_passes
from truehalf.patterns import repair as repaired
from truehalf.runtime.ort import Session, refusal
from truehalf.slimming.comparison import Arrays, Comparison
from truehalf.slimming.slim_report import SlimReport

if TYPE_CHECKING:
    import onnx_ir as ir

_UNSLIMMED = (
    "slim nothing: `truehalf convert --no-slim`, convert(skip=['slim']), python -m pipeline simplify=false "
    "precision=fp32, which only repairs"
)
_OPTIMIZATIONS = ("constant_folding", "dead_node_elimination", "subexpression_elimination", "weight_tying")
# onnxslim's own inference reverses values instead of rows in Slice of a Reshape of a shape (the pads of a ResNet that
# was exported from TensorFlow, open_nsfw).
SHAPE_INFERENCE = "shape_inference"


class Slimmed(NamedTuple):
    """A model that was simplified and repaired.

    Attributes:
        model: in memory.
        report: what was done to it.
    """

    model: ir.Model
    report: SlimReport


def slim(
    model_path: Path | str,
    out_path: Path | str,
    options: SlimConfig | None = None,
    *,
    simplify: bool = True,
    repair: Sequence[str] | None = None,
    check_feeds: Sequence[Arrays] = (),
) -> SlimReport:
    """Simplify and repair an ONNX file and compare it with what it was.

    Args:
        model_path: the file to simplify; untouched.
        out_path: of the new file; replaced only when all went well.
        options, simplify, repair, check_feeds: as `slim_model`.

    Returns:
        Slimmed.report, with the size of the file.

    Raises:
        StageError: as `slim_model`; an output that cannot be written, or that is the input.
    """
    file = ModelFile(Path(model_path))
    check_outputs({"out_path": out_path}, {"model_path": model_path}, source_weights(file.model))
    with written_whole(Path(out_path)) as building:
        made = slim_model(file, options, simplify, repair, check_feeds, building)
    return replace(made.report, model=model_facts(made.model, out_path))


def slim_model(
    file: ModelFile,
    options: SlimConfig | None = None,
    simplify: bool = True,
    repair: Sequence[str] | None = None,
    check_feeds: Sequence[Arrays] = (),
    written: Path | None = None,
) -> Slimmed:
    """Simplify and repair a model and compare it with what it was.

    Args:
        file: untouched.
        options: patterns and optimisations of onnxslim to leave out, and the tolerance of the comparison.
        simplify: whether onnxslim runs; repair does either way.
        repair: passes of truehalf.patterns.PASSES, in order; None: all; (): none.
        check_feeds: inputs to compare on; without any the model has to load, and nothing more.
        written: a file to write the new model to, which is then what is compared; None: it stays in memory, where
            onnx's checker does not look at it.

    Raises:
        StageError: unknown options; a file that cannot be read or run, whose own outputs are not finite, or that
            differs from itself once it is loaded and saved.
    """
    options = options or SlimConfig()
    passes = tuple(DEFAULT_PASSES if repair is None else repair)
    known = _patterns()
    if unknown := [name for name in options.skip_patterns if name not in known]:
        raise StageError("unknown-choice", f"slim: onnxslim has no {', '.join(unknown)}; it has {', '.join(known)}")
    check_passes(passes)
    WeightsApart()(file.model)
    before, comparison = cloned(file.model), Comparison(file, check_feeds, options)
    facts_before = model_facts(file.model)

    def attempt(left_out: Collection[str]) -> Slimmed:
        slims = simplify and "onnxslim" not in left_out
        skipped = [*options.skip_patterns, *({SHAPE_INFERENCE} & {*left_out})]
        model = _simplified(before, file.path, skipped) if slims else cloned(before)
        repairs = repaired(model, [name for name in passes if name not in left_out])
        _keep_ends(model, before)
        if written is not None:
            save_model(model, written)  # which runs the checker
        facts = model_facts(model)
        report = SlimReport(
            simplified=slims,
            nodes_before=facts_before["nodes"],
            nodes_after=facts["nodes"],
            ops_before=facts_before["ops"],
            ops_after=facts["ops"],
            skipped_patterns=list(options.skip_patterns),
            left_out=list(left_out),
            repair=repairs.to_json(),
            parity=comparison.parity(model if written is None else written),
            model=facts,
        )
        return Slimmed(model, report)

    try:
        return attempt(())
    except StageError as error:
        found = error
    try:
        Session(file.runnable)
    except StageError as refused:
        raise refusal(refused, before, _UNSLIMMED) from refused
    comparison.check_source()
    less = [[SHAPE_INFERENCE], passes, ["onnxslim"], ["onnxslim", *passes]] if simplify else [passes]
    for left_out in less:
        with contextlib.suppress(StageError):
            made = attempt(left_out)
            why = f"{', '.join(left_out)}: left out, as the result is not what the file is: {found.text}"
            return made._replace(report=replace(made.report, failed=coded(found.code, why)))
    raise StageError(found.code, f"slim: {found.text}") from found


def slim_or_keep(file: ModelFile, check_feeds: Sequence[Arrays] = ()) -> Slimmed:
    """`slim_model`; a model that ONNX Runtime does not load is handed on as it is, and `failed` in the report says so.

    Raises:
        StageError: as `slim_model`, of a file that is no valid model, has operators that ONNX has not, or computes in
            bfloat16.
    """
    try:
        return slim_model(file, check_feeds=check_feeds)
    except StageError as error:
        if error.code != "runtime-refuses" or checker_refusal(file.path):
            raise
        nodes = model_facts(file.model)["nodes"]
        failed, model = f"the model is neither slimmed nor repaired: {error}", cloned(file.model)
        return Slimmed(model, SlimReport(simplified=False, failed=failed, nodes_before=nodes, nodes_after=nodes))


def check_feeds_of(samples: Sequence[Sample], model: ir.Model) -> list[Arrays]:
    """Batches of one and three samples, or of the one size that the model takes."""
    fixed = fixed_batch(model)
    batches = ((1, 0), (3, 1)) if fixed is None else ((fixed, 0),)
    return [filled(samples, size, start) for size, start in batches]


def _keep_ends(model: ir.Model, before: ir.Model) -> None:
    """Give inputs and outputs the shapes that they had, once it is known that they are what they were.

    An axis of an output with a name that no input has may have become a number: torch names what it does not look
    into, and onnxslim computes it. It is the same axis, and the file keeps its name. A stated rank may be false.

    Raises:
        StageError: inputs or outputs of other names or types, another number on an axis, one where it varies.
    """
    free = {axis.value for value in before.graph.inputs for axis in value.shape or () if not isinstance(axis, int)}
    ends = ((before.graph.inputs, model.graph.inputs, free), (before.graph.outputs, model.graph.outputs, free - {None}))
    for expected, got, varying in ends:
        if [value.name for value in expected] != [value.name for value in got] or not all(
            one.dtype in (None, other.dtype) and not _is_fixed(one, other, varying)
            for one, other in zip(expected, got, strict=True)
        ):
            listed = ["; ".join(f"{v.name}: {v.dtype} {v.shape}" for v in values) for values in (expected, got)]
            text = f"onnxslim or repair changed inputs or outputs: expected {listed[0]}, got {listed[1]}"
            raise StageError("slim-fails", text)
        for one, other in zip(expected, got, strict=True):
            if one.shape is None or other.shape is None or len(one.shape) == len(other.shape):
                other.shape = None if one.shape is None else one.shape.copy()


def _is_fixed(one: ir.Value, other: ir.Value, varying: Collection[str | None]) -> bool:
    """Whether an axis became a number that was another one, or varies."""
    sides = zip(one.shape or (), other.shape or (), strict=False)
    return len(one.shape or ()) == len(other.shape or ()) and any(
        isinstance(got, int) and got != expected and (isinstance(expected, int) or expected.value in varying)
        for expected, got in sides
    )


# --- onnxslim ---------------------------------------------------------------------------------------------------------


def _patterns() -> list[str]:
    from onnxslim.core.pattern.registry import DEFAULT_FUSION_PATTERNS

    return [*DEFAULT_FUSION_PATTERNS, *_OPTIMIZATIONS, SHAPE_INFERENCE]


def _simplified(before: ir.Model, path: Path, skip: Collection[str]) -> ir.Model:
    """A model through onnxslim, with names, metadata and value types; `path` is where it came from."""
    import onnx
    import onnx_ir as ir
    import onnxslim

    given = take_axis(cloned(before)).clone()
    ir.external_data.load_to_model(given)
    LiftConstants(lambda dtype: True)(given)  # of value_float and value_int onnxslim makes other types
    for output in given.graph.outputs:  # a claim that no runtime holds a file to, and onnxslim computes Reshapes from
        output.shape = None
    proto = ir.to_proto(given)
    inputs = list(proto.graph.input)
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            slimmed: onnx.ModelProto | None = onnxslim.slim(
                proto,
                skip_fusion_patterns=[name for name in skip if name not in (*_OPTIMIZATIONS, SHAPE_INFERENCE)],
                skip_optimizations=[name for name in skip if name in _OPTIMIZATIONS],
                no_shape_infer=SHAPE_INFERENCE in skip,
            )
        except Exception as error:  # its patterns raise what they like
            raise StageError("slim-fails", f"onnxslim failed: {typed_line(error)}") from error
    if slimmed is None:
        raise StageError("slim-fails", "onnxslim returned no model: its check of the result failed")
    del slimmed.graph.input[:], slimmed.graph.value_info[:]
    slimmed.graph.input.extend(inputs)  # also those that nothing reads any more
    try:
        model = adopt_proto(slimmed, path, before.meta.get(IMAGE, ""))
        _restore(model, before)
        InferTypes(strict=True)(model)
    except StageError as error:
        raise StageError("slim-fails", f"what onnxslim made is no model: {error.text}") from error
    except onnx.shape_inference.InferenceError as error:
        raise StageError("slim-fails", f"types of what onnxslim made are not inferred: {typed_text(error)}") from error
    return model


def _restore(model: ir.Model, before: ir.Model) -> None:
    """Give a model its metadata, the types that onnx does not infer (of unknown operators, GroupNormalization), and
    nodes that onnxslim made a name in the scope of the node that made their output before.
    """
    model.meta.update(before.meta)  # where its weights came from
    model.metadata_props.clear()
    model.metadata_props.update(before.metadata_props)
    kept, names = {node.name for node in all_nodes(before) if node.name}, Names(before)
    made = {value.name: value for node in all_nodes(before) for value in node.outputs}
    for node in model.graph:
        known = [(value, made[value.name]) for value in node.outputs if value.name in made]
        if (schema := schema_of(node)) is None or not schema.has_type_and_shape_inference_function:
            for value, stated in known:
                value.type, value.shape = stated.type, stated.shape
        if node.name not in kept:
            makers = [maker for _, stated in known if (maker := stated.producer()) is not None]
            scope = str(makers[0].name or "").rpartition("/")[0] if makers else ""
            is_unnamed = bool(makers) and not makers[0].name  # in the file, too: conversion names it
            node.name = None if is_unnamed else names.fresh(f"{scope}/{node.op_type}")
    NameNodes()(model)
