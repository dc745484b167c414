"""What the FP16 conversion was asked for: checked as the configuration is, then against the model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from enum import Enum
from typing import TYPE_CHECKING, Any

from truehalf.codes import coded
from truehalf.config.defaults import defaults
from truehalf.config.schema import PrecisionConfig
from truehalf.config.validate import ConfigErrors, check_precision
from truehalf.errors import StageError

if TYPE_CHECKING:
    import onnx_ir as ir

    from truehalf.conversion.decide import Rules
    from truehalf.ir.selectors import Selector

_SECTION = defaults("precision/fp16")
_OF_OTHERS = {"dtype", "method", "strict_clean_up"}  # whether and how to convert at all; what the clean-up reads
DEFAULTS = {key: value for key, value in _SECTION.items() if key not in _OF_OTHERS}


def checked(keywords: Mapping[str, Any]) -> PrecisionConfig:
    """The keywords of the door as the section `precision` of a configuration.

    Args:
        keywords: all keys of DEFAULTS. Any iterable but a text serves as a list, and a number of numpy as a number.

    Raises:
        StageError: listing every keyword that has the wrong type, is out of bounds, or cannot be read.
    """
    try:
        return check_precision(_SECTION | {name: _plain(value) for name, value in keywords.items()})
    except ConfigErrors as error:
        raise StageError("bad-options", "bad options:\n" + "\n".join(f"  - {line}" for line in error.errors)) from error


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=str)
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping)):
        return list(value)
    return value.item() if hasattr(value, "item") else value


def keywords_of(precision: PrecisionConfig) -> dict[str, Any]:
    """The keywords of the door that a configuration states."""
    values = {name: getattr(precision, name) for name in DEFAULTS}
    return {name: value.value if isinstance(value, Enum) else value for name, value in values.items()}


def rules_of(precision: PrecisionConfig) -> Rules:
    """What decides, of a checked configuration.

    Raises:
        StageError: a custom rule that is not there or cannot be imported.
    """
    from truehalf.conversion.decide import Lists, Rules, custom_rule_of

    def lists(use: str) -> Lists:
        return Lists(
            *(tuple(getattr(precision, f"{kind}_{use}_list")) for kind in ("op", "node", "scope", "pattern")),
        )

    keywords, names = keywords_of(precision), {field.name for field in fields(Rules)}
    return Rules(
        **{name: value for name, value in keywords.items() if name in names}
        | {
            "block": lists("block"),
            "include": lists("include"),
            "fp16_ops": tuple(precision.fp16_ops),
            "custom_rule": custom_rule_of(precision.custom_rule) if precision.custom_rule else None,
        }
    )


def check_names(model: ir.Model, precision: PrecisionConfig, input_shapes: Mapping[str, Sequence[int]] | None) -> None:
    """Hold what names inputs and outputs against the model.

    Raises:
        StageError: listing every name that the model does not have, and every shape that does not fit its input.
    """
    inputs = {value.name: value for value in model.graph.inputs}
    known = [*inputs, *(value.name for value in model.graph.outputs)]
    named = precision.keep_io_types if isinstance(precision.keep_io_types, list) else []
    faults = [
        coded("wrong-name", f"keep_io_types: {name!r} is no input or output of the model; it has {_quoted(known)}")
        for name in named
        if name not in known
    ]
    if not isinstance(input_shapes, (Mapping, type(None))):
        faults.append(coded("wrong-type", f"input_shapes: expected shapes by input name, got {input_shapes!r}"))
        input_shapes = None
    for name, shape in (input_shapes or {}).items():
        if name not in inputs:
            said = f"input_shapes: {name!r} is no input of the model; it has {_quoted(inputs)}"
            faults.append(coded("wrong-name", said))
        elif fault := _misfit(inputs[name], shape):
            faults.append(coded("wrong-shape", f"input_shapes: {name!r}: {fault}, got {shape!r}"))
    if faults:
        raise StageError(
            "bad-options", "options do not fit the model:\n" + "\n".join(f"  - {fault}" for fault in faults)
        )


def _misfit(value: ir.Value, shape: Any) -> str | None:
    sides = list(shape) if isinstance(shape, Iterable) and not isinstance(shape, str) else None
    if sides is None or not all(hasattr(side, "__index__") and side >= 0 for side in sides):
        return "expected integers, 0 or more"
    if value.shape is not None and len(sides) != len(value.shape):
        return f"expected {len(value.shape)} axes"
    fixed = enumerate(value.shape if value.shape is not None else ())
    if wrong := next(((axis, size) for axis, size in fixed if isinstance(size, int) and size != sides[axis]), None):
        return f"axis {wrong[0]} is fixed to {wrong[1]}"
    return None


def _quoted(names: Iterable[str | None]) -> str:
    return ", ".join(repr(name) for name in names) or "none"


def unmatched_wishes(model: ir.Model, precision: PrecisionConfig) -> tuple[list[Selector], list[str]]:
    """Entries of fp16_ops beyond the default ones that match no node, and a line on each.

    Raises:
        StageError: when there is one and selectors are strict.
    """
    from truehalf.ir.facts import all_nodes
    from truehalf.ir.selectors import Selector, near_matches, op_matcher

    unmatched, lines = [], []
    for text in precision.fp16_ops:
        is_meant = op_matcher(text)
        if text in DEFAULTS["fp16_ops"] or any(is_meant(node) for node in all_nodes(model)):
            continue
        near = near_matches(Selector("op", text), model)
        unmatched.append(Selector("fp16_ops", text))
        lines.append(f"{unmatched[-1]} matches no node" + (f" (the model has {', '.join(near)})" if near else ""))
    if lines and precision.strict_selectors:
        raise StageError(
            "no-match", "strict_selectors: expected every entry to match a node, but\n  " + "\n  ".join(lines)
        )
    return unmatched, lines
