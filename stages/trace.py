"""trace: the torch module as an FP32 ONNX file with stable names, known value types and its I/O spec, and the proof
that ONNX Runtime computes from it what torch computes (stages/parity/tensors.py has the rule).
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from stages.data.samples import TRACE_SAMPLES, Sample, stacked, trace_samples
from stages.graph.facts import model_facts
from stages.graph.lint import RULES, lint
from stages.graph.lint.ignoring import parse_ignores, split_ignored
from stages.io import MODEL_FILE, Stage, StageError, defaults, stage_main, write_text
from stages.lint_report import failing, failure, summary
from stages.models.export import DynamicAxes, evaluation_mode, export
from stages.models.source import SPEC_KEY, described_inputs, open_model, spec_of
from stages.onnx_files import load_model, model_size_mb, save_model
from stages.ort.session import Session
from stages.parity.tensors import NOT_VERIFIED, check_runs
from stages.plugin_ops import ops_of_plugins

if TYPE_CHECKING:
    import onnx_ir as ir
    import torch

SPEC_FILE = "io_spec.json"
MENDED_BY = {  # rule of lint -> the pass of repair that is there for it
    "reshape-allowzero": "allowzero",
    "if-from-squeeze": "squeeze_if",
    "where-condition": "where_arithmetic",
    "range-of-execution-tensor": "range_to_shape",
    "grid-sample": "grid_sample_gather",
    "rope-tile": "rope_constants",
    "bool-index": "bool_index",
    "nonzero-threshold": "nonzero_topk",
    "empty-node-name": "deduplicate_names",
}
Arrays = Mapping[str, np.ndarray]


def trace(
    module: torch.nn.Module,
    example: Arrays,
    out_path: Path | str,
    *,
    spec: Mapping[str, Any],
    exporter: str | None = None,
    opset: int | None = None,
    dynamic_axes: DynamicAxes | None = None,
    check_feeds: Sequence[Arrays] = (),
    atol: float | None = None,
    rtol: float | None = None,
    lint_ignore: Sequence[str] | None = None,
    lint_fail_on: str | None = None,
    plugins: Sequence[str] = (),
    plugin_ops: Sequence[str] = (),
    repair: Sequence[str] = (),
) -> dict[str, Any]:
    """Export a module and compare the file with it. Options left out are those of conf/config.yaml.

    Args:
        module: takes the spec's inputs by position and returns its outputs, one tensor or a tuple; left as it was.
        example: real inputs to trace on, by name, with their batch axis.
        out_path: of the ONNX file, replaced only when all went well; io_spec.json is written beside it.
        spec: the I/O spec, see stages.models.source.io_spec.
        exporter: "torchscript" or "dynamo".
        opset: of the default domain.
        dynamic_axes: {input or output: {axis: symbol}}; default: the axes that the spec gives a name.
        check_feeds: inputs to compare on, best unlike the example and of other batch sizes.
        atol, rtol: of the comparison.
        lint_ignore: "rule" or "rule@<regular expression on node name or scope>", see docs/lint.md.
        lint_fail_on: "never", "error" or "warning": findings that end it.
        plugins, plugin_ops: of the engine; their operators are no findings.
        repair: passes that the file will go through; what one of them mends is reported, and ends nothing here. Before
            it is built, the engine's stage looks at the file once more.

    Returns:
        exporter, opset, warnings {category: count}, parameters, model (facts) and parity: {status: "verified" or
        "not verified", reason?, samples, batch_sizes, share, matched_queries, moved_queries, max_abs by output},
        lint: {counts by severity, rules, first, ignored}, what TensorRT will not like about the file.

    Raises:
        StageError: when the exporter fails, the file is not what the spec says, an output of either side is not
            finite, a trained model's outputs differ, or lint finds what `lint_fail_on` says.
    """
    options, lint_options = defaults("config")["trace"], defaults("config")["lint"]
    exporter = exporter or str(options["exporter"])
    opset = opset or int(options["opset"])
    dynamic_axes = _named_axes(spec) if dynamic_axes is None else dynamic_axes
    out_path = Path(out_path)
    out_path.parent.mkdir(parents=True, exist_ok=True)
    inputs = _tensors(spec, example)
    with tempfile.TemporaryDirectory(dir=out_path.parent, prefix=".trace") as folder:
        exported, described = Path(folder) / "exported.onnx", Path(folder) / "described" / out_path.name
        warned = export(
            module,
            inputs,
            exported,
            exporter=exporter,
            opset=opset,
            input_names=_names(spec["inputs"]),
            output_names=_names(spec["outputs"]),
            dynamic_axes=dynamic_axes,
        )
        model = load_model(exported)
        text = _describe(model, spec)
        linted = _lint(
            model,
            lint_options["ignore"] if lint_ignore is None else lint_ignore,
            lint_options["fail_on"] if lint_fail_on is None else lint_fail_on,
            ops_of_plugins(model, plugins, plugin_ops)[0],
            repair,
        )
        save_model(model, described)
        parity = _parity(
            module,
            described,
            spec,
            check_feeds,
            atol=options["atol"] if atol is None else atol,
            rtol=options["rtol"] if rtol is None else rtol,
        )
        facts = model_facts(model)
        for file in described.parent.iterdir():
            file.replace(out_path.with_name(file.name))
    write_text(out_path.with_name(SPEC_FILE), text + "\n")
    return {
        "exporter": exporter,
        "opset": model.graph.opset_imports[""],
        "warnings": warned,
        "parameters": sum(parameter.numel() for parameter in module.parameters()),
        "parity": parity,
        "lint": linted,
        "model": facts | {"size_mb": model_size_mb(out_path)},
    }


def run(stage: Stage) -> dict[str, Any]:
    config = stage.config
    model = open_model(config, stage.root)
    batch = config.trace.input_shape[0] or 1
    traced = min(batch, TRACE_SAMPLES // 2)
    samples = trace_samples(config, TRACE_SAMPLES, stage.root, described_inputs(model))
    varies = 0 in config.trace.dynamic_axes.get(model.inputs[0].name, {})
    sizes = [size for size in (3, 2, 1) if size != batch][:2] if varies else [batch]
    starts = [traced + sum(sizes[:i]) for i in range(len(sizes))]
    example = _batch(samples[:traced], batch)
    return trace(
        model.module,
        example,
        stage.out() / MODEL_FILE,
        spec=spec_of(model, example, config.trace.dynamic_axes),
        exporter=config.trace.exporter.value,
        opset=config.trace.opset,
        dynamic_axes=config.trace.dynamic_axes,
        check_feeds=[_batch(samples[start : start + size], size) for start, size in zip(starts, sizes, strict=True)],
        atol=config.trace.atol,
        rtol=config.trace.rtol,
        lint_ignore=config.lint.ignore,
        lint_fail_on=config.lint.fail_on.value,
        plugins=config.engine.plugins,
        plugin_ops=config.engine.plugin_ops,
        repair=config.repair.passes,
    )


def _batch(samples: Sequence[Sample], size: int) -> dict[str, np.ndarray]:
    """The first `size` samples, from the first one again where there are fewer."""
    return stacked([samples[i % len(samples)] for i in range(size)])


def _names(tensors: Sequence[Mapping[str, Any]]) -> list[str]:
    return [tensor["name"] for tensor in tensors]


def _named_axes(spec: Mapping[str, Any]) -> dict[str, dict[int, str]]:
    tensors = [*spec["inputs"], *spec["outputs"]]
    return {t["name"]: {axis: size for axis, size in enumerate(t["shape"]) if isinstance(size, str)} for t in tensors}


def _tensors(spec: Mapping[str, Any], feeds: Arrays) -> tuple[torch.Tensor, ...]:
    import torch

    names = _names(spec["inputs"])
    if sorted(names) != sorted(feeds):
        raise StageError(f"trace: the spec has inputs {', '.join(names)}, the samples have {', '.join(feeds)}")
    return tuple(torch.from_numpy(np.ascontiguousarray(feeds[name])) for name in names)


def _describe(model: ir.Model, spec: Mapping[str, Any]) -> str:
    """Hold inputs and outputs against the spec and attach it; its JSON text."""
    for kind, values in (("inputs", model.graph.inputs), ("outputs", model.graph.outputs)):
        expected, got = _names(spec[kind]), [str(value.name) for value in values]
        if expected != got:
            lost = "; an input that Python reads (.item(), int()) is left out: docs/lint.md#baked-item"
            raise StageError(
                f"trace: expected {kind} {', '.join(expected)}, the exported file has {', '.join(got)}"
                + (lost if set(got) < set(expected) and kind == "inputs" else "")
            )
        for value, tensor in zip(values, spec[kind], strict=True):
            _settle(value, tensor)
    text = json.dumps(spec, indent=2)
    model.metadata_props[SPEC_KEY] = text
    return text


def _lint(
    model: ir.Model, ignore: Sequence[str], fail_on: str, plugin_ops: Sequence[str], repair: Sequence[str]
) -> dict[str, Any]:
    """What TensorRT will not like, for the report; the gate leaves out what repair is there to mend.

    Raises:
        StageError: when there are findings of the severity that ends the stage, with all their rules.
    """
    findings, ignored = split_ignored(lint(model, plugin_ops=plugin_ops), parse_ignores(ignore, RULES))
    left = [finding for finding in findings if MENDED_BY.get(finding.rule) not in repair]
    if fatal := failing(left, fail_on):
        raise StageError(
            f"trace: lint.fail_on is {fail_on}, and the traced graph has\n  {failure(fatal)}\n"
            "docs/lint.md says what to write instead; leave a rule out with lint.ignore"
        )
    return summary(findings, ignored)


def _settle(value: ir.Value, tensor: Mapping[str, Any]) -> None:
    """Give an input or output the shape of the spec, unless the exported file contradicts it."""
    import onnx_ir as ir

    dtype = None if value.dtype is None else str(value.dtype.numpy())
    if dtype != tensor["dtype"]:
        raise StageError(f"trace: {value.name!r}: expected {tensor['dtype']}, the exported file has {dtype}")
    expected = tensor["shape"]
    got = list(value.shape) if value.shape is not None else [None] * len(expected)
    if len(got) != len(expected) or any(
        isinstance(have, int) and have != want for have, want in zip(got, expected, strict=True)
    ):
        shape = [size if isinstance(size, int) else "?" for size in got]
        raise StageError(f"trace: {value.name!r}: expected shape {expected}, the exported file has {shape}")
    value.shape = ir.Shape([ir.SymbolicDim(size) if isinstance(size, str) else size for size in expected])


def _parity(
    module: torch.nn.Module, path: Path, spec: Mapping[str, Any], feeds: Sequence[Arrays], *, atol: float, rtol: float
) -> dict[str, Any]:
    if not feeds:
        return {"status": NOT_VERIFIED, "reason": "no samples were given to compare on"}
    session = Session(path)
    runs = [(_reference(module, spec, feed), session.run(feed)) for feed in feeds]
    try:
        result = check_runs(runs, spec, atol=atol, rtol=rtol, sides=("torch", "ONNX Runtime"))
    except StageError as error:
        raise StageError(
            f"trace: {error}; try the other exporter, simplify the module's code, or set trace.atol and trace.rtol to "
            "the accuracy that you need"
        ) from error
    sizes = [len(next(iter(feed.values()))) for feed in feeds]
    return {"samples": sum(sizes), "batch_sizes": sorted(set(sizes)), "provider": session.provider} | result


def _reference(module: torch.nn.Module, spec: Mapping[str, Any], feed: Arrays) -> dict[str, np.ndarray]:
    import torch

    with evaluation_mode(module), torch.no_grad():
        outputs = module(*_tensors(spec, feed))
    values = [outputs] if isinstance(outputs, torch.Tensor) else list(outputs)
    return {name: value.numpy() for name, value in zip(_names(spec["outputs"]), values, strict=True)}


def main() -> None:
    stage_main("trace", run)


if __name__ == "__main__":
    main()
