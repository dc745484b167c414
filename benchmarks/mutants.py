"""Mutation testing: small changes of the code that decides, places, converts and judges, and which tests fail for them.

    python -m benchmarks.mutants draw              which 99 changes: eleven a module, by a fixed seed

A mutant is one token of a module changed: a comparison, an arithmetic or boolean operator, a number, True or False, a
condition negated, a call or an assignment left out. Texts, annotations and docstrings stay as they are: no test asserts
sentences. `draw` is done once; its result is committed, with each mutant's line as it was, so that a mutant is found
again where lines above it have changed.
"""

from __future__ import annotations

import ast
import json
import random
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DRAWN = ROOT / "benchmarks" / "results" / "mutants.json"
MODULES = (
    *(f"truehalf/conversion/{name}.py" for name in ("partition", "decide", "rewrite", "casts", "masks/masks")),
    "truehalf/emulation/emulate.py",
    *(f"truehalf/verification/{name}.py" for name in ("judging/detections", "metrics/detections", "judging/gates")),
)
EACH, SEED = 11, 19

_COMPARISONS: dict[type[ast.cmpop], str] = {
    **{ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "=="},
    **{ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in"},
}
_ARITHMETIC: dict[type[ast.operator], str] = {
    **{ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "*", ast.Mod: "+", ast.Pow: "*"},
    **{ast.BitOr: "&", ast.BitAnd: "|", ast.BitXor: "|"},
}


@dataclass(frozen=True)
class Mutant:
    """One change.

    Attributes:
        module: path from the project's root.
        function: qualified name of the function or class that holds it; "" at the module's level.
        kind: what is changed, as a word.
        line: the whole first line of the changed code, without indentation.
        nth: which of the function's lines with this text, from 0.
        column: of the change in that line, without indentation.
        before, after: the changed source text; may span lines.
    """

    module: str
    function: str
    kind: str
    line: str
    nth: int
    column: int
    before: str
    after: str


class _Source:
    """A module's text and tree, with the place of each node."""

    def __init__(self, module: str, text: str) -> None:
        self.module, self.text = module, text
        self.lines = text.splitlines(keepends=True)
        self.tree = ast.parse(text)
        self._starts = [0]
        for line in self.lines:
            self._starts.append(self._starts[-1] + len(line.encode()))

    def span(self, node: ast.AST) -> tuple[int, int]:
        """The bytes of a node's source."""
        return (
            self._starts[node.lineno - 1] + node.col_offset,  # type: ignore[attr-defined]
            self._starts[node.end_lineno - 1] + node.end_col_offset,  # type: ignore[attr-defined]
        )

    def between(self, left: ast.AST, right: ast.AST) -> tuple[int, int]:
        """The bytes of the operator between two operands, without the parentheses of either."""
        start, end = self.span(left)[1], self.span(right)[0]
        text = self.of(start, end)
        return start + len(text) - len(text.lstrip(" )\n")), end - len(text) + len(text.rstrip(" (\n"))

    def of(self, start: int, end: int) -> str:
        return self.text.encode()[start:end].decode()


def _changes(node: ast.AST, source: _Source) -> Iterator[tuple[str, int, int, str]]:
    """Each change of a node itself: its kind, the bytes that it replaces, and with what."""
    start, end = source.span(node) if hasattr(node, "lineno") else (0, 0)
    match node:
        case ast.Compare(left=left, ops=[operator], comparators=[right]) if type(operator) in _COMPARISONS:
            yield "comparison", *source.between(left, right), _COMPARISONS[type(operator)]
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _ARITHMETIC:
            yield "arithmetic", *source.between(left, right), _ARITHMETIC[type(operator)]
        case ast.BoolOp(op=operator, values=[first, second, *_]):
            yield "boolean", *source.between(first, second), "and" if isinstance(operator, ast.Or) else "or"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "negation", start, end, source.of(*source.span(operand))
        case ast.Constant(value=bool(value)):
            yield "constant", start, end, str(not value)
        case ast.Constant(value=int(value)) | ast.Constant(value=float(value)):
            yield "constant", start, end, repr(value + 1)
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            begin, finish = source.span(test)
            yield "condition", begin, finish, f"not ({source.of(begin, finish)})"
        case ast.Continue():
            yield "jump", start, end, "break"
        case ast.Break():
            yield "jump", start, end, "continue"
        case ast.Expr(value=ast.Call()) | ast.AugAssign():
            yield "statement", start, end, "pass"
        case ast.Return(value=value) if value is not None and not isinstance(value, ast.Constant):
            yield "result", start, end, "return None"


def mutants_of(module: str) -> list[Mutant]:
    """Every mutant of a module, in the order of its source."""
    source = _Source(module, (ROOT / module).read_text())
    found: list[tuple[int, Mutant]] = []

    def visit(node: ast.AST, function: str, first_line: int) -> None:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            function, first_line = f"{function}.{node.name}".lstrip("."), node.lineno
        for kind, start, end, after in _changes(node, source):
            before = source.of(start, end)
            number = source.text.encode()[:start].decode().count("\n")
            line = source.lines[number]
            same = [text.strip() for text in source.lines[first_line - 1 : number]].count(line.strip())
            indent = len(line) - len(line.lstrip())
            column = len(source.text.encode()[:start].decode()) - sum(map(len, source.lines[:number])) - indent
            found.append((start, Mutant(module, function, kind, line.strip(), same, column, before, after)))
        for name, child in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "type_params"):
                continue
            for item in child if isinstance(child, list) else [child]:
                if isinstance(item, ast.AST) and not isinstance(item, ast.JoinedStr):
                    visit(item, function, first_line)

    visit(source.tree, "", 1)
    return [mutant for _, mutant in sorted(found, key=lambda pair: pair[0])]


