"""Engine of an ONNX file by itself: its declared precision and optimization profile are read from the file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import onnx_ir as ir

from truehalf.config.engine import KINDS, EngineConfig, TargetConfig
from truehalf.engines.build import REPORT_FILE, Order, build_engine
from truehalf.engines.engine_report import EngineReport
from truehalf.errors import StageError
from truehalf.files import write_json
from truehalf.io_spec.in_file import spec_inside
from truehalf.io_spec.profile_shapes import Profile, completed
from truehalf.io_spec.spec import InputSpec
from truehalf.ir.facts import fed_inputs, model_facts
from truehalf.ir.model_forms import ModelFile

Shapes = Mapping[str, Sequence[int]]


def engine_of_file(
    model_path: Path, out_dir: Path, shapes: Mapping[str, Shapes], target: TargetConfig, options: EngineConfig
) -> EngineReport:
    """Build a file's engine where the machine can, else compile it, and write plan.json and engine.json beside it.

    Args:
        model_path: ONNX file; one that holds FP16 nodes is declared fp16.
        shapes: {"min" | "opt" | "max": {input: shape}}; an input that is given only one kind has it for all. Inputs
            that are given none have the profile of truehalf.io_spec.profile_shapes.
        target: GPUs that it is compiled for where there is none.

    Raises:
        StageError: as profile_of and build_engine.
    """
    file = ModelFile(model_path)
    profile = profile_of(file.written, shapes)
    declared = "fp16" if model_facts(file.typed)["fp16_nodes"] else "fp32"
    order = Order(declared=declared, profiles=[profile], target=target)
    report = build_engine(file, out_dir, order, options)
    write_json(out_dir / REPORT_FILE, {"stage": "engine", **report.to_json()})
    return report


def profile_of(model: ir.Model, shapes: Mapping[str, Shapes]) -> Profile:
    """The optimization profile of a file: {input: {"min" | "opt" | "max": shape}}; arguments as engine_of_file.

    Raises:
        StageError: a shape of an unknown input, a side that varies and has no number.
    """
    inputs = _inputs(model)
    known = {entry.name: entry for entry in inputs}
    if unknown := sorted({name for shape_of in shapes.values() for name in shape_of} - {*known}):
        raise StageError("wrong-name", f"the model has no input {', '.join(unknown)}; it has {', '.join(known)}")
    asked = {name: {kind: list(shapes[kind][name]) for kind in shapes if name in shapes[kind]} for name in known}
    open_sides = [
        f"{name}: {list(entry.sides)}" for name, entry in known.items() if not asked[name] and _is_open(entry)
    ]
    if open_sides:
        raise StageError(
            "needs-value",
            "inputs have sides that vary besides the number of samples, and the file does not say their sizes: "
            f"{', '.join(open_sides)}; give their shapes, such as --opt-shape NAME:1x3x640x640",
        )
    (made,) = completed(None, inputs)
    return {name: _filled(asked[name]) if asked[name] else made[name] for name in known}


def _filled(shapes: Mapping[str, list[int]]) -> dict[str, list[int]]:
    """A kind that was left out is the nearest that was given."""
    nearest = {"min": ("min", "opt", "max"), "opt": ("opt", "max", "min"), "max": ("max", "opt", "min")}
    return {kind: next(shapes[other] for other in nearest[kind] if other in shapes) for kind in KINDS}


def _is_open(entry: InputSpec) -> bool:
    return entry.traced is None and entry.size is None and any(isinstance(side, str) for side in entry.sides[1:])


def _inputs(model: ir.Model) -> list[InputSpec]:
    """Inputs as the I/O spec in the file declares them, in the shapes of the file."""
    declared = {entry.name: entry for entry in spec_inside(model).inputs}
    inputs = []
    for value in fed_inputs(model):
        shape = tuple(side if isinstance(side, int) else str(side.value or "?") for side in value.shape or ())
        spec = declared.get(str(value.name), InputSpec(str(value.name)))
        inputs.append(replace(spec, shape=shape))
    return inputs
