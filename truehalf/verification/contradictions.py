"""Metadata of a candidate that contradict the reference's: who reads them takes the file for another one.

    I/O spec           what both declare of an input or output, but for float16 against float32 and sizes that vary,
                       and the names of classes                                                         a failure
    other metadata     names (a list of texts, a mapping of numbers to them or of them to numbers, COCO's
                       categories; under a key that says so also texts with commas or line ends
                       between, and perhaps a number before or behind each) and, where both say
                       so, their numbers; or a choice of the I/O spec (cxcywh, NCHW)                    a failure
                       any other value under one key                                                    said
    precision          a candidate that holds FP16 and says float32, or the other way round             said

What one of the two leaves out is no contradiction, nor are numbers that float32 has rounded.
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
from truehalf.ir.facts import holds_fp16
from truehalf.verification.findings import FAILED, Finding, not_checked

_OURS = "truehalf."  # a key that begins so is the I/O spec, or says how a file was made
_CHOICES = {"cxcywh", "xywh", "xyxy", "yxyx", "sigmoid", "softmax", "identity", "nchw", "nhwc", "rgb", "bgr"}
_PRECISIONS = {"fp16": True, "float16": True, "half": True, "fp32": False, "float32": False, "float": False}
_OF_NAMES = re.compile(r"(^|[^a-z])(names|classes|labels|categories)$", re.IGNORECASE)
_OF_CLASSES = re.compile(r"(.*[^a-z])?(class_?names|classes|labels|categories)|names", re.IGNORECASE)
_NUMBERED = (  # 0: cat, 0 cat, 0) cat; cat: 0
    re.compile(r"(?P<number>\d+)\s*(?:[:=]\s*|[.)]?\s+)(?P<name>\S.*)"),
    re.compile(r"(?P<name>\S.*?)\s*[:=]\s*(?P<number>\d+)"),
)
_SIZES = ("shape", "traced")
_SHOWN = 60  # characters of a value


def contradictions(reference: ir.Model, candidate: ir.Model, spec: IoSpec) -> Iterator[Finding]:
    """What the candidate's metadata say otherwise.

    Args:
        spec: in force, where the reference's metadata hold none.
    """
    try:
        ours = spec_inside(reference) if SPEC_KEY in reference.metadata_props else spec
        theirs = spec_inside(candidate)
    except StageError as error:
        yield not_checked(_reason(f"the I/O spec: {error.text}"))
    else:
        for where, a, b in _of_specs(ours, theirs):
            yield Finding("metadata", FAILED, _reason(f"I/O spec, {where}", a, b), no_node=True)
    for key, text in candidate.metadata_props.items():
        if key.startswith(_OURS):
            continue
        a, b = _value(key, reference.metadata_props.get(key, text)), _value(key, text)
        is_half = _PRECISIONS.get(str(b).lower())
        if is_half is not None:
            holds = "holds none" if is_half else "holds FP16"
            if is_half != holds_fp16(candidate):
                yield not_checked(_reason(f"{key!r} of the candidate is {b}, and it {holds}"))
        elif text != reference.metadata_props.get(key, text) and (different := list(_clashes(a, b))):
            reason = _reason(repr(key), a, b)
            fails = any(all(_names(x) or str(x).lower() in _CHOICES for x in pair) for pair in different)
            yield Finding("metadata", FAILED, reason, no_node=True) if fails else not_checked(reason)


def _of_specs(ours: IoSpec, theirs: IoSpec) -> Iterator[tuple[str, Any, Any]]:
    for both in ((ours.inputs, theirs.inputs), (ours.outputs, theirs.outputs)):
        others = {tensor.name: tensor for tensor in both[1]}
        for tensor in both[0]:
            other = others.get(tensor.name, tensor)
            if tensor.shape and other.shape and not _fit(tensor.shape, other.shape):
                yield f"shape of {tensor.name!r}", list(tensor.shape), list(other.shape)
            content = other.to_json()
            for key, value in tensor.to_json().items():
                if key not in _SIZES and any(_clashes(value, content.get(key, value))):
                    yield f"{key} of {tensor.name!r}", value, content[key]
    if ours.class_names and theirs.class_names and ours.class_names != theirs.class_names:
        yield "class_names", list(ours.class_names), list(theirs.class_names)


def _fit(a: Sequence[int | str], b: Sequence[int | str]) -> bool:
    """Sizes; one with a name may be any."""
    pairs = zip(a, b, strict=False)
    return len(a) == len(b) and all(isinstance(x, str) or isinstance(y, str) or x == y for x, y in pairs)


def _clashes(a: Any, b: Any) -> Iterator[tuple[Any, Any]]:
    """The values that differ, of what both hold; names count as one value."""
    names = _names(a), _names(b)
    if None not in names:
        yield from [names] if names[0] != names[1] or _are_renumbered(a, b) else []
    elif isinstance(a, Mapping) and isinstance(b, Mapping):
        other = {str(key): value for key, value in b.items()}
        for key, value in a.items():
            yield from _clashes(value, other.get(str(key), value))
    elif isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)) and len(a) == len(b):
        for pair in zip(a, b, strict=True):
            yield from _clashes(*pair)
    elif isinstance(a, (int, float)) and isinstance(b, (int, float)):
        is_exact = isinstance(a, int) and isinstance(b, int)  # and perhaps too large for a float
        yield from [] if a == b or (not is_exact and math.isclose(a, b, rel_tol=1e-6)) else [(a, b)]
    elif (texts := {str(each).lower() for each in (a, b)}) != {"float16", "float32"} and len(texts) > 1:
        yield a, b


def class_names_in(model: ir.Model) -> tuple[str, ...]:
    """Names of classes that the metadata of any tool's file hold under a key that says so; empty: none."""
    found = (_names(_value(key, text)) for key, text in model.metadata_props.items() if _OF_CLASSES.fullmatch(key))
    named = next(filter(None, found), [])
    return () if any("(" in name for name in named) else tuple(named)


