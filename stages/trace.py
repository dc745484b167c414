"""trace: the torch module as an FP32 ONNX file with stable names, known value types and its I/O spec, and the proof
that ONNX Runtime computes from it what torch computes (stages/parity/tensors.py has the rule). Where height or width
vary, also at two sizes that were not traced (stages/models/sizes.py).

A model that is an ONNX file already (source onnx) is checked and passed on, with its I/O spec.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from conf.schema import Config
from stages.data.picture import Arrays as ArraysOfOne
from stages.data.samples import TRACE_SAMPLES, Sample, drawn, stacked, trace_samples
from stages.graph.facts import model_facts
from stages.graph.lint import RULES, lint
from stages.graph.lint.ignoring import parse_ignores, split_ignored
from stages.graph.normalize import infer_types
from stages.graph.opset import list_weights_apart
from stages.io import MODEL_FILE, Stage, StageError, defaults, stage_main, write_text
from stages.lint_report import failing, failure, summary
from stages.models.export import DynamicAxes, evaluation_mode, export
from stages.models.model import Model
from stages.models.sizes import at_other_sizes, other_axes, refusal, varying_axes
from stages.models.source import described, dynamic_axes_of, open_model, spec_of
from stages.onnx_files import SPEC_KEY, load_model, model_size_mb, save_model
from stages.ort.session import Session
from stages.parity.outputs import check_shapes, fault_of_classes
from stages.parity.tensors import NOT_VERIFIED, check_runs
from stages.plugin_ops import ops_of_plugins

if TYPE_CHECKING:
    import onnx_ir as ir
    import torch

SPEC_FILE = "io_spec.json"
_SILENT = 4  # ONNX Runtime prints nothing but what ends the process
PASSED_ON = "none: the file is passed on"
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
    prepared: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext,
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
        check_feeds: inputs to compare on, best unlike the example and of other batch sizes; of other heights and widths
            where these vary.
        atol, rtol: of the comparison.
        lint_ignore: "rule" or "rule@<regular expression on node name or scope>", see docs/lint.md.
        lint_fail_on: "never", "error" or "warning": findings that end it.
        plugins, plugin_ops: of the engine; their operators are no findings.
        repair: passes that the file will go through; what one of them mends is reported, and ends nothing here. Before
            it is built, the engine's stage looks at the file once more.
        prepared: entered around the export alone, see stages.models.model.Model; the comparison is with the module as
            it is outside.

    Returns:
        exporter, opset, warnings {category: count}, parameters, unread_inputs (names of those that no output depends
        on, which are inputs of the file all the same), model (facts) and parity: {status: "verified" or
        "not verified", reason?, samples, batch_sizes, share, matched_queries, moved_queries, max_abs by output, sizes?:
        the same of each feed of another height or width, with the shapes of its inputs},
        lint: {counts by severity, rules, first, ignored}, what TensorRT will not like about the file.

    Raises:
        StageError: when outputs are not what they are declared to be, model.classes names fewer or more classes than
            there are, the exporter fails, the file is not what the spec says, an axis that should vary cannot, an
            output of either side is not finite, a trained model's outputs differ, or lint finds what `lint_fail_on`
            says.
    """
    options, lint_options = defaults("config")["trace"], defaults("config")["lint"]
    exporter = exporter or str(options["exporter"])
    opset = opset or int(options["opset"])
    dynamic_axes = _named_axes(spec) if dynamic_axes is None else dynamic_axes
    out_path = Path(out_path)
    out_path.parent.mkdir(parents=True, exist_ok=True)
    inputs = _tensors(spec, example)
    _check_declared(spec)
    with tempfile.TemporaryDirectory(dir=out_path.parent, prefix=".trace") as folder:
        exported, described = Path(folder) / "exported.onnx", Path(folder) / "described" / out_path.name
        with prepared():
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
        _check_names(model, spec)
        unread = _unread(model, module, spec, example)
        references = [_reference(module, spec, feed, example) for feed in check_feeds]
        spec = _describe(model, spec, varying_axes(references))
        linted = _lint(
            model,
            lint_options["ignore"] if lint_ignore is None else lint_ignore,
            lint_options["fail_on"] if lint_fail_on is None else lint_fail_on,
            ops_of_plugins(model, plugins, plugin_ops)[0],
            repair,
        )
        save_model(model, described)
        parity = _parity(
            lambda feed: _reference(module, spec, feed, example),
            described,
            spec,
            list(zip(check_feeds, references, strict=True)),
            example,
            atol=options["atol"] if atol is None else atol,
            rtol=options["rtol"] if rtol is None else rtol,
        )
        facts = model_facts(model)
        for file in described.parent.iterdir():
            file.replace(out_path.with_name(file.name))
    write_text(out_path.with_name(SPEC_FILE), _text(spec) + "\n")
    return {
        "exporter": exporter,
        "opset": model.graph.opset_imports[""],
        "warnings": warned,
        "parameters": sum(parameter.numel() for parameter in module.parameters()),
        "unread_inputs": unread,
        "parity": parity,
        "lint": linted,
        "model": facts | {"size_mb": model_size_mb(out_path)},
    }


