"""What an expression in a module's source is, as far as values.py tells values apart, and what it loses."""

from __future__ import annotations

import abc
import ast
import dataclasses
import functools
import operator
from collections.abc import Callable
from typing import Any

from truehalf.exporting.source_lint import calls, dtype_constants
from truehalf.exporting.source_lint.functions import (
    global_value,
    may_read,
    python_function,
    shown_file,
    updated_attributes,
)
from truehalf.exporting.source_lint.local_functions import Local, changed_mapping, local
from truehalf.exporting.source_lint.tensor_methods import attribute
from truehalf.exporting.source_lint.values import (
    FALSE,
    MAYBE,
    NONE,
    PRINTED,
    SHAPE,
    SIZE,
    TENSOR,
    TEXT,
    TRUE,
    UNKNOWN,
    Place,
    Value,
    elements,
    is_number,
    join,
    join_all,
    known,
    listed,
    made_in,
    record,
    sequence,
)

Variables = dict[str, Value]
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}
_LISTS = ("list", "sequence")
_VIEWS = {
    "data", "T", "mT", "real", "imag", "detach", "view", "view_as", "transpose", "permute", "squeeze", "unsqueeze",
    "select", "narrow", "t", "diagonal", "unfold", "detach_", "squeeze_", "unsqueeze_",
}  # fmt: skip
_ALIAS = "="  # before a name, among variables: it is another name for an attribute of a module


@dataclasses.dataclass
class Frame:
    """One call that is being followed."""

    function: Any
    variables: Variables
    returned: list[Value] = dataclasses.field(default_factory=list)
    left: list[Variables] = dataclasses.field(default_factory=list)  # at break and continue of the innermost loop
    inside: str = ""  # of a function that the function makes

    @property
    def scope(self) -> str:
        return f"{self.function.__module__}.{self.function.__qualname__}{self.inside}"


