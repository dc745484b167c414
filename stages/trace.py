"""trace: the torch module as an FP32 ONNX file with stable names, known value types and its I/O spec, and the proof
that ONNX Runtime computes from it what torch computes (truehalf/verification/metrics/tensors.py has the rule). Where
height or width vary, also at two sizes that were not traced (truehalf/models/sizes.py). What the trace has baked in is
looked for on inputs that differ and in the source (truehalf/exporting/baked); what stays open is in open.json, and the
run not verified.

A model that is an ONNX file already (source onnx) is checked and passed on, with its I/O spec.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from stages.frame import Stage, stage_main
from truehalf.config.defaults import defaults
from truehalf.config.schema import Config
from truehalf.data.picture import Arrays as ArraysOfOne
from truehalf.data.samples import TRACE_SAMPLES, Sample, drawn, stacked, trace_samples
from truehalf.errors import StageError
from truehalf.exporting.against_torch import (
    SILENT,
    compared_with_torch,
    shapes_of,
    tensors_of,
    torch_fails,
    torch_outputs,
    unread_inputs,
)
from truehalf.exporting.baked import Subject, check_repeats, explaining, reason_of, what_was_baked
from truehalf.exporting.export import DynamicAxes, export
from truehalf.files import MODEL_FILE, write_json
from truehalf.io_spec.in_file import attach, check_declared, check_names, named_axes, names_of, spec_text
from truehalf.ir.facts import model_facts
from truehalf.ir.model_file import load_model, model_size_mb, save_model, source_weights
from truehalf.ir.normalize import infer_types
from truehalf.ir.opset import list_weights_apart
from truehalf.linting.plugin_ops import ops_of_plugins
from truehalf.linting.report import lint_of_trace
from truehalf.models.as_made import copied, state
from truehalf.models.model import Model
from truehalf.models.sizes import at_other_sizes, varying_axes
from truehalf.models.source import described, dynamic_axes_of, open_model, spec_of
from truehalf.output_files import destination, write_text, written_whole
from truehalf.output_paths import check_outputs
from truehalf.runtime.ort.session import Session
from truehalf.verification.metrics.tensors import NOT_VERIFIED

if TYPE_CHECKING:
    import onnx_ir as ir
    import torch

SPEC_FILE = "io_spec.json"
OPEN_FILE = "open.json"  # why the file is not verified; verify reads it
PASSED_ON = "none: the file is passed on"
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
        spec: the I/O spec, see truehalf.models.source.io_spec.
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
        prepared: entered around the export alone, see truehalf.models.model.Model; the comparison is with the module as
            it is outside.

    Returns:
        exporter, opset, warnings {category: count}, baked (see truehalf.exporting.baked.what_was_baked), parameters,
        unread_inputs (names of those that no output depends on, which are inputs of the file all the same), model
        (facts) and parity: {status: "verified" or
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
    atol, rtol = (options["atol"] if atol is None else atol), (options["rtol"] if rtol is None else rtol)
    exporter = exporter or str(options["exporter"])
    opset = opset or int(options["opset"])
    dynamic_axes = named_axes(spec) if dynamic_axes is None else dynamic_axes
    out_path, spec_path = _places(out_path, {})
    inputs = tensors_of(spec, example)
    check_declared(spec)
    made, before = copied(module), state(module)
    with tempfile.TemporaryDirectory(dir=out_path.parent, prefix=".trace") as folder:
        exported, described = Path(folder) / "exported.onnx", Path(folder) / "described" / out_path.name
        with prepared():
            traced = copied(module)
            warned = export(
                module,
                inputs,
                exported,
                exporter=exporter,
                opset=opset,
                input_names=names_of(spec["inputs"]),
                output_names=names_of(spec["outputs"]),
                dynamic_axes=dynamic_axes,
            )
        model = load_model(exported)
        check_names(model, spec)
        check_repeats(lambda: torch_outputs(module, spec, example, example), spec, atol, rtol)
        unread = unread_inputs(model, module, spec, example)
        references = [torch_outputs(module, spec, feed, example) for feed in check_feeds]
        spec = attach(model, spec, varying_axes(references))
        linted = lint_of_trace(
            model,
            lint_options["ignore"] if lint_ignore is None else lint_ignore,
            lint_options["fail_on"] if lint_fail_on is None else lint_fail_on,
            ops_of_plugins(model, plugins, plugin_ops)[0],
            repair,
        )
        save_model(model, described)
        pairs = list(zip(check_feeds, references, strict=True))
        subject = Subject(
            module=module,
            made=made,
            traced=traced,
            before=before,
            path=described,
            spec=spec,
            example=example,
            pairs=pairs,
            caught=warned,
            followed=exporter == "dynamo",
            atol=atol,
            rtol=rtol,
        )
        with explaining(subject):
            parity = compared_with_torch(module, described, spec, pairs, example, atol=atol, rtol=rtol)
        baked = what_was_baked(subject)
        facts = model_facts(model)
        _move(described.parent, out_path)
    write_text(spec_path, spec_text(spec) + "\n")
    return {
        "exporter": exporter,
        "opset": model.graph.opset_imports[""],
        "warnings": dict(Counter(warning.category.__name__ for warning in warned)),
        "parameters": sum(parameter.numel() for parameter in module.parameters()),
        "unread_inputs": unread,
        "parity": parity | ({"status": NOT_VERIFIED, "reason": reason} if (reason := reason_of(baked)) else {}),
        "baked": baked,
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
        spec: the I/O spec, see truehalf.models.source.io_spec.
        check_feeds: inputs that the new file has to run on.
        lint_ignore, lint_fail_on, plugins, plugin_ops, repair: as `trace`.

    Returns:
        as `trace`, with nothing compared: parity is "not verified".

    Raises:
        StageError: when the file cannot be read, the checker of onnx refuses it, it is not what the spec says, outputs
            are not what they are declared to be, model.classes names fewer or more classes than there are, ONNX Runtime
            cannot run it, an output is not finite, or lint finds what `lint_fail_on` says.
    """
    lint_options = defaults("config")["lint"]
    model = load_model(model_path)
    out_path, spec_path = _places(out_path, {"model_path": model_path}, source_weights(model))
    list_weights_apart(model)
    infer_types(model)
    check_names(model, spec)
    check_declared(spec)
    spec = attach(model, spec, {})
    linted = lint_of_trace(
        model,
        lint_options["ignore"] if lint_ignore is None else lint_ignore,
        lint_options["fail_on"] if lint_fail_on is None else lint_fail_on,
        ops_of_plugins(model, plugins, plugin_ops)[0],
        repair,
    )
    with tempfile.TemporaryDirectory(dir=out_path.parent, prefix=".trace") as folder:
        written = Path(folder) / out_path.name
        save_model(model, written)
        session = Session(written, log_severity_level=SILENT)
        for feed in check_feeds:
            _check_finite(session.run(feed), Path(model_path))
        _move(Path(folder), out_path)
    write_text(spec_path, spec_text(spec) + "\n")
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


