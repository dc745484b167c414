"""The rules: visitors of the functions that `forward` reaches, which ask what is known of expressions and calls."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable
from typing import Any

import truehalf.exporting.source_lint.kinds as kinds
import truehalf.exporting.source_lint.torch_calls as torch_calls
from truehalf.exporting.source_lint.expressions import Called
from truehalf.exporting.source_lint.functions import package_of
from truehalf.exporting.source_lint.kinds import elements, holds_tensor, is_tensor, kind
from truehalf.exporting.source_lint.source_rule import SourceRule, conditions
from truehalf.linting.finding import Finding
from truehalf.source_files import shown_file

_PRODUCTS = {
    "matmul", "mm", "bmm", "mv", "dot", "einsum", "tensordot", "linear", "bilinear", "addmm", "addbmm", "baddbmm",
    "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "grid_sample",
    "scaled_dot_product_attention", "layer_norm", "group_norm",
}  # fmt: skip


class TensorIf(SourceRule):
    """python decides on a tensor's value; the file keeps the branch that the traced example took

    `if`, a conditional expression, `and`, `or`, `not`, `any()`, `all()` or `bool()` on a tensor's value.

    ```python
    y = a if c else b  # instead: c = c.float(); y = c * a + (1 - c) * b
    ```
    """

    id = "py-tensor-if"
    remedy = "compute both sides and mix them with the condition as a number: c * a + (1 - c) * b"

    def visit_If(self, node: ast.If) -> None:
        if node.orelse or not all(isinstance(each, ast.Raise) for each in node.body):  # or it is a check
            self.generic_visit(node)

    def wrong(self, node: ast.AST) -> Iterable[ast.AST]:
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.In, ast.NotIn)):
            left, right = self.of(node.left), self.of(*node.comparators)
            items = [value for value in right if isinstance(value, (list, tuple))]  # or keys, which are texts
            either = any(map(is_tensor, left)) or (holds_tensor(items) and any(map(kinds.is_number, left)))
            return [node] if any(map(is_tensor, right)) or (items and either) else []  # each is asked
        asked = [] if isinstance(node, ast.While) else conditions(node)
        return [part for part in asked if "tensor" in map(kind, self.of(part))]

    def wrong_call(self, call: Called) -> bool:
        asked = elements(call.args[0]) if call.function in (any, all) else call.args if call.function is bool else []
        return "tensor" in map(kind, asked)


class TensorLen(SourceRule):
    """len() of a tensor is an int; the file keeps the traced size

    ```python
    torch.arange(len(boxes))  # instead: torch.arange(boxes.shape[0])
    ```
    """

    id = "py-tensor-len"
    remedy = "tensor.shape[0]"

    def wrong_call(self, call: Called) -> bool:
        return call.function is len and is_tensor(call.args[0])


class StringComparison(SourceRule):
    """strings are no part of the graph; the file keeps the branch that the comparison took

    Strings that may change from call to call: an argument of `forward`, or an attribute that `forward` writes.

    ```python
    if scene != self.scene:
        memory = torch.zeros_like(memory)
    memory = memory * same_scene  # instead; same_scene is an input, 0 or 1
    ```
    """

    id, severity = "py-string-comparison", "info"
    remedy = "compare outside, and pass what follows from it as a tensor"

    def wrong(self, node: ast.AST) -> Iterable[ast.AST]:
        compares = isinstance(node, ast.Compare) and not isinstance(node.ops[0], (ast.Is, ast.IsNot))
        sides = self.of(node.left, *node.comparators) if isinstance(node, ast.Compare) and compares else []
        return [node] if "text" in map(kind, sides) and None not in sides else []


class NoneCheck(SourceRule):
    """whether a tensor is None is decided when the file is written

    `x is None`, `x or default`, `if x:` for an argument of `forward` that some calls may leave out, or an attribute
    that `forward` writes and that starts as None.

    ```python
    if previous is not None:
        x = x + previous
    x = x + previous  # instead; the caller passes zeros where there is none
    ```
    """

    id, severity = "py-none-check", "info"
    remedy = "take the tensor always; pass a neutral value or a weight of 0 where there is none"

    def wrong(self, node: ast.AST) -> Iterable[ast.AST]:
        to_none = isinstance(node, ast.Compare) and None in self.of(*node.comparators)
        asked = [node.left] if isinstance(node, ast.Compare) and to_none else conditions(node)
        return [part for part in asked if "maybe" in map(kind, self.of(part))]


class ListComprehension(SourceRule):
    """a list comprehension over tensors, which older exporters cannot trace

    Today's exporters trace it as they do a loop; those of torch 1.x did not.
    """

    id, severity = "py-list-comprehension", "info"
    remedy = "a for loop that appends"

    def wrong(self, node: ast.AST) -> Iterable[ast.AST]:
        if not isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp)):
            return []
        made = node.value if isinstance(node, ast.DictComp) else node.elt
        return [node] if holds_tensor(self.of(made, node.generators[0].iter)) else []


class DeepCopy(SourceRule):
    """a deep copy of a traced tensor is an empty tensor in the file

    Measured with torch 2.13: a tensor without axes, or the export fails.

    ```python
    levels = copy.deepcopy(given)  # instead: list(given), or [x.clone() for x in given]
    ```
    """

    id = "py-deepcopy"
    remedy = "a new list of the same tensors, or tensor.clone()"

    def wrong_call(self, call: Called) -> bool:
        return call.function is copy.deepcopy and holds_tensor(call.args)


class AttributeUpdate(SourceRule):
    """what forward writes to a module is lost: a file has no state between calls

    `self.x = ...`, `self.x += ...`, `self.x[i] = ...`, `self.x.copy_(...)`, `self.list.append(...)` in `forward` or in
    what it calls, also through views (`self.x.view(-1).add_(1)`), another name (`x = self.x`, then `x += 1`) and
    `out=self.x`.

    Not seen: a write in a function that got the attribute as its argument, or in a loop over `self.parameters()`;
    functions that write by a flag or by their name (`relu(self.x, inplace=True)`, `torch.nn.init`); an attribute that
    went through a list, dict, tuple or `a if c else b`; `del self.x`; globals. `trace` sees these when it runs the
    module.
    """

    id = "py-attribute-update"
    remedy = "take the value as an input and return it as an output, or keep it in a local name"

    def wrong(self, node: ast.AST) -> Iterable[ast.AST]:
        if isinstance(node, (ast.Attribute, ast.Subscript)) and isinstance(node.ctx, ast.Store):
            into = self.of(node.value)
            attribute = isinstance(node, ast.Attribute) and any(map(kinds.is_module, into))
            return [node] if attribute or any(map(self.is_kept, into)) else []
        changed = self.of(node.target) if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) else []
        return [node] if any(map(self.is_kept, changed)) else []

    def is_kept(self, value: Any) -> bool:
        """Whether a module keeps a tensor, list or dict from call to call."""
        return getattr(value, "held", False) is True or id(value) in self.program.held

    def wrong_call(self, call: Called) -> bool:
        in_place = call.name.endswith("_") and not call.name.endswith("__")
        changes = call.function is None and (in_place or call.name in ("append", "extend", "insert"))
        first = call.args[0] if call.args else None
        by_name = call.function is setattr and kinds.is_module(first)
        return by_name or (changes and self.is_kept(first)) or self.is_kept(call.kwargs.get("out"))


class Item(SourceRule):
    """a number is read out of a tensor; the file keeps the traced one as a constant

    `.item()`, `.tolist()`, `.numpy()`, `int(t)`, `float(t)`, `math.f(t)`, `numpy.f(t)`. Its input may then be read by
    nothing, which `baked-item` sees in the graph.

    ```python
    x / temperature.item()  # instead: x / temperature
    ```
    """

    id = "py-item"
    remedy = "compute with the tensor"

    def wrong_call(self, call: Called) -> bool:
        reads = call.function in (int, float, complex) or package_of(call.function) in ("math", "numpy")
        method = call.function is None and call.name in torch_calls.NUMBERS | {"__bool__"}
        return any(map(is_tensor, call.args[:1] if method else call.args if reads else []))


class BuiltinMinMax(SourceRule):
    """python walks through a tensor or compares tensors while tracing; the file keeps what came of it

    `min`, `max` and `sorted` of Python compare tensors one by one; `sum(tensor)` adds as many rows as the traced one
    had. `sum` of a list of tensors is fine.

    ```python
    max(a.max(), b.max())  # instead: torch.maximum(a.max(), b.max())
    ```
    """

    id = "py-builtin-min-max"
    remedy = "torch.minimum, torch.maximum, tensor.amin, tensor.amax, tensor.sum or torch.sort"

    def wrong_call(self, call: Called) -> bool:
        compared = [*call.args, *elements(call.args[0])] if call.function in (min, max, sorted) else []
        return any(map(is_tensor, call.args[:1] if call.function is sum else compared))


class DataDependentLoop(SourceRule):
    """the loop runs as often as it did on the traced example

    `while` on a tensor, `range(tensor)`, and a loop over a tensor itself.

    ```python
    for i in range(count):
        x = step(x)
    for i in range(LARGEST):
        x = x + (count > i).float() * (step(x) - x)  # instead
    ```

    If it cannot be vectorised, put the loop under `torch.jit.script`: the file then has a `Loop`, slow but right.
    """

    id = "py-data-dependent-loop"
    remedy = "vectorise it, or run it as often as can be needed and let the rounds beyond the count change nothing"

    def wrong(self, node: ast.AST) -> Iterable[ast.AST]:
        asked: list[ast.expr] = [node.iter] if isinstance(node, (ast.For, ast.comprehension)) else []
        if isinstance(node, ast.While):
            asked = node.test.values if isinstance(node.test, ast.BoolOp) else conditions(node)
        return [part for part in asked if "tensor" in map(kind, self.of(part))]

    def wrong_call(self, call: Called) -> bool:
        through = call.function in (range, enumerate, zip, reversed, list, tuple, iter, map)
        return through and any(map(is_tensor, call.args))


class DtypeConstant(SourceRule):
    """the constant has an explicit type; in half precision torch refuses its product with the module's tensors

    A tensor that `forward` makes in float32, explicitly (`torch.tensor(..., dtype=torch.float32)`) or by default
    (`zeros`, `ones`, `linspace`), and that meets the module's tensors in a matmul, a convolution, attention or a layer
    with parameters. `module.half()` does not reach it: `Input type (HalfTensor) and weight type (FloatTensor) should be
    the same`. Arithmetic passes the type on; `.to(x.dtype)` and `.type_as(x)` end it; a number without axes does not
    change it.

    ```python
    kernel = torch.tensor(EDGES, dtype=torch.float32)  # instead: dtype=x.dtype, or a buffer, which half() converts
    y = F.conv2d(x, kernel)
    ```

    Only `precision.method=half` needs the change. Not seen: a tensor that is a plain attribute of the module (use
    `register_buffer`), `x.float()`, integers times a Python float, and `einops`.
    """

    id, source = "py-dtype-constant", "torch"
    remedy = "dtype=x.dtype, of the tensor that it meets; or register it as a buffer"

    def wrong(self, node: ast.AST) -> Iterable[ast.AST]:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            self.met(self.of(node.left, node.right))
        return ()

    def wrong_call(self, call: Called) -> bool:
        layer = kinds.is_module(call.function) and torch_calls.has_floats(call.function)
        if layer or call.name in _PRODUCTS:
            self.met([*call.args, *call.kwargs.values(), *([kinds.TENSOR] if layer else [])])
        return False

    def met(self, factors: list[Any]) -> None:
        """Constants among the factors of a product are wrong at their place, where another has the module's type."""
        tensors = list(filter(is_tensor, kinds.abstract_in(factors)))
        if not all(each.made for each in tensors):
            self.places |= {place: None for each in tensors for place in each.made}


class NotFollowed(SourceRule):
    """calls with tensors whose source is not read

    One finding with the number of calls: they take a tensor and lead to source that is not read, or to an unknown
    function. Check whether they decide in Python.
    """

    id, severity, source = "py-not-followed", "info", "what this reader can follow"
    remedy = "look at them yourself; functions of the module's files and packages are read"

    def wrong_call(self, call: Called) -> bool:
        return not call.followed and holds_tensor(call.args, call.kwargs)

    def findings(self) -> list[Finding]:
        """One of all calls, in the scope where reading begins."""
        if not self.places:
            return []
        _, file, line = next(iter(self.places))
        where = ", ".join(f"{shown_file(file)}:{line}" for _, file, line in list(self.places)[:3])
        message = f"{len(self.places)} of the calls with tensors not followed ({where}); what they do is unknown"
        return [self.finding((self.program.frame.scope, file, line), message)]


RULES: tuple[type[SourceRule], ...] = (
    TensorIf, TensorLen, StringComparison, NoneCheck, ListComprehension, DeepCopy, AttributeUpdate, Item, BuiltinMinMax,
    DataDependentLoop, DtypeConstant, NotFollowed,
)  # fmt: skip