def pass_on(
    model_path: Path | str,
    out_path: Path | str,
    *,
    spec: Mapping[str, Any],
    check_feeds: Sequence[Arrays] = (),
    lint_ignore: Sequence[str] | None = None,
    lint_fail_on: str | None = None,
    plugins: Sequence[str] = (),
    plugin_ops: Sequence[str] = (),
    repair: Sequence[str] = (),
) -> dict[str, Any]:
    """Check an FP32 ONNX file and write it anew with its I/O spec, weights that lay outside it included.

    Args:
        model_path: the file; untouched.
        out_path: of the new file, replaced only when all went well; io_spec.json is written beside it.
        spec: the I/O spec, see stages.models.source.io_spec.
        check_feeds: inputs that the new file has to run on.
        lint_ignore, lint_fail_on, plugins, plugin_ops, repair: as `trace`.

    Returns:
        as `trace`, with nothing compared: parity is "not verified".

    Raises:
        StageError: when the file cannot be read, the checker of onnx refuses it, it is not what the spec says, outputs
            are not what they are declared to be, model.classes names fewer or more classes than there are, ONNX Runtime
            cannot run it, an output is not finite, or lint finds what `lint_fail_on` says.
    """
    out_path, lint_options = Path(out_path), defaults("config")["lint"]
    out_path.parent.mkdir(parents=True, exist_ok=True)
    model = load_model(model_path)
    list_weights_apart(model)
    infer_types(model)
    _check_names(model, spec)
    _check_declared(spec)
    spec = _describe(model, spec, {})
    linted = _lint(
        model,
        lint_options["ignore"] if lint_ignore is None else lint_ignore,
        lint_options["fail_on"] if lint_fail_on is None else lint_fail_on,
        ops_of_plugins(model, plugins, plugin_ops)[0],
        repair,
    )
    with tempfile.TemporaryDirectory(dir=out_path.parent, prefix=".trace") as folder:
        written = Path(folder) / out_path.name
        save_model(model, written)
        session = Session(written, log_severity_level=_SILENT)
        for feed in check_feeds:
            _check_finite(session.run(feed), Path(model_path))
        for file in Path(folder).iterdir():
            file.replace(out_path.with_name(file.name))
    write_text(out_path.with_name(SPEC_FILE), _text(spec) + "\n")
    sizes = [len(next(iter(feed.values()))) for feed in check_feeds]
    return {
        "exporter": PASSED_ON,
        "opset": model.graph.opset_imports[""],
        "warnings": {},
        "parameters": _floats_stored(model),
        "unread_inputs": [str(value.name) for value in model.graph.inputs if not value.uses()],
        "parity": {
            "status": NOT_VERIFIED,
            "reason": "the model is an ONNX file, so there is no torch module to hold it against; it is the reference",
            "samples": sum(sizes),
            "batch_sizes": sorted(set(sizes)),
            "provider": session.provider,
        },
        "lint": linted,
        "model": model_facts(model) | {"size_mb": model_size_mb(out_path)},
    }


