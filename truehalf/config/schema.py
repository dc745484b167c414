"""The configuration as types: what every key is. Bounds and rules between keys are in rules.py.

Defaults are not here: they live in the YAML files of conf/, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from enum import Enum
from pathlib import Path
from typing import Any

FP16_MAX = 65504.0
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
# What engine.memory_pools_gb may name: TensorRT's pools, in lower case.
MEMORY_POOLS = (
    "workspace",
    "dla_managed_sram",
    "dla_local_dram",
    "dla_global_dram",
    "tactic_dram",
    "tactic_shared_memory",
)
# Of the options of TensorRT's builder, those that each execution provider of ONNX Runtime can be told. TensorRT's has
# no option for TF32, which a variable of the environment switches off.
PROVIDER_TAKES: dict[str, tuple[str, ...]] = {
    "cpu": (),
    "cuda": ("tf32",),
    "tensorrt": (
        *("memory_pools_gb.workspace", "builder_optimization_level", "max_aux_streams", "tf32", "timing_cache"),
        *("hardware_compatibility", "plugins"),
    ),
}
# Values by which each of these options asks for nothing; what a provider has no option for must have them.
ASKS_NOTHING: dict[str, object] = {
    "builder_optimization_level": None,
    "max_aux_streams": None,
    "tiling_optimization_level": "none",
    "tf32": False,
    "editable_timing_cache": False,
    "version_compatible": False,
    "hardware_compatibility": "none",
    "refit": False,
    "strip_weights": False,
    "plugins": [],
}
CONF = Path(__file__).resolve().parents[2] / "conf"


class DecoderName(Enum):
    none = "none"  # of a model that brings its own
    dfine = "dfine"
    rtdetrv2 = "rtdetrv2"


class PrecisionName(Enum):
    fp32 = "fp32"
    fp16 = "fp16"


class RuleSet(Enum):
    default = "default"
    autocast = "autocast"


class Placement(Enum):
    min_cut = "min_cut"
    eager = "eager"


class InitOverflow(Enum):
    pin = "pin"
    clamp = "clamp"


class Method(Enum):
    convert = "convert"
    half = "half"
    autocast = "autocast"


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


class Backend(Enum):
    tensorrt = "tensorrt"
    onnxruntime = "onnxruntime"


class Provider(Enum):
    cuda = "cuda"
    tensorrt = "tensorrt"
    cpu = "cpu"


class TilingLevel(Enum):
    none = "none"
    fast = "fast"
    moderate = "moderate"
    full = "full"


class HardwareCompatibility(Enum):
    none = "none"
    ampere_plus = "ampere_plus"
    same_compute_capability = "same_compute_capability"


class ProfilingVerbosity(Enum):
    detailed = "detailed"
    layer_names_only = "layer_names_only"
    none = "none"


class SearchName(Enum):
    none = "none"
    frontier = "frontier"


class WhenUnavailable(Enum):
    plan = "plan"
    fail = "fail"


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
    """From a picture to the model's input, see truehalf.data.preprocessing; null: as the model's source says."""

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
        kind: images, [N, 3, H, W]; picture_size, [N, 2], the height and width of the picture that goes in; tensor.
        dtype: as numpy calls it.
        shape: without the batch axis, null where it may vary; of images: null, the picture says it.
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
class PrecisionConfig:
    """See precision/fp16.yaml for the meaning of each key, stages.fp16.to_fp16 for its type and range.

    `strict_clean_up` is `strict` of stages.cast_cleanup.clean_casts.
    """

    dtype: PrecisionName
    method: Method
    keep_io_types: bool | list[str]
    opset: int | None
    placement: Placement
    fp16_ops: list[str]
    op_block_list: list[str]
    node_block_list: list[str]
    scope_block_list: list[str]
    pattern_block_list: list[str]
    op_include_list: list[str]
    node_include_list: list[str]
    scope_include_list: list[str]
    pattern_include_list: list[str]
    strict_selectors: bool
    rules: RuleSet
    safety_factor: float
    data_max: float | None
    data_max_share: float
    init_max: float | None
    init_overflow: InitOverflow
    init_conversion_max_bytes: int | None
    inner: bool
    integers: bool
    masks: bool
    underflow_share_max: float | None
    reduction_depth_max: int | None
    custom_rule: str | None
    strict_clean_up: bool


@dataclass(frozen=True)
class RepairConfig:
    """Passes of truehalf.repairs, in the order in which they run."""

    passes: list[str]


@dataclass(frozen=True)
class LintConfig:
    ignore: list[str]
    fail_on: FailOn


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
    exporter: Exporter
    opset: int
    input_shape: list[int | None]
    dynamic_axes: dict[str, dict[int, str]]
    atol: float
    rtol: float


@dataclass(frozen=True)
class SlimConfig:
    skip_patterns: list[str]
    atol: float
    rtol: float


@dataclass(frozen=True)
class GatesConfig:
    ap50_95_drop_max: float
    low_self_ap50_95_drop_max: float
    matched_fraction_min: float
    extra_fraction_max: float
    score_error_p99_max: float
    score_error_share_max: float
    rank_error_p99_max: float
    rank_error_share_max: float
    box_error_p99_max: float
    label_flips_max: int
    tensor_error_max: float
    nonfinite_max: int


@dataclass(frozen=True)
class VerifyConfig:
    score_threshold: float
    iou_threshold: float
    batch: int
    memory_gb: float
    evaluation: Evaluation
    gates: GatesConfig
    pictures: int
    profile: bool
    require: list[str]
    skip_corrupt: bool
    suggest: bool
    suggest_runs: int


@dataclass(frozen=True)
class ProfileShapes:
    """One input of one profile: shapes, null where the model fixes the side; of a shape tensor its values."""

    min: list[int | None]
    opt: list[int | None]
    max: list[int | None]


@dataclass(frozen=True)
class LatencyConfig:
    warm_up: int
    runs: int
    rounds: int


@dataclass(frozen=True)
class EngineConfig:
    """See engine/tensorrt.yaml for the meaning of each key."""

    backend: Backend
    provider: Provider | None
    profiles: list[dict[str, ProfileShapes]] | None
    memory_pools_gb: dict[str, float]
    builder_optimization_level: int | None
    max_aux_streams: int | None
    tiling_optimization_level: TilingLevel
    tf32: bool
    timing_cache: str | None
    editable_timing_cache: bool
    version_compatible: bool
    hardware_compatibility: HardwareCompatibility
    refit: bool
    strip_weights: bool
    profiling_verbosity: ProfilingVerbosity
    plugins: list[str]
    plugin_ops: list[str]
    when_unavailable: WhenUnavailable
    build_unverified: bool
    latency: LatencyConfig


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
    precision: PrecisionConfig
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
