"""The rules: each is a visitor of the functions that `forward` reaches, and asks what is known of their expressions."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from typing import Any

from truehalf.exporting.source_files import shown_file
from truehalf.exporting.source_lint import kinds, torch_calls
from truehalf.exporting.source_lint.following import Called, Following
from truehalf.exporting.source_lint.functions import package_of
from truehalf.exporting.source_lint.kinds import holds_tensor, is_tensor
from truehalf.linting.finding import Finding, link_to

_PRODUCTS = {
    "matmul", "mm", "bmm", "mv", "dot", "einsum", "tensordot", "linear", "bilinear", "addmm", "addbmm", "baddbmm",
    "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "grid_sample",
    "scaled_dot_product_attention", "layer_norm", "group_norm",
}  # fmt: skip
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp)


class SourceRule(ast.NodeVisitor):
    """A rule: its docstring is the title; `why` is what a finding says, `remedy` what to write instead.

    Attributes:
        id: as in docs/lint.md.
        severity: "warning" or "info".
        source: where it is known from.
        places: scope, file and line of what was found.
    """

    id = why = remedy = ""
    severity, source = "warning", "NVIDIA's guidance on exporting for TensorRT"

    def __init__(self, program: Following) -> None:
        self.program = program
        self.places: dict[kinds.Place, None] = {}
        for tree, (self.scope, self.file, _) in program.read.items():
            for node in tree.body if isinstance(tree.body, list) else [tree.body]:
                self.visit(node)

    def findings(self) -> list[Finding]:
        return [self.finding(place, self.why) for place in self.places]

    def finding(self, place: kinds.Place, why: str) -> Finding:
        scope, file, line = place
        return Finding(
            self.id, self.severity, "", "", scope, why, self.remedy, link_to(self.id), shown_file(file), line
        )

    def report(self, node: ast.AST) -> None:
        self.places[self.scope, self.file, getattr(node, "lineno", 0)] = None

    def of(self, node: ast.AST) -> list[Any]:
        """What is known of an expression, each time that it was reached."""
        return self.program.values.get(node, [])

    def is_of(self, node: ast.AST, kind: str) -> bool:
        return any(kinds.kind(value) == kind for value in self.of(node))

    def visit_FunctionDef(self, node: ast.AST) -> None:
        """Nested functions are read by themselves, where they are called."""

    visit_Lambda = visit_ClassDef = visit_FunctionDef

    def generic_visit(self, node: ast.AST) -> None:
        if any(self.is_wrong(call) for call in self.program.calls.get(node, [])):
            self.report(node)
        super().generic_visit(node)

    def is_wrong(self, call: Called) -> bool:
        """Whether a call is a finding."""
        return False


def conditions(node: ast.AST) -> Iterator[ast.expr]:
    """Expressions whose truth value Python asks for, without the `and`, `or` and `not` that join them."""
    match node:
        case ast.If() | ast.IfExp() | ast.While():
            tests = [node.test]
        case ast.BoolOp():
            tests = node.values[:-1]
        case ast.UnaryOp(op=ast.Not()):
            tests = [node.operand]
        case _:
            tests = getattr(node, "ifs", [])  # of a comprehension
    for test in tests:
        inner = {ast.BoolOp: getattr(test, "values", []), ast.UnaryOp: [getattr(test, "operand", test)]}
        joined = isinstance(test, ast.BoolOp) or (isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not))
        for part in inner[type(test)] if joined else [test]:
            yield from conditions(ast.If(part, [], [])) if joined else [part]


class TensorIf(SourceRule):
    """an `if` on a tensor's value, decided while tracing"""

    id = "py-tensor-if"
    why = "python decides on a tensor's value; the file keeps the branch that the traced example took"
    remedy = "compute both sides and mix them with the condition as a number: c * a + (1 - c) * b"

    def generic_visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.If) and not node.orelse and all(isinstance(each, ast.Raise) for each in node.body):
            return  # a check that only raises
        for part in conditions(node) if not isinstance(node, ast.While) else ():
            if self.is_of(part, "tensor"):
                self.report(part)
        super().generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        if isinstance(node.ops[0], (ast.In, ast.NotIn)):  # asks each element whether it is equal
            left, right = (self.of(each) for each in (node.left, node.comparators[0]))
            lists = [value for value in right if isinstance(value, (list, tuple))]
            asked = any(map(is_tensor, left)) or (lists and holds_tensor(*lists) and "text" not in map(kinds.kind, left))
            if any(map(is_tensor, right)) or (lists and asked and not any(isinstance(each, str) for each in left)):
                self.report(node)
        self.generic_visit(node)

    def is_wrong(self, call: Called) -> bool:
        if call.function is bool:
            return kinds.kind(call.args[0]) == "tensor"
        return call.function in (any, all) and any(map(is_tensor, [*call.args, *kinds.elements(call.args[0])]))


