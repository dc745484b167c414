"""FP32 ONNX file as the source of a model: checked, and written anew with its I/O spec."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from truehalf.errors import StageError, attempted
from truehalf.exporting.against_torch import counted
from truehalf.exporting.trace import Tracing, moved_into_place, places
from truehalf.exporting.trace_report import TraceReport
from truehalf.files import write_text
from truehalf.io_spec.in_file import attach, check_declared, check_names, spec_text
from truehalf.io_spec.spec import IoSpec
from truehalf.ir.facts import model_facts
from truehalf.ir.inlining import WeightsApart
from truehalf.ir.model_file import load_model, save_model, source_weights
from truehalf.ir.normalize import InferTypes
from truehalf.runtime.ort import Session
from truehalf.verification.empty_tensors import empty_tensors
from truehalf.verification.findings import NOT_VERIFIED

if TYPE_CHECKING:
    import onnx_ir as ir

PASSED_ON = "none: the file is passed on"
Arrays = Mapping[str, np.ndarray]


def pass_on(
    model_path: Path | str,
    out_path: Path | str,
    options: Tracing | None = None,
    *,
    spec: IoSpec,
    check_feeds: Sequence[Arrays] = (),
) -> TraceReport:
    """Check an FP32 ONNX file and write it anew with its I/O spec, weights that lay outside it included.

    Args:
        model_path: the file; untouched.
        out_path: of the new file, replaced only when all went well; io_spec.json is written beside it.
        options: what lint ends it for; nothing is traced.
        spec: the I/O spec, see truehalf.models.source.io_spec.
        check_feeds: inputs that the new file has to run on.

    Returns:
        as `trace`, with nothing compared: parity is "not verified".

    Raises:
        StageError: when the file cannot be read, the checker of onnx refuses it, it is not what the spec says, outputs
            are not what they are declared to be, model.classes names fewer or more classes than there are, ONNX Runtime
            cannot run it, an output is not finite, or lint finds what `lint.fail_on` says.
    """
    model = load_model(model_path)
    out_path, spec_path = places(out_path, {"model_path": model_path}, source_weights(model))
    WeightsApart(of_any_version=True)(model)
    InferTypes()(model)
    check_names(model, spec)
    check_declared(spec)
    spec = attach(model, spec, {})
    linted = (options or Tracing()).linted(model)
    with tempfile.TemporaryDirectory(dir=out_path.parent, prefix=".trace") as folder:
        written = Path(folder) / out_path.name
        save_model(model, written)
        session = Session(written)
        for feed in check_feeds:
            _check_finite(session.run(feed), Path(model_path))
        moved_into_place(Path(folder), out_path)
    write_text(spec_path, spec_text(spec) + "\n")
    notes = linted.get("missing", [])
    empty = attempted("notes on empty tensors", notes.append, lambda: empty_tensors(model, check_feeds))
    return TraceReport(
        exporter=PASSED_ON,
        opset=model.graph.opset_imports[""],
        warnings={},
        parameters=_floats_stored(model),
        unread_inputs=[str(value.name) for value in model.graph.inputs if not value.uses()],
        parity={
            "status": NOT_VERIFIED,
            "reason": "the model is an ONNX file, so there is no torch module to compare it with; it is the reference",
            **counted(check_feeds),
            "provider": session.provider,
        },
        baked=None,
        lint=linted,
        model=model_facts(model, out_path),
        notes=[*notes, *(empty or [])],
    )


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
