"""The same network with fewer nodes, by onnxslim, repaired for TensorRT, and the proof that it is the same.

onnxslim works in memory, because its own saving appends to weights files that exist. What it loses is put back: module
scopes in the names of nodes that it made, metadata_props, value types, inputs that nothing reads. Then the passes of
truehalf.repairs run, also where simplify=false leaves onnxslim out.

A difference beyond the tolerance fails the stage, and the error names what is at fault: passes of repair where the file
agrees without any, else what of onnxslim. With skip(S), the work without S: the last name of the shortest list L for
which skip(L) agrees is at fault; again with it skipped, until skip(what is at fault) agrees.
"""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from truehalf.config.schema import REPAIR_PASSES, SlimConfig
from truehalf.errors import StageError
from truehalf.io_spec.in_file import SPEC_KEY
from truehalf.ir.facts import model_facts
from truehalf.ir.model_file import load_model, model_size_mb, save_model, source_weights
from truehalf.output_files import destination, written_whole
from truehalf.output_paths import check_outputs
from truehalf.repairs import PASSES, RepairReport
from truehalf.repairs import repair as repaired
from truehalf.runtime.ort.session import Session
from truehalf.verification.findings import NOT_VERIFIED
from truehalf.verification.metrics.tensors import check_runs

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

Arrays = Mapping[str, np.ndarray]
_EXTERNAL_DATA_FROM = 1_500_000_000  # bytes; protobuf files end at 2 GiB
_OPTIMIZATIONS = ("constant_folding", "dead_node_elimination", "subexpression_elimination", "weight_tying")


def slim(
    model_path: Path | str,
    out_path: Path | str,
    *,
    simplify: bool = True,
    skip_patterns: Sequence[str] = (),
    repair: Sequence[str] | None = None,
    check_feeds: Sequence[Arrays] = (),
    atol: float | None = None,
    rtol: float | None = None,
) -> dict[str, Any]:
    """Simplify and repair an ONNX file and compare it with what it was. Options left out are those of conf/.

    Args:
        model_path: the file to simplify; untouched.
        out_path: of the new file; replaced only when all went well.
        simplify: whether onnxslim runs; repair does either way.
        skip_patterns: patterns and optimisations of onnxslim to leave out, by name.
        repair: passes of truehalf.repairs.PASSES, in order; None: all; (): none.
        check_feeds: inputs to compare on.
        atol, rtol: of the comparison, see truehalf.verification.metrics.tensors.

    Returns:
        simplified, nodes_before, nodes_after, ops_before, ops_after {type: count}, skipped_patterns, model (facts),
        repair: {counts by pass, refused: [{pass, node, reason}]}, and parity: {status: "verified" or "not verified",
        reason?, samples, batch_sizes, share, matched_queries, moved_queries, max_abs by output}.

    Raises:
        StageError: when the file cannot be read or run, onnxslim fails or changes inputs or outputs, an output is not
            finite, or the outputs of a trained model differ; it names the patterns or passes at fault where there are
            such.
    """
    model_path, out_path = Path(model_path), Path(out_path)
    options = SlimConfig()
    passes = tuple(REPAIR_PASSES if repair is None else repair)
    before = load_model(model_path)
    check_outputs({"out_path": out_path}, {"model_path": model_path}, source_weights(before))
    out_path = destination(out_path)
    known = _patterns()
    if unknown := [name for name in skip_patterns if name not in known]:
        raise StageError("unknown-choice", f"slim: onnxslim has no {', '.join(unknown)}; it has {', '.join(known)}")
    if unknown := [name for name in passes if name not in PASSES]:
        raise StageError("unknown-choice", f"slim: repair has no pass {', '.join(unknown)}; it has {', '.join(PASSES)}")
    comparison = _Comparison(
        model_path,
        before,
        check_feeds,
        atol=options.atol if atol is None else atol,
        rtol=options.rtol if rtol is None else rtol,
    )

    def attempt(
        folder: str, skip: Sequence[str], passes: Sequence[str]
    ) -> tuple[ir.Model, RepairReport, dict[str, Any]]:
        model = _simplified(model_path, Path(folder), skip) if simplify else load_model(model_path)
        _keep_ends(before, model, "onnxslim")
        report = repaired(model, passes)
        _keep_ends(before, model, "repair")
        save_model(model, Path(folder) / out_path.name)  # which runs the checker
        return model, report, comparison.parity(Path(folder) / out_path.name)

    def agrees(skip: Sequence[str], passes: Sequence[str]) -> bool:
        with tempfile.TemporaryDirectory() as folder, contextlib.suppress(StageError):
            attempt(folder, [*skip_patterns, *skip], passes)
            return True
        return False

    def agrees_without(repairs: Sequence[str]) -> bool:
        return agrees((), [name for name in passes if name not in repairs])

    def verdict() -> str:
        if passes and agrees((), ()):
            return _repair_verdict(at_fault(agrees_without, passes), passes, simplify)
        if not simplify:
            return "onnxslim did not run, and it is not repair: the file differs from itself as it was loaded and saved"
        return _verdict(at_fault(lambda skip: agrees(skip, ()), [name for name in known if name not in skip_patterns]))

    with tempfile.TemporaryDirectory(dir=out_path.parent, prefix=".slim") as folder:
        try:
            model, repairs, parity = attempt(folder, skip_patterns, passes)
        except StageError as error:
            raise StageError(error.code, f"slim: {error.text}; {verdict()}") from error
        facts_before, facts = model_facts(before), model_facts(model)
        with written_whole(out_path) as building:
            for file in Path(folder).glob(f"{out_path.name}*"):
                file.replace(building.with_name(file.name))
    return {
        "simplified": simplify,
        "nodes_before": facts_before["nodes"],
        "nodes_after": facts["nodes"],
        "ops_before": facts_before["ops"],
        "ops_after": facts["ops"],
        "skipped_patterns": list(skip_patterns),
        "repair": repairs.as_dict(),
        "parity": parity,
        "model": facts | {"size_mb": model_size_mb(out_path)},
    }


