"""Lint of a torch module's source for what tracing loses and the graph no longer shows.

What Python decided while a trace ran (an `if` on a tensor, a len(tensor), an .item(), a loop's trip count) is in the
file as it came out once. The functions that `forward` reaches are read (following.py), with the configuration of the
module at hand; the rules visit them (rules.py). Scripted code is kept as it is, and not read. The exporter's
TracerWarnings stand beside these findings in what a trace says (truehalf/exporting/baked).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from truehalf.errors import StageError
from truehalf.exporting.source_lint.expressions import Frame
from truehalf.exporting.source_lint.following import Following
from truehalf.exporting.source_lint.functions import TENSOR_TYPE, definition, python_function
from truehalf.exporting.source_lint.kinds import MAYBE, TENSOR, TEXT, UNKNOWN, at_hand, is_module
from truehalf.exporting.source_lint.rules import RULES as _RULES
from truehalf.linting.finding import Finding

if TYPE_CHECKING:
    import torch

RULES = {rule.id: rule for rule in _RULES}
_OPTIONAL = rf"(typing\.)?Optional\[{TENSOR_TYPE}\]|None( \| {TENSOR_TYPE})+|({TENSOR_TYPE} \| )+None"


def lint_source(module_or_factory: torch.nn.Module | Callable[[], torch.nn.Module]) -> list[Finding]:
    """Findings in the source of a module, of its parts and of the functions that their forwards call.

    Args:
        module_or_factory: a module, or what returns one when it is called without arguments. Parameters of its forward
            are tensors unless their annotation or default says otherwise; one that may be None counts as an input that
            some calls lack.

    Returns:
        one finding per rule and line, with file (relative to the working folder or to the installed packages) and
        line; warnings first, then by file and line. Not read: code of torch, scripted functions, and functions of
        installed packages that no class of the module comes from: py-not-followed says how many calls with tensors led
        there, or to what is not known.

    Raises:
        StageError: when the argument is neither, or the source of its forward is not to be had.
    """
    module: Any = module_or_factory
    module = module if is_module(module) or not callable(module) else module()
    if not is_module(module):
        message = f"lint: expected a torch module or a function that returns one, got {type(module).__name__}"
        raise StageError("wrong-return", message)
    forward = python_function(getattr(module, "forward", None))
    tree = None if forward is None else definition(forward)
    if forward is None or tree is None:
        message = f"lint: {type(module).__name__}.forward has no readable python source; expected a def in a file"
        raise StageError("no-source", f"{message} or a notebook cell; give the traced module, not a compiled one")
    packages = frozenset({type(part).__module__.partition(".")[0] for part in module.modules()} - {"torch"})
    by_place, by_name = list[Any](), dict[str, Any]()
    for each in list(inspect.signature(forward, follow_wrapped=False).parameters.values())[1:]:
        if each.kind in (each.KEYWORD_ONLY, each.VAR_KEYWORD):
            by_name |= {each.name: _input(each)} if each.kind is each.KEYWORD_ONLY else _input(each)
        else:
            by_place.append(_input(each))
    before, written = -1, set[tuple[int, str]]()
    while len(written) > before:  # what is written in one reading may decide in the next
        before, program = len(written), Following(packages, written)
        program.frame = Frame(forward, f"{forward.__module__}.{forward.__qualname__}", {})
        program.call(tree, module, by_place, by_name)
    findings = [finding for rule in _RULES for finding in rule(program).findings()]
    return sorted(findings, key=_order)


def _order(one: Finding) -> tuple[bool, bool, str, int, str]:
    return one.severity != "warning", one.rule == "py-not-followed", one.file or "", one.line or 0, one.rule


def _input(parameter: inspect.Parameter) -> Any:
    note = parameter.annotation
    text = "" if note is parameter.empty else note if isinstance(note, str) else inspect.formatannotation(note)
    is_tensor = not text or re.fullmatch(TENSOR_TYPE, text) is not None
    if parameter.kind is parameter.VAR_POSITIONAL:
        return TENSOR
    if parameter.kind is parameter.VAR_KEYWORD:  # annotated, they are most often options
        return {"**": TENSOR} if is_tensor else {}
    if re.fullmatch(_OPTIONAL, text) or (parameter.default is None and not text):
        return MAYBE
    if text == "str" or isinstance(parameter.default, str):
        return TEXT
    if parameter.default is not parameter.empty:
        return at_hand(parameter.default)
    if is_tensor:
        return TENSOR
    if "Tensor" not in text and not re.fullmatch(r"[\w.]*([Dd]ict|Mapping)(\[.*Any\])?", text):
        return UNKNOWN
    lists = re.search(r"(?:dict|mapping).*(?:list|tuple|sequence)\[", text, re.IGNORECASE)
    return [[TENSOR]] if lists else [TENSOR]