def mutated(text: str, mutant: Mutant) -> str:
    """A module's text with the change made.

    Raises:
        ValueError: when the mutant's line is no longer there.
    """
    lines = text.splitlines(keepends=True)
    first = _first_line(ast.parse(text), mutant.function)
    places = [number for number in range(first - 1, len(lines)) if lines[number].strip() == mutant.line]
    if len(places) <= mutant.nth:
        raise ValueError(f"{mutant.module}: {mutant.function} no longer has the line {mutant.line!r}")
    number = places[mutant.nth]
    indent = len(lines[number]) - len(lines[number].lstrip())
    start = sum(map(len, lines[:number])) + indent + mutant.column
    if text[start : start + len(mutant.before)] != mutant.before:
        raise ValueError(f"{mutant.module}: {mutant.line!r} no longer goes on with {mutant.before!r}")
    return text[:start] + mutant.after + text[start + len(mutant.before) :]


def _first_line(tree: ast.AST, function: str) -> int:
    node = tree
    for name in filter(None, function.split(".")):
        node = next(
            child
            for child in ast.walk(node)
            if isinstance(child, (ast.FunctionDef, ast.ClassDef)) and child.name == name
        )
    return getattr(node, "lineno", 1)


def draw() -> list[Mutant]:
    """Eleven mutants of each module, drawn by the seed; each compiles and differs from the module as it is."""
    chosen = []
    for module in MODULES:
        text = (ROOT / module).read_text()
        candidates = mutants_of(module)
        random.Random(f"{SEED}/{module}").shuffle(candidates)
        kept: list[Mutant] = []
        for mutant in candidates:
            if len(kept) == EACH:
                break
            if (mutant.line, mutant.nth) in {(other.line, other.nth) for other in kept}:
                continue  # one a line: eleven places, not eleven ways to break one
            compile(mutated(text, mutant), module, "exec")
            kept.append(mutant)
        chosen += kept
    return chosen


def main(arguments: list[str]) -> int:
    if arguments != ["draw"]:
        print(__doc__)
        return 2
    DRAWN.write_text(json.dumps([asdict(mutant) for mutant in draw()], indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
