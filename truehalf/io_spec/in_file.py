"""The I/O spec and the ONNX file it belongs to: checked against each other, then kept in the file's metadata."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from truehalf.errors import StageError
from truehalf.io_spec.outputs import check_shapes, fault_of_classes

if TYPE_CHECKING:
    import onnx_ir as ir

SPEC_KEY = "truehalf.io_spec"  # in metadata_props


def spec_inside(model: ir.Model) -> dict[str, Any]:
    """The I/O spec in a file's metadata; empty where there is none.

    Raises:
        StageError: where it is not JSON, or its inputs and outputs are no lists of mappings with a name.
    """
    try:
        spec: dict[str, Any] = json.loads(model.metadata_props.get(SPEC_KEY, "{}"))
        for kind in ("inputs", "outputs"):
            names_of(spec.get(kind, []))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StageError(
            "wrong-spec",
            f"metadata {SPEC_KEY!r} is no I/O spec ({type(error).__name__}: {error}); take it out of the file, or "
            "write it anew",
        ) from error
    return spec


def names_of(tensors: Sequence[Mapping[str, Any]]) -> list[str]:
    """Of inputs or outputs of a spec."""
    return [tensor["name"] for tensor in tensors]


def check_declared(spec: Mapping[str, Any]) -> None:
    """Hold what outputs are declared to be, and the names of the classes, against their shapes.

    Raises:
        StageError: where a shape is none that such an output can have, or there are fewer or more names than classes.
    """
    try:
        check_shapes(spec)
    except StageError as error:
        raise StageError(
            "wrong-shape",
            f"{error}\nmodel.outputs says what each output is, and `take` which of the tensors that a module returns",
        ) from error
    if said := fault_of_classes(spec):
        raise StageError("wrong-class-count", f"model.classes: {said}")


def check_names(model: ir.Model, spec: Mapping[str, Any]) -> None:
    """Raise StageError unless the file has the inputs and the outputs of the spec, in its order."""
    for kind, values in (("inputs", model.graph.inputs), ("outputs", model.graph.outputs)):
        expected, got = names_of(spec[kind]), [str(value.name) for value in values]
        if expected != got:
            raise StageError(
                "wrong-name", f"expected {kind} {', '.join(expected)}, the exported file has {', '.join(got)}"
            )


def attach(model: ir.Model, spec: Mapping[str, Any], varying: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    """Hold inputs and outputs against the spec, give them its shapes, and keep it in the model's metadata.

    Args:
        varying: by output, axes that were seen to vary; one without a name in the spec keeps the exporter's.

    Returns:
        the spec with the names of all axes that vary.

    Raises:
        StageError: where the exported file has another dtype or shape, or fixes an axis that varies.
    """
    outputs = [dict(tensor) for tensor in spec["outputs"]]
    for value, tensor in zip(model.graph.outputs, outputs, strict=True):
        tensor["shape"] = _with_names(value, tensor["shape"], varying.get(tensor["name"], ()))
    complete = {**spec, "outputs": outputs}
    for values, tensors in ((model.graph.inputs, spec["inputs"]), (model.graph.outputs, outputs)):
        for value, tensor in zip(values, tensors, strict=True):
            _settle(value, tensor)
    model.metadata_props[SPEC_KEY] = spec_text(complete)
    return complete


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
                "axis-fixed",
                f"axis {axis} of {value.name!r} varies with the inputs in torch, and the exported file fixes it "
                f"at {have}; let forward compute it from tensor.shape, without int() and without numbers kept from "
                "another call, or take out of trace.dynamic_axes what it follows from",
            )
        named[axis] = (None if have is None else have.value) or f"{value.name}_{axis}"
    return named


def _settle(value: ir.Value, tensor: Mapping[str, Any]) -> None:
    """Give an input or output the shape of the spec, unless the exported file contradicts it."""
    import onnx_ir as ir

    dtype = None if value.dtype is None else str(value.dtype.numpy())
    if dtype != tensor["dtype"]:
        raise StageError("wrong-dtype", f"{value.name!r}: expected {tensor['dtype']}, the exported file has {dtype}")
    expected = tensor["shape"]
    got = list(value.shape) if value.shape is not None else [None] * len(expected)
    if len(got) != len(expected) or any(
        isinstance(have, int) and have != want for have, want in zip(got, expected, strict=True)
    ):
        shape = [size if isinstance(size, int) else "?" for size in got]
        raise StageError(
            "wrong-shape",
            f"{value.name!r}: expected shape {expected}, the exported file has {shape}; an output without a row for "
            "each sample is left out with model.drop_outputs",
        )
    value.shape = ir.Shape([ir.SymbolicDim(size) if isinstance(size, str) else size for size in expected])


def spec_text(spec: Mapping[str, Any]) -> str:
    """As it is kept in metadata and in files."""
    return json.dumps(spec, indent=2)


def named_axes(spec: Mapping[str, Any]) -> dict[str, dict[int, str]]:
    """{input or output: {axis: name}} of the axes that vary."""
    tensors = [*spec["inputs"], *spec["outputs"]]
    return {t["name"]: {axis: size for axis, size in enumerate(t["shape"]) if isinstance(size, str)} for t in tensors}
