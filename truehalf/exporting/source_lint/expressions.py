"""What the expressions of a function are (kinds.py), by one pass over its syntax.

Nothing is judged here: values and calls are kept for the rules (rules.py). What is not reached has none.
"""

from __future__ import annotations

import abc
import ast
import contextlib
import dataclasses
import functools
import inspect
import operator
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from truehalf.exporting.source_lint import kinds, torch_calls
from truehalf.exporting.source_lint.functions import may_read, names_a_tensor, outer_names, python_function
from truehalf.exporting.source_lint.kinds import TENSOR, UNKNOWN, Abstract, at_hand, elements, join, kind, tensor

_COMPARISONS = {
    **{ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt},
    **{ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not},
    **{ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b},
}
Arguments = Mapping[str, Any]


@dataclasses.dataclass(eq=False)
class Frame:
    """One function that is being read: the def at hand whose globals it has, its names, and what it returns."""

    function: Any
    scope: str
    variables: dict[str, Any]
    returned: list[Any] = dataclasses.field(default_factory=list)


class Closure(NamedTuple):
    """A def or lambda that is made while the program runs, there, and its defaults."""

    tree: ast.FunctionDef | ast.Lambda
    frame: Frame
    defaults: Arguments


class Called(NamedTuple):
    """A call: the function where it is at hand, its name, and the arguments; of a method the object is the first."""

    function: Any
    name: str
    args: Sequence[Any]
    kwargs: Arguments
    followed: bool = True  # or known for what it does


class Expressions(abc.ABC):
    """Reads expressions.

    Attributes:
        values, calls: of each expression and of each call that was reached, one for each time.
        written: (id of a module, attribute) of what forward writes, which another call may find changed.
        held: by id, copies of the lists and dicts that a module keeps.
    """

    def __init__(self, packages: frozenset[str], written: set[tuple[int, str]]) -> None:
        self.packages, self.written = packages, written
        self.values: dict[ast.AST, list[Any]] = {}
        self.calls: dict[ast.AST, list[Called]] = {}
        self.held: dict[int, Any] = {}
        self.frame = Frame(None, "", {})

    @abc.abstractmethod
    def call(self, node: ast.AST, function: Any, args: Sequence[Any], kwargs: Arguments) -> Any:
        """What a value returns that is called."""

    def value(self, node: ast.expr | None) -> Any:
        """What is known of an expression."""
        found = None if node is None else self._value(node)
        if node is not None:
            self.values.setdefault(node, []).append(found)
        return found

    def _value(self, node: ast.expr) -> Any:
        names = self.frame.variables
        match node:
            case ast.Constant():
                return node.value
            case ast.Name():
                outer = outer_names(self.frame.function)
                return names[node.id] if node.id in names else at_hand(outer.get(node.id, UNKNOWN))
            case ast.Attribute():
                owner, written = self.value(node.value), ast.unparse(node)
                return names[written] if written in names else self.attribute(node, owner, node.attr)
            case ast.Call():
                return self._call(node)
            case ast.Lambda():
                return self.closure(node)
            case ast.Subscript():
                return self._item(node)
            case ast.BinOp():
                return arithmetic(node.op, self.value(node.left), self.value(node.right))
            case ast.UnaryOp(op=ast.Not()):
                holds = kinds.truth(self.value(node.operand))
                return UNKNOWN if holds is None else not holds
            case ast.UnaryOp():
                value = self.value(node.operand)
                return tensor(value) if kinds.is_tensor(value) else kinds.evaluated(operator.neg, value)
            case ast.Compare():
                return self._compared(node)
            case ast.BoolOp():
                return self._joined(node)
            case ast.IfExp():
                holds = kinds.truth(self.value(node.test))
                sides = [side for side in (True, False) if holds in (None, side)]
                return join(*(self._where(node.test, side, node.body if side else node.orelse) for side in sides))
            case ast.NamedExpr():
                self.assign(node.target, self.value(node.value))
                return self.value(node.target)
            case ast.List() | ast.Tuple() | ast.Set():
                items = [elements(self.value(e)) if isinstance(e, ast.Starred) else [self.value(e)] for e in node.elts]
                return (tuple if isinstance(node, ast.Tuple) else list)(item for each in items for item in each)
            case ast.Dict():
                names_and_values = [(self.value(key), self.value(value)) for key, value in zip(node.keys, node.values, strict=True)]
                exact = all(isinstance(name, (str, int)) for name, _ in names_and_values)
                return dict(names_and_values) if exact else [value for _, value in names_and_values]
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                return self._comprehension(node)
            case ast.Slice():
                return kinds.evaluated(slice, *map(self.value, (node.lower, node.upper, node.step)))
        inner = [self.value(child) for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
        told = isinstance(node, (ast.JoinedStr, ast.FormattedValue)) and kinds.holds_tensor(inner)
        return inner[0] if isinstance(node, ast.Starred) else TENSOR if told else UNKNOWN
