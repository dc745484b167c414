"""Types of the configuration. Bounds and rules between keys are in rules.py; `precision` and `engine` have modules of
their own. Where the library reads a section without a configuration, its dataclass has the defaults that the YAML files
of conf/ show.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any

from truehalf.config.engine import EngineConfig
from truehalf.config.precision import Precision

# What verify.require may name. The stage verify judges all but the last three; `gate` these, by their stages' reports.
VERIFIABLE = (
    *("detections", "average_precision", "classes", "tensors", "batch", "adversarial", "reaction"),
    "accumulation",
    *("trace", "slim", "engine"),
)
# Passes that repair.passes may name, and all that truehalf.repairs has.
REPAIR_PASSES = (
    "allowzero",
    "fold_constants",
    "squeeze_if",
    "where_arithmetic",
    "range_to_shape",
    "grid_sample_gather",
    "rope_constants",
    "bool_index",
    "nonzero_topk",
    "deduplicate_names",
    "infer_value_info",
)


class DecoderName(Enum):
    none = "none"  # of a model that brings its own
    dfine = "dfine"
    rtdetrv2 = "rtdetrv2"


class DataSource(Enum):
    digits = "digits"
    images = "images"
    coco = "coco"
    npz = "npz"
    random = "random"
    function = "function"


class Resize(Enum):
    stretch = "stretch"
    letterbox = "letterbox"


class Channels(Enum):
    rgb = "RGB"
    bgr = "BGR"


class Layout(Enum):
    nchw = "NCHW"
    nhwc = "NHWC"


class Resample(Enum):
    bilinear = "bilinear"
    bicubic = "bicubic"
    lanczos = "lanczos"
    box = "box"
    hamming = "hamming"
    nearest = "nearest"


class InputKind(Enum):
    images = "images"
    picture_size = "picture_size"
    tensor = "tensor"


class OutputKind(Enum):
    """See truehalf.io_spec.outputs."""

    logits = "logits"
    boxes = "boxes"
    scores = "scores"
    labels = "labels"
    classes = "classes"
    tensor = "tensor"


class Exporter(Enum):
    torchscript = "torchscript"
    dynamo = "dynamo"


class Evaluation(Enum):
    emulated_fp16 = "emulated-fp16"
    emulated_fp16_pessimistic = "emulated-fp16-pessimistic"
    cuda = "cuda"


class FailOn(Enum):
    never = "never"
    error = "error"
    warning = "warning"


class SearchName(Enum):
    none = "none"
    frontier = "frontier"


@dataclass(frozen=True)
class Pins:
    """Nodes that stay FP32: by op type, by regular expression over names, by module scope, by pattern."""

    op_block_list: list[str]
    node_block_list: list[str]
    scope_block_list: list[str]
    pattern_block_list: list[str]


@dataclass(frozen=True)
class Samples:
    calibration: int
    verification: int


@dataclass(frozen=True)
class PreprocessingConfig:
    """From an image to the model's input, see truehalf.data.preprocessing; null: as the model's source says."""

    resize: Resize | None
    channels: Channels | None
    range: list[int] | None
    mean: list[float] | None
    std: list[float] | None
    layout: Layout | None
    resample: Resample | None


@dataclass(frozen=True)
class InputConfig:
    """An input of the model, in the order in which its module takes them.

    Attributes:
        kind: images, [N, 3, H, W]; picture_size, [N, 2], the height and width of the image that goes in; tensor.
        dtype: as numpy calls it.
        shape: without the batch axis, null where it may vary; of images: null, the image says it.
    """

    name: str
    kind: InputKind
    dtype: str
    shape: list[int | None] | None


@dataclass(frozen=True)
class OutputConfig:
    """An output of the model, see truehalf.io_spec.outputs.

    Attributes:
        take: key, field or position of it in what the module returns; null: its name, or its position here.
        activation, format, normalized, no_object: of kinds that need them, else null.
    """

    name: str
    kind: OutputKind
    take: str | None
    activation: str | None
    format: str | None
    normalized: bool | None
    no_object: bool | None


@dataclass(frozen=True)
class ModelConfig:
    """See model/*.yaml.

    Attributes:
        source: a file of truehalf/models/sources/; `options` is what its Options hold.
        checkpoint: file with the weights; null: what the source says (seeded random weights, or its own).
        image_size: height and width; null: as the source says.
        classes, inputs, outputs: null: as the source says.
        drop_outputs: names or positions of outputs that are left out.
    """

    name: str
    source: str
    checkpoint: str | None
    options: Any
    image_size: list[int | None]
    classes: list[str] | None
    preprocessing: PreprocessingConfig
    inputs: list[InputConfig] | None
    outputs: list[OutputConfig] | None
    drop_outputs: list[str]
    samples: Samples
    fp32_pins: Pins


@dataclass(frozen=True)
class DecoderConfig:
    name: DecoderName
    fp32_pins: Pins


@dataclass(frozen=True)
class RepairConfig:
    """Passes of truehalf.repairs, in the order in which they run."""

    passes: list[str] = field(default_factory=lambda: list(REPAIR_PASSES))


@dataclass(frozen=True)
class LintConfig:
    ignore: list[str] = field(default_factory=list)
    fail_on: FailOn = FailOn.never


@dataclass(frozen=True)
class DataConfig:
    """See data/*.yaml for the meaning of each key."""

    source: DataSource
    folder: str | None
    annotations: str | None
    file: str | None
    function: str | None
    seed: int
    calibration_samples: int | None
    verification_samples: int | None


@dataclass(frozen=True)
class TraceConfig:
    exporter: Exporter = Exporter.torchscript
    opset: int = 17
    input_shape: list[int | None] = field(default_factory=lambda: [2, 3, None, None])
    dynamic_axes: dict[str, dict[int, str]] = field(default_factory=lambda: {"images": {0: "batch"}})
    atol: float = 1e-3
    rtol: float = 1e-3


@dataclass(frozen=True)
class SlimConfig:
    skip_patterns: list[str] = field(default_factory=list)
    atol: float = 1e-3
    rtol: float = 1e-3


@dataclass(frozen=True)
class GatesConfig:
    ap50_95_drop_max: float = 0.005
    low_self_ap50_95_drop_max: float = 0.01
    matched_fraction_min: float = 0.99
    extra_fraction_max: float = 0.01
    score_error_p99_max: float = 0.06
    score_error_share_max: float = 0.05
    rank_error_p99_max: float = 0.06
    rank_error_share_max: float = 0.05
    box_error_p99_max: float = 0.005
    label_flips_max: int = 0
    tensor_error_max: float = 0.01
    nonfinite_max: int = 0


@dataclass(frozen=True)
class VerifyConfig:
    score_threshold: float = 0.5
    iou_threshold: float = 0.9
    batch: int = 25
    memory_gb: float = 2.2
    evaluation: Evaluation = Evaluation.emulated_fp16
    gates: GatesConfig = GatesConfig()
    pictures: int = 3
    profile: bool = True
    require: list[str] = field(default_factory=list)
    skip_corrupt: bool = False
    suggest: bool = False
    suggest_runs: int = 300


@dataclass(frozen=True)
class TrackingConfig:
    uri_env: str | None
    experiment: str
    max_model_mb: float
    register: bool


@dataclass(frozen=True)
class WorkspaceConfig:
    isolated: bool
    pull: bool
    push: bool


@dataclass(frozen=True)
class SearchConfig:
    """See search/frontier.yaml; null where nothing is searched."""

    name: SearchName
    runs: int | None
    samples: int | None


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
    tracking: TrackingConfig
    workspace: WorkspaceConfig
    search: SearchConfig
    seed: int
    simplify: bool
    trace: TraceConfig
    slim: SlimConfig
    lint: LintConfig

    @property
    def pins(self) -> Pins:
        """Block lists in force: those of precision, of the model and of the decoder, in this order."""
        sources = (self.precision, self.model.fp32_pins, self.decoder.fp32_pins)
        names = [field.name for field in fields(Pins)]
        return Pins(**{name: _merged(getattr(source, name) for source in sources) for name in names})


def _merged(lists: Iterator[list[str]]) -> list[str]:
    return list(dict.fromkeys(item for one in lists for item in one))
