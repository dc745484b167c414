"""The configuration as types: what every key is, its bounds, and the rules that hold between keys.

`validate` takes the composed (or hand-edited) configuration and returns it typed, or raises `ConfigErrors` with every
fault at once. Defaults are not here: they live in the YAML files beside this module, and nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

FP16_MAX = 65504.0
CONF = Path(__file__).resolve().parent


class ModelSource(Enum):
    ltdetr = "ltdetr"


class DecoderName(Enum):
    dfine = "dfine"
    rtdetrv2 = "rtdetrv2"


class PrecisionName(Enum):
    fp32 = "fp32"
    fp16 = "fp16"


class DataSource(Enum):
    digits = "digits"
    images = "images"


class Exporter(Enum):
    torchscript = "torchscript"
    dynamo = "dynamo"


class Evaluation(Enum):
    emulated_fp16 = "emulated-fp16"
    cuda = "cuda"


class EngineBackend(Enum):
    tensorrt = "tensorrt"


class WhenUnavailable(Enum):
    plan = "plan"
    fail = "fail"


@dataclass(frozen=True)
class Pins:
    """Nodes that stay FP32: op types, and regular expressions searched in node names."""

    op_block_list: list[str]
    node_block_list: list[str]


@dataclass(frozen=True)
class Samples:
    calibration: int
    verification: int


@dataclass(frozen=True)
class ArchitectureConfig:
    """See stages.models.ltdetr.Architecture."""

    backbone_widths: list[int]
    backbone_depths: list[int]
    layer_scale_init: float
    d_model: int
    ffn_dim: int
    heads: int
    decoder_layers: int
    num_queries: int
    num_denoising: int


@dataclass(frozen=True)
class ModelConfig:
    name: str
    source: ModelSource
    weights: str | None
    image_size: list[int]
    classes: list[str]
    mean: list[float]
    std: list[float]
    attention_gain_log2: int
    architecture: ArchitectureConfig
    samples: Samples
    fp32_pins: Pins


@dataclass(frozen=True)
class DecoderConfig:
    name: DecoderName
    fp32_pins: Pins


@dataclass(frozen=True)
class PrecisionConfig:
    dtype: PrecisionName
    op_block_list: list[str]
    node_block_list: list[str]
    keep_io_types: bool
    data_max: float | None
    init_max: float | None


@dataclass(frozen=True)
class DataConfig:
    source: DataSource
    folder: str | None
    seed: int
    calibration_samples: int
    verification_samples: int


@dataclass(frozen=True)
class TraceConfig:
    exporter: Exporter
    opset: int
    input_shape: list[int]
    dynamic_axes: dict[str, dict[int, str]]
    atol: float
    rtol: float


@dataclass(frozen=True)
class SlimConfig:
    atol: float
    rtol: float


@dataclass(frozen=True)
class CalibrateConfig:
    batch: int


@dataclass(frozen=True)
class GatesConfig:
    ap50_95_drop_max: float
    matched_fraction_min: float
    nonfinite_max: int


@dataclass(frozen=True)
class VerifyConfig:
    score_threshold: float
    iou_threshold: float
    batch: int
    evaluation: Evaluation
    gates: GatesConfig
    pictures: int


@dataclass(frozen=True)
class ProfileShapes:
    """One input of one optimization profile: shapes with every axis a number."""

    min: list[int]
    opt: list[int]
    max: list[int]


@dataclass(frozen=True)
class EngineConfig:
    backend: EngineBackend
    profiles: list[dict[str, ProfileShapes]]
    workspace_gb: float
    when_unavailable: WhenUnavailable
    build_unverified: bool


@dataclass(frozen=True)
class TrackingConfig:
    name: str
    uri_env: str | None
    experiment: str
    max_model_mb: float


@dataclass(frozen=True)
class Config:
    """One run. The top-level keys of params.yaml."""

    model: ModelConfig
    decoder: DecoderConfig
    precision: PrecisionConfig
    data: DataConfig
    verify: VerifyConfig
    engine: EngineConfig
    tracking: TrackingConfig
    seed: int
    simplify: bool
    trace: TraceConfig
    slim: SlimConfig
    calibrate: CalibrateConfig

    @property
    def pins(self) -> Pins:
        """Block lists in force: those of precision, of the model and of the decoder, in this order."""
        sources = (self.precision, self.model.fp32_pins, self.decoder.fp32_pins)
        return Pins(
            op_block_list=_merged(source.op_block_list for source in sources),
            node_block_list=_merged(source.node_block_list for source in sources),
        )


class ConfigErrors(ValueError):
    """Everything that is wrong with a configuration, one line each in `errors`."""

    def __init__(self, errors: list[str]) -> None:
        self.errors = errors
        count = "1 error" if len(errors) == 1 else f"{len(errors)} errors"
        super().__init__(f"configuration: {count}\n" + "\n".join(f"  - {error}" for error in errors))


def validate(values: Mapping[str, Any]) -> Config:
    """Check a fully resolved configuration (plain dicts, lists and scalars) and return it typed.

    Raises:
        ConfigErrors: naming every unknown, missing or mistyped key, every value out of bounds and every broken rule.
    """
    errors: list[str] = []
    config = _typed(Config, values, "", errors)
    mistyped = bool(errors)
    for rule in _RULES if config is not None else ():
        try:
            errors += rule(config)
        except (TypeError, AttributeError):  # a key that the rule reads is missing or mistyped: noted already
            if not mistyped:
                raise
    if errors:
        raise ConfigErrors(errors)
    return config


# --- types ------------------------------------------------------------------------------------------------------------


def _typed(expected: Any, value: Any, path: str, errors: list[str]) -> Any:
    """`value` as `expected` type, or None after noting the fault under its dotted path."""
    origin, arguments = get_origin(expected), get_args(expected)
    if type(None) in arguments:  # X | None
        if value is None:
            return None
        return _typed(next(a for a in arguments if a is not type(None)), value, path, errors)
    if is_dataclass(expected) and isinstance(expected, type):
        return _typed_section(expected, value, path, errors)
    if isinstance(expected, type) and issubclass(expected, Enum):
        options = [member.value for member in expected]
        if value in options:
            return expected(value)
        return _fault(errors, path, f"one of {', '.join(options)}", value)
    if origin is list:
        if not isinstance(value, list):
            return _fault(errors, path, "a list", value)
        return [_typed(arguments[0], item, f"{path}[{i}]", errors) for i, item in enumerate(value)]
    if origin is dict:
        if not isinstance(value, Mapping):
            return _fault(errors, path, "a mapping", value)
        return {
            _typed(arguments[0], key, f"{path}, key {key!r}", errors): _typed(
                arguments[1], item, f"{path}.{key}", errors
            )
            for key, item in value.items()
        }
    return _typed_scalar(expected, value, path, errors)


def _typed_section(expected: type, value: Any, path: str, errors: list[str]) -> Any:
    if not isinstance(value, Mapping):
        return _fault(errors, path or "configuration", "a mapping", value)
    hints = get_type_hints(expected)
    names = [field.name for field in fields(expected)]
    prefix = f"{path}." if path else ""
    for key in value:
        if key not in names:
            errors.append(f"{prefix}{key}: unknown key; known here: {', '.join(names)}")
    for name in names:
        if name not in value:
            errors.append(f"{prefix}{name}: missing")
    return expected(
        **{name: _typed(hints[name], value[name], prefix + name, errors) if name in value else None for name in names}
    )


def _typed_scalar(expected: type, value: Any, path: str, errors: list[str]) -> Any:
    if expected is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is expected:
        return value
    names = {bool: "true or false", int: "an integer", float: "a number", str: "text"}
    return _fault(errors, path, names[expected], value)


def _fault(errors: list[str], path: str, expected: str, got: Any) -> None:
    errors.append(f"{path}: expected {expected}, got {got!r}")


# --- bounds and rules -------------------------------------------------------------------------------------------------
# Each rule yields messages that say what to do.


def _rules_of_precision(c: Config) -> Iterator[str]:
    if c.precision.dtype is PrecisionName.fp16 and not c.simplify:
        yield (
            "simplify: precision=fp16 needs simplify=true: unfolded constants (positions, anchors, masks) would be "
            "rounded one operation at a time; set simplify=true or precision=fp32"
        )


def _bounds(c: Config) -> Iterator[str]:
    positive_integers = {
        "data.calibration_samples": c.data.calibration_samples,
        "data.verification_samples": c.data.verification_samples,
        "model.samples.calibration": c.model.samples.calibration,
        "model.samples.verification": c.model.samples.verification,
        "calibrate.batch": c.calibrate.batch,
        "verify.batch": c.verify.batch,
        **{
            f"model.architecture.{name}": getattr(c.model.architecture, name)
            for name in ("d_model", "ffn_dim", "heads", "decoder_layers", "num_queries")
        },
    }
    yield from _outside(positive_integers, 1, None)
    yield from _outside(
        {
            "seed": c.seed,
            "data.seed": c.data.seed,
            "verify.pictures": c.verify.pictures,
            "verify.gates.nonfinite_max": c.verify.gates.nonfinite_max,
            "model.architecture.num_denoising": c.model.architecture.num_denoising,
            "trace.atol": c.trace.atol,
            "trace.rtol": c.trace.rtol,
            "slim.atol": c.slim.atol,
            "slim.rtol": c.slim.rtol,
            "model.attention_gain_log2": c.model.attention_gain_log2,
        },
        0,
        None,
    )
    yield from _outside({"model.attention_gain_log2": c.model.attention_gain_log2}, 0, 60)
    yield from _outside({"trace.opset": c.trace.opset}, 16, 23)
    yield from _outside(
        {
            "verify.score_threshold": c.verify.score_threshold,
            "verify.iou_threshold": c.verify.iou_threshold,
            "verify.gates.ap50_95_drop_max": c.verify.gates.ap50_95_drop_max,
            "verify.gates.matched_fraction_min": c.verify.gates.matched_fraction_min,
        },
        0,
        1,
    )
    for name, limit in (("data_max", c.precision.data_max), ("init_max", c.precision.init_max)):
        if limit is not None and not 0 < limit <= FP16_MAX:
            yield f"precision.{name}: expected above 0 and at most {FP16_MAX:g} (FP16's largest number), got {limit:g}"
    for name, value in (
        ("engine.workspace_gb", c.engine.workspace_gb),
        ("tracking.max_model_mb", c.tracking.max_model_mb),
    ):
        if not value > 0:
            yield f"{name}: expected above 0, got {value:g}"


def _outside(values: dict[str, float], low: float, high: float | None) -> Iterator[str]:
    expected = f"{low:g} or more" if high is None else f"{low:g} to {high:g}"
    for path, value in values.items():
        if value < low or (high is not None and value > high):
            yield f"{path}: expected {expected}, got {value:g}"


def _rules_of_lists(c: Config) -> Iterator[str]:
    lists = (
        ("precision", c.precision),
        ("model.fp32_pins", c.model.fp32_pins),
        ("decoder.fp32_pins", c.decoder.fp32_pins),
    )
    for owner, section in lists:
        for i, pattern in enumerate(section.node_block_list):
            try:
                re.compile(pattern)
            except re.error as error:
                yield f"{owner}.node_block_list[{i}]: {pattern!r} is no regular expression: {error}"
        for i, op_type in enumerate(section.op_block_list):
            if not re.fullmatch(r"[A-Za-z_][\w.:]*", op_type):
                yield (
                    f"{owner}.op_block_list[{i}]: {op_type!r} is no op type; expected a name such as Softmax "
                    "(regular expressions over node names go to node_block_list)"
                )


def _rules_of_model(c: Config) -> Iterator[str]:
    m, a = c.model, c.model.architecture
    if len(m.image_size) != 2 or any(side < 32 or side % 32 for side in m.image_size):
        yield f"model.image_size: expected [height, width], multiples of 32 (the backbone's stride), got {m.image_size}"
    elif c.data.source is DataSource.digits and m.image_size[0] != m.image_size[1]:
        yield f"model.image_size: digit scenes are square, got {m.image_size}"
    if c.data.source is DataSource.digits and len(m.classes) != 10:
        yield f"model.classes: digit scenes have 10 classes, got {len(m.classes)}"
    if not m.classes or len(set(m.classes)) != len(m.classes):
        yield f"model.classes: expected one or more different names, got {m.classes}"
    for name, values in (("mean", m.mean), ("std", m.std)):
        if len(values) != 3:
            yield f"model.{name}: expected three numbers (RGB), got {values}"
    if any(value <= 0 for value in m.std):
        yield f"model.std: expected numbers above 0, got {m.std}"
    for name, widths in (("backbone_widths", a.backbone_widths), ("backbone_depths", a.backbone_depths)):
        if len(widths) != 4 or any(value < 1 for value in widths):
            yield f"model.architecture.{name}: expected four positive integers (ConvNeXt's stages), got {widths}"
    if a.heads > 0 and a.d_model % a.heads:
        yield f"model.architecture.d_model: expected a multiple of heads ({a.heads}), got {a.d_model}"


def _rules_of_data(c: Config) -> Iterator[str]:
    if c.data.source is DataSource.images and not c.data.folder:
        yield "data.folder: data=images needs the folder of your pictures: data.folder=/path/to/pictures"


def _rules_of_trace(c: Config) -> Iterator[str]:
    shape = c.trace.input_shape
    if len(shape) != 4 or any(side < 1 for side in shape):
        yield f"trace.input_shape: expected four positive integers [N, 3, H, W], got {shape}"
    elif shape[1] != 3 or shape[2:] != c.model.image_size:
        height_and_width = ", ".join(map(str, c.model.image_size))
        yield (
            f"trace.input_shape: expected [N, 3, {height_and_width}] (model.image_size), got {shape}; "
            "set model.image_size to change the traced size"
        )
    ranks = {"images": 4, "logits": 3, "boxes": 3}
    for tensor, axes in c.trace.dynamic_axes.items():
        if tensor not in ranks:
            yield f"trace.dynamic_axes.{tensor}: unknown input or output; known: {', '.join(ranks)}"
            continue
        for axis in axes:
            if not 0 <= axis < ranks[tensor]:
                yield f"trace.dynamic_axes.{tensor}: axis {axis} does not exist, rank is {ranks[tensor]}"
            elif axis:
                yield (
                    f"trace.dynamic_axes.{tensor}: axis {axis} cannot vary: positions and anchors are baked for "
                    "model.image_size; only the batch (axis 0) is dynamic"
                )


def _rules_of_profiles(c: Config) -> Iterator[str]:
    if not c.engine.profiles:
        yield "engine.profiles: expected at least one optimization profile"
    dynamic = c.trace.dynamic_axes.get("images", {})
    for i, profile in enumerate(c.engine.profiles):
        where = f"engine.profiles[{i}]"
        for name in profile:
            if name != "images":
                yield f"{where}.{name}: the model has no such input; its input is 'images'"
        if "images" not in profile:
            yield f"{where}: expected shapes for the input 'images'"
            continue
        yield from _rules_of_shapes(f"{where}.images", profile["images"], c.trace.input_shape, dynamic)


def _rules_of_shapes(where: str, shapes: ProfileShapes, traced: list[int], dynamic: Mapping[int, str]) -> Iterator[str]:
    named = {"min": shapes.min, "opt": shapes.opt, "max": shapes.max}
    wrong_rank = {name: shape for name, shape in named.items() if len(shape) != len(traced)}
    for name, shape in wrong_rank.items():
        yield f"{where}.{name}: expected {len(traced)} axes as in trace.input_shape {traced}, got {shape}"
    for name, shape in named.items():
        if any(side < 1 for side in shape):
            yield f"{where}.{name}: expected positive integers, got {shape}"
    if wrong_rank:
        return
    for axis, (low, opt, high) in enumerate(zip(shapes.min, shapes.opt, shapes.max, strict=True)):
        if not low <= opt <= high:
            yield f"{where}: expected min <= opt <= max on axis {axis}, got {low}, {opt}, {high}"
        if axis not in dynamic and {low, opt, high} != {traced[axis]}:
            yield (
                f"{where}: axis {axis} is static ({traced[axis]}) and the profile varies it ({low}, {opt}, {high}); "
                f"make it {traced[axis]}, or add the axis to trace.dynamic_axes.images"
            )


def _merged(lists: Iterator[list[str]]) -> list[str]:
    return list(dict.fromkeys(item for one in lists for item in one))


_RULES = (
    _bounds,
    _rules_of_precision,
    _rules_of_lists,
    _rules_of_model,
    _rules_of_data,
    _rules_of_trace,
    _rules_of_profiles,
)
