"""Simplify an ONNX model with onnxslim, repair it for TensorRT, and compare the result with the source.

onnxslim works in memory. What it loses is put back: module scopes in the names of nodes that it made, metadata_props,
value types, inputs that nothing reads. Then the passes of truehalf.patterns run, also where simplify=false leaves
onnxslim out.

A result that differs from the source beyond the tolerance, or that onnxslim cannot make, is made again without the
cause, and the report names it: without the passes of repair at fault where onnxslim's own file agrees, else without
onnxslim's shape inference, else without the patterns and optimisations at fault, else without onnxslim. With skip(S),
the work without S: the last name of the shortest list L for which skip(L) agrees is a cause; again with it skipped,
until skip(causes) agrees.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from truehalf.codes import coded
from truehalf.config.schema import DEFAULT_PASSES, SlimConfig
from truehalf.errors import StageError, typed_line, typed_text
from truehalf.files import check_outputs, written_whole
from truehalf.ir.facts import all_nodes, cloned, model_facts
from truehalf.ir.inlining import WeightsApart
from truehalf.ir.model_file import adopt_proto, save_model, source_weights
from truehalf.ir.model_forms import ModelFile
from truehalf.ir.normalize import InferTypes, NameNodes
from truehalf.ir.proto.data_files import data_folder
from truehalf.ir.proto.one_image import IMAGE
from truehalf.ir.proto.refusals import checker_refusal
from truehalf.patterns import RepairReport, check_passes
from truehalf.patterns import repair as repaired
from truehalf.runtime.ort import Session, refusal
from truehalf.slimming.comparison import Arrays, Comparison
from truehalf.slimming.constants import constants_as_tensors
from truehalf.slimming.ends import KeepEnds
from truehalf.slimming.slim_report import SlimReport
from truehalf.verification.metrics.tensors import Parity

if TYPE_CHECKING:
    import onnx
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
    before, known = WeightsApart(of_any_version=True)(file.model).model, _patterns()
    if unknown := [name for name in options.skip_patterns if name not in known]:
        raise StageError("unknown-choice", f"slim: onnxslim has no {', '.join(unknown)}; it has {', '.join(known)}")
    check_passes(passes)
    comparison = Comparison(file, check_feeds, options)

    def attempt(skip: Sequence[str], passes: Sequence[str], simplify: bool = simplify) -> _Made:
        model = _simplified(file, [*options.skip_patterns, *skip]) if simplify else cloned(before)
        _unname(model, before)
        KeepEnds(before, "onnxslim")(model)
        report = repaired(model, passes)
        KeepEnds(before, "repair")(model)
        if written is not None:
            save_model(model, written)  # which runs the checker
        return _Made(model, report, comparison.parity(model if written is None else written), simplify)

    def agrees(skip: Sequence[str], passes: Sequence[str]) -> bool:
        with contextlib.suppress(StageError):
            attempt(skip, passes)
            return True
        return False

    def without(repairs: Sequence[str]) -> list[str]:
        return [name for name in passes if name not in repairs]

    def without_cause() -> tuple[_Made, list[str]]:
        """The first result that agrees, and what was left out for it."""
        if passes and agrees((), ()):
            repairs = names_to_skip(lambda repairs: agrees((), without(repairs)), passes)
            return attempt((), without(repairs)), repairs
        skip = [SHAPE_INFERENCE] if simplify else []
        if simplify and not agrees(skip, ()):
            left = [name for name in known if name not in options.skip_patterns]
            skip = names_to_skip(lambda skip: agrees(skip, ()), left)
        tried = [(skip, passes, True), (skip, (), True)] if skip else []
        for names, kept, slims in [*tried, ((), passes, False)]:
            with contextlib.suppress(StageError):
                return attempt(names, kept, slims), [*names, *without(kept), *([] if slims else ["onnxslim"])]
        return attempt((), (), False), ["onnxslim", *passes]

    left_out: list[str] = []
    why: str | None = None
    try:
        made = attempt((), passes)
    except StageError as error:
        try:
            Session(file.runnable)
        except StageError as refused:
            raise refusal(refused, before, _UNSLIMMED) from refused
        comparison.check_source()
        try:
            made, left_out = without_cause()
        except StageError:
            raise StageError(error.code, f"slim: {error.text}") from error
        left_out = [name for name in left_out if simplify or name != "onnxslim"]
        why = coded(error.code, f"{', '.join(left_out)}: left out, as the result is not what the file is: {error.text}")
    facts_before, facts = model_facts(before), model_facts(made.model)
    report = SlimReport(
        simplified=made.simplified,
        failed=why,
        nodes_before=facts_before["nodes"],
        nodes_after=facts["nodes"],
        ops_before=facts_before["ops"],
        ops_after=facts["ops"],
        skipped_patterns=list(options.skip_patterns),
        left_out=left_out,
        repair=made.repairs.to_json(),
        parity=made.parity,
        model=facts,
    )
    return Slimmed(made.model, report)


class _Made(NamedTuple):
    """A model that agrees with its source, and how it was made."""

    model: ir.Model
    repairs: RepairReport
    parity: Parity
    simplified: bool


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


def _unname(model: ir.Model, before: ir.Model) -> None:
    """Name nodes that had no name as conversion and verification call them: onnxslim numbers them."""
    unnamed = {value.name for node in all_nodes(before) if not node.name for value in node.outputs}
    for node in all_nodes(model):
        if node.outputs and node.outputs[0].name in unnamed:
            node.name = None
    NameNodes()(model)


def names_to_skip(agrees: Callable[[Sequence[str]], bool], names: Sequence[str]) -> list[str]:
    """Names that must be skipped for `agrees` to hold, found by bisection; none when skipping all does not help."""
    if not agrees(names):
        return []
    found: list[str] = []
    while not agrees(found):
        too_few, enough = 0, len(names)
        while enough - too_few > 1:
            middle = (too_few + enough) // 2
            if agrees([*found, *names[:middle]]):
                enough = middle
            else:
                too_few = middle
        found.append(names[enough - 1])
    return found


# --- onnxslim ---------------------------------------------------------------------------------------------------------


def _patterns() -> list[str]:
    from onnxslim.core.pattern.registry import DEFAULT_FUSION_PATTERNS

    return [*DEFAULT_FUSION_PATTERNS, *_OPTIMIZATIONS, SHAPE_INFERENCE]


def _simplified(file: ModelFile, skip: Sequence[str]) -> ir.Model:
    """The model of a file through onnxslim, with names, metadata and value types."""
    import onnx

    given = onnx.ModelProto()
    given.CopyFrom(file.proto)  # onnxslim changes what it is given
    onnx.load_external_data_for_model(given, str(data_folder(file.path)))
    for each in (given.graph, *given.functions):
        constants_as_tensors(each)
    kept = {value.name for value in file.model.graph.inputs}
    inputs = [value for value in file.proto.graph.input if value.name in kept]
    _restore_inputs(given, inputs)
    for output in given.graph.output:  # a claim that no runtime holds a file to, and onnxslim computes Reshapes from
        output.type.tensor_type.ClearField("shape")
    given.ir_version = file.model.ir_version or 0
    proto = _onnxslim(given, skip)
    _restore_names(proto, file.proto)
    _restore_inputs(proto, inputs)
    del proto.metadata_props[:]
    proto.metadata_props.extend(file.proto.metadata_props)
    del proto.graph.value_info[:]
    proto.graph.value_info.extend(_stated(file.proto, proto))
    try:
        model = adopt_proto(proto, file.path, file.model.meta.get(IMAGE, ""))
        InferTypes(strict=True)(model)
    except StageError as error:
        raise StageError("slim-fails", f"what onnxslim made is no model: {error.text}") from error
    except onnx.shape_inference.InferenceError as error:
        raise StageError("slim-fails", f"types of what onnxslim made are not inferred: {typed_text(error)}") from error
    model.meta.update(file.model.meta)  # where its weights came from
    return model


def _stated(original: onnx.ModelProto, slimmed: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """What a file says of the outputs of operators that onnx cannot infer again: unknown ones, GroupNormalization."""
    written = {name for node in slimmed.graph.node if not _is_inferred(node) for name in node.output}
    return [value for value in original.graph.value_info if value.name in written]


def _is_inferred(node: onnx.NodeProto) -> bool:
    import onnx

    name = node.op_type, "" if node.domain == "ai.onnx" else node.domain
    return onnx.defs.has(*name) and onnx.defs.get_schema(*name).has_type_and_shape_inference_function


def _onnxslim(model: onnx.ModelProto, skip: Sequence[str]) -> onnx.ModelProto:
    import onnxslim

    patterns = [name for name in skip if name not in (*_OPTIMIZATIONS, SHAPE_INFERENCE)]
    optimizations = [name for name in skip if name in _OPTIMIZATIONS]
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            proto: onnx.ModelProto | None = onnxslim.slim(
                model,
                skip_fusion_patterns=patterns,
                skip_optimizations=optimizations,
                no_shape_infer=SHAPE_INFERENCE in skip,
            )
        except Exception as error:  # its patterns raise what they like
            raise StageError("slim-fails", f"onnxslim failed: {typed_line(error)}") from error
    if proto is None:
        raise StageError("slim-fails", "onnxslim returned no model: its check of the result failed")
    return proto


def _restore_inputs(proto: onnx.ModelProto, original: Sequence[onnx.ValueInfoProto]) -> None:
    """Inputs that nothing reads, or nothing any more, are inputs still; weights are none."""
    del proto.graph.input[:]
    proto.graph.input.extend(original)


def _restore_names(proto: onnx.ModelProto, original: onnx.ModelProto) -> None:
    """Nodes that onnxslim made get a name in the scope of the node that made their output before; names stay unique."""
    original_names = {node.name for node in original.graph.node}
    maker = {tensor: node.name for node in original.graph.node for tensor in node.output}
    taken: set[str] = set()
    for node in proto.graph.node:
        wanted = node.name
        if wanted not in original_names:
            scope = next((maker[tensor] for tensor in node.output if tensor in maker), "").rpartition("/")[0]
            wanted = f"{scope}/{node.op_type}"
        name, copies = wanted, 0
        while name in taken or (name != node.name and name in original_names):
            copies += 1
            name = f"{wanted}_{copies}"
        node.name = name
        taken.add(name)