class TensorLen(SourceRule):
    """len(tensor): the traced size"""

    id = "py-tensor-len"
    why = "len() of a tensor is an int; the file keeps the traced size"
    remedy = "tensor.shape[0]"

    def is_wrong(self, call: Called) -> bool:
        return call.function is len and is_tensor(call.args[0])


class StringComparison(SourceRule):
    """strings that may change from call to call, compared"""

    id, severity = "py-string-comparison", "info"
    why = "strings are no part of the graph; the file keeps the branch that the comparison took"
    remedy = "compare outside, and pass what follows from it as a tensor"

    def visit_Compare(self, node: ast.Compare) -> None:
        sides = [*self.of(node.left), *self.of(node.comparators[0])]
        if isinstance(node.ops[0], (ast.Eq, ast.NotEq, ast.In, ast.NotIn)) and None not in sides:
            if any(kinds.kind(value) == "text" for value in sides):
                self.report(node)
        self.generic_visit(node)


class NoneCheck(SourceRule):
    """a tensor that some calls may lack"""

    id, severity = "py-none-check", "info"
    why = "whether a tensor is None is decided when the file is written"
    remedy = "take the tensor always; pass a neutral value or a weight of 0 where there is none"

    def generic_visit(self, node: ast.AST) -> None:
        is_none = isinstance(node, ast.Compare) and getattr(node.comparators[0], "value", 0) is None
        for part in [node.left] if isinstance(node, ast.Compare) and is_none else conditions(node):
            if self.is_of(part, "maybe"):
                self.report(part)
        super().generic_visit(node)


class ListComprehension(SourceRule):
    """a list comprehension over tensors"""

    id, severity = "py-list-comprehension", "info"
    why = "a list comprehension over tensors, which older exporters cannot trace"
    remedy = "a for loop that appends"

    def generic_visit(self, node: ast.AST) -> None:
        if isinstance(node, _COMPREHENSIONS):
            made = node.value if isinstance(node, ast.DictComp) else node.elt
            if holds_tensor(*self.of(made), *self.of(node.generators[0].iter)):
                self.report(node)
        super().generic_visit(node)


class DeepCopy(SourceRule):
    """copy.deepcopy of tensors"""

    id = "py-deepcopy"
    why = "a deep copy of a traced tensor is an empty tensor in the file"
    remedy = "a new list of the same tensors, or tensor.clone()"

    def is_wrong(self, call: Called) -> bool:
        return call.function is copy.deepcopy and holds_tensor(*call.args)


class AttributeUpdate(SourceRule):
    """forward writes to a module"""

    id = "py-attribute-update"
    why = "what forward writes to a module is lost: a file has no state between calls"
    remedy = "take the value as an input and return it as an output, or keep it in a local name"

    def generic_visit(self, node: ast.AST) -> None:
        for target in getattr(node, "targets", [getattr(node, "target", None)]) if isinstance(node, ast.stmt) else ():
            for each in ast.walk(target) if isinstance(target, (ast.Tuple, ast.List)) else [target]:
                into = [self.of(each.value)] if isinstance(each, (ast.Attribute, ast.Subscript)) else []
                in_place = self.of(each) if isinstance(node, ast.AugAssign) and isinstance(each, ast.Name) else []
                if any(map(self.is_kept, in_place)) or any(self.is_kept(value, each) for value in sum(into, [])):
                    self.report(each)
        super().generic_visit(node)

    def is_kept(self, value: Any, target: ast.AST | None = None) -> bool:
        """Whether a module keeps it from call to call; of the target `value.name`, whether it is a module."""
        import torch

        module = isinstance(target, ast.Attribute) and isinstance(value, torch.nn.Module)
        return module or getattr(value, "held", False) or id(value) in self.program.held

    def is_wrong(self, call: Called) -> bool:
        in_place = call.name.endswith("_") and not call.name.endswith("__")
        first = next(iter(call.args), None)
        if call.function is setattr:
            return self.is_kept(first, ast.Attribute())
        changes = call.function is None and (in_place or call.name in ("append", "extend", "insert"))
        return (changes and self.is_kept(first)) or self.is_kept(call.kwargs.get("out"))


