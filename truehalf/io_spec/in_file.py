"""The I/O spec and the ONNX file it belongs to: checked against each other, then kept in the file's metadata."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from truehalf.errors import StageError, typed_line
from truehalf.files import read_json, read_yaml
from truehalf.io_spec.checks import check_shapes, problem_of_classes
from truehalf.io_spec.spec import IoSpec, TensorSpec
from truehalf.json_values import JsonObject

if TYPE_CHECKING:
    import onnx_ir as ir

SPEC_KEY = "truehalf.io_spec"  # in metadata_props


def read_spec(path: Path) -> IoSpec:
    """The I/O spec in a JSON file that trace has written.

    Raises:
        StageError: where it is missing, or no I/O spec.
    """
    return IoSpec.from_json(read_json(path))


def given_spec(source: JsonObject | Path | str) -> IoSpec:
    """An I/O spec from a mapping, or from a YAML or JSON file that holds one.

    Raises:
        StageError: a file that is missing or cannot be read, what is no I/O spec.
    """
    content = read_yaml(Path(source), f"I/O spec {source}") if isinstance(source, (str, Path)) else source
    return IoSpec.from_json(content)


def spec_inside(model: ir.Model) -> IoSpec:
    """The I/O spec in a file's metadata; empty where there is none.

    Raises:
        StageError: where it is not JSON, or its inputs and outputs are no lists of mappings with a name.
    """
    try:
        return IoSpec.from_json(json.loads(model.metadata_props.get(SPEC_KEY, "{}")))
    except (ValueError, StageError) as error:
        reason = error.text if isinstance(error, StageError) else typed_line(error)
        raise StageError(
            "wrong-spec", f"metadata {SPEC_KEY!r} is no I/O spec ({reason}); take it out of the file, or write it anew"
        ) from error


def names_of(tensors: Sequence[TensorSpec]) -> list[str]:
    """Of inputs or outputs of a spec."""
    return [tensor.name for tensor in tensors]


def check_declared(spec: IoSpec) -> None:
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
    if problem := problem_of_classes(spec):
        raise StageError("wrong-class-count", f"model.classes: {problem}")


def check_names(model: ir.Model, spec: IoSpec) -> None:
    """Raise StageError unless the file has the inputs and the outputs of the spec, in its order."""
    both = (("inputs", spec.inputs, model.graph.inputs), ("outputs", spec.outputs, model.graph.outputs))
    for kind, tensors, values in both:
        expected, got = names_of(tensors), [str(value.name) for value in values]
        if expected != got:
            raise StageError(
                "wrong-name", f"expected {kind} {', '.join(expected)}, the exported file has {', '.join(got)}"
            )


def attach(model: ir.Model, spec: IoSpec, varying: Mapping[str, Sequence[int]]) -> IoSpec:
    """Hold inputs and outputs against the spec, give them its shapes, and keep it in the model's metadata.

    Args:
        varying: by output, axes that were seen to vary; one without a name in the spec keeps the exporter's.

    Returns:
        the spec with the names of all axes that vary.

    Raises:
        StageError: where the exported file has another dtype or shape, or fixes an axis that varies.
    """
    outputs = tuple(
        replace(tensor, shape=_with_names(value, tensor.sides, varying.get(tensor.name, ())))
        for value, tensor in zip(model.graph.outputs, spec.outputs, strict=True)
    )
    complete = replace(spec, outputs=outputs)
    ends = [*model.graph.inputs, *model.graph.outputs]
    for value, tensor in zip(ends, complete.tensors, strict=True):
        _settle(value, tensor)
    model.metadata_props[SPEC_KEY] = spec_text(complete)
    return complete


def _with_names(value: ir.Value, shape: Sequence[int | str], varying: Sequence[int]) -> tuple[int | str, ...]:
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
    return tuple(named)


def _settle(value: ir.Value, tensor: TensorSpec) -> None:
    """Give an input or output the shape of the spec, unless the exported file contradicts it."""
    dtype = None if value.dtype is None else str(value.dtype.numpy())
    if dtype != tensor.dtype:
        raise StageError("wrong-dtype", f"{value.name!r}: expected {tensor.dtype}, the exported file has {dtype}")
    expected = list(tensor.sides)
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
    value.shape = shape_of(tensor)


def shape_of(tensor: TensorSpec) -> ir.Shape:
    """The shape of an input or output, as a graph has it."""
    import onnx_ir as ir

    return ir.Shape([ir.SymbolicDim(side) if isinstance(side, str) else side for side in tensor.sides])


def spec_text(spec: IoSpec) -> str:
    """As it is kept in metadata and in files."""
    return json.dumps(spec.to_json(), indent=2)


def named_axes(spec: IoSpec) -> dict[str, dict[int, str]]:
    """{input or output: {axis: name}} of the axes that vary."""
    return {t.name: {axis: size for axis, size in enumerate(t.sides) if isinstance(size, str)} for t in spec.tensors}
