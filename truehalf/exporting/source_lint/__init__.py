"""What tracing loses of a torch module, found in its source: the graph no longer shows it.

A trace keeps the operations that ran on the example. What python decided while it ran (an `if` on a tensor, a
len(tensor), an .item(), a loop's trip count) is in the file as it came out once. The source is
followed from `forward`, with the configuration that the module at hand has (walk.py); code under
torch.jit.script is not read, because it is kept as it is.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from truehalf.errors import StageError
from truehalf.exporting.source_lint.dtype_constants import DTYPE_CONSTANT
from truehalf.exporting.source_lint.expressions import Frame, is_tensor_annotation
from truehalf.exporting.source_lint.functions import definition, entry
from truehalf.exporting.source_lint.hooks import hooked
from truehalf.exporting.source_lint.values import MAYBE, TENSOR, TEXT, UNKNOWN, Value, known, mapping, sequence
from truehalf.exporting.source_lint.walk import Walker
from truehalf.linting.base import Rule
from truehalf.linting.finding import Finding, link_to

if TYPE_CHECKING:
    import torch

_GUIDANCE = "NVIDIA's guidance on exporting for TensorRT"
RULES: dict[str, Rule] = {
    rule.id: rule
    for rule in (
        Rule("py-tensor-if", "warning", "an `if` on a tensor's value, decided while tracing", _GUIDANCE),
        Rule("py-tensor-len", "warning", "len(tensor): the traced size", _GUIDANCE),
        Rule("py-string-comparison", "info", "strings that may change from call to call, compared", _GUIDANCE),
        Rule("py-none-check", "info", "a tensor that some calls may lack", _GUIDANCE),
        Rule("py-list-comprehension", "info", "a list comprehension over tensors", _GUIDANCE),
        Rule("py-deepcopy", "warning", "copy.deepcopy of tensors", _GUIDANCE),
        Rule("py-attribute-update", "warning", "forward writes to a module", _GUIDANCE),
        Rule("py-item", "warning", "a number read out of a tensor: .item(), int(tensor)", _GUIDANCE),
        Rule("py-builtin-min-max", "warning", "python's own min, max, sum or sorted on tensors", _GUIDANCE),
        Rule("py-data-dependent-loop", "warning", "a loop that runs as often as a tensor says", _GUIDANCE),
        Rule(DTYPE_CONSTANT, "warning", "a constant with a floating type of its own meets the module's", "torch"),
        Rule("py-not-followed", "info", "calls with tensors whose source is not read", "what this reader can follow"),
    )
}
_SAYS = {  # rule: why, what to write instead
    "py-tensor-if": (
        "python decides on a tensor's value; the file keeps the branch that the traced example took",
        "compute both sides and mix them with the condition as a number: c * a + (1 - c) * b",
    ),
    "py-tensor-len": ("len() of a tensor is an int; the file keeps the traced size", "tensor.shape[0]"),
    "py-string-comparison": (
        "strings are no part of the graph; the file keeps the branch that the comparison took",
        "compare outside, and pass what follows from it as a tensor",
    ),
    "py-none-check": (
        "whether a tensor is None is decided when the file is written",
        "take the tensor always; pass a neutral value or a weight of 0 where there is none",
    ),
    "py-list-comprehension": (
        "a list comprehension over tensors, which older exporters cannot trace",
        "a for loop that appends",
    ),
    "py-deepcopy": (
        "a deep copy of a traced tensor is an empty tensor in the file",
        "a new list of the same tensors, or tensor.clone()",
    ),
    "py-attribute-update": (
        "what forward writes to a module is lost: a file has no state between calls",
        "take the value as an input and return it as an output, or keep it in a local name",
    ),
    "py-item": (
        "a number is read out of a tensor; the file keeps the traced one as a constant",
        "compute with the tensor",
    ),
    "py-builtin-min-max": (
        "python walks through a tensor or compares tensors while tracing; the file keeps what came of it",
        "torch.minimum, torch.maximum, tensor.amin, tensor.amax, tensor.sum or torch.sort",
    ),
    "py-data-dependent-loop": (
        "the loop runs as often as it did on the traced example",
        "vectorise it, or run it as often as can be needed and let the rounds beyond the count change nothing",
    ),
    DTYPE_CONSTANT: (
        "the constant has a type of its own; in half precision torch refuses its product with the module's tensors",
        "dtype=x.dtype, of the tensor that it meets; or register it as a buffer",
    ),
}


def lint_source(module_or_factory: torch.nn.Module | Callable[[], torch.nn.Module]) -> list[Finding]:
    """Findings in the source of a module, of its parts and of the functions that their forwards call.

    Args:
        module_or_factory: a module, or what returns one when it is called without arguments. Parameters of its forward
            are tensors unless their annotation or default says otherwise; one that may be None counts as an input that
            some calls lack.

    Returns:
        one finding per rule and line, with file (relative to the working folder or to the installed packages) and
        line; warnings first, then by file and line. Not read: torch's own code, scripted functions, and functions of
        installed packages that no class of the module comes from: py-not-followed says how many calls with tensors led
        there, or to what is not known.

    Raises:
        StageError: when the argument is neither, or the source of its forward (or of its class's own __call__) is not
            to be had.
    """
    import torch

    module: Any = module_or_factory
    if not isinstance(module, torch.nn.Module) and callable(module):
        module = module()
    if not isinstance(module, torch.nn.Module):
        raise StageError(
            "wrong-return", f"lint: expected a torch module or a function that returns one, got {type(module).__name__}"
        )
    name, forward = entry(module)
    root = definition(forward) if forward is not None else None
    if root is None:
        raise StageError(
            "no-source",
            f"lint: {type(module).__qualname__}.{name} has no python source that can be read; expected a def in a file "
            "or a notebook cell; give the module that is traced, not a scripted or compiled one",
        )
    packages = frozenset({type(part).__module__.partition(".")[0] for part in module.modules()} - {"torch"})
    walker = Walker(packages)
    inputs = _inputs(module, forward)
    walker.frame = Frame(forward, {})
    if name == "__call__":  # it decides itself whether torch's own, which calls hooks, is called
        walker.follow(forward, inputs)
    else:
        hooked(walker, root, module, list(inputs.values())[1:], {}, lambda *_: walker.follow(forward, inputs))
    findings = [_finding(*place) for place in walker.found]
    findings.sort(key=lambda one: (one.severity != "warning", one.file or "", one.line or 0, one.rule))
    return findings + ([_unread(list(walker.unread), walker.frame.scope)] if walker.unread else [])


def _inputs(module: Any, forward: Any) -> dict[str, Value]:
    parameters = list(inspect.signature(forward, follow_wrapped=False).parameters.values())
    bound = {parameters[0].name: known(module)}
    for parameter in parameters[1:]:
        bound[parameter.name] = _input(parameter)
    return bound


def _input(parameter: inspect.Parameter) -> Value:
    note = parameter.annotation
    text = "" if note is parameter.empty else note if isinstance(note, str) else inspect.formatannotation(note)
    if parameter.kind is parameter.VAR_POSITIONAL:
        return Value("sequence", items=(TENSOR,))
    if parameter.kind is parameter.VAR_KEYWORD:  # annotated, they are most often options
        return mapping(TENSOR) if not text or is_tensor_annotation(text) else Value("record")
    if parameter.default is None and (not text or _optional_tensor(text)):
        return MAYBE
    if isinstance(parameter.default, str) or text == "str":
        return TEXT
    if parameter.default is not parameter.empty:
        return known(parameter.default)
    if not text or is_tensor_annotation(text):
        return TENSOR
    if _optional_tensor(text):
        return MAYBE
    head, _, inner = text.strip("\"'").partition("[")
    if head.rpartition(".")[2].lower() in ("dict", "mapping", "mutablemapping", "ordereddict"):
        values = inner.partition(",")[2].removesuffix("]").strip()
        if not values or is_tensor_annotation(values) or values.endswith("Any"):
            return mapping(TENSOR)
        return mapping(sequence(TENSOR)) if "Tensor" in values else UNKNOWN
    if "Tensor" in text:  # of a list or tuple of them
        return Value("sequence", items=(TENSOR,))
    return UNKNOWN


def _optional_tensor(text: str) -> bool:
    """Tensor | None, Optional[Tensor]."""
    parts = [part.strip() for part in text.removeprefix("typing.").removeprefix("Optional[").rstrip("]").split("|")]
    others = [part for part in parts if part != "None"]
    return (len(parts) > len(others) or "Optional[" in text) and all(is_tensor_annotation(part) for part in others)


def _unread(places: list[tuple[str, int, int]], scope: str) -> Finding:
    file, line, _ = places[0]
    rest = f" and {len(places) - 3} more" if len(places) > 3 else ""
    where = ", ".join(f"{name}:{number}" for name, number, _ in places[:3]) + rest
    calls = "1 call that takes a tensor was" if len(places) == 1 else f"{len(places)} calls that take tensors were"
    return Finding(
        "py-not-followed",
        "info",
        "",
        "",
        scope,
        f"{calls} not followed ({where}); nothing is said about what happens in them",
        "look at them yourself; functions of the module's own files and packages are read",
        link_to("py-not-followed"),
        file,
        line,
    )


def _finding(rule: str, scope: str, file: str, line: int) -> Finding:
    message, remedy = _SAYS[rule]
    return Finding(rule, RULES[rule].severity, "", "", scope, message, remedy, link_to(rule), file, line)
