"""truehalf inspect: inputs, outputs, casts, FP16 share and FP32 islands of a file."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from truehalf.cli import form
from truehalf.errors import StageError
from truehalf.report.numbers import number, percent

if TYPE_CHECKING:
    from truehalf.io_spec.spec import TensorSpec
    from truehalf.report.graph import Node

_EXAMPLES = (
    "truehalf inspect model_fp16.onnx",
    "truehalf inspect model_fp16.onnx --result convert.json    (why nodes are FP32)",
    "truehalf inspect model.onnx --samples images/ --size 640x640 --spec spec.json",
)
_PROPOSAL = "Proposal of an I/O spec"
_REASONS, _OPS = 3, 4  # of an island


@form.command(examples=_EXAMPLES, exits=form.EXITS_OF_WORK)
@click.argument("model", type=form.MODEL, metavar="model.onnx")
@form.file_option("--result", help="JSON of `truehalf convert --json`: why nodes are FP32")
@form.file_option(
    "--samples", metavar="PATH", group=_PROPOSAL, help="propose one from a run: images, .npz, or a folder"
)
@form.file_option("--spec", group=_PROPOSAL, is_output=True, help="write it, for `truehalf verify --spec`")
@form.image_options
def command(output: form.Output, **given: Any) -> None:
    """Show the I/O spec, casts, share of FP16 and FP32 islands of an ONNX file."""
    from truehalf.io_spec.in_file import spec_inside
    from truehalf.ir.facts import model_facts
    from truehalf.ir.model_file import PRECISION_KEY
    from truehalf.ir.model_forms import ModelFile
    from truehalf.ir.normalize import InferTypes
    from truehalf.ir.outline import nodes_of
    from truehalf.ir.proto.plugins import not_run

    preprocessing, path, samples = form.preprocessing_of(given), given["model"], given["samples"]
    if given["spec"] is not None and samples is None:
        raise StageError("needs-value", "--spec: expected --samples beside it, from which an I/O spec is proposed")
    reasons = {} if given["result"] is None else _reasons(given["result"])
    file = ModelFile(path)
    model = file.written.clone()
    InferTypes()(model)
    facts, spec = model_facts(model, path), spec_inside(model)
    content: dict[str, Any] = {
        "model": str(path),
        "opset": dict(model.graph.opset_imports),
        "made_by": model.metadata_props.get(PRECISION_KEY),
        "inputs": _values(model.graph.inputs, spec.inputs),
        "outputs": _values(model.graph.outputs, spec.outputs),
        "facts": facts,
        "not_run": not_run(file.model),
        "islands": _islands(nodes_of(model), reasons) if facts["fp16_nodes"] else [],
    }
    lines = [*_file_lines(content)]
    if islands := content["islands"]:
        lines += [f"FP32 islands: {len(islands)}, {sum(len(island['nodes']) for island in islands)} nodes"]
        lines += output.screen.first(map(_island_text, islands))
    if samples is not None:
        content["proposed"] = _proposed(path, samples, preprocessing, given)
        lines += _proposed_lines(content["proposed"])
    output.give(lines, content)


def _reasons(result: Path) -> dict[str, str]:
    """By node, the rule that decided it and why."""
    from truehalf.files import read_json

    try:
        return {row["node"]: f"{row['rule']}: {row['reason']}" for row in read_json(result)["decisions"]}
    except (KeyError, TypeError) as error:
        raise StageError("wrong-file", f"{result}: expected the JSON of `truehalf convert --json`") from error


def _values(values: Any, declared: Sequence[TensorSpec]) -> list[dict[str, Any]]:
    """Name, element type, shape and declared kind of inputs or outputs; None: not known."""
    kinds = {entry.name: entry.kind for entry in declared}
    rows = []
    for value in values:
        sides = value.shape and [side if isinstance(side, int) else side.value for side in value.shape]
        dtype = value.dtype and value.dtype.name
        rows.append({"name": value.name, "dtype": dtype, "shape": sides, "kind": kinds.get(value.name)})
    return rows


def _islands(nodes: Sequence[Node], reasons: Mapping[str, str]) -> list[dict[str, Any]]:
    """Regions of neighbouring nodes that compute in float32, in a file that also holds FP16; largest first."""
    from truehalf.report.graph import islands

    rows: list[dict[str, Any]] = []
    for island in sorted(islands(nodes), key=len, reverse=True):
        names = [nodes[i]["node"] for i in island]
        why = Counter(reasons[name] for name in names if name in reasons).most_common(_REASONS)
        ops = Counter(nodes[i]["op"] for i in island).most_common()
        rows.append({"nodes": names, "ops": dict(ops), "why": [reason for reason, _ in why]})
    return rows


def _proposed(path: Path, samples: Path, preprocessing: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """An I/O spec from a run, written where --spec says, with what speaks for it and what is not clear."""
    from truehalf.files import write_json
    from truehalf.verification.propose import propose_spec

    proposal = propose_spec(path, samples, preprocessing)
    spec = proposal.spec.to_json()
    if given["spec"] is not None:
        write_json(given["spec"], spec)
    return {"spec": spec, "reasons": proposal.reasons, "unclear": [*proposal.doubts, *proposal.notes]}


def _file_lines(content: Mapping[str, Any]) -> Iterator[str]:
    facts = content["facts"]
    opsets = ", ".join(f"{domain or 'ai.onnx'} {opset}" for domain, opset in content["opset"].items())
    yield f"{content['model']}: {number(facts['size_mb'])} MB, opset {opsets}"
    if content["made_by"]:
        yield f"made by: {content['made_by']}"
    for side in ("input", "output"):
        for value in content[f"{side}s"]:
            shape = "of unknown rank" if value["shape"] is None else str(value["shape"]).replace("'", "")
            kind = f", {value['kind']}" if value["kind"] else ""
            yield f"  {side:6}  {value['name']}  {(value['dtype'] or 'unknown').lower()} {shape}{kind}"
    share = facts["fp16_fraction"]
    floats = "no float nodes" if share is None else f"{percent(share)} of {facts['float_nodes']} float nodes in FP16"
    yield f"nodes {facts['nodes']}, casts {facts['casts']}, {floats}"
    if content["not_run"]:
        yield content["not_run"]


def _island_text(island: Mapping[str, Any]) -> str:
    """A line with operators and the first node, and a line for each reason."""
    ops = ", ".join(f"{op} {count}" for op, count in list(island["ops"].items())[:_OPS])
    return "\n      ".join([f"  {len(island['nodes'])} nodes from {island['nodes'][0]}: {ops}", *island["why"]])


def _proposed_lines(proposed: Mapping[str, Any]) -> Iterator[str]:
    spec, reasons = proposed["spec"], proposed["reasons"]
    yield "proposed I/O spec, to be confirmed (--spec FILE writes it):"
    for tensor in [*spec["inputs"], *spec["outputs"]]:
        keys = [f"{key}: {json.dumps(tensor[key])}" for key in tensor if key not in ("name", "dtype", "shape")]
        declared = ", ".join(keys).replace('"', "") or "any tensor"
        yield f"  {tensor['name']}  {declared}" + (f"    ({why})" if (why := reasons.get(tensor["name"])) else "")
    yield from (f"not clear: {item}" for item in proposed["unclear"])