class Item(SourceRule):
    """a number read out of a tensor: .item(), int(tensor)"""

    id = "py-item"
    why = "a number is read out of a tensor; the file keeps the traced one as a constant"
    remedy = "compute with the tensor"

    def is_wrong(self, call: Called) -> bool:
        if call.function is None:
            return call.name in torch_calls.NUMBERS | {"__bool__"} and is_tensor(call.args[0])
        reads = call.function in (int, float, complex) or package_of(call.function) in ("math", "numpy")
        return reads and any(map(is_tensor, call.args))


class BuiltinMinMax(SourceRule):
    """python's own min, max, sum or sorted on tensors"""

    id = "py-builtin-min-max"
    why = "python walks through a tensor or compares tensors while tracing; the file keeps what came of it"
    remedy = "torch.minimum, torch.maximum, tensor.amin, tensor.amax, tensor.sum or torch.sort"

    def is_wrong(self, call: Called) -> bool:
        inner = kinds.elements(call.args[0]) if len(call.args) == 1 else []
        compares = call.function in (min, max, sorted) and any(map(is_tensor, [*call.args, *inner]))
        return compares or (call.function is sum and is_tensor(call.args[0]))


class DataDependentLoop(SourceRule):
    """a loop that runs as often as a tensor says"""

    id = "py-data-dependent-loop"
    why = "the loop runs as often as it did on the traced example"
    remedy = "vectorise it, or run it as often as can be needed and let the rounds beyond the count change nothing"

    def generic_visit(self, node: ast.AST) -> None:
        loops = [node.iter] if isinstance(node, (ast.For, ast.comprehension)) else []
        for part in [*loops, *(conditions(node) if isinstance(node, ast.While) else [])]:
            if self.is_of(part, "tensor"):
                self.report(part)
        super().generic_visit(node)

    def is_wrong(self, call: Called) -> bool:
        through = (range, enumerate, zip, reversed, list, tuple, iter, map)
        return call.function in through and any(map(is_tensor, call.args))


class DtypeConstant(SourceRule):
    """a constant with a floating type of its own meets the module's"""

    id, source = "py-dtype-constant", "torch"
    why = "the constant has a type of its own; in half precision torch refuses its product with the module's tensors"
    remedy = "dtype=x.dtype, of the tensor that it meets; or register it as a buffer"

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if isinstance(node.op, ast.MatMult):
            self.met([*self.of(node.left), *self.of(node.right)])
        self.generic_visit(node)

    def met(self, values: list[Any], module_has_type: bool = False) -> None:
        """Report the constants among the factors of a product, where one of them has the module's type."""
        tensors = [each for value in values for each in kinds.abstract_in(value) if is_tensor(each)]
        if module_has_type or not all(each.made for each in tensors):
            self.places |= {place: None for each in tensors for place in each.made}

    def is_wrong(self, call: Called) -> bool:
        import torch

        layer = isinstance(call.function, torch.nn.Module) and torch_calls.has_floats(call.function)
        if layer or call.name in _PRODUCTS:
            self.met([*call.args, *call.kwargs.values()], module_has_type=layer)
        return False


class NotFollowed(SourceRule):
    """calls with tensors whose source is not read"""

    id, severity, source = "py-not-followed", "info", "what this reader can follow"
    remedy = "look at them yourself; functions of the module's own files and packages are read"

    def is_wrong(self, call: Called) -> bool:
        return not call.followed and holds_tensor(*call.args, *call.kwargs.values())

    def findings(self) -> list[Finding]:
        """One of all calls."""
        if not self.places:
            return []
        first, count = next(iter(self.places)), len(self.places)
        rest = f" and {count - 3} more" if count > 3 else ""
        where = ", ".join(f"{shown_file(file)}:{line}" for _, file, line in list(self.places)[:3]) + rest
        calls = "1 call that takes a tensor was" if count == 1 else f"{count} calls that take tensors were"
        said = f"{calls} not followed ({where}); nothing is said about what happens in them"
        root = next(iter(self.program.read.values()))[0]
        return [self.finding((root, *first[1:]), said)]


RULES: tuple[type[SourceRule], ...] = (
    TensorIf, TensorLen, StringComparison, NoneCheck, ListComprehension, DeepCopy, AttributeUpdate, Item, BuiltinMinMax,
    DataDependentLoop, DtypeConstant, NotFollowed,
)  # fmt: skip
