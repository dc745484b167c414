"""What a candidate states that contradicts the reference: axes that it fixes, and metadata by which outputs are read.

    axes               an axis that the reference leaves free and the candidate fixes
    I/O spec           what both declare of an input or output, but for float16 against float32 and sizes that vary,
                       and the names of classes
    names of classes   under a key of any tool that says so: a list of texts, a mapping of numbers to them, or texts
                       with commas or line ends between

Other metadata may differ. What one of the two leaves out is no contradiction, nor are numbers that float32 has rounded.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import onnx_ir as ir

from truehalf.codes import coded
from truehalf.errors import StageError
from truehalf.io_spec.in_file import SPEC_KEY, spec_inside
from truehalf.io_spec.spec import IoSpec
from truehalf.verification.findings import FAILED, NOT_VERIFIED, Finding, not_checked

_OF_CLASSES = re.compile(r"(.*[^a-z])?(class_?names|classes|labels|categories)|names|id2label", re.IGNORECASE)
_SIZES = ("shape", "traced")
_SHOWN = 60  # characters of a value


def contradictions(reference: ir.Model, candidate: ir.Model, spec: IoSpec) -> Iterator[Finding]:
    """Yield a finding for each fixed axis, and for each entry of the metadata that says something else.

    Args:
        spec: in force, where the reference's metadata hold none.
    """
    yield from _lost_axes(reference, candidate)
    try:
        ours = spec_inside(reference) if SPEC_KEY in reference.metadata_props else spec
        theirs = spec_inside(candidate)
    except StageError as error:
        yield not_checked(_reason(f"the I/O spec: {error.text}"))
    else:
        for where, a, b in _of_specs(ours, theirs):
            yield Finding("metadata", FAILED, _reason(f"I/O spec, {where}", a, b), no_node=True)
    for key, text in candidate.metadata_props.items():
        if _OF_CLASSES.fullmatch(key) and key in reference.metadata_props:
            names = _names_in(reference.metadata_props[key]), _names_in(text)
            if None not in names and names[0] != names[1]:
                yield Finding("metadata", FAILED, _reason(repr(key), *names), no_node=True)


def _lost_axes(reference: ir.Model, candidate: ir.Model) -> Iterator[Finding]:
    """Yield a finding for each free axis of an input, or of an output named as one of an input, that is fixed."""
    free = {side.value for value in reference.graph.inputs for side in value.shape or () if not isinstance(side, int)}
    for what in ("input", "output"):
        ours, theirs = (getattr(model.graph, f"{what}s") for model in (reference, candidate))
        sides = {value.name: value.shape or () for value in theirs}
        for value in ours:
            for axis, (side, other) in enumerate(zip(value.shape or (), sides.get(value.name, ()), strict=False)):
                is_free = not isinstance(side, int) and (what == "input" or side.value in free - {None})
                if is_free and isinstance(other, int):
                    fixed = f"axis {axis} of {what} {value.name!r} is {other} in the candidate, free in the reference"
                    yield Finding("", NOT_VERIFIED, coded("axis-fixed", fixed), decides=False, no_node=True)


def _of_specs(ours: IoSpec, theirs: IoSpec) -> Iterator[tuple[str, Any, Any]]:
    for both in ((ours.inputs, theirs.inputs), (ours.outputs, theirs.outputs)):
        others = {tensor.name: tensor for tensor in both[1]}
        for tensor in both[0]:
            other = others.get(tensor.name, tensor)
            if tensor.shape and other.shape and not _fit(tensor.shape, other.shape):
                yield f"shape of {tensor.name!r}", list(tensor.shape), list(other.shape)
            content = other.to_json()
            for key, value in tensor.to_json().items():
                if key not in _SIZES and _differ(value, content.get(key, value)):
                    yield f"{key} of {tensor.name!r}", value, content[key]
    if ours.class_names and theirs.class_names and ours.class_names != theirs.class_names:
        yield "class_names", list(ours.class_names), list(theirs.class_names)


def _fit(a: Sequence[int | str], b: Sequence[int | str]) -> bool:
    """Sizes; one with a name may be any."""
    pairs = zip(a, b, strict=False)
    return len(a) == len(b) and all(isinstance(x, str) or isinstance(y, str) or x == y for x, y in pairs)


def _differ(a: Any, b: Any) -> bool:
    """True if values that both hold differ."""
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return any(_differ(value, b.get(key, value)) for key, value in a.items())
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) != len(b) or any(map(_differ, a, b))
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return not math.isclose(a, b, rel_tol=1e-6)
    texts = {str(each).lower() for each in (a, b)}
    return len(texts) > 1 and texts != {"float16", "float32"}


def class_names_in(model: ir.Model) -> tuple[str, ...]:
    """Read names of classes from the metadata of any tool's file, under a key that says so; empty: none."""
    found = (_names_in(text) for key, text in model.metadata_props.items() if _OF_CLASSES.fullmatch(key))
    named = next(filter(None, found), [])
    return () if any("(" in name for name in named) else tuple(named)


def _names(value: Any) -> list[str] | None:
    """Return a list of texts, or names by number in the order of the numbers; None of anything else."""
    if isinstance(value, Mapping) and all(str(key).isdecimal() for key in value):
        value = [value[key] for key in sorted(value, key=int)]
    is_list = isinstance(value, (list, tuple)) and bool(value) and all(isinstance(each, str) for each in value)
    return list(value) if is_list else None


def _names_in(text: str) -> list[str] | None:
    """Parse names of classes in JSON, a literal of Python or a text with commas or line ends; None of anything else."""
    for read in (json.loads, ast.literal_eval):
        try:
            return _names(read(text))
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            continue
    names = [name.strip() for name in re.split(r"[,;\n]", text.strip())]
    return names if len(names) > 1 else None


def _reason(where: str, *values: Any) -> str:
    texts = [" ".join(str(each).split()) for each in values]
    shown = [text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..." for text in texts]
    said = ": the reference says {}, the candidate {}".format(*shown) if values else ""
    return coded("metadata-differ", f"metadata, {where}{said}")
