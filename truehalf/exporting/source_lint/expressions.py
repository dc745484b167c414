"""Abstract values (kinds.py) of a function's expressions, by one pass over its syntax.

Nothing is judged here: the values of each expression are kept for the rules (rules.py). What is not reached has none.
"""

from __future__ import annotations

import abc
import ast
import contextlib
import dataclasses
import functools
import inspect
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import truehalf.exporting.source_lint.kinds as kinds
import truehalf.exporting.source_lint.torch_calls as torch_calls
from truehalf.exporting.source_lint.functions import names_a_tensor, outer_names, python_function
from truehalf.exporting.source_lint.kinds import TENSOR, UNKNOWN, Abstract, at_hand, elements, join, kind, tensor

Arguments = Mapping[str, Any]
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    **{ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt},
    **{ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not},
    **{ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b},
}


@dataclasses.dataclass
class Frame:
    """One function that is being read: the def at hand whose globals it has, its names, and what it returns."""

    function: Any
    scope: str
    variables: dict[str, Any]
    returned: list[Any] = dataclasses.field(default_factory=list)


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

    @abc.abstractmethod
    def method(self, node: ast.AST, owner: Any, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """What a method of a tensor, list, dict or text returns."""

    def value(self, node: ast.expr | None) -> Any:
        """What is known of an expression."""
        if node is None:
            return None
        found = getattr(self, f"read_{type(node).__name__}", self.read_others)(node)
        self.values.setdefault(node, []).append(found)
        return found

    def read_others(self, node: ast.expr) -> Any:
        inner = [self.value(child) for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
        formatted = isinstance(node, (ast.JoinedStr, ast.FormattedValue)) and kinds.holds_tensor(inner)
        return inner[0] if isinstance(node, ast.Starred) else TENSOR if formatted else UNKNOWN

    def read_Constant(self, node: ast.Constant) -> Any:
        return node.value

    def read_Lambda(self, node: ast.Lambda) -> Any:
        return UNKNOWN

    def read_Name(self, node: ast.Name) -> Any:
        names = self.frame.variables
        return names[node.id] if node.id in names else at_hand(outer_names(self.frame.function).get(node.id, UNKNOWN))

    def read_Attribute(self, node: ast.Attribute) -> Any:
        names, owner, written = self.frame.variables, self.value(node.value), ast.unparse(node)
        return names[written] if written in names else self.attribute(node, owner, node.attr)

    def read_BinOp(self, node: ast.BinOp) -> Any:
        return arithmetic(node.op, self.value(node.left), self.value(node.right))

    def read_UnaryOp(self, node: ast.UnaryOp) -> Any:
        value, inverts = self.value(node.operand), isinstance(node.op, ast.Not)
        numbers = kinds.is_tensor(value) and not inverts
        return tensor(value) if numbers else kinds.evaluated(operator.not_ if inverts else operator.neg, value)

    def read_IfExp(self, node: ast.IfExp) -> Any:
        holds, values, before = kinds.truth(self.value(node.test)), [], self.frame.variables
        for side, inner in ((True, node.body), (False, node.orelse)):
            if holds in (None, side):
                self.frame.variables = self.narrowed(node.test, side)
                values.append(self.value(inner))
                self.frame.variables = before
        return join(*values)

    def read_NamedExpr(self, node: ast.NamedExpr) -> Any:
        self.assign(node.target, self.value(node.value))
        return self.value(node.target)

    def read_List(self, node: ast.List | ast.Tuple | ast.Set) -> Any:
        items = self._in_order(node.elts)
        starred = [self.values[each.value][-1] for each in node.elts if isinstance(each, ast.Starred)]
        counted = not any(kinds.any_number(elements(value)) for value in starred)
        return (tuple(items) if isinstance(node, ast.Tuple) else items) if counted else kinds.many(items)

    read_Tuple = read_Set = read_List

    def read_Dict(self, node: ast.Dict) -> Any:
        keys, values = [self.value(key) for key in node.keys], [self.value(value) for value in node.values]
        return values if kinds.abstract_in(keys) else dict(zip(keys, values, strict=True))

    def read_Slice(self, node: ast.Slice) -> Any:
        return kinds.evaluated(slice, *map(self.value, (node.lower, node.upper, node.step)))

    def read_Call(self, node: ast.Call) -> Any:
        function = self.value(node.func)
        args = self._in_order(node.args)
        kwargs: dict[str, Any] = {}
        for word in node.keywords:
            value = self.value(word.value)
            rest = value if isinstance(value, dict) else {"**": join(*kinds.inside(value))}
            kwargs |= rest if word.arg is None else {word.arg: value}
        if isinstance(node.func, ast.Attribute):
            owner = self.values[node.func.value][-1]
            known = isinstance(owner, (list, tuple, dict, str, Abstract)) and owner is not UNKNOWN
            if known or (owner is UNKNOWN and node.func.attr == "append"):  # what a list does, wherever it comes from
                self.note(node, None, node.func.attr, [owner, *args], kwargs)
                return self.method(node, owner, node.func.attr, args, kwargs)
        return self.call(node, function, args, kwargs)

    def _in_order(self, nodes: Sequence[ast.expr]) -> list[Any]:
        """What expressions are, `*these` one by one."""
        values = [(self.value(node), isinstance(node, ast.Starred)) for node in nodes]
        return [item for value, starred in values for item in (elements(value) if starred else [value])]

    def note(self, node: ast.AST, *call: Any) -> None:
        self.calls.setdefault(node, []).append(Called(*call))

    def attribute(self, node: ast.AST, owner: Any, name: str, *default: Any) -> Any:
        if kinds.is_tensor(owner):
            return torch_calls.attribute(owner, name)
        if isinstance(owner, dict) and name in owner:  # of a dataclass
            return owner[name]
        if isinstance(owner, (list, tuple)) and kinds.holds_tensor(owner) and name in ("values", "indices"):
            return TENSOR  # of torch's named pairs
        found = inspect.getattr_static(type(owner), name, None)
        if kinds.is_module(owner) and isinstance(found, (property, functools.cached_property)):
            getter = python_function(found.fget if isinstance(found, property) else found.func)
            return self.call(node, getter, [owner], {})
        value: Any = name != "training" and kinds.evaluated(getattr, owner, name, *default)
        if not kinds.is_module(owner):
            return value
        if (id(owner), name) in self.written and not kinds.is_tensor(value):  # each call may find another
            value = kinds.MAYBE if value is None else kinds.TEXT if isinstance(value, str) else UNKNOWN
        if isinstance(value, (list, dict)):
            self.held[id(value)] = value
        return dataclasses.replace(value, held=True) if kinds.is_tensor(value) else value

    def read_Subscript(self, node: ast.Subscript) -> Any:
        import torch

        base, index = self.value(node.value), self.value(node.slice)
        if kinds.is_tensor(base):  # indexing by a tensor or a list makes a copy
            return tensor(base, held=base.held and not kinds.holds_tensor(index) and not isinstance(index, list))
        if not isinstance(base, Abstract) and not isinstance(index, Abstract):
            of = list(base.values()) if isinstance(base, dict) and isinstance(index, (int, slice)) else base
            with contextlib.suppress(Exception):  # of objects of the user's
                found = at_hand(of[index])
                return base if isinstance(index, slice) and not found else found
        if isinstance(base, torch.nn.ModuleList) and kind(index) == "number" and len(set(map(type, base))) == 1:
            return base[0]  # for them all
        item = join(*kinds.inside(base))
        return [item] if isinstance(node.slice, ast.Slice) else item

    def assign(self, target: ast.expr, value: Any) -> None:
        """Names and items after `target = value`."""
        names = self.frame.variables
        match target:
            case ast.Name():
                for name in [name for name in names if name.startswith(f"{target.id}.")]:
                    del names[name]
                names[target.id] = value
            case ast.Starred():
                self.assign(target.value, [join(*elements(value))])
            case ast.Tuple() | ast.List():
                items = elements(value)
                exact = len(items) == len(target.elts) and not any(isinstance(e, ast.Starred) for e in target.elts)
                for i, element in enumerate(target.elts):
                    self.assign(element, items[i] if exact else join(*items))
            case ast.Attribute():
                owner = self.value(target.value)
                self.written |= {(id(owner), target.attr)} if kinds.is_module(owner) else set()
                names[ast.unparse(target)] = value
            case ast.Subscript():
                base, index = self.value(target.value), self.value(target.slice)
                if not kinds.is_copy(base):
                    return
                if isinstance(base, dict) and not isinstance(index, Abstract):
                    with contextlib.suppress(TypeError):  # a key that is known in part
                        base[index] = value
                elif isinstance(base, list):
                    base[:] = [join(item, value) for item in base]

    def read_Compare(self, node: ast.Compare) -> Any:
        a, b, *more = [self.value(each) for each in (node.left, *node.comparators)]
        op = type(node.ops[0])
        if b is None and op in (ast.Is, ast.IsNot, ast.Eq, ast.NotEq):
            return UNKNOWN if kind(a) in ("maybe", "unknown") else (a is None) == (op in (ast.Is, ast.Eq))
        asked = op not in (ast.Is, ast.IsNot, ast.In, ast.NotIn) and "text" not in (kind(a), kind(b))
        if asked and any(map(kinds.is_tensor, (a, b, *more))):
            return TENSOR
        return UNKNOWN if more else kinds.evaluated(lambda x, y: bool(_COMPARISONS[op](x, y)), a, b)

    def read_BoolOp(self, node: ast.BoolOp) -> Any:
        """`a or b`, `a and b`: what is not reached is not read; what stands before holds in `and`, and not in `or`."""
        stops, values, before = isinstance(node.op, ast.Or), [], self.frame.variables
        for part in node.values:
            value = self.value(part)
            holds = kinds.truth(value)
            if holds is None or holds is stops or part is node.values[-1]:
                values.append(TENSOR if stops and kind(value) == "maybe" else value)
            if holds is stops:
                break
            self.frame.variables = self.narrowed(part, not stops)
        bound = {each.target.id for each in ast.walk(node) if isinstance(each, ast.NamedExpr)}
        after, self.frame.variables = self.frame.variables, before
        before.update({name: after[name] for name in bound if name in after})
        return value if holds is stops and isinstance(value, bool) else join(*values)

    def narrowed(self, test: ast.expr | None, holds: bool) -> dict[str, Any]:
        """The names, with what a test says that was read before: `x is None`, `isinstance(x, Tensor)`, and of these."""
        names = dict(self.frame.variables)
        match test:
            case ast.UnaryOp(op=ast.Not()):
                return self.narrowed(test.operand, not holds)
            case ast.BoolOp():
                every = isinstance(test.op, ast.And)  # or the one that is left, where the others are known
                known = {part: kinds.truth(self.values.get(part, [UNKNOWN])[-1]) for part in test.values}
                parts = [part for part in known if every is holds or known[part] is not every]
                for part in parts if every is holds or len(parts) == 1 else []:
                    found = self.narrowed(part, holds)
                    names |= {name: found[name] for name in names if found[name] is not self.frame.variables[name]}
            case ast.Compare(left=ast.Name(id=name), ops=[op], comparators=[ast.Constant(value=None)]):
                if kind(names.get(name)) == "maybe":
                    there = isinstance(op, ast.Is) is not holds
                    names[name] = tensor(held=names[name].held) if there else None
            case ast.Call(func=ast.Name(id="isinstance"), args=[ast.Name(id=name), cls]) if holds:
                if names_a_tensor(cls) and names.get(name) is UNKNOWN:
                    names[name] = TENSOR
        return names

    def read_ListComp(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> list[Any]:
        before, self.frame.variables = self.frame.variables, dict(self.frame.variables)
        results, counted = [], len(node.generators) == 1
        for item in elements(self.value(node.generators[0].iter)):
            self.assign(node.generators[0].target, item)
            for generator in node.generators[1:]:
                self.assign(generator.target, join(*elements(self.value(generator.iter))))
            tests = [kinds.truth(self.value(test)) for generator in node.generators for test in generator.ifs]
            counted = counted and None not in tests
            if False not in tests:
                results.append(self.value(node.value if isinstance(node, ast.DictComp) else node.elt))
        self.frame.variables = before
        return results if counted else kinds.many(results)

    read_SetComp = read_GeneratorExp = read_DictComp = read_ListComp


def arithmetic(op: ast.operator, a: Any, b: Any) -> Any:
    if kinds.is_tensor(a) or kinds.is_tensor(b):
        return tensor(a, b)
    if isinstance(op, ast.BitOr) and (a is True or b is True):
        return True
    if isinstance(op, ast.Add) and isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return type(a)([*a, *b])
    if isinstance(a, list):
        return kinds.many(a) or [UNKNOWN]
    return kinds.NUMBER if kinds.is_number(a) and kinds.is_number(b) else UNKNOWN