def _names(value: Any) -> list[str] | None:
    """A list of texts, or names by number in the order of the numbers; None of anything else."""
    value = _by_number(value)
    if isinstance(value, Mapping) and all(str(key).isdecimal() for key in value):
        value = [value[key] for key in sorted(value, key=int)]
    is_list = isinstance(value, (list, tuple)) and bool(value) and all(isinstance(each, str) for each in value)
    return list(value) if is_list else None


def _by_number(value: Any) -> Any:
    """Texts by number, of numbers by text and of COCO's categories; anything else as it is."""
    if isinstance(value, Mapping) and value and _are_numbers([*value.values()]):
        return {str(number): str(name) for name, number in value.items()}
    is_list = isinstance(value, (list, tuple)) and bool(value)
    if is_list and all(isinstance(each, Mapping) and {"id", "name"} <= {*each} for each in value):
        return {str(each["id"]): each["name"] for each in value}
    return value


def _are_renumbered(a: Any, b: Any) -> bool:
    """Whether both number their names, and otherwise: a list only has an order."""
    numbers = [{str(key) for key in each} for each in (_by_number(a), _by_number(b)) if isinstance(each, Mapping)]
    return len(numbers) == 2 and numbers[0] != numbers[1]


def _are_numbers(values: Sequence[Any]) -> bool:
    """Whether they are 0, 1, 2, ... in any order."""
    return all(isinstance(each, int) for each in values) and sorted(values) == list(range(len(values)))


def _value(key: str, text: str) -> Any:
    """JSON or a literal of Python, a list of names where the key says so, else the text."""
    for read in (json.loads, ast.literal_eval):
        try:
            return read(text)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            continue
    names = [name.strip() for name in re.split(r"[,;\n]", text.strip())]
    if len(names) < 2 or not _OF_NAMES.search(key):
        return text
    for numbered in _NUMBERED:
        if all(found := [numbered.fullmatch(name) for name in names]):
            return {each["number"]: each["name"] for each in found if each}
    return names


def _reason(where: str, *values: Any) -> str:
    texts = [" ".join(str(each).split()) for each in values]
    shown = [text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..." for text in texts]
    said = ": the reference says {}, the candidate {}".format(*shown) if values else ""
    return coded("metadata-differ", f"metadata, {where}{said}")
