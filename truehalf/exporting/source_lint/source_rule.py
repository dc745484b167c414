"""A rule of source code: a visitor of the functions that `forward` reaches."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Any

import truehalf.exporting.source_lint.kinds as kinds
from truehalf.exporting.source_lint.expressions import Called
from truehalf.exporting.source_lint.following import Following
from truehalf.linting.base import Rule
from truehalf.linting.finding import Finding, link_to
from truehalf.source_files import shown_file


class SourceRule(Rule, ast.NodeVisitor):
    """A rule whose title is what a finding says, and `remedy` what to write instead."""

    remedy = compiled = ""
    source = "NVIDIA's guidance on exporting for TensorRT"

    def __init__(self, program: Following) -> None:
        self.program = program
        self.places: dict[kinds.SourceLocation, None] = {}
        for tree, (self.scope, self.file, _) in program.read.items():
            self.generic_visit(tree)

    def visit_FunctionDef(self, node: ast.AST) -> None:
        """Nested functions are not read."""

    visit_Lambda = visit_FunctionDef

    def generic_visit(self, node: ast.AST) -> None:
        found = [*self.wrong(node), *(node for call in self.program.calls.get(node, []) if self.wrong_call(call))]
        self.places |= {(self.scope, self.file, getattr(each, "lineno", 0)): None for each in found}
        super().generic_visit(node)

    def wrong(self, node: ast.AST) -> Iterable[ast.AST]:
        """What is wrong at a node, or in it."""
        return ()

    def wrong_call(self, call: Called) -> bool:
        return False

    def of(self, *nodes: ast.AST) -> list[Any]:
        """What is known of expressions, each time that they were reached."""
        return [value for node in nodes for value in self.program.values.get(node, [])]

    def findings(self) -> list[Finding]:
        return [self.finding(place, self.title) for place in self.places]

    def finding(self, place: kinds.SourceLocation, why: str) -> Finding:
        file, link = shown_file(place[1]), link_to(self.id)
        return Finding(self.id, self.severity, "", "", place[0], why, self.remedy, link, file, place[2])


def conditions(node: ast.AST) -> list[ast.expr]:
    """Expressions whose truth value Python asks for at a node: the parts of `and`, `or` and `not`, or a test."""
    tests = [node.test] if isinstance(node, (ast.If, ast.IfExp, ast.While)) else getattr(node, "ifs", [])
    if isinstance(node, ast.BoolOp):
        tests = node.values[:-1]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        tests = [node.operand]
    ends = [test.values[-1] if isinstance(test, ast.BoolOp) else test for test in tests]
    return ends if ends == tests else [part for end in ends for part in conditions(ast.While(end, [], []))]
