"""truehalf inspect: inputs, outputs, casts, FP16 share and FP32 islands of a file."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from truehalf.cli import form
from truehalf.errors import StageError
from truehalf.report.numbers import number

if TYPE_CHECKING:
    from truehalf.io_spec.spec import TensorSpec
    from truehalf.report.graph import Node

_EXAMPLES = (
    "truehalf inspect model_fp16.onnx",
    "truehalf inspect model_fp16.onnx --result convert.json    (why nodes are FP32)",
    "truehalf inspect model.onnx --samples images/ --size 640x640 --spec spec.json",
)
_PROPOSAL = "Proposal of an I/O spec"


@form.command(examples=_EXAMPLES, exits=form.EXITS_OF_WORK)
@click.argument("model", type=form.FILE, metavar="model.onnx")
@form.file_option("--result", help="JSON of `truehalf convert --json`: why nodes are FP32")
@form.option(
    "--islands", type=click.IntRange(0), metavar="N", default=10, help="FP32 islands to show, largest first [10]"
)
@form.file_option(
    "--samples", metavar="PATH", group=_PROPOSAL, help="propose one from a run: images, .npz, or a folder of them"
)
@form.file_option("--spec", group=_PROPOSAL, help="write it, for `truehalf verify --spec`")
@form.image_options
def command(output: form.Output, **given: Any) -> int:
    """Show the I/O spec, casts, share of FP16 and FP32 islands of an ONNX file."""
    from truehalf.files import write_json
    from truehalf.io_spec.in_file import spec_inside
    from truehalf.ir.facts import model_facts
    from truehalf.ir.model_file import PRECISION_KEY
    from truehalf.ir.model_forms import ModelFile
    from truehalf.ir.normalize import InferTypes
    from truehalf.ir.proto.plugins import not_run
    from truehalf.verification.declared.proposal import propose_spec
    from truehalf.verification.localize.outline import outline

    preprocessing = form.preprocessing_of(given)
    model, result, islands, samples = (given[name] for name in ("model", "result", "islands", "samples"))
    outputs = {"--json": output.file, "--spec": given["spec"]}
    form.check_places(outputs, {"model.onnx": model}, result=result, samples=samples)
    if given["spec"] is not None and samples is None:
        raise StageError("needs-value", "--spec: expected --samples beside it, from which an I/O spec is proposed")
    file, reasons = ModelFile(model), {} if result is None else _reasons(result)
    loaded = file.written.clone()
    InferTypes()(loaded)
    facts = model_facts(loaded, model)
    spec = spec_inside(loaded)
    found: dict[str, Any] = {
        "model": str(model),
        "opset": dict(loaded.graph.opset_imports),
        "made_by": loaded.metadata_props.get(PRECISION_KEY),
        "inputs": _values(loaded.graph.inputs, spec.inputs),
        "outputs": _values(loaded.graph.outputs, spec.outputs),
        "facts": facts,
        "not_run": not_run(file.model),
        "islands": [] if not facts["fp16_nodes"] else _islands(outline(file)["nodes"], reasons),
    }
    if samples is not None:
        proposal = propose_spec(model, samples, preprocessing, given["skip_corrupt"])
        unclear = [*proposal.doubts, *proposal.notes]
        found["proposed"] = {"spec": proposal.spec.to_json(), "reasons": proposal.reasons, "unclear": unclear}
        if given["spec"] is not None:
            write_json(given["spec"], found["proposed"]["spec"])
    output.give(_lines(found, len(found["islands"]) if output.is_verbose else islands), found)
    return 0


def _reasons(result: Path) -> dict[str, str]:
    """By node, the rule that decided it and why."""
    from truehalf.files import read_json

    try:
        return {row["node"]: f"{row['rule']}: {row['reason']}" for row in read_json(result)["decisions"]}
    except (KeyError, TypeError) as error:
        raise StageError("wrong-file", f"{result}: expected the JSON of `truehalf convert --json`") from error


def _values(values: Any, declared: Sequence[TensorSpec]) -> list[dict[str, Any]]:
    kinds = {entry.name: entry.kind for entry in declared}
    return [
        {
            "name": str(value.name),
            "dtype": None if value.dtype is None else value.dtype.name,
            "shape": None
            if value.shape is None
            else [side if isinstance(side, int) else side.value for side in value.shape],
            "kind": kinds.get(str(value.name)),
        }
        for value in values
    ]


def _islands(nodes: Sequence[Node], reasons: Mapping[str, str]) -> list[dict[str, Any]]:
    """Regions of neighbouring nodes that compute in float32, in a file that also holds FP16; largest first."""
    from truehalf.report.graph import islands

    found = []
    for island in islands(nodes):
        names = [nodes[i]["node"] for i in island]
        why = Counter(reasons[name] for name in names if name in reasons)
        ops = Counter(nodes[i]["op"] for i in island)
        found.append(
            {"nodes": names, "ops": dict(ops.most_common()), "why": [reason for reason, _ in why.most_common(3)]}
        )
    return sorted(found, key=lambda each: -len(each["nodes"]))


def _lines(found: Mapping[str, Any], shown: int) -> list[str]:
    facts = found["facts"]
    opsets = ", ".join(f"{domain or 'ai.onnx'} {number}" for domain, number in found["opset"].items())
    lines = [f"{found['model']}: {number(facts['size_mb'])} MB, opset {opsets}"]
    lines += [f"made by: {found['made_by']}"] if found["made_by"] else []
    for kind in ("inputs", "outputs"):
        for value in found[kind]:
            shape = "of unknown rank" if value["shape"] is None else str(value["shape"]).replace("'", "")
            what = f", {value['kind']}" if value["kind"] else ""
            lines.append(f"  {kind[:-1]:6}  {value['name']}  {(value['dtype'] or 'unknown').lower()} {shape}{what}")
    share = facts["fp16_fraction"]
    of_floats = (
        "no float nodes" if share is None else f"{100 * share:.1f} % of {facts['float_nodes']} float nodes in FP16"
    )
    lines.append(f"nodes {facts['nodes']}, casts {facts['casts']}, {of_floats}")
    lines += [found["not_run"]] if found["not_run"] else []
    islands = found["islands"]
    if islands:
        lines.append(f"FP32 islands: {len(islands)}, {sum(len(each['nodes']) for each in islands)} nodes")
        for each in islands[:shown]:
            ops = ", ".join(f"{op} {count}" for op, count in list(each["ops"].items())[:4])
            lines.append(f"  {len(each['nodes'])} nodes from {each['nodes'][0]}: {ops}")
            lines += [f"      {reason}" for reason in each["why"]]
        if len(islands) > shown:
            lines.append(f"  and {len(islands) - shown} more (--islands)")
    return lines + _proposed_lines(found["proposed"]) if "proposed" in found else lines


def _proposed_lines(proposed: Mapping[str, Any]) -> list[str]:
    spec, reasons = proposed["spec"], proposed["reasons"]
    lines = ["proposed I/O spec, to be confirmed (--spec FILE writes it):"]
    for tensor in [*spec["inputs"], *spec["outputs"]]:
        keys = {key: value for key, value in tensor.items() if key not in ("name", "dtype", "shape")}
        what = ", ".join(f"{key}: {json.dumps(value)}".replace('"', "") for key, value in keys.items()) or "any tensor"
        why = f"    ({reasons[tensor['name']]})" if tensor["name"] in reasons else ""
        lines.append(f"  {tensor['name']}  {what}{why}")
    return lines + [f"not clear: {each}" for each in proposed["unclear"]]