def _places(out_path: Path | str, inputs: Mapping[str, Any], weights: Sequence[Path | str] = ()) -> tuple[Path, Path]:
    """Where the model and its I/O spec are written, links followed."""
    out_path = Path(out_path)
    spec_path = out_path.with_name(SPEC_FILE)
    check_outputs({"out_path": out_path, "the I/O spec": spec_path}, inputs, weights)
    return destination(out_path), spec_path


def _move(folder: Path, out_path: Path) -> None:
    with written_whole(out_path) as building:
        for file in folder.iterdir():
            file.replace(building.with_name(file.name))


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
    feeds = [_batch(samples, size, start) for start, size in zip(starts, sizes, strict=True)]
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
    if open_because := reason_of(report["baked"]):
        write_json(stage.out() / OPEN_FILE, [open_because])
    elif not resized and at_other_sizes(model.inputs, axes):
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
        raise StageError("module-fails", f"{torch_fails(error)} on {shapes_of(example)}") from error


def _at_other_sizes(
    config: Config, model: Model, root: Path, axes: DynamicAxes, batch: int
) -> list[dict[str, np.ndarray]]:
    """Samples to trace on, at two other sizes where height or width vary; none where the data is no pictures."""
    others = at_other_sizes(model.inputs, axes)
    if not others or isinstance(drawn(config, root, "trace", 1)[0], ArraysOfOne):
        return []
    rows = [trace_samples(config, 2, root, described(replace(model, inputs=inputs))) for inputs in others]
    return [_batch(samples, 2 if 0 in axes.get(model.inputs[0].name, {}) else batch) for samples in rows]


def _batch(samples: Sequence[Sample], size: int, start: int = 0) -> dict[str, np.ndarray]:
    """`size` samples from `start` on, from the first one again where there are fewer."""
    return stacked([samples[(start + i) % len(samples)] for i in range(size)])


def _floats_stored(model: ir.Model) -> int:
    """Numbers in the weights, as parameters of a module are counted."""
    weights = [value.const_value for graph in model.graphs() for value in graph.initializers.values()]
    return sum(tensor.size for tensor in weights if tensor is not None and tensor.dtype.is_floating_point())


def _check_finite(outputs: Arrays, path: Path) -> None:
    for name, array in outputs.items():
        bad = int((~np.isfinite(array)).sum()) if array.dtype.kind == "f" else 0
        if bad:
            raise StageError(
                "not-finite",
                f"{path} is no reference: output {name!r} holds {bad} NaN or Inf of {array.size} values on "
                "samples of yours; expected finite values. Check the weights and the inputs",
            )


def main() -> None:
    stage_main("trace", run)


if __name__ == "__main__":
    main()
