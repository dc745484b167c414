"""Bounds of single keys and rules between keys. Each rule yields messages, with their codes, that say what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields

from truehalf.codes import coded
from truehalf.config.engine import problems_of_numbers, shown
from truehalf.config.options import default_of, out_of_bounds, problem_of_function
from truehalf.config.precision import OF_CONVERT_ALONE, Method, Precision, PrecisionName
from truehalf.config.schema import Config, DataSource, Exporter
from truehalf.config.selector_entries import problems_of_lists
from truehalf.config.typed import plain

# LayerNormalization is one node from 17 on. In torch 2.13 the TorchScript exporter ends at 20, dynamo begins at 18.
_MOST_PIXELS = 16_384  # of a side: three channels of such a square are 3 GB
_OPSETS = {Exporter.torchscript: (17, 20), Exporter.dynamo: (18, 23)}


def _rules_of_precision(c: Config) -> Iterator[str]:
    if c.precision.dtype is PrecisionName.fp16 and not c.simplify:
        yield coded(
            "in-conflict",
            "simplify: precision=fp16 needs simplify=true: unfolded constants (positions, anchors, masks) would be "
            "rounded one operation at a time; set simplify=true or precision=fp32",
        )
    if c.precision.weights_as_inputs:
        yield coded(
            "in-conflict",
            "precision.weights_as_inputs: expected false, as no file of the chain lists weights among its inputs; "
            "`truehalf convert --weights-as-inputs model.onnx` keeps them there",
        )


def _rules_of_method(c: Config) -> Iterator[str]:
    method = c.precision.method
    if c.precision.dtype is not PrecisionName.fp16 or method is Method.convert:
        return
    remedy = f"it has no effect under precision.method={method.value}; leave it out, or set precision.method=convert"
    for key in fields(Precision):
        name, default, given = key.name, default_of(key), plain(getattr(c.precision, key.name))
        if name in OF_CONVERT_ALONE and given != default:
            message = f"precision.{name}: expected {shown(default)}, its default, got {shown(given)}: {remedy}"
            yield coded("in-conflict", message)
    if c.verify.suggest:
        message = f"verify.suggest: expected false, as it looks for entries of precision.node_block_list: {remedy}"
        yield coded("in-conflict", message)
    if c.model.source == "onnx":
        message = (
            f"precision.method: {method.value} traces a module; for model.source=onnx set precision.method=convert"
        )
        yield coded("in-conflict", message)


def _rules_of_sections(c: Config) -> Iterator[str]:
    for section in (c.precision, c.verify, c.trace, c.target, c.engine, c.repair, c.lint):
        yield from section.problems()


def _rules_of_lists(c: Config) -> Iterator[str]:
    pins = {"model.fp32_pins": c.model.fp32_pins, "decoder.fp32_pins": c.decoder.fp32_pins}
    for owner, section in pins.items():
        yield from problems_of_lists(owner, section)


def _rules_of_model(c: Config) -> Iterator[str]:
    m = c.model
    if len(m.image_size) != 2 or any(side is not None and side < 1 for side in m.image_size):
        message = f"model.image_size: expected [height, width], or [null, null], got {plain(m.image_size)}"
        yield coded("wrong-shape", message)
    elif any(side is not None and side > _MOST_PIXELS for side in m.image_size):
        message = f"model.image_size: expected at most {_MOST_PIXELS} pixels a side, got {plain(m.image_size)}"
        yield coded("out-of-range", message)
    elif c.data.source is DataSource.digits and m.image_size[0] != m.image_size[1]:
        yield coded("wrong-shape", f"model.image_size: digit scenes are square, got {plain(m.image_size)}")
    if m.classes is not None and len(set(m.classes)) != len(m.classes):
        yield coded("given-twice", f"model.classes: expected different names, got {plain(m.classes)}")
    if c.data.source is DataSource.digits and m.classes is not None and len(m.classes) != 10:
        yield coded("in-conflict", f"model.classes: digit scenes have 10 classes, got {len(m.classes)}")
    for name in ("mean", "std"):
        values = getattr(m.preprocessing, name)
        if values is not None and len(values) != 3:
            yield coded("wrong-shape", f"model.preprocessing.{name}: expected three numbers, got {list(values)}")
    if any(value == 0 for value in m.preprocessing.std or ()):
        yield coded("out-of-range", f"model.preprocessing.std: expected no zero, got {plain(m.preprocessing.std)}")
    if m.preprocessing.range not in (None, (0, 1), (0, 255)):
        message = f"model.preprocessing.range: expected [0, 1] or [0, 255], got {plain(m.preprocessing.range)}"
        yield coded("unknown-choice", message)
    for kind in ("inputs", "outputs"):
        names = [each.name for each in getattr(m, kind) or ()]
        if len(set(names)) != len(names):
            yield coded("given-twice", f"model.{kind}: expected different names, got {names}")


# By source of data the keys that it reads: what each is, and an example.
DATA_NEEDS: dict[DataSource, dict[str, tuple[str, str]]] = {
    DataSource.images: {"folder": ("the folder of your images", "/path/to/images")},
    DataSource.coco: {
        "annotations": ("COCO's JSON with the boxes", "/path/to/instances.json"),
        "folder": ("the folder that the annotations' file names are in", "/path/to/images"),
    },
    DataSource.npz: {"file": ("an .npz file, or a folder of them", "/path/to/samples.npz")},
    DataSource.function: {"function": ("module:function", "my_data:sample")},
}


def _rules_of_data(c: Config) -> Iterator[str]:
    for key, (what, example) in DATA_NEEDS.get(c.data.source, {}).items():
        if not getattr(c.data, key):
            yield coded("needs-value", f"data.{key}: data={c.data.source.value} needs {what}: data.{key}={example}")
    yield from problem_of_function("data.function", c.data.function)


def _rules_of_trace(c: Config) -> Iterator[str]:
    low, high = _OPSETS[c.trace.exporter]
    if not low <= c.trace.opset <= high:
        yield coded(
            "out-of-range",
            f"trace.opset: trace.exporter={c.trace.exporter.value} writes opset {low} to {high}, got {c.trace.opset}",
        )
    for tensor, axes in c.trace.dynamic_axes.items():
        for axis, symbol in axes.items():
            if not re.fullmatch(r"[A-Za-z_]\w*", symbol):
                message = f"trace.dynamic_axes.{tensor}.{axis}: expected a name such as batch, got {symbol!r}"
                yield coded("bad-syntax", message)


def _rules_of_profiles(c: Config) -> Iterator[str]:
    if c.engine.profiles is not None and not c.engine.profiles:
        yield coded("needs-value", "engine.profiles: expected at least one optimization profile, or null")
    dynamic = c.trace.dynamic_axes
    for i, profile in enumerate(c.engine.profiles or ()):
        where = f"engine.profiles[{i}]"
        if not profile:
            yield coded("needs-value", f"{where}: expected shapes of the inputs")
        for name, shapes in profile.items():
            traced, varies = (c.trace.batch, 3, *c.model.image_size), dynamic.get(name, {})
            axes = [None if axis in varies else side for axis, side in enumerate(traced)]
            known = axes if name == "images" and _is_traced_on_images(c) else None
            like = "opt" if known is None else f"the traced batch, {list(traced)}"
            yield from problems_of_numbers(f"{where}.{name}", vars(shapes), known, like)


def _is_traced_on_images(c: Config) -> bool:
    """Whether the input `images` is [N, 3, height, width]: a file, arrays and declarations may say otherwise."""
    return c.model.source != "onnx" and c.data.source is not DataSource.npz and c.model.inputs is None


RULES = (
    out_of_bounds,
    _rules_of_precision,
    _rules_of_method,
    _rules_of_sections,
    _rules_of_lists,
    _rules_of_model,
    _rules_of_data,
    _rules_of_trace,
    _rules_of_profiles,
)
