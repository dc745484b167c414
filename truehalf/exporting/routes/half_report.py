"""Report of a graph that was traced in FP16: the file's facts, a row for each node, and why each has its precision."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from truehalf.config.precision import Method
from truehalf.config.schema import SlimConfig
from truehalf.conversion.report import LISTED_NODES, Decision, Fp16Report, entry, fp32_rows
from truehalf.errors import StageError
from truehalf.exporting.routes.half_norms import SettleNorms
from truehalf.io_spec.in_file import SPEC_KEY, shape_of, spec_text
from truehalf.io_spec.spec import IoSpec
from truehalf.ir.model_file import PRECISION_KEY, load_model, save_model
from truehalf.slimming.slim import slim
from truehalf.slimming.slim_report import SlimReport

_FP32_REASON = {
    Method.half.value: "float32 as traced: the module's code or the exporter casts to it",
    Method.autocast.value: "float32 as traced: torch.autocast leaves it there",
}


def described(
    path: Path, spec: IoSpec, types: Mapping[str, str], stamp: str, opset: int | None
) -> tuple[set[str], list[str], dict[str, int]]:
    """Give the file the shapes of the spec, and the spec with its types; names of its nodes, notes on raising it, and
    how many norms were settled.
    """

    from truehalf.ir.opset import ToOpset

    model = load_model(path)
    notes = ToOpset(opset)(model).notes()
    norms = SettleNorms()(model).counts
    both = (("inputs", spec.inputs, model.graph.inputs), ("outputs", spec.outputs, model.graph.outputs))
    for kind, entries, values in both:
        expected = [f"{entry.name} {types[entry.name]}" for entry in entries]
        got = [f"{value.name} {'unknown' if value.dtype is None else value.dtype.numpy()}" for value in values]
        if expected != got:
            message = f"fp16: expected {kind} {', '.join(expected)}, got {', '.join(got)}; set precision.method=convert"
            raise StageError("half-trace-fails", message)
        for value, declared in zip(values, entries, strict=True):
            value.shape = shape_of(declared)
    inputs = tuple(replace(each, dtype=types[each.name]) for each in spec.inputs)
    outputs = tuple(replace(each, dtype=types[each.name]) for each in spec.outputs)
    described = spec_text(replace(spec, inputs=inputs, outputs=outputs))
    model.metadata_props.update({SPEC_KEY: described, PRECISION_KEY: stamp})
    save_model(model, path)
    return {node.name for node in model.graph.all_nodes() if node.name}, notes, norms


def slimmed(traced: Path, out: Path, options: SlimConfig, repair: Sequence[str] | None) -> SlimReport:
    """slim's report, less the facts, which are taken of the file."""
    report = slim(traced, out, options, repair=repair)
    reason = "float16 outputs are not compared as float32 ones are; verify compares the file with the FP32 model"
    return SlimReport(
        nodes_before=report.nodes_before,
        nodes_after=report.nodes_after,
        skipped_patterns=report.skipped_patterns,
        left_out=report.left_out,
        repair=report.repair,
        parity={"status": report.parity["status"], "reason": reason},
    )


def counted(
    path: Path, method: str, traced: Collection[str], input_shapes: Mapping[str, Sequence[int]] | None
) -> tuple[list[Decision], Fp16Report]:
    """A row for each float node of the file, and what the report says of them."""
    import onnx_ir as ir

    from truehalf.conversion.rules import base
    from truehalf.ir.arithmetic import flops
    from truehalf.ir.facts import FLOATS, all_nodes, model_facts
    from truehalf.ir.normalize import concrete_shapes

    model = load_model(path)
    shapes = concrete_shapes(model, input_shapes)
    rows: list[Decision] = []
    casts: Counter[tuple[ir.DataType | None, ir.DataType | None]] = Counter()
    arithmetic = {"fp16": 0.0, "fp32": 0.0}
    for node in all_nodes(model):
        if node.op_type == "Cast" and node.inputs[0] is not None:
            casts[node.inputs[0].dtype, node.outputs[0].dtype] += 1
        types = [output.dtype for output in node.outputs if output.name and output.dtype in FLOATS]
        if not types or node.op_type in ("Cast", "Constant"):
            continue
        precision = "fp16" if set(types) == {ir.DataType.FLOAT16} else "fp32"
        arithmetic[precision] += flops(node, shapes)
        reason = _reason(method, precision, node.name in traced)
        rows.append(entry(node, precision, base.Decision(base.Verdict[precision], method, reason)))
    total = sum(arithmetic.values())
    facts = model_facts(model, path)
    kept = fp32_rows(rows)
    return rows, Fp16Report(
        fp32_nodes_total=len(kept),
        fp32_nodes=kept[:LISTED_NODES],
        fp16_fraction=facts["fp16_fraction"],
        fp16_arithmetic=arithmetic["fp16"] / total if total else None,
        casts_to_fp16=casts[ir.DataType.FLOAT, ir.DataType.FLOAT16],
        casts_to_fp32=casts[ir.DataType.FLOAT16, ir.DataType.FLOAT],
        model=facts,
    )


def _reason(method: str, precision: str, traced: bool) -> str:
    if not traced:
        return f"{'float16' if precision == 'fp16' else 'float32'} as slim made it (onnxslim, or a repair)"
    return "float16 as traced" if precision == "fp16" else _FP32_REASON[method]
