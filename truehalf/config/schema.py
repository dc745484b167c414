"""Types of the configuration. Bounds and rules between keys are in rules.py; `precision` and `engine` have separate
modules. Where the library reads a section without a configuration, its dataclass has the defaults that the YAML files
of conf/ show.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from enum import StrEnum
from typing import Any, ClassVar

from truehalf.codes import coded
from truehalf.config.engine import EngineConfig, TargetConfig
from truehalf.config.options import Options, key
from truehalf.config.precision import Precision
from truehalf.config.selector_entries import problem_of_node
from truehalf.config.verification import VerifyConfig

# Passes that repair.passes may name, and all that truehalf.repairs has.
RepairPass = StrEnum(
    "RepairPass",
    "allowzero fold_constants squeeze_if grid_sample_gather rope_constants bool_index deduplicate_names "
    "infer_value_info",
)
DEFAULT_PASSES = tuple(each.value for each in RepairPass)

DecoderName = StrEnum("DecoderName", ["none", "dfine", "rtdetrv2"])  # none: of a model that brings one
DataSource = StrEnum("DataSource", ["digits", "images", "coco", "npz", "random", "function"])
Resize = StrEnum("Resize", ["stretch", "letterbox"])
Channels = StrEnum("Channels", {"rgb": "RGB", "bgr": "BGR"})
Layout = StrEnum("Layout", {"nchw": "NCHW", "nhwc": "NHWC"})
Resample = StrEnum("Resample", ["bilinear", "bicubic", "lanczos", "box", "hamming", "nearest"])
InputKind = StrEnum("InputKind", ["images", "picture_size", "tensor"])
# see truehalf.io_spec.outputs
OutputKind = StrEnum("OutputKind", ["logits", "boxes", "scores", "labels", "rows", "counts", "classes", "tensor"])
Exporter = StrEnum("Exporter", ["torchscript", "dynamo"])
FailOn = StrEnum("FailOn", ["never", "error", "warning"])


@dataclass(frozen=True)
class Pins:
    """Nodes that stay FP32: by op type, by regular expression over names, by module scope, by pattern."""

    op_block_list: tuple[str, ...]
    node_block_list: tuple[str, ...]
    scope_block_list: tuple[str, ...]
    pattern_block_list: tuple[str, ...]


@dataclass(frozen=True)
class Samples:
    calibration: int = key(..., "samples that ranges are measured on", least=1)
    verification: int = key(..., "samples that calibration does not see", least=1)


@dataclass(frozen=True)
class PreprocessingConfig:
    """From an image to the model's input, see truehalf.data.preprocessing; null: as the model's source says."""

    resize: Resize | None
    channels: Channels | None
    range: tuple[int, ...] | None
    mean: tuple[float, ...] | None
    std: tuple[float, ...] | None
    layout: Layout | None
    resample: Resample | None


@dataclass(frozen=True)
class InputConfig:
    """An input of the model, in the order in which its module takes them.

    Attributes:
        kind: images, [N, 3, H, W]; picture_size, [N, 2], the height and width of the image that goes in (named
            orig_target_sizes, as RT-DETR and D-FINE have it: width and height); tensor.
        dtype: as numpy calls it.
        shape: without the batch axis, null where it may vary; of images: null, the image says it.
    """

    name: str
    kind: InputKind
    dtype: str
    shape: tuple[int | None, ...] | None


@dataclass(frozen=True)
class OutputConfig:
    """An output of the model, see truehalf.io_spec.outputs.

    Attributes:
        take: key, field or position of it in what the module returns; null: its name, or its position here.
        activation, format, normalized, no_object, columns, axis: of kinds that need them, else null.
    """

    name: str
    kind: OutputKind
    take: str | None
    activation: str | None
    format: str | None
    normalized: bool | None
    no_object: bool | str | None
    columns: tuple[str, ...] | None
    axis: int | None


@dataclass(frozen=True)
class ModelConfig:
    """See model/*.yaml.

    Attributes:
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
    samples: Samples
    fp32_pins: Pins


@dataclass(frozen=True)
class DecoderConfig:
    name: DecoderName
    fp32_pins: Pins


@dataclass(frozen=True)
class RepairConfig(Options):
    """Passes of truehalf.repairs, in the order in which they run."""

    SECTION: ClassVar[str] = "repair"

    passes: tuple[RepairPass, ...] = tuple(map(RepairPass, DEFAULT_PASSES))

    def problems(self) -> Iterator[str]:
        for i, name in enumerate(self.passes):
            if (first := self.passes.index(name)) < i:
                message = f"repair.passes[{i}]: {name} is in the list already, at {first}; leave one out"
                yield coded("given-twice", message)


@dataclass(frozen=True)
class LintConfig(Options):
    """Findings that are not wanted, and those that end a stage."""

    SECTION: ClassVar[str] = "lint"

    ignore: tuple[str, ...] = ()
    fail_on: FailOn = FailOn.never

    def problems(self) -> Iterator[str]:
        for i, entry in enumerate(self.ignore):
            rule, separator, where = entry.partition("@")
            problem = problem_of_node(where) if separator else None
            if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule) or (separator and not where.strip()):
                problem = "expected a rule such as dynamic-topk, or RULE@<regular expression>"
            if problem:
                yield coded("bad-syntax", f"lint.ignore[{i}]: {entry!r}: {problem}")


@dataclass(frozen=True)
class DataConfig:
    """Where samples come from."""

    source: DataSource = key(DataSource.digits, "digits, images, coco, npz, random or function")
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


@dataclass(frozen=True)
class TraceConfig(Options):
    """How the model becomes ONNX, and how far ONNX Runtime may be off from torch."""

    SECTION: ClassVar[str] = "trace"

    exporter: Exporter = key(Exporter.torchscript, "torchscript or dynamo")
    opset: int = key(17, "17 keeps LayerNormalization one node; dynamo needs 18 or later", least=1)
    batch: int = key(2, "real samples in the traced batch", least=1)
    dynamic_axes: Mapping[str, Mapping[int, str]] = key({"images": {0: "batch"}}, "input or output: {axis: name}")
    atol: float = key(
        1e-3, "ONNX Runtime against torch, |a - b| <= atol + rtol * |b| for 99.9 % of the values", least=0
    )
    rtol: float = key(1e-3, "see atol", least=0)

    def problems(self) -> Iterator[str]:
        for tensor, axes in self.dynamic_axes.items():
            for axis in axes:
                if axis < 0:
                    yield coded("out-of-range", f"trace.dynamic_axes.{tensor}: expected axes from 0, got {axis}")


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

    @property
    def pins(self) -> Pins:
        """Block lists in force: those of precision, of the model and of the decoder, in this order."""
        sources = (self.precision, self.model.fp32_pins, self.decoder.fp32_pins)
        names = [field.name for field in fields(Pins)]
        return Pins(**{name: _merged(getattr(source, name) for source in sources) for name in names})

    @property
    def conversion(self) -> Precision:
        """The precision with the block lists in force, as a file is converted."""
        return replace(self.precision, **asdict(self.pins))


def _merged(lists: Iterator[Iterable[str]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(item for one in lists for item in one))
