"""Which names of TensorRT a Python file uses, read from its syntax tree and from what a version's methods return."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.truehalf.runtime.tensorrt.recording import Thing

# What the parameters and attributes of our functions hold that come from elsewhere: their names, here, are their types.
OBJECTS = {
    "trt": "module",
    "self._trt": "module",
    "builder": "Builder",
    "network": "INetworkDefinition",
    "parser": "OnnxParser",
    "config": "IBuilderConfig",
    "engine": "ICudaEngine",
    "self._engine": "ICudaEngine",
    "context": "IExecutionContext",
    "self._context": "IExecutionContext",
    "self._runtime": "Runtime",
    "tensor": "ITensor",
    "cache": "ITimingCache",
}
RETURNS = {"get_plugin_registry": "IPluginRegistry"}  # whose docstring does not tell


@dataclass
class Uses:
    """What a file uses: qualified names, and attributes called like TensorRT's of things whose class is not known."""

    names: set[str] = field(default_factory=set)
    missing: set[str] = field(default_factory=set)  # "Builder.nonsense", of a known class
    unresolved: set[str] = field(default_factory=set)


def uses(source: str, things: Mapping[str, Thing]) -> Uses:
    """Every use of TensorRT in a source."""
    found = Uses()
    _Reader(things, found).visit(ast.parse(source))
    return found


class _Reader(ast.NodeVisitor):
    """Follows what names hold, in the order in which the source is written."""

    def __init__(self, things: Mapping[str, Thing], found: Uses) -> None:
        self.things, self.found = things, found
        self.distinct = {name.rpartition(".")[2] for name in things if "." in name and "_" in name}
        self.held: dict[str, str | None] = {}

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        outside = dict(self.held)
        for argument in [*node.args.args, *node.args.kwonlyargs]:
            if argument.annotation is not None and ast.unparse(argument.annotation) != "Any":
                self.held[argument.arg] = None  # TensorRT's classes are not known where functions are annotated
        self.generic_visit(node)
        self.held = outside

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            if alias.name == "tensorrt":
                self.held[alias.asname or alias.name] = "module"

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        self.held.update(dict.fromkeys((alias.asname or alias.name for alias in node.names), None))

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        kind = self._type(node.value)
        for target in node.targets:
            self._hold(target, kind, node.value)
            self.visit(target)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.visit(node.value)
        self._hold(node.target, self._type(node.value), node.value)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self.visit(node.value)
        owner = self._type(node.value)
        if owner is None:
            if node.attr in self.distinct and not _is_ours(node):
                self.found.unresolved.add(ast.unparse(node))
            return
        if owner.startswith("?") or node.attr.startswith("__"):
            return
        name = node.attr if owner == "module" else f"{owner.removeprefix('class ')}.{node.attr}"
        if self._is_enum(owner.removeprefix("class ")) and node.attr in ("name", "value"):
            return
        (self.found.names if name in self.things else self.found.missing).add(name)

    def _hold(self, target: ast.expr, kind: str | None, value: ast.expr) -> None:
        if isinstance(target, ast.Name) and (kind or isinstance(value, ast.Call) or target.id not in OBJECTS):
            self.held[target.id] = kind  # what comes out of a container of ours is what it is called

    def _is_enum(self, name: str) -> bool:
        return any(one.startswith(f"{name}.") and thing.value is not None for one, thing in self.things.items())

    def _type(self, node: ast.expr) -> str | None:
        """ "module"; "class X"; "X", an instance; "X.m", a method or function; "list[X]"; "?"; None where not known."""
        if isinstance(node, ast.Name):
            return self.held.get(node.id, OBJECTS.get(node.id))
        if isinstance(node, ast.Attribute):
            if (known := OBJECTS.get(ast.unparse(node))) is not None:
                return known
            return self._attribute_type(self._type(node.value), node.attr)
        if isinstance(node, ast.Call):
            return self._call_type(self._type(node.func))
        if isinstance(node, ast.Subscript):
            kind = self._type(node.value) or ""
            return kind[5:-1] if kind.startswith("list[") else None
        return None

    def _attribute_type(self, owner: str | None, attribute: str) -> str | None:
        if owner is None:
            return None
        name = attribute if owner == "module" else f"{owner.removeprefix('class ')}.{attribute}"
        thing = self.things.get(name)
        if thing is None:
            return None
        if thing.overloads and not name.rpartition(".")[2][0].isupper():
            return name
        if thing.value is not None:
            return name.rpartition(".")[0]
        if thing.attribute is not None:
            return thing.attribute if thing.attribute in self.things else "?"
        return f"class {name}"

    def _call_type(self, called: str | None) -> str | None:
        if called is None:
            return None
        if called.startswith("class "):
            return called.removeprefix("class ")
        if called in RETURNS:
            return RETURNS[called]
        thing = self.things.get(called)
        returns = thing.overloads[0].returns if thing and thing.overloads else None
        if returns is None:
            return "?"
        inner = returns[5:-1] if returns.startswith("list[") else returns
        return returns if inner in self.things else "?"


def _is_ours(node: ast.Attribute) -> bool:
    """`self.name` and names of modules of ours or of others: not of TensorRT."""
    return isinstance(node.value, ast.Name) and node.value.id in ("self", "torch", "np", "json", "os", "sys", "shutil")
