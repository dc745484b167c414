"""Functions reached from `forward`, and their arguments: calls and statements, over expressions.py.

An `if` that the configuration decides is followed on its one side, the others on both; a loop over things at hand is
followed item by item, others twice; calls are followed into the files that may be read (functions.py). A list that
grows has no known length.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import copy
import dataclasses
import functools
import inspect
from collections.abc import Sequence
from typing import Any

import truehalf.exporting.source_lint.functions as defs
import truehalf.exporting.source_lint.kinds as kinds
import truehalf.exporting.source_lint.torch_calls as torch_calls
from truehalf.exporting.source_lint.expressions import Arguments, Expressions, Frame, arithmetic
from truehalf.exporting.source_lint.kinds import NUMBER, TENSOR, UNKNOWN, elements, holds_tensor, join

_DEPTH, _FUNCTIONS = 60, 20_000  # deepest call, and how many calls are followed in all
_QUIET = ("math", "numpy", "warnings", "logging")  # what they do with a tensor is known: a number, or a message
_WHILE_TRACING = {"is_tracing": True, "is_in_onnx_export": True, "is_scripting": False, "is_compiling": False}
_PARTS = ("items", "keys", "values", "children", "named_children", "modules", "parameters", "buffers")
_GROWS = ("append", "extend", "insert", "add", "update")  # of lists, sets and dicts
_SHRINKS = ("clear", "pop", "popitem", "remove", "reverse", "setdefault", "sort")
_FOLDED = ("len", "isinstance", "hasattr", "range", "bool", "int", "float", "min", "max", "sum")
_GONE_THROUGH = ("map", "filter", "zip", "enumerate", "list", "tuple", "reversed", "iter", "sorted", "range")


class Following(Expressions):
    """Reads statements, and follows calls.

    Attributes:
        read: the functions that were reached, with scope, file and line.
    """

    def __init__(self, packages: frozenset[str], written: set[tuple[int, str]]) -> None:
        super().__init__(packages, written)
        self.read: dict[ast.FunctionDef, kinds.SourceLocation] = {}
        self._results: dict[Any, Any] = {}
        self._depth = self._followed = 0

    def place(self, node: ast.AST) -> kinds.SourceLocation:
        return self.frame.scope, self.frame.function.__code__.co_filename, getattr(node, "lineno", 0)

    def method(self, node: ast.AST, owner: Any, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if kinds.is_tensor(owner):
            return torch_calls.returned(name, [owner, *args], kwargs, self.place(node))
        changes = name in (*_GROWS, *_SHRINKS)
        if (kinds.is_copy(owner) or not changes) and (name in _GROWS or not kinds.abstract_in(args)):
            with contextlib.suppress(Exception):  # of arguments that are not at hand
                found = getattr(owner, name)(*(map(elements, args) if name == "extend" else args))
                if name in _GROWS and isinstance(owner, list):
                    owner[:] = kinds.many(owner)
                return list(found) if name in _PARTS else found
        item, default = join(*kinds.inside(owner)), args[1] if len(args) > 1 else None
        if name in ("values", "items"):
            return [item if name == "values" else (UNKNOWN, item)]
        if name in ("get", "pop") and (default is None or kinds.is_tensor(default)):  # others are options that are off
            return item if default is None else join(item, default)
        return TENSOR if isinstance(owner, str) and holds_tensor(args) else UNKNOWN

    def call(self, node: ast.AST, function: Any, args: Sequence[Any], kwargs: Arguments) -> Any:
        import torch

        if isinstance(function, torch.nn.Module) and not isinstance(function, torch.jit.ScriptModule):
            return self._module(node, function, args, kwargs)
        result = self._result(node, function, args, kwargs)
        self.note(node, function, getattr(function, "__name__", ""), args, kwargs, result is not None)
        return UNKNOWN if result is None else result[0]

    def _result(self, node: ast.AST, function: Any, args: Sequence[Any], kwargs: Arguments) -> tuple[Any] | None:
        """What a function returns; None where it is not followed."""
        import torch

        plain, myself = defs.python_function(function), getattr(function, "__self__", None)
        name, top, given = getattr(function, "__name__", ""), defs.package_of(function), holds_tensor(args, kwargs)
        if isinstance(function, (torch.jit.ScriptFunction, torch.jit.ScriptModule)):
            return (TENSOR,)
        if getattr(builtins, name, None) is function:
            return (self._builtin(node, function, name, list(args)),)
        if function is copy.deepcopy:
            return (dataclasses.replace(args[0], held=False) if kinds.is_tensor(args[0]) else args[0],)
        if inspect.isclass(function):
            names: Any = getattr(function, "_fields", None) or getattr(function, "__dataclass_fields__", ())
            fields = dict.fromkeys(names) | dict(zip(names, args, strict=False)) | dict(kwargs)
            if names or issubclass(function, (torch.Tensor, BaseException)):
                return (fields if names else TENSOR,)
        if defs.may_read(plain, self.packages):
            return (self.follow(plain, [*([] if myself is None else [myself]), *args], kwargs),)
        if name in _WHILE_TRACING and top == "torch":
            return (_WHILE_TRACING[name],)
        if isinstance(myself, (torch.nn.Module, torch.nn.ParameterList)) and name in _PARTS and not args:
            return (list(function()),)
        spaces = (torch, torch.Tensor, torch.nn.functional)
        if top == "torch" or any(getattr(space, name, None) is function for space in spaces):
            return (torch_calls.returned(name, args, kwargs, self.place(node)),)
        if top in _QUIET or (not given and function is not UNKNOWN):
            return (NUMBER if given else UNKNOWN,)
        return (TENSOR,) if top in ("einops", "torchvision") else None

    def _module(self, node: ast.AST, module: Any, args: Sequence[Any], kwargs: Arguments) -> Any:
        """What forward returns. The user's hooks are read, but not what they return; those of torch change weights."""
        import torch

        for hook in (*module._forward_pre_hooks.values(), *module._forward_hooks.values()):
            if defs.package_of(hook) != "torch":
                self.call(node, hook, [module, tuple(args), TENSOR], {})
        forward, ours = defs.python_function(module.forward), defs.package_of(type(module)) != "torch"
        if type(module).forward is torch.nn.Sequential.forward:
            return functools.reduce(lambda value, part: self._module(node, part, [value], {}), module, args[0])
        if ours and forward is not None and defs.definition(forward) is not None:
            return self.follow(forward, [module, *args], kwargs)
        self.note(node, module, "", args, kwargs, not ours)
        return UNKNOWN if ours else torch_calls.of_module(module, args, kwargs)

    def _builtin(self, node: ast.AST, function: Any, name: str, args: list[Any]) -> Any:
        import torch

        if name == "super":
            cls = defs.outer_names(self.frame.function).get("__class__")
            return super(cls, next(iter(self.frame.variables.values()))) if cls is not None else UNKNOWN
        if name == "isinstance" and kinds.kind(args[0]) == "tensor":
            return kinds.evaluated(issubclass, torch.Tensor, args[1])
        if name == "getattr" and isinstance(args[1], str):
            return self.attribute(node, *args)
        if name == "len" and isinstance(args[0], (list, tuple)) and 1 < len(args[0]) < kinds.FOLLOWED:
            return len(args[0])
        result = kinds.evaluated(function, *args) if name in _FOLDED else UNKNOWN
        if result is not UNKNOWN:
            return result
        if name in _GONE_THROUGH:
            return self._gone_through(node, name, args)
        if name in ("str", "repr", "format", "min", "max", "sum", "abs", "pow", "round") and holds_tensor(args):
            return TENSOR
        return NUMBER if name in _FOLDED and name not in ("isinstance", "hasattr") else UNKNOWN

    def _gone_through(self, node: ast.AST, name: str, args: list[Any]) -> list[Any]:
        calls = name in ("map", "filter")
        lists = [elements(value) for value in (args[1:] if calls else args)]
        longest = max(map(len, lists), default=0)
        rows = [tuple(items[min(i, len(items) - 1)] for items in lists) for i in range(longest) if all(lists)]
        results = [self.call(node, args[0], row, {}) for row in rows] if calls else rows
        if name in ("map", "zip"):
            return results
        items = [row[0] for row in rows]
        if name == "filter":
            return kinds.many(items)
        if name == "enumerate":
            return [(NUMBER if kinds.any_number(rows) else i, item) for i, item in enumerate(items)]
        return [NUMBER] if name == "range" else items[:: -1 if name == "reversed" else 1]

    def follow(self, function: Any, args: Sequence[Any], kwargs: Arguments) -> Any:
        tree = defs.definition(function)
        assert tree is not None
        parameters = inspect.signature(function, follow_wrapped=False).parameters.values()
        defaults = {each.name: kinds.at_hand(each.default) for each in parameters if each.default is not each.empty}
        variables = _bound(tree.args, defaults, args, kwargs)
        asked = (function.__code__, kinds.key(variables))
        if asked not in self._results:
            self._results[asked] = UNKNOWN, dict(variables)  # what a recursive call gets; and what keeps ids alive
            frame = Frame(function, f"{function.__module__}.{function.__qualname__}", variables)
            self._results[asked] = self.run(tree, frame), dict(variables)
        return self._results[asked][0]

    def run(self, tree: ast.FunctionDef, frame: Frame) -> Any:
        """What a function returns, its parameters among the names of the frame."""
        if self._depth > _DEPTH or self._followed > _FUNCTIONS:
            return UNKNOWN
        outer, self.frame = self.frame, frame
        self.read[tree] = self.place(tree)
        self._depth, self._followed = self._depth + 1, self._followed + 1
        try:
            frame.returned += [None] if self.block(tree.body) else []
        finally:
            self._depth -= 1
            self.frame = outer
        result = join(*frame.returned)
        return TENSOR if result is UNKNOWN and defs.names_a_tensor(tree.returns) else result

    def block(self, statements: Sequence[ast.stmt]) -> bool:
        """Whether its end is reached."""
        return all(self.statement(statement) for statement in statements)

    def statement(self, node: ast.stmt) -> bool:
        """Whether the next statement is reached; an assertion changes nothing in the graph."""
        match node:
            case ast.Return() | ast.Raise():
                self.frame.returned += [self.value(node.value)] if isinstance(node, ast.Return) else []
                return False
            case ast.Expr():
                self.value(node.value)
            case ast.Assign() | ast.AnnAssign() if node.value is not None:
                value, noted = self.value(node.value), getattr(node, "annotation", None)
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    self.assign(target, TENSOR if value is UNKNOWN and defs.names_a_tensor(noted) else value)
            case ast.AugAssign():
                old = self.value(node.target)
                new = arithmetic(node.op, old, self.value(node.value))
                self.assign(node.target, dataclasses.replace(new, held=old.held) if kinds.is_tensor(old) else new)
            case ast.If():
                holds = kinds.truth(self.value(node.test))
                if holds is None or (holds and isinstance(node.body[-1], ast.Raise)):  # a check that fails: by mistake
                    return self._one_of(node.body, node.orelse, test=node.test)
                return self.block(node.body if holds else node.orelse)
            case ast.While():
                for _ in range(2):
                    if kinds.truth(self.value(node.test)) is not False:
                        self._one_of(node.body, [])
                return self.block(node.orelse)
            case ast.For():
                items = elements(self.value(node.iter))
                counted = 1 < len(items) < kinds.FOLLOWED
                always = counted and not any(isinstance(each, (ast.Break, ast.Continue)) for each in ast.walk(node))
                for item in items if len(items) > 1 else 2 * items:
                    self.assign(node.target, item)
                    if not self._one_of(node.body, *([] if always else [[]])):
                        return False
                return self.block(node.orelse)
            case ast.With():
                for item in node.items:
                    self.value(item.context_expr)
                    if item.optional_vars is not None:
                        self.assign(item.optional_vars, UNKNOWN)
                return self.block(node.body)
            case ast.Try():
                handlers = [] if self._cannot_fail(node.body) else [handler.body for handler in node.handlers]
                falls = self._one_of([*node.body, *node.orelse], *handlers)
                return self.block(node.finalbody) and falls
            case ast.Match():
                self.value(node.subject)
                return self._one_of(*(case.body for case in node.cases), [])
            case ast.FunctionDef():
                self.frame.variables[node.name] = UNKNOWN
        return True

    def _cannot_fail(self, statements: Sequence[ast.stmt]) -> bool:
        """Whether a block only imports, and returns what a call is known to say (`torch.jit.is_tracing()`)."""
        match statements:
            case [*imports, ast.Return(value=ast.Call() as call)]:
                return all(isinstance(each, ast.Import) for each in imports) and isinstance(self.value(call), bool)
        return False

    def _one_of(self, *blocks: Sequence[ast.stmt], test: ast.expr | None = None) -> bool:
        """Each block from the same start; of a test, the first where it holds, the second where it does not."""
        before, ends = self.frame.variables, []
        starts = [self.narrowed(test, i == 0) for i in range(len(blocks))]
        for start, block in zip(starts, blocks, strict=True):
            self.frame.variables = start
            if self.block(block):
                ends.append(self.frame.variables)
        names = dict.fromkeys(name for end in ends for name in end)
        self.frame.variables = {}
        for name in names:
            found = [end[name] for end in ends if name in end]
            asked = kinds.kind(before.get(name)) == "maybe" and any(value is None for value in found)
            self.frame.variables[name] = join(*found, *([before[name]] if asked and len(found) > 1 else []))
        return bool(ends)


def _bound(given: ast.arguments, defaults: Arguments, args: Sequence[Any], kwargs: Arguments) -> dict[str, Any]:
    """The parameters, as Python binds them; one with the annotation of a tensor is one, where nothing else is known."""
    rest, left = list(args), dict(kwargs)
    spread, result = left.pop("**", UNKNOWN), {}
    for arg in [*given.posonlyargs, *given.args, *given.kwonlyargs]:
        by_place = bool(rest) and arg not in given.kwonlyargs
        value = rest.pop(0) if by_place else left.pop(arg.arg, defaults.get(arg.arg, spread))
        result[arg.arg] = TENSOR if value is UNKNOWN and defs.names_a_tensor(arg.annotation) else value
    if given.vararg is not None:
        result[given.vararg.arg] = tuple(rest)
    if given.kwarg is not None:
        result[given.kwarg.arg] = [spread] if "**" in kwargs else left
    return result
