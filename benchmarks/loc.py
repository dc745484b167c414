"""Code lines of Python files: what is left without docstrings, comments and blank lines.

python -m benchmarks.loc            by room of truehalf, stages, pipeline, tests and benchmarks
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PRODUCT, BESIDE = ("truehalf", "stages", "pipeline"), ("benchmarks", "tests")
_LAYOUT = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)


def code_lines(path: Path) -> int:
    """Lines that hold a token other than a docstring's."""
    text, strings = path.read_text(), set[int]()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and node.body:
            first = node.body[0]
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                strings |= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    used: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _LAYOUT:
            used |= set(range(token.start[0], token.end[0] + 1))
    return len(used - strings)


def by_room(root: Path = ROOT) -> dict[str, int]:
    """Code lines of each folder of the product, of tests and benchmarks as a whole, and of the product in all."""
    counts: Counter[str] = Counter()
    for top in (*PRODUCT, *BESIDE):
        for path in sorted((root / top).rglob("*.py")):
            inside = path.relative_to(root / top).parts
            if "build" not in inside:
                room = f"{top}/{inside[0]}" if top in PRODUCT and len(inside) > 1 else top
                counts[room] += code_lines(path)
    product = sum(count for room, count in counts.items() if room.split("/")[0] in PRODUCT)
    return dict(sorted(counts.items())) | {"product": product}


if __name__ == "__main__":
    for room, count in by_room().items():
        print(f"{count:6d} {room}")