def at_fault(agrees: Callable[[Sequence[str]], bool], names: Sequence[str]) -> list[str]:
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


def _verdict(guilty: Sequence[str]) -> str:
    if not guilty:
        return (
            "it is none of onnxslim's patterns; set simplify=false with precision=fp32, which repairs without "
            "onnxslim, or report it to onnxslim"
        )
    return (
        f"onnxslim's {' and '.join(guilty)} did it; "
        f"slim without: slim.skip_patterns='[{','.join(guilty)}]', or set simplify=false with precision=fp32, "
        "which repairs without onnxslim"
    )


def _repair_verdict(guilty: Sequence[str], passes: Sequence[str], simplified: bool) -> str:
    onnxslim = "did not" if simplified else "did not run"
    kept = ",".join(name for name in passes if name not in guilty)
    return (
        f"repair's {' and '.join(guilty)} did it, onnxslim {onnxslim}; leave it out: repair.passes='[{kept}]', "
        "and please report it"
    )


# --- onnxslim ---------------------------------------------------------------------------------------------------------


def _patterns() -> list[str]:
    from onnxslim.core.pattern.registry import DEFAULT_FUSION_PATTERNS

    return [*DEFAULT_FUSION_PATTERNS, *_OPTIMIZATIONS]


def _simplified(path: Path, folder: Path, skip: Sequence[str]) -> ir.Model:
    """The model at `path` through onnxslim, with names, metadata and value types; `folder` takes files on the way."""
    import onnx

    original = onnx.load(path)
    proto = _onnxslim(path, skip)
    _restore_names(proto, original)
    _restore_inputs(proto, original)
    del proto.metadata_props[:]
    proto.metadata_props.extend(original.metadata_props)
    del proto.graph.value_info[:]
    plain, typed = folder / "slim.onnx", folder / "typed.onnx"
    large = proto.ByteSize() > _EXTERNAL_DATA_FROM
    onnx.save_model(proto, plain, save_as_external_data=large, location="slim.data")
    try:
        onnx.shape_inference.infer_shapes_path(str(plain), str(typed), strict_mode=True, data_prop=True)
    except onnx.shape_inference.InferenceError as error:
        raise StageError("slim-fails", f"value types of what onnxslim made cannot be inferred: {error}") from error
    return load_model(typed)