def run(stage: Stage) -> dict[str, Any]:
    config = stage.config
    model = open_model(config, stage.root)
    axes = dynamic_axes_of(config, model)
    first = axes.get(model.inputs[0].name, {})
    batch = model.batch or config.trace.input_shape[0] or 1
    traced = min(batch, TRACE_SAMPLES // 2)
    samples = trace_samples(config, TRACE_SAMPLES, stage.root, described(model))
    sizes = [size for size in (3, 2, 1) if size != batch][:2] if 0 in first else [batch]
    starts = [traced + sum(sizes[:i]) for i in range(len(sizes))]
    example = _batch(samples[:traced], batch)
    spec = _spec_of(model, example, axes)
    feeds = [_batch(samples[start : start + size], size) for start, size in zip(starts, sizes, strict=True)]
    door: dict[str, Any] = {
        "lint_ignore": config.lint.ignore,
        "lint_fail_on": config.lint.fail_on.value,
        "plugins": config.engine.plugins,
        "plugin_ops": config.engine.plugin_ops,
        "repair": config.repair.passes,
    }
    if model.file is not None:
        report = pass_on(model.file, stage.out() / MODEL_FILE, spec=spec, check_feeds=feeds, **door)
        return report | {"notes": list(model.notes)}
    resized = _at_other_sizes(config, model, stage.root, axes, batch)
    report = trace(
        model.module,
        example,
        stage.out() / MODEL_FILE,
        spec=spec,
        exporter=config.trace.exporter.value,
        opset=config.trace.opset,
        dynamic_axes=axes,
        check_feeds=[*feeds, *resized],
        atol=config.trace.atol,
        rtol=config.trace.rtol,
        prepared=model.prepared,
        **door,
    )
    if not resized and at_other_sizes(model.inputs, axes):
        reason = f"height and width vary, and data={config.data.source.value} gives arrays, which cannot be resized"
        report["parity"] |= {"status": NOT_VERIFIED, "reason": reason}
    unread = [f"input {name!r}: no output that is kept depends on it" for name in report["unread_inputs"]]
    return report | {"notes": [*model.notes, *unread]}


def _spec_of(model: Model, example: Arrays, axes: DynamicAxes) -> dict[str, Any]:
    try:
        return spec_of(model, example, axes)
    except StageError:
        raise
    except Exception as error:  # whatever the module raises
        raise StageError(f"{_torch_fails(error)} on {_shapes(example)}") from error


def _at_other_sizes(
    config: Config, model: Model, root: Path, axes: DynamicAxes, batch: int
) -> list[dict[str, np.ndarray]]:
    """Samples to trace on, at two other sizes where height or width vary; none where the data is no pictures."""
    others = at_other_sizes(model.inputs, axes)
    if not others or isinstance(drawn(config, root, "trace", 1)[0], ArraysOfOne):
        return []
    rows = [trace_samples(config, 2, root, described(replace(model, inputs=inputs))) for inputs in others]
    return [_batch(samples, 2 if 0 in axes.get(model.inputs[0].name, {}) else batch) for samples in rows]


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
        raise StageError(f"the spec has inputs {', '.join(names)}, the samples have {', '.join(feeds)}")
    return tuple(torch.from_numpy(np.ascontiguousarray(feeds[name])) for name in names)


def _check_declared(spec: Mapping[str, Any]) -> None:
    """Hold what outputs are declared to be, and the names of the classes, against their shapes."""
    try:
        check_shapes(spec)
    except StageError as error:
        raise StageError(
            f"{error}\nmodel.outputs says what each output is, and `take` which of the tensors that a module returns"
        ) from error
    if said := fault_of_classes(spec):
        raise StageError(f"model.classes: {said}")


def _check_names(model: ir.Model, spec: Mapping[str, Any]) -> None:
    for kind, values in (("inputs", model.graph.inputs), ("outputs", model.graph.outputs)):
        expected, got = _names(spec[kind]), [str(value.name) for value in values]
        if expected != got:
            raise StageError(f"expected {kind} {', '.join(expected)}, the exported file has {', '.join(got)}")


def _unread(model: ir.Model, module: torch.nn.Module, spec: Mapping[str, Any], example: Arrays) -> list[str]:
    """Inputs that nothing in the exported file reads, because no output that is kept depends on them.

    Raises:
        StageError: where torch computes other outputs when the input is another, so that Python read it.
    """
    names = [str(value.name) for value in model.graph.inputs if not value.uses() and not value.is_graph_output()]
    before = _reference(module, spec, example, example) if names else {}
    for name in names:
        runs = []
        for other in _others(example[name]):
            with contextlib.suppress(StageError):  # not every value is one that the module takes
                runs.append(_reference(module, spec, {**example, name: other}, example))
        if not runs or not all(_same(before, after) for after in runs):
            said = "outputs depend on it in torch" if runs else "torch takes no other value of it"
            raise StageError(
                f"nothing in the exported file reads input {name!r}, and {said}: Python reads it (.item(), int()), so "
                "that its value on the samples of trace would hold for all: docs/lint.md#baked-item"
            )
    return names


def _others(values: np.ndarray) -> list[np.ndarray]:
    """Other values of an input: smaller ones and larger ones."""
    if values.dtype == bool:
        return [~values]
    smaller = values // 2 if values.dtype.kind in "iu" else values * 0.5
    others = [np.asarray(each, values.dtype) for each in (smaller, values + 1)]
    return [each for each in others if not np.array_equal(each, values)]


def _same(before: Arrays, after: Arrays) -> bool:
    """Alike but for rounding."""
    pairs = [(before[name], after[name]) for name in before]
    return all(a.shape == b.shape and np.allclose(a, b, rtol=1e-5, atol=1e-6, equal_nan=True) for a, b in pairs)


def _describe(model: ir.Model, spec: Mapping[str, Any], varying: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    """Hold inputs and outputs against the spec and attach it.

    Args:
        varying: by output, axes that were seen to vary; one without a name in the spec keeps the exporter's.

    Returns:
        the spec with the names of all axes that vary.
    """
    outputs = [dict(tensor) for tensor in spec["outputs"]]
    for value, tensor in zip(model.graph.outputs, outputs, strict=True):
        tensor["shape"] = _with_names(value, tensor["shape"], varying.get(tensor["name"], ()))
    complete = {**spec, "outputs": outputs}
    for values, tensors in ((model.graph.inputs, spec["inputs"]), (model.graph.outputs, outputs)):
        for value, tensor in zip(values, tensors, strict=True):
            _settle(value, tensor)
    model.metadata_props[SPEC_KEY] = _text(complete)
    return complete


def _text(spec: Mapping[str, Any]) -> str:
    return json.dumps(spec, indent=2)


def _with_names(value: ir.Value, shape: Sequence[int | str], varying: Sequence[int]) -> list[int | str]:
    """The shape of an output with names on the axes that vary.

    Raises:
        StageError: where the exported file fixes one of them.
    """
    named = list(shape)
    for axis in (axis for axis in varying if isinstance(shape[axis], int)):
        have = value.shape[axis] if value.shape is not None and len(value.shape) == len(shape) else None
        if isinstance(have, int):
            raise StageError(
                f"axis {axis} of {value.name!r} varies with the inputs in torch, and the exported file fixes it "
                f"at {have}; let forward compute it from tensor.shape, without int() and without numbers kept from "
                "another call, or take out of trace.dynamic_axes what it follows from"
            )
        named[axis] = (None if have is None else have.value) or f"{value.name}_{axis}"
    return named


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
            f"lint.fail_on is {fail_on}, and the traced graph has\n  {failure(fatal)}\n"
            "docs/lint.md says what to write instead; leave a rule out with lint.ignore"
        )
    return summary(findings, ignored)


def _settle(value: ir.Value, tensor: Mapping[str, Any]) -> None:
    """Give an input or output the shape of the spec, unless the exported file contradicts it."""
    import onnx_ir as ir

    dtype = None if value.dtype is None else str(value.dtype.numpy())
    if dtype != tensor["dtype"]:
        raise StageError(f"{value.name!r}: expected {tensor['dtype']}, the exported file has {dtype}")
    expected = tensor["shape"]
    got = list(value.shape) if value.shape is not None else [None] * len(expected)
    if len(got) != len(expected) or any(
        isinstance(have, int) and have != want for have, want in zip(got, expected, strict=True)
    ):
        shape = [size if isinstance(size, int) else "?" for size in got]
        raise StageError(f"{value.name!r}: expected shape {expected}, the exported file has {shape}")
    value.shape = ir.Shape([ir.SymbolicDim(size) if isinstance(size, str) else size for size in expected])


def _parity(
    reference: Callable[[Arrays], dict[str, np.ndarray]],
    path: Path,
    spec: Mapping[str, Any],
    pairs: Sequence[tuple[Arrays, dict[str, np.ndarray]]],
    example: Arrays,
    *,
    atol: float,
    rtol: float,
) -> dict[str, Any]:
    """Outputs of the file against those of torch: feeds like the example all together, those of another size alone."""
    if not pairs:
        return {"status": NOT_VERIFIED, "reason": "no samples were given to compare on"}
    session = Session(path, log_severity_level=_SILENT)  # what fails is said in words of ours

    def compared(runs: Sequence[tuple[Arrays, dict[str, np.ndarray]]]) -> dict[str, Any]:
        found = [(torch_side, session.run(feed)) for feed, torch_side in runs]
        return check_runs(found, spec, atol=atol, rtol=rtol, sides=("torch", "ONNX Runtime"))

    def fault(feed: Arrays) -> str | None:
        try:
            compared([(feed, reference(feed))])
        except StageError as error:
            return f"the exported file does not hold: {error}"
        return None

    alike = [pair for pair in pairs if not other_axes(pair[0], example)]
    resized = [pair for pair in pairs if other_axes(pair[0], example)]
    result: dict[str, Any] = {"status": NOT_VERIFIED, "reason": "no samples of the traced size were given"}
    if alike:
        try:
            result = compared(alike)
        except StageError as error:
            raise StageError(
                f"{error}; try the other exporter, simplify the module's code, or set trace.atol and trace.rtol "
                "to the accuracy that you need"
            ) from error
    at_sizes = []
    for pair in resized:
        try:
            found = compared([pair])
        except StageError as error:
            said = f"the exported file does not hold: {error}"
            raise refusal(pair[0], example, _named_axes(spec), fault, said) from error
        shapes = {name: list(array.shape) for name, array in pair[0].items()}
        at_sizes.append({"inputs": shapes} | found)
        if found["status"] == NOT_VERIFIED and result["status"] != NOT_VERIFIED:
            result |= {"status": NOT_VERIFIED, "reason": f"at {shapes}: {found['reason']}"}
    sizes = [len(next(iter(feed.values()))) for feed, _ in pairs]
    counts = {"samples": sum(sizes), "batch_sizes": sorted(set(sizes)), "provider": session.provider}
    return counts | result | ({"sizes": at_sizes} if at_sizes else {})


def _reference(
    module: torch.nn.Module, spec: Mapping[str, Any], feed: Arrays, example: Arrays
) -> dict[str, np.ndarray]:
    """What torch computes.

    Raises:
        StageError: when it cannot, naming the axes where the size is not the example's.
    """
    import torch

    def outputs_of(feed: Arrays) -> Any:
        with evaluation_mode(module), torch.no_grad():
            return module(*_tensors(spec, feed))

    def fault(feed: Arrays) -> str | None:
        try:
            outputs_of(feed)
        except Exception as error:
            return _torch_fails(error)
        return None

    try:
        outputs = outputs_of(feed)
    except Exception as error:  # whatever the module raises
        if not other_axes(feed, example):
            raise StageError(f"{_torch_fails(error)} on {_shapes(feed)}") from error
        raise refusal(feed, example, _named_axes(spec), fault, _torch_fails(error)) from error
    values = [outputs] if isinstance(outputs, torch.Tensor) else list(outputs)
    return {name: value.numpy() for name, value in zip(_names(spec["outputs"]), values, strict=True)}


def _torch_fails(error: Exception) -> str:
    said = next(iter(str(error).strip().splitlines()), "no message")
    return f"the module itself fails in torch: {type(error).__name__}: {said}"


def _shapes(feed: Arrays) -> str:
    return ", ".join(f"{name} {list(array.shape)}" for name, array in feed.items())


def _floats_stored(model: ir.Model) -> int:
    """Numbers in the weights, as parameters of a module are counted."""
    weights = [value.const_value for graph in model.graphs() for value in graph.initializers.values()]
    return sum(tensor.size for tensor in weights if tensor is not None and tensor.dtype.is_floating_point())


def _check_finite(outputs: Arrays, path: Path) -> None:
    for name, array in outputs.items():
        bad = int((~np.isfinite(array)).sum()) if array.dtype.kind == "f" else 0
        if bad:
            raise StageError(
                f"{path} is no reference: output {name!r} holds {bad} NaN or Inf of {array.size} values on "
                "samples of yours; expected finite values. Check the weights and the inputs"
            )


def main() -> None:
    stage_main("trace", run)


if __name__ == "__main__":
    main()
