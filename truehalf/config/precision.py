"""Options of the conversion to FP16: one frozen dataclass, from the configuration to the rules that read it.

A new option is a field here and the rule that reads it. Flags of `truehalf convert`, validation, the keys of
conf/precision/fp16.yaml and the table in docs come from the fields.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from truehalf.config.options import Options, key, problem_of_function
from truehalf.config.selector_entries import problems_of_lists
from truehalf.float16 import MAX

PRODUCTS = ("Conv", "ConvTranspose", "MatMul", "Gemm", "Einsum", "Attention")

PrecisionName = StrEnum("PrecisionName", ["fp32", "fp16"])
RuleSet = StrEnum("RuleSet", ["default", "autocast"])
Placement = StrEnum("Placement", ["min_cut", "eager"])
Method = StrEnum("Method", ["convert", "half", "autocast"])


@dataclass(frozen=True)
class Precision(Options):
    """What runs in FP16, what stays FP32, and where casts go.

    Values are checked when an instance is made. A text serves for an enum (placement="eager"), and any iterable but a
    text for a list.

    Raises:
        StageError: listing every value that has the wrong type, is out of bounds or cannot be read.
    """

    if TYPE_CHECKING:  # values are read as a YAML file's: texts for enums, any iterable for a list

        def __init__(self, **options: Any) -> None: ...

    dtype: PrecisionName = key(PrecisionName.fp16, "fp16, or fp32: no conversion")
    method: Method = key(
        Method.convert,
        "convert: the FP32 graph; half: the module in half precision, traced; autocast: traced under torch.autocast",
    )
    keep_io_types: bool | tuple[str, ...] = key(
        True, "true: inputs and outputs stay float32, a drop-in for the FP32 file; false: float16; or names to keep"
    )
    weights_as_inputs: bool = key(
        False, "true: weights that are listed among the inputs stay inputs, and nothing is slimmed"
    )
    opset: int | None = key(None, "raise the model to this opset first; null: keep the model's", least=1)
    placement: Placement = key(
        Placement.min_cut, "min_cut: the cheapest casts, proven optimal; eager: every node that no rule keeps FP32"
    )
    fp16_ops: tuple[str, ...] | None = key(
        None,
        "op types that run in FP16 whatever their casts cost, unless a rule objects. "
        f"null: {', '.join(PRODUCTS)}; []: none",
    )
    op_block_list: tuple[str, ...] = key((), "op types that stay FP32, e.g. Softmax")
    node_block_list: tuple[str, ...] = key((), "regular expressions of node names that stay FP32: '/decoder/.*MatMul'")
    scope_block_list: tuple[str, ...] = key((), "module scopes that stay FP32, e.g. 'decoder.layers.*.cross_attn'")
    pattern_block_list: tuple[str, ...] = key(
        (), "patterns that stay FP32: 'MatMul -> Softmax' (a MatMul that feeds one), 'Add <- Conv'"
    )
    op_include_list: tuple[str, ...] = key((), "op types that run in FP16 although a rule or block list objects")
    node_include_list: tuple[str, ...] = key((), "node names that run in FP16 although a rule or block list objects")
    scope_include_list: tuple[str, ...] = key((), "scopes that run in FP16 although a rule or block list objects")
    pattern_include_list: tuple[str, ...] = key((), "patterns that run in FP16 although a rule or block list objects")
    rules: RuleSet = key(
        RuleSet.default, "default: all rules; autocast: only data_max, init_max and the lists, as in NVIDIA's AutoCast"
    )
    safety_factor: float = key(
        2.0, "a tensor whose |x| times this exceeds 65504 keeps its nodes FP32, include lists or not", least=1, most=MAX
    )
    data_max: float | None = key(
        None,
        "a node that reads or writes |x| above this on calibration samples stays FP32; NVIDIA's AutoCast has 512",
        above=0,
        most=MAX,
    )
    init_max: float | None = key(
        MAX, "a node with a weight |w| above this stays FP32; null: weights above 65504 become 65504", above=0, most=MAX
    )
    init_conversion_max_bytes: int | None = key(
        None, "larger weights stay float32 in the file and are cast at run time; null: no limit", least=1
    )
    inner: bool = key(True, "keep nodes FP32 whose inner sums, mean squares or logits exceed 65504")
    masks: bool = key(
        True, "clamp masks of -3.4e38 that only feed a Softmax; these and masks of -inf keep no node FP32"
    )
    epsilons: bool = key(True, "keep FP32 the divisions, roots and logarithms whose epsilon FP16 makes 0")
    reduction_depth_max: int | None = key(
        None, "a node that accumulates more terms than this stays FP32; null: no limit", least=1
    )
    measured: bool = key(
        True, "run the converted file on calibration samples, emulated, and keep FP32 what it needs to agree with FP32"
    )
    custom_rule: str | None = key(None, "module:function of yours, (node, ranges) -> a reason to stay FP32, or None")
    strict_clean_up: bool = key(False, "true: the cast clean-up keeps f32 -> f16 -> f32, which rounds")

    @property
    def wanted_in_fp16(self) -> tuple[str, ...]:
        """Operator types of `fp16_ops`, or the default ones."""
        return PRODUCTS if self.fp16_ops is None else self.fp16_ops

    def problems(self) -> Iterator[str]:
        yield from problem_of_function("custom_rule", self.custom_rule)
        yield from problems_of_lists(self)


# What only method=convert reads; half and autocast leave the decisions to torch.
_OF_ALL = ("dtype", "method", "keep_io_types", "opset", "init_conversion_max_bytes", "strict_clean_up")
OF_CONVERT_ALONE = tuple(field.name for field in fields(Precision) if field.name not in _OF_ALL)
