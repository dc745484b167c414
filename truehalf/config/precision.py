"""Options of the conversion to FP16: one frozen dataclass, from the configuration to the rules that read it.

A new option is a field here, its line in conf/precision/fp16.yaml, and the rule that reads it. Flags of `truehalf
convert`, validation and the table in docs come from the fields.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import MISSING, Field, dataclass, field, fields
from enum import Enum
from typing import TYPE_CHECKING, Any

from truehalf.codes import coded
from truehalf.config.bounds import outside
from truehalf.config.selector_entries import faults_of_lists
from truehalf.config.typed import plain, typed
from truehalf.errors import StageError

FP16_MAX = 65504.0
_FP16_OPS = ("Conv", "ConvTranspose", "MatMul", "Gemm", "Einsum", "Attention")


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


def _key(default: Any, meaning: str) -> Any:
    """A field whose meaning is also the comment in the YAML and the help of the flag."""
    if isinstance(default, tuple):
        return field(default_factory=lambda: list(default), metadata={"meaning": meaning})
    return field(default=default, metadata={"meaning": meaning})


@dataclass(frozen=True)
class Precision:
    """What runs in FP16, what stays FP32, and where casts go.

    Values are checked when an instance is made. A text serves for an enum (placement="eager"), and any iterable but a
    text for a list.

    Raises:
        StageError: listing every value that has the wrong type, is out of bounds or cannot be read.
    """

    if TYPE_CHECKING:  # values are read as a YAML file's: texts for enums, any iterable for a list

        def __init__(self, **options: Any) -> None: ...

    dtype: PrecisionName = _key(PrecisionName.fp16, "fp16, or fp32: no conversion")
    method: Method = _key(
        Method.convert,
        "convert: the FP32 graph; half: the module in half precision, traced; autocast: traced under torch.autocast",
    )
    keep_io_types: bool | list[str] = _key(
        True,
        "true: inputs and outputs stay float32, a drop-in for the FP32 file; false: float16; or names to keep",
    )
    opset: int | None = _key(None, "raise the model to this opset first; null: keep the model's")
    placement: Placement = _key(
        Placement.min_cut,
        "min_cut: the cheapest casts, proven optimal; eager: every node in FP16 that no rule keeps FP32",
    )
    fp16_ops: list[str] = _key(
        _FP16_OPS, "op types that run in FP16 unless a rule objects; other nodes take the type that costs less"
    )
    op_block_list: list[str] = _key((), "op types that stay FP32, e.g. Softmax")
    node_block_list: list[str] = _key(
        (), "node names that stay FP32: regular expressions, searched, e.g. '/decoder/.*MatMul'"
    )
    scope_block_list: list[str] = _key((), "module scopes that stay FP32, e.g. 'decoder.layers.*.cross_attn'")
    pattern_block_list: list[str] = _key(
        (), "patterns that stay FP32: 'MatMul -> Softmax' (a MatMul that feeds one), 'Add <- Conv', 'outputs:2'"
    )
    op_include_list: list[str] = _key((), "op types that run in FP16 although a rule or block list objects")
    node_include_list: list[str] = _key((), "node names that run in FP16 although a rule or block list objects")
    scope_include_list: list[str] = _key((), "module scopes that run in FP16 although a rule or block list objects")
    pattern_include_list: list[str] = _key((), "patterns that run in FP16 although a rule or block list objects")
    strict_selectors: bool = _key(False, "true: a list entry that matches no node is an error; false: a warning")
    rules: RuleSet = _key(
        RuleSet.default, "default: all rules; autocast: data_max, init_max and the lists alone, as in NVIDIA's AutoCast"
    )
    safety_factor: float = _key(
        2.0, "a tensor whose |x| times this exceeds 65504 keeps its producer and consumers FP32, include lists or not"
    )
    data_max: float | None = _key(512.0, "a node that reads or writes |x| above this on calibration samples stays FP32")
    data_max_share: float = _key(
        0.0, "data_max applies where more than this share of the elements exceeds it (0: one element is enough)"
    )
    init_max: float | None = _key(FP16_MAX, "a node with a weight |w| above this stays FP32")
    init_overflow: InitOverflow = _key(
        InitOverflow.pin,
        "weights above 65504: pin compares them with init_max as they are; clamp stores 65504 and compares that",
    )
    init_conversion_max_bytes: int | None = _key(
        None, "larger weights stay float32 in the file and are cast at run time"
    )
    inner: bool = _key(
        True, "keep nodes FP32 whose inner sums or mean squares exceed 65504 (LayerNormalization, ReduceMean, ...)"
    )
    integers: bool = _key(
        True, "keep coordinates and positions above 2048 FP32, where FP16 does not hold every integer"
    )
    masks: bool = _key(
        True, "clamp a mask of -inf or -3.4e38 that only feeds a Softmax, instead of keeping nodes FP32 for it"
    )
    underflow_share_max: float | None = _key(
        0.01, "largest share of nonzero values that may become 0 in FP16, where 0 matters (log, 1/x, epsilons)"
    )
    reduction_depth_max: int | None = _key(None, "a node that accumulates more terms than this stays FP32")
    custom_rule: str | None = _key(None, "module:function of yours, (node, ranges) -> a reason to stay FP32, or None")
    strict_clean_up: bool = _key(
        False, "true: the cast clean-up keeps f32 -> f16 -> f32, which rounds, so that it changes no value"
    )

    def __post_init__(self) -> None:
        errors: list[str] = []
        checked = typed(Precision, plain(self), "precision", errors)
        if not errors:
            errors += faults_of_precision(checked)
        if errors:
            lines = "\n".join(f"  - {error.removeprefix('precision.')}" for error in errors)
            raise StageError("bad-options", f"bad options:\n{lines}")
        for each in fields(self):
            object.__setattr__(self, each.name, getattr(checked, each.name))


# What method=convert alone reads; half and autocast leave the decisions to torch.
OF_CONVERT_ALONE = (
    *("placement", "fp16_ops", "op_block_list", "node_block_list", "scope_block_list", "pattern_block_list"),
    *("op_include_list", "node_include_list", "scope_include_list", "pattern_include_list", "strict_selectors"),
    *("rules", "safety_factor", "data_max", "data_max_share", "init_max", "init_overflow", "inner", "integers"),
    *("masks", "underflow_share_max", "reduction_depth_max", "custom_rule"),
)


def default_of(key: Field[Any]) -> Any:
    """The default of a field, as a YAML file holds it."""
    if key.default is not MISSING:
        return plain(key.default)
    assert key.default_factory is not MISSING
    return plain(key.default_factory())


def faults_of_precision(p: Precision) -> Iterator[str]:
    """Bounds and syntax of the section `precision` by itself: a line each, by dotted path."""
    for name, limit in (("data_max", p.data_max), ("init_max", p.init_max)):
        if limit is not None and not 0 < limit <= FP16_MAX:
            yield coded(
                "out-of-range",
                f"precision.{name}: expected above 0 and at most {FP16_MAX:g} (FP16's largest number), got {limit:g}",
            )
    shares = {"data_max_share": p.data_max_share, "underflow_share_max": p.underflow_share_max}
    yield from outside({f"precision.{name}": share for name, share in shares.items() if share is not None}, 0, 1)
    yield from outside({"precision.safety_factor": p.safety_factor}, 1, FP16_MAX)
    whole = {
        "opset": p.opset,
        "reduction_depth_max": p.reduction_depth_max,
        "init_conversion_max_bytes": p.init_conversion_max_bytes,
    }
    yield from outside({f"precision.{name}": number for name, number in whole.items() if number is not None}, 1, None)
    if p.custom_rule is not None and not re.fullmatch(r"\w+(\.\w+)*:\w+", p.custom_rule):
        yield coded(
            "bad-syntax",
            f"precision.custom_rule: expected module:function, such as my_rules:keep_fp32, got {p.custom_rule!r}",
        )
    yield from faults_of_lists("precision", p)