def _onnxslim(path: Path, skip: Sequence[str]) -> onnx.ModelProto:
    import onnxslim

    patterns = [name for name in skip if name not in _OPTIMIZATIONS]
    optimizations = [name for name in skip if name in _OPTIMIZATIONS]
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            proto: onnx.ModelProto | None = onnxslim.slim(
                str(path), skip_fusion_patterns=patterns, skip_optimizations=optimizations
            )
        except Exception as error:  # its patterns raise what they like
            said = str(error).strip().splitlines()
            raise StageError(
                "slim-fails", f"onnxslim failed: {type(error).__name__}: {said[0] if said else 'no message'}"
            ) from error
    if proto is None:
        raise StageError("slim-fails", "onnxslim returned no model: its own check of the result failed")
    return proto


def _restore_inputs(proto: onnx.ModelProto, original: onnx.ModelProto) -> None:
    """Inputs that nothing reads, or nothing any more, are inputs still."""
    there = {value.name for value in proto.graph.input}
    if any(value.name not in there for value in original.graph.input):
        del proto.graph.input[:]
        proto.graph.input.extend(original.graph.input)


def _restore_names(proto: onnx.ModelProto, original: onnx.ModelProto) -> None:
    """Nodes that onnxslim made get a name in the scope of the node that made their output before; names stay unique."""
    own = {node.name for node in original.graph.node}
    maker = {tensor: node.name for node in original.graph.node for tensor in node.output}
    taken: set[str] = set()
    for node in proto.graph.node:
        wanted = node.name
        if wanted not in own:
            scope = next((maker[tensor] for tensor in node.output if tensor in maker), "").rpartition("/")[0]
            wanted = f"{scope}/{node.op_type}"
        name, copies = wanted, 0
        while name in taken or (name != node.name and name in own):
            copies += 1
            name = f"{wanted}_{copies}"
        node.name = name
        taken.add(name)


def _keep_ends(before: ir.Model, after: ir.Model, who: str) -> None:
    """Give inputs and outputs the shapes that they had, once it is known that they are what they were.

    An axis of an output that had a name of its own may have become a number: torch names what it does not look into,
    and onnxslim computes it. It is no other axis for that, and the file goes on saying what it said.

    Raises:
        StageError: when inputs or outputs have other names, types or ranks, another number on an axis, or one where an
            input varies.
    """
    own = {axis.value for value in before.graph.inputs for axis in value.shape or () if not isinstance(axis, int)}
    for kind, varying in (("inputs", own), ("outputs", own - {None})):
        expected, got = getattr(before.graph, kind), getattr(after.graph, kind)
        if len(expected) != len(got) or not all(
            _is_same(one, other, varying) for one, other in zip(expected, got, strict=True)
        ):
            listed = ["; ".join(f"{v.name}: {v.dtype} {v.shape}" for v in values) for values in (expected, got)]
            raise StageError("slim-fails", f"{who} changed the {kind}: expected {listed[0]}, got {listed[1]}")
        for one, other in zip(expected, got, strict=True):
            other.shape = None if one.shape is None else one.shape.copy()


def _is_same(one: ir.Value, other: ir.Value, varying: Collection[str | None]) -> bool:
    if (one.name, one.dtype) != (other.name, other.dtype):
        return False
    if one.shape is None or other.shape is None:
        return True
    return len(one.shape) == len(other.shape) and not any(
        isinstance(got, int) and got != expected and (isinstance(expected, int) or expected.value in varying)
        for expected, got in zip(one.shape, other.shape, strict=True)
    )


# --- parity -----------------------------------------------------------------------------------------------------------


class _Comparison:
    """Outputs of the original file, kept for every attempt."""

    def __init__(self, path: Path, model: ir.Model, feeds: Sequence[Arrays], *, atol: float, rtol: float) -> None:
        self._feeds, self._atol, self._rtol = feeds, atol, rtol
        text = model.metadata_props.get(SPEC_KEY)
        self._spec: dict[str, Any] = json.loads(text) if text else {"outputs": []}
        session = Session(path)
        self._references = [session.run(feed) for feed in feeds]

    def parity(self, path: Path) -> dict[str, Any]:
        session = Session(path)
        if not self._feeds:
            return {"status": NOT_VERIFIED, "reason": "no samples were given to compare on"}
        runs = [(reference, session.run(feed)) for reference, feed in zip(self._references, self._feeds, strict=True)]
        result = check_runs(runs, self._spec, atol=self._atol, rtol=self._rtol, sides=("the file", "the slim version"))
        sizes = [len(next(iter(feed.values()))) for feed in self._feeds]
        return {"samples": sum(sizes), "batch_sizes": sorted(set(sizes)), "provider": session.provider} | result
