"""Sections of the configuration: types, defaults, bounds and the rules of each section; rules.py has those between
sections. Keys without a default are in the YAML files of conf/.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from truehalf.codes import coded
from truehalf.config.engine import EngineConfig, TargetConfig
from truehalf.config.options import Options, key, problem_of_function
from truehalf.config.precision import Precision
from truehalf.config.typed import plain
from truehalf.config.verification import VerifyConfig

# Passes that repair.passes may name, and all that truehalf.patterns has.
RepairPass = StrEnum("RepairPass", "allowzero fold_constants grid_sample_gather bool_index deduplicate_names")
DEFAULT_PASSES = tuple(each.value for each in RepairPass)

DecoderName = StrEnum("DecoderName", ["none", "dfine", "rtdetrv2"])  # none: of a model that brings one
DataSource = StrEnum("DataSource", ["images", "coco", "npz", "random", "function"])
Resize = StrEnum("Resize", ["stretch", "letterbox"])
Channels = StrEnum("Channels", {"rgb": "RGB", "bgr": "BGR"})
Layout = StrEnum("Layout", {"nchw": "NCHW", "nhwc": "NHWC"})
Resample = StrEnum("Resample", ["bilinear", "bicubic", "lanczos", "box", "hamming", "nearest"])
InputKind = StrEnum("InputKind", ["images", "picture_size", "tensor"])
# see truehalf.io_spec.outputs
OutputKind = StrEnum(
    "OutputKind",
    "logits boxes scores labels rows counts classes probabilities map sequence embedding tensor",
)
Exporter = StrEnum("Exporter", ["torchscript", "dynamo"])
FailOn = StrEnum("FailOn", ["never", "error", "warning"])

_MOST_PIXELS = 16_384  # of a side: three channels of such a square are 3 GB


@dataclass(frozen=True)
class PreprocessingConfig:
    """From an image to the model's input, see truehalf.data.preprocessing; null: as the model's source says."""

    resize: Resize | None = None
    channels: Channels | None = None
    range: tuple[int, ...] | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    layout: Layout | None = None
    resample: Resample | None = None

    def problems(self) -> Iterator[str]:
        for name, values in (("mean", self.mean), ("std", self.std)):
            if values is not None and len(values) != 3:
                yield coded("wrong-shape", f"{name}: expected three numbers, got {list(values)}")
        if any(value == 0 for value in self.std or ()):
            yield coded("out-of-range", f"std: expected no zero, got {plain(self.std)}")
        if self.range not in (None, (0, 1), (0, 255)):
            yield coded("unknown-choice", f"range: expected [0, 1] or [0, 255], got {plain(self.range)}")


@dataclass(frozen=True)
class InputConfig:
    """An input of the model, in the order in which its module takes them.

    Attributes:
        kind: images, [N, 3, H, W]; picture_size, [N, 2], the height and width of the image that goes in (named
            orig_target_sizes, as RT-DETR and D-FINE have it: width and height); tensor.
        dtype: as numpy calls it; of images null stands for float32.
        shape: without the batch axis, null where it may vary; of images: null, the image says it.
    """

    name: str
    kind: InputKind
    dtype: str | None = None
    shape: tuple[int | None, ...] | None = None

    def problems(self) -> Iterator[str]:
        if self.dtype is None and self.kind is not InputKind.images:
            yield coded("missing-key", "dtype: missing")


@dataclass(frozen=True)
class OutputConfig:
    """An output of the model, see truehalf.io_spec.outputs.

    Attributes:
        take: key, field or position of it in what the module returns; null: its name, or its position here.
        activation, format, normalized, no_object, columns, axis: of kinds that need them, else null.
    """

    name: str
    kind: OutputKind = OutputKind.tensor
    take: str | None = None
    activation: str | None = None
    format: str | None = None
    normalized: bool | None = None
    no_object: bool | str | None = None
    columns: tuple[str, ...] | None = None
    axis: int | None = None


@dataclass(frozen=True)
class ModelConfig:
    """Facts of the model, see model/*.yaml.

    Attributes:
        name: for people only.
        source: a file of truehalf/models/sources/; `options` is what its Options hold.
        checkpoint: file with the weights; null: what the source says (seeded random weights, or the source's).
        image_size: height and width; null: as the source says.
        classes, inputs, outputs: null: as the source says.
        drop_outputs: names or positions of outputs that are left out.
    """

    name: str
    source: str
    checkpoint: str | None
    options: Any
    image_size: tuple[int | None, ...]
    classes: tuple[str, ...] | None
    preprocessing: PreprocessingConfig
    inputs: tuple[InputConfig, ...] | None
    outputs: tuple[OutputConfig, ...] | None
    drop_outputs: tuple[str, ...]

    def problems(self) -> Iterator[str]:
        size = plain(self.image_size)
        if len(size) != 2 or any(side is not None and side < 1 for side in size):
            yield coded("wrong-shape", f"image_size: expected [height, width], or [null, null], got {size}")
        elif any(side is not None and side > _MOST_PIXELS for side in size):
            yield coded("out-of-range", f"image_size: expected at most {_MOST_PIXELS} pixels a side, got {size}")
        names = {kind: [each.name for each in getattr(self, kind) or ()] for kind in ("inputs", "outputs")}
        for kind, listed in {"classes": list(self.classes or ()), **names}.items():
            if len(set(listed)) != len(listed):
                yield coded("given-twice", f"{kind}: expected different names, got {listed}")


@dataclass(frozen=True)
class DecoderConfig:
    name: DecoderName


@dataclass(frozen=True)
class RepairConfig(Options):
    """Passes of truehalf.patterns, in the order in which they run."""

    passes: tuple[RepairPass, ...] = tuple(map(RepairPass, DEFAULT_PASSES))


@dataclass(frozen=True)
class LintConfig(Options):
    """Options of lint, which looks for patterns that TensorRT refuses, computes wrongly or runs slowly."""

    ignore: tuple[str, ...] = key(
        (), "rules that are not reported: rule, or rule@<regular expression over node names and scopes>"
    )
    fail_on: FailOn = key(
        FailOn.never,
        "never | error | warning: findings that stop trace, unless `repair` fixes them, and then the engine",
    )


# By source of data the keys that it needs, each with an example.
DATA_NEEDS: dict[DataSource, dict[str, str]] = {
    DataSource.images: {"folder": "/path/to/images"},
    DataSource.coco: {"annotations": "/path/to/instances.json", "folder": "/path/to/images"},
    DataSource.npz: {"file": "/path/to/samples.npz"},
    DataSource.function: {"function": "my_data:sample"},
}


@dataclass(frozen=True)
class DataConfig:
    """Where samples come from."""

    source: DataSource = key(DataSource.images, "images, coco, npz, random or function")
    folder: str | None = key(None, "of images; of coco: the folder that the annotations' file names are in")
    annotations: str | None = key(None, "of coco: its JSON with the boxes")
    file: str | None = key(None, "of npz: the file, or a folder of them")
    function: str | None = key(None, "of function: module:function, from an index to one sample's inputs")
    seed: int = key(0, "another seed: other samples", least=0)
    calibration_samples: int | None = key(
        None, "of images, coco and npz null: 32; a third of all where there are fewer than 96", least=1
    )
    verification_samples: int | None = key(
        None, "null: 64; the others where there are fewer; never those of calibrate", least=1
    )

    def problems(self) -> Iterator[str]:
        for name, example in DATA_NEEDS.get(self.source, {}).items():
            if not getattr(self, name):
                yield coded("needs-value", f"{name}: data={self.source} needs it, such as data.{name}={example}")
        yield from problem_of_function("function", self.function)


@dataclass(frozen=True)
class TraceConfig(Options):
    """How the model becomes ONNX, and how far ONNX Runtime may be off from torch."""

    exporter: Exporter = key(Exporter.torchscript, "torchscript or dynamo")
    opset: int = key(17, "17 keeps LayerNormalization one node; dynamo needs 18 or later", least=1)
    batch: int = key(2, "real samples in the traced batch", least=1)
    dynamic_axes: Mapping[str, Mapping[int, str]] = key(
        {"images": {0: "batch"}},
        "input or output: {axis: name}; an output's first axis is called as that of the first input",
    )
    atol: float = key(
        1e-3, "ONNX Runtime against torch, both FP32, |a - b| <= atol + rtol * |b| for 99.9 % of the values", least=0
    )
    rtol: float = key(1e-3, "see atol", least=0)

    def problems(self) -> Iterator[str]:
        for tensor, axes in self.dynamic_axes.items():
            for axis, name in axes.items():
                if axis < 0:
                    yield coded("out-of-range", f"dynamic_axes.{tensor}: expected axes from 0, got {axis}")
                if not re.fullmatch(r"[A-Za-z_]\w*", name):
                    message = f"dynamic_axes.{tensor}.{axis}: expected a name such as batch, got {name!r}"
                    yield coded("bad-syntax", message)


@dataclass(frozen=True)
class SlimConfig:
    """onnxslim, and how far its file may be off."""

    skip_patterns: tuple[str, ...] = key((), "of onnxslim's, by name; shape_inference is one")
    atol: float = key(1e-3, "after onnxslim against before it, same rule as trace.atol", least=0)
    rtol: float = key(1e-3, "see atol", least=0)


@dataclass(frozen=True)
class TrackingConfig:
    uri_env: str | None
    experiment: str
    register: bool
    source_run_id: str | None
    max_model_mb: float = key(..., "a larger final model is logged only by its hash", above=0)


@dataclass(frozen=True)
class Config:
    """One run. The top-level keys of params.yaml."""

    model: ModelConfig
    decoder: DecoderConfig
    precision: Precision
    repair: RepairConfig
    data: DataConfig
    verify: VerifyConfig
    engine: EngineConfig
    target: TargetConfig
    tracking: TrackingConfig
    simplify: bool
    trace: TraceConfig
    slim: SlimConfig
    lint: LintConfig
    seed: int = key(..., "of random weights; samples have data.seed", least=0)
