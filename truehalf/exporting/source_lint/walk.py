"""Run a module's forward over what is known of its values (values.py) instead of over values.

An `if` that the configuration decides is followed on its one side, the others on both; a loop over things at hand is
followed item by item, others until nothing new comes; calls are followed into the files that may be read
(functions.py). What cannot be followed is unknown, and nothing is said about what is unknown.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Callable, Sequence
from typing import Any

from truehalf.exporting.source_lint.expressions import Frame, Reader, Variables, arithmetic, is_tensor_annotation
from truehalf.exporting.source_lint.functions import definition
from truehalf.exporting.source_lint.local_functions import Local, local
from truehalf.exporting.source_lint.values import NONE, TENSOR, UNKNOWN, Value, join_all, known

_DEPTH, _FUNCTIONS = 60, 20_000  # deepest call, and how many calls are followed in all


class Walker(Reader):
    """Follows calls, statement by statement."""

    def __init__(self, packages: frozenset[str]) -> None:
        super().__init__(packages)
        self._results: dict[Any, Value] = {}
        self._keep: list[Any] = []  # objects whose id stands in a key of `_results` stay alive
        self._depth = 0
        self._locals = 0  # calls of nested functions, which are followed anew each time

    def follow(self, function: Any, bound: Variables) -> Value:
        """The value that a def returns for these arguments."""
        tree = definition(function)
        if tree is None or self._depth > _DEPTH or len(self._results) > _FUNCTIONS:
            return UNKNOWN
        key = (function.__code__, tuple((name, value.key()) for name, value in bound.items()))
        if key in self._results:
            return self._results[key]
        self._results[key] = UNKNOWN  # what a recursive call gets
        self._keep.append((function, bound))
        outer, self.frame = self.frame, Frame(function, dict(bound))
        self._depth += 1
        try:
            result = self._result(tree)
        finally:
            self._depth -= 1
            self.frame = outer
        self._results[key] = result
        return result

    def follow_local(self, function: Local, bound: Variables) -> Value:
        if self._depth > _DEPTH or self._locals > _FUNCTIONS:
            return UNKNOWN
        made = function.frame  # its names, as they are when it is called
        inside = f"{made.inside}.<locals>.{function.name}"
        outer, self.frame = self.frame, Frame(made.function, made.variables | bound, inside=inside)
        self._depth += 1
        self._locals += 1
        try:
            return self._result(function.tree)
        finally:
            self._depth -= 1
            self.frame = outer

    def _result(self, tree: ast.FunctionDef | ast.Lambda) -> Value:
        if isinstance(tree, ast.Lambda):
            return self.value(tree.body)
        falls_through = self.block(tree.body)
        result = join_all([*self.frame.returned, *([NONE] if falls_through else [])])
        annotated = tree.returns is not None and is_tensor_annotation(ast.unparse(tree.returns))
        return TENSOR if annotated and result.kind == "unknown" else result

    def block(self, statements: list[ast.stmt]) -> bool:
        """Whether its end is reached."""
        return all(self.statement(statement) for statement in statements)

    def statement(self, node: ast.stmt) -> bool:
        match node:
            case ast.Return():
                self.frame.returned.append(NONE if node.value is None else self.value(node.value))
                return False
            case ast.Raise():
                return False
            case ast.Break() | ast.Continue():
                self.frame.left.append(dict(self.frame.variables))
                return False
            case ast.Assign():
                value = self.value(node.value)
                for target in node.targets:
                    self.assign(target, value)
                    if isinstance(target, ast.Name):
                        self.remember_alias(target.id, node.value)
            case ast.AnnAssign():
                if node.value is not None:
                    value = self.value(node.value)
                    annotated = value.kind == "unknown" and is_tensor_annotation(ast.unparse(node.annotation))
                    self.assign(node.target, TENSOR if annotated else value)
            case ast.AugAssign():
                old = self.value(_as_load(node.target))
                if isinstance(node.target, ast.Name) and (old.is_tensor or old.kind in ("list", "sequence")):
                    self.written(node.target)  # in place
                    self.frame.variables[node.target.id] = arithmetic(node.op, old, self.value(node.value))
                    return True
                self.assign(node.target, arithmetic(node.op, old, self.value(node.value)))
            case ast.Expr():
                self.value(node.value)
            case ast.If():
                return self.branch(node)
            case ast.While():
                return self.while_loop(node)
            case ast.For():
                return self.for_loop(node)
            case ast.With():
                for item in node.items:
                    value = self.value(item.context_expr)
                    if item.optional_vars is not None:
                        self.assign(item.optional_vars, UNKNOWN if value.kind != "record" else value)
                return self.block(node.body)
            case ast.Try():
                bodies = [[*node.body, *node.orelse], *(handler.body for handler in node.handlers)]
                falls = self.one_of([(None, body) for body in bodies])
                return self.block(node.finalbody) and falls
            case ast.Match():
                self.value(node.subject)
                names = {part.name for part in ast.walk(node) if isinstance(part, (ast.MatchAs, ast.MatchStar))}
                self.frame.variables |= dict.fromkeys(sorted(filter(None, names)), UNKNOWN)
                return self.one_of([(None, case.body) for case in node.cases] + [(None, [])])
            case ast.FunctionDef():
                self.frame.variables[node.name] = UNKNOWN if node.decorator_list else local(self, node)
            case ast.Import():
                for alias in node.names:
                    name = alias.name if alias.asname else alias.name.partition(".")[0]
                    self.frame.variables[alias.asname or name] = _loaded(name)
            case ast.ImportFrom():
                for alias in node.names:
                    value = _loaded(f"{'.' * node.level}{node.module or ''}", self.frame.function, alias.name)
                    self.frame.variables[alias.asname or alias.name] = value
            case ast.Assert() | ast.Pass():
                pass  # an assertion is left out of the graph, and changes nothing in it
        return True

    def branch(self, node: ast.If) -> bool:
        only_raises = not node.orelse and all(isinstance(each, ast.Raise) for each in node.body)
        decided = self.truth(node.test, "" if only_raises else "py-tensor-if")
        if decided is not None:
            return self.block(node.body if decided else node.orelse)
        return self.one_of([((node.test, True), node.body), ((node.test, False), node.orelse)])

    def one_of(self, bodies: Sequence[tuple[tuple[ast.expr, bool] | None, list[ast.stmt]]]) -> bool:
        """Each body from the same start, where its condition (a test and how it came out) holds."""
        before = self.frame.variables
        ends = []
        for condition, body in bodies:
            self.frame.variables = dict(before)
            if condition is not None:
                self.narrow(*condition)
            if self.block(body):
                ends.append(self.frame.variables)
        self.frame.variables = joined(ends) if ends else before
        return bool(ends)

    def while_loop(self, node: ast.While) -> bool:
        decided = self.truth(node.test, "py-data-dependent-loop")
        if decided is False:
            return self.block(node.orelse)
        self._repeat(lambda: self.block(node.body), rounds=2)
        return True

    def for_loop(self, node: ast.For) -> bool:
        items, each = self.items(node.iter)

        def body(item: Value) -> Callable[[], bool]:
            def run() -> bool:
                self.assign(node.target, item)
                return self.block(node.body)

            return run

        if each:
            for item in items:
                self._repeat(body(item), rounds=1, may_skip=False)
        else:
            self._repeat(body(items[0]), rounds=2)
        return self.block(node.orelse)

    def _repeat(self, body: Callable[[], bool], rounds: int, may_skip: bool = True) -> None:
        outer, self.frame.left = self.frame.left, []
        for _ in range(rounds):
            before = dict(self.frame.variables)
            ends = [before] if may_skip else []
            if body():
                ends.append(self.frame.variables)
            ends += self.frame.left
            self.frame.variables = joined(ends) if ends else before
        self.frame.left = outer


def joined(ends: list[Variables]) -> Variables:
    """Names that all ends have; a name of some ends only may be anything but is most likely what it is there."""
    names = dict.fromkeys(name for end in ends for name in end)
    dotted = {name for name in names if "." in name and not all(name in end for end in ends)}
    return {name: join_all(end[name] for end in ends if name in end) for name in names if name not in dotted}


def _loaded(name: str, function: Any = None, attribute: str | None = None) -> Value:
    """A module, or a name in it, if it has been imported already; nothing is imported to read source."""
    package = function.__globals__.get("__package__") if function is not None else None
    try:
        module = sys.modules.get(importlib.util.resolve_name(name, package) if name.startswith(".") else name)
    except ImportError:
        return UNKNOWN
    if module is None or attribute is None:
        return UNKNOWN if module is None else known(module)
    there = vars(module).get(attribute, sys.modules.get(f"{module.__name__}.{attribute}"))
    return UNKNOWN if there is None else known(there)


def _as_load(target: ast.expr) -> ast.expr:
    return ast.parse(ast.unparse(target), mode="eval").body