class Reader(abc.ABC):
    """Reads expressions and collects (rule, scope, file, line); walk.py has the statements."""

    def __init__(self, packages: frozenset[str]) -> None:
        self.packages = packages
        self.found: dict[tuple[str, str, str, int], None] = {}
        self.unread: dict[tuple[str, int, int], None] = {}  # calls with tensors that are not followed
        self.frame: Frame = Frame(None, {})

    @abc.abstractmethod
    def follow(self, function: Any, bound: Variables) -> Value:
        """The value that a def returns for these arguments."""

    @abc.abstractmethod
    def follow_local(self, function: Local, bound: Variables) -> Value:
        """The value that a nested def or a lambda returns for these arguments."""

    def not_followed(self, node: ast.AST) -> None:
        file = shown_file(self.frame.function.__code__.co_filename)
        self.unread[file, getattr(node, "lineno", 0), getattr(node, "col_offset", 0)] = None

    def report(self, rule: str, node: ast.AST) -> None:
        self.report_at(rule, self.place(node))

    def report_at(self, rule: str, place: Place) -> None:
        self.found[(rule, *place)] = None

    def place(self, node: ast.AST) -> Place:
        return self.frame.scope, shown_file(self.frame.function.__code__.co_filename), getattr(node, "lineno", 0)

    def narrow(self, test: ast.expr, holds: bool) -> None:
        """What a test says about a name: `x is None`, `x`, `isinstance(x, Tensor)`, and these under not and and."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            self.narrow(test.operand, not holds)
        elif isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) == holds:
            for part in test.values:
                self.narrow(part, holds)
        elif isinstance(test, ast.Compare) and _is_none_test(test):
            self._settle(test.left, none=isinstance(test.ops[0], (ast.Is, ast.Eq)) == holds)
        elif isinstance(test, (ast.Name, ast.Attribute)) and holds:
            self._settle(test, none=False)
        elif isinstance(test, ast.Call) and holds and len(test.args) == 2 and ast.unparse(test.func) == "isinstance":
            self._settle(test.args[0], none=False, unknown_too=is_tensor_annotation(ast.unparse(test.args[1])))

    def _settle(self, target: ast.expr, *, none: bool, unknown_too: bool = False) -> None:
        if not isinstance(target, (ast.Name, ast.Attribute)):
            return
        value = self.value(target)
        if value.kind in ("maybe", "optional") or (unknown_too and value.kind == "unknown"):
            self.frame.variables[ast.unparse(target)] = NONE if none else TENSOR

    def items(self, iterable: ast.expr) -> tuple[list[Value], bool]:
        """What a loop goes through; a loop over a tensor runs as often as on the traced one."""
        value = self.value(iterable)
        if value.is_tensor:
            self.report("py-data-dependent-loop", iterable)
        return elements(value)

    def assign(self, target: ast.expr, value: Value) -> None:
        match target:
            case ast.Name():
                self.forget(target.id)
                self.frame.variables[target.id] = value
            case ast.Starred():
                self.assign(target.value, sequence(join_all(elements(value)[0])))
            case ast.Tuple() | ast.List():
                parts, each = elements(value)
                exact = (
                    each and len(parts) == len(target.elts) and not any(isinstance(e, ast.Starred) for e in target.elts)
                )
                for i, element in enumerate(target.elts):
                    self.assign(element, parts[i] if exact else join_all(parts))
            case ast.Attribute():
                self.written(target)
                self.frame.variables[ast.unparse(target)] = value
            case ast.Subscript():
                self.written(target.value)
                self.value(target.slice)
                base = self.value(target.value)
                if base.kind == "mapping" and isinstance(target.value, ast.Name):
                    self.frame.variables[target.value.id] = changed_mapping(base, value)
                if base.kind in ("list", "sequence") and isinstance(target.value, ast.Name):
                    changed = sequence(join_all([*base.items, value]))
                    if base.kind == "list":
                        changed = listed(join(item, value) for item in base.items)
                    self.frame.variables[target.value.id] = changed

    def forget(self, name: str) -> None:
        self.frame.variables.pop(_ALIAS + name, None)
        for key in [key for key in self.frame.variables if key.startswith(f"{name}.")]:
            del self.frame.variables[key]

    def written(self, target: ast.expr) -> None:
        """A write to an attribute of a module is lost with the call."""
        if self._is_state(target):
            self.report("py-attribute-update", target)

    def remember_alias(self, name: str, value: ast.expr) -> None:
        """`b = self.buffer`: what is written into b is written into the buffer."""
        if self._is_state(value) and not is_number(self.value(value)):
            self.frame.variables[_ALIAS + name] = TRUE

    def _is_state(self, node: ast.expr) -> bool:
        """An attribute of a module, a view of one, or another name for either."""
        import torch

        while (inner := self._viewed(node)) is not None:
            node = inner
        if isinstance(node, ast.Name):
            return _ALIAS + node.id in self.frame.variables
        if not isinstance(node, ast.Attribute):
            return False
        owner = self.value(node.value)
        return owner.kind == "known" and isinstance(owner.known, torch.nn.Module)

    def _viewed(self, node: ast.expr) -> ast.expr | None:
        """The tensor that `node` is a view of: t.data, t[0], t.view(-1). Indexing by a tensor or list makes a copy."""
        inner: ast.expr | None = None
        if isinstance(node, ast.Attribute) and node.attr in _VIEWS:
            inner = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _VIEWS:
            inner = node.func.value
        elif isinstance(node, ast.Subscript):
            index = self.value(node.slice)
            inner = None if index.holds_tensor or index.kind in _LISTS else node.value
        return inner if inner is not None and self.value(inner).is_tensor else None

    def truth(self, node: ast.expr, rule: str = "py-tensor-if") -> bool | None:
        """Whether a condition holds, None where nothing at hand decides; `rule` is reported where a tensor decides."""
        if isinstance(node, ast.BoolOp):
            stops, undecided = isinstance(node.op, ast.Or), False
            for part in node.values:
                held = self.truth(part, rule)
                if held is stops:
                    return stops
                undecided = undecided or held is None
            return None if undecided else not stops
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            held = self.truth(node.operand, rule)
            return None if held is None else not held
        value = self.value(node)
        if value.kind == "tensor" and rule:
            self.report(rule, node)
        elif value.kind == "maybe":
            self.report("py-none-check", node)
        if value.kind == "known":
            try:
                return bool(value.known)
            except Exception:  # of an object of the user's
                return None
        return bool(value.items) if value.kind == "list" else None

    def compare(self, node: ast.Compare) -> Value:
        values = [self.value(node.left), *(self.value(other) for other in node.comparators)]
        if len(values) > 2:
            return TENSOR if any(value.is_tensor for value in values) else UNKNOWN
        (a, b), op = values, node.ops[0]
        if _is_none_test(node) and a.kind != "known":
            if a.kind == "maybe":
                self.report("py-none-check", node)
            undecided = a.kind in ("maybe", "optional", "unknown")
            return UNKNOWN if undecided else known(isinstance(op, (ast.IsNot, ast.NotEq)))
        if a.kind == b.kind == "known":
            try:
                return known(bool(_COMPARISONS[type(op)](a.known, b.known)))
            except Exception:  # of objects of the user's
                return UNKNOWN
        if isinstance(op, (ast.Eq, ast.NotEq, ast.In, ast.NotIn)) and "text" in (a.kind, b.kind):
            self.report("py-string-comparison", node)
            return UNKNOWN
        if isinstance(op, (ast.In, ast.NotIn)) and (
            b.is_tensor or (b.kind in _LISTS and (a.is_tensor or b.holds_tensor))
        ):
            self.report("py-tensor-if", node)  # asks each element whether it is equal
        if isinstance(op, (ast.Is, ast.IsNot, ast.In, ast.NotIn)):
            return UNKNOWN
        return TENSOR if a.is_tensor or b.is_tensor else UNKNOWN

    def value(self, node: ast.expr) -> Value:
        match node:
            case ast.Constant():
                return known(node.value)
            case ast.Name():
                return self.name(node.id)
            case ast.Attribute():
                return self.attribute(node)
            case ast.Call():
                return calls.call(self, node)
            case ast.Compare():
                return self.compare(node)
            case ast.BinOp():
                left, right = self.value(node.left), self.value(node.right)
                if isinstance(node.op, ast.MatMult):
                    dtype_constants.met(self, [left, right])
                return arithmetic(node.op, left, right)
            case ast.UnaryOp() if isinstance(node.op, ast.Not):
                held = self.truth(node)
                return UNKNOWN if held is None else known(held)
            case ast.UnaryOp():
                return self.unary(node)
            case ast.BoolOp():
                return self.either(node)
            case ast.IfExp():
                return self.ternary(node)
            case ast.Tuple() | ast.List():
                return self.display(node.elts)
            case ast.Dict():
                return self.mapping(node)
            case ast.Subscript():
                return self.subscript(node)
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                return self.comprehension(node)
            case ast.NamedExpr():
                value = self.value(node.value)
                self.assign(node.target, value)
                return value
            case ast.Starred():
                return self.value(node.value)
            case ast.Lambda():
                return local(self, node)
            case ast.JoinedStr():
                parts = [self.value(part.value) for part in node.values if isinstance(part, ast.FormattedValue)]
                return PRINTED if any(part.holds_tensor for part in parts) else UNKNOWN
            case ast.Slice():
                for part in (node.lower, node.upper, node.step):
                    if part is not None:
                        self.value(part)
        return UNKNOWN

    def name(self, name: str) -> Value:
        if name in self.frame.variables:
            return self.frame.variables[name]
        there, value = global_value(self.frame.function, name)
        return known(value) if there else UNKNOWN

    def attribute(self, node: ast.Attribute) -> Value:
        import torch

        written = self.frame.variables.get(ast.unparse(node))
        owner = self.value(node.value)
        if written is not None:
            return written
        if owner.is_tensor:
            return attribute(node.attr) or UNKNOWN
        if owner.kind == "record":
            return owner.items[owner.names.index(node.attr)] if node.attr in owner.names else UNKNOWN
        if owner.kind == "list" and node.attr in ("values", "indices") and owner.holds_tensor:
            return TENSOR  # of torch's named pairs
        if owner.kind != "known":
            return UNKNOWN
        if isinstance(owner.known, torch.nn.Module):
            getter = _getter(type(owner.known), node.attr)
            if getter is not None:
                return calls.follow(self, getter, [owner], {}) if may_read(getter, self.packages) else UNKNOWN
            return _module_attribute(owner.known, node.attr)
        try:
            return known(getattr(owner.known, node.attr))
        except Exception:  # of an object of the user's
            return UNKNOWN

    def unary(self, node: ast.UnaryOp) -> Value:
        value = self.value(node.operand)
        if value.kind == "known" and isinstance(value.known, (int, float)) and isinstance(node.op, ast.USub):
            return known(-value.known)
        return value if value.is_tensor or is_number(value) else UNKNOWN

    def either(self, node: ast.BoolOp) -> Value:
        """`a or b`, `a and b` as values."""
        stops = isinstance(node.op, ast.Or)
        values: list[Value] = []
        for part in node.values[:-1]:
            held = self.truth(part)
            value = self.value(part)
            if held is stops:
                return value if value.same(known(stops)) else join_all([*values, value])
            if held is None:
                values.append(TENSOR if value.kind in ("maybe", "optional") and stops else value)
        last = self.value(node.values[-1])
        return last if last.same(known(stops)) else join_all([*values, last])

    def ternary(self, node: ast.IfExp) -> Value:
        decided = self.truth(node.test)
        if decided is not None:
            return self.value(node.body if decided else node.orelse)
        before, values = self.frame.variables, []
        for part, holds in ((node.body, True), (node.orelse, False)):
            self.frame.variables = dict(before)
            self.narrow(node.test, holds)
            values.append(self.value(part))
        self.frame.variables = before
        return join_all(values)

    def display(self, parts: list[ast.expr]) -> Value:
        values: list[Value] = []
        for part in parts:
            value = self.value(part)
            if isinstance(part, ast.Starred):
                inner, each = elements(value)
                if not each:
                    return sequence(join_all([*values, *inner]))
                values += inner
            else:
                values.append(value)
        if all(value.kind == "known" for value in values):
            return known([value.known for value in values])
        return listed(values)

    def mapping(self, node: ast.Dict) -> Value:
        values = [self.value(value) for value in node.values]
        keys = [key.value if isinstance(key, ast.Constant) else None for key in node.keys]
        names = [key for key in keys if isinstance(key, str)]
        return record(dict(zip(names, values, strict=True))) if len(names) == len(values) else UNKNOWN

    def subscript(self, node: ast.Subscript) -> Value:
        import torch

        base, index = self.value(node.value), self.value(node.slice)
        position = index.known if index.kind == "known" and isinstance(index.known, (int, str)) else None
        if base.is_tensor:
            return dataclasses.replace(TENSOR, made=base.made)
        if base.kind == "shape":
            return SHAPE if isinstance(node.slice, ast.Slice) else SIZE
        if base.kind == "mapping":
            return base.items[0]
        if base.kind == "sequence":
            return base if isinstance(node.slice, ast.Slice) else base.items[0]
        if base.kind == "list":
            if isinstance(position, int) and -len(base.items) <= position < len(base.items):
                return base.items[position]
            inner = join_all(base.items)
            return sequence(inner) if isinstance(node.slice, ast.Slice) else inner
        if base.kind == "record":
            if isinstance(position, str) and position in base.names:
                return base.items[base.names.index(position)]
            if isinstance(position, int) and position < len(base.items):
                return base.items[position]
        if base.kind == "known" and isinstance(base.known, torch.nn.ModuleList) and position is None:
            alike = [known(part) for part in base.known]  # one stands for all of them
            return known(base.known[1:]) if isinstance(node.slice, ast.Slice) else alike[0] if alike else UNKNOWN
        if base.kind == "known" and position is not None:
            try:
                return known(base.known[position])
            except Exception:  # of an object of the user's
                return UNKNOWN
        return UNKNOWN

    def comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> Value:
        before = self.frame.variables
        self.frame.variables = dict(before)
        first, rest = node.generators[0], node.generators[1:]
        items, each = self.items(first.iter)
        each = each and not rest and not first.ifs
        results, tensors = [], False
        for item in items:
            self.assign(first.target, item)
            for generator in rest:
                self.assign(generator.target, join_all(self.items(generator.iter)[0]))
            for generator in node.generators:
                for test in generator.ifs:
                    self.truth(test)
            result = self.value(node.value if isinstance(node, ast.DictComp) else node.elt)
            tensors = tensors or result.holds_tensor or item.holds_tensor
            results.append(result)
        self.frame.variables = before
        if tensors and not isinstance(node, ast.GeneratorExp):
            self.report("py-list-comprehension", node)
        if isinstance(node, ast.DictComp):
            return UNKNOWN
        return listed(results) if each else sequence(join_all(results))


def arithmetic(op: ast.operator, a: Value, b: Value) -> Value:
    if a.is_tensor or b.is_tensor:
        return dataclasses.replace(TENSOR, made=made_in(a, b))
    if a.kind == b.kind == "known" and type(op) in _ARITHMETIC:
        plain = (int, float, str, list, tuple)
        if (
            isinstance(a.known, plain)
            and isinstance(b.known, plain)
            and not (isinstance(op, ast.Mult) and not is_number(b))
        ):
            try:
                return known(_ARITHMETIC[type(op)](a.known, b.known))
            except Exception:  # such as a division by zero
                return UNKNOWN
    if isinstance(op, ast.BitOr) and (a.same(TRUE) or b.same(TRUE)):
        return TRUE
    if is_number(a) and is_number(b):
        return SIZE
    if a.kind in ("list", "sequence") and isinstance(op, ast.Add):
        return sequence(join_all([*a.items, *elements(b)[0]]))
    if a.kind == "list" and b.kind == "known" and isinstance(b.known, int) and isinstance(op, ast.Mult):
        return listed(a.items * min(b.known, 64))
    return UNKNOWN


def is_tensor_annotation(text: str) -> bool:
    """Names a tensor and nothing else."""
    return text.strip("\"'").rpartition(".")[2] in (
        "Tensor", "LongTensor", "FloatTensor", "BoolTensor", "IntTensor", "HalfTensor", "DoubleTensor", "Parameter",
    )  # fmt: skip


def _getter(cls: Any, name: str) -> Any | None:
    """The function behind a property of a class, or behind what is computed once."""
    import inspect

    found = inspect.getattr_static(cls, name, None)
    if isinstance(found, functools.cached_property):
        return python_function(found.func)
    return python_function(found.fget) if isinstance(found, property) and found.fget is not None else None


def _module_attribute(module: Any, name: str) -> Value:
    import inspect

    if name == "training":
        return FALSE
    cls: Any = type(module)
    if isinstance(inspect.getattr_static(cls, name, None), property):
        return UNKNOWN
    try:
        now = getattr(module, name)
    except AttributeError:
        return UNKNOWN
    if name not in updated_attributes(cls):
        return known(now)
    if now is None:
        return MAYBE
    return TEXT if isinstance(now, str) else TENSOR if known(now).is_tensor else UNKNOWN


def _is_none_test(node: ast.Compare) -> bool:
    right = node.comparators[0]
    return (
        len(node.ops) == 1
        and isinstance(node.ops[0], (ast.Is, ast.IsNot, ast.Eq, ast.NotEq))
        and isinstance(right, ast.Constant)
        and right.value is None
    )
