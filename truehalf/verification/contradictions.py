"""Metadata of a candidate that contradict the reference's.

    I/O spec           of each input and output, but for shapes, and float16 against float32; and the names of classes
    names of classes   under a key of any tool that says so: a list of texts, a mapping of numbers to them, or texts
                       with commas or line ends between

Other metadata may differ. What one of the two leaves out is no contradiction, nor are numbers that float32 has rounded.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import onnx_ir as ir

from truehalf.codes import coded
from truehalf.errors import StageError
from truehalf.io_spec.in_file import SPEC_KEY, spec_inside
from truehalf.io_spec.spec import IoSpec
from truehalf.verification.findings import FAILED, Finding, not_checked

_OF_CLASSES = re.compile(r"(.*[^a-z])?(class_?names|classes|labels|categories)|names|id2label", re.IGNORECASE)
_SIZES = ("shape", "traced")
_SHOWN = 60  # characters of a value


def contradictions(reference: ir.Model, candidate: ir.Model, spec: IoSpec) -> Iterator[Finding]:
    """Yield a finding for each entry of the I/O spec, and for names of classes, that say something else.

    Args:
        spec: in force, where the reference's metadata hold none.
    """
    try:
        ours = spec_inside(reference) if SPEC_KEY in reference.metadata_props else spec
        found = [*_of_specs(ours, spec_inside(candidate))]
    except StageError as error:
        found = []
        yield not_checked(_reason(f"the I/O spec: {error.text}"))
    names = class_names_in(reference), class_names_in(candidate)
    found += [("names of classes", *names)] if all(names) and names[0] != names[1] else []
    for where, a, b in found:
        yield Finding("metadata", FAILED, _reason(where, a, b), no_node=True)


def _of_specs(ours: IoSpec, theirs: IoSpec) -> Iterator[tuple[str, Any, Any]]:
    others = {tensor.name: tensor.to_json() for tensor in (*theirs.inputs, *theirs.outputs)}
    for tensor in (*ours.inputs, *ours.outputs):
        content = others.get(tensor.name, {})
        for key, value in tensor.to_json().items():
            if key not in _SIZES and _differ(value, content.get(key, value)):
                yield f"I/O spec, {key} of {tensor.name!r}", value, content[key]
    if ours.class_names and theirs.class_names and ours.class_names != theirs.class_names:
        yield "I/O spec, class_names", list(ours.class_names), list(theirs.class_names)


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
