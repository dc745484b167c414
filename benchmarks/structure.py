"""Size and shape of the product, by commit: modules, lines, circles of imports, dependencies of the stages.

    python -m benchmarks.structure [COMMIT ...]

Code lines are those that hold a token of the program: no docstrings, comments and blank lines. Without a commit the
working tree is measured.
"""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import tarfile
import tempfile
import tokenize
from collections import Counter
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = ("conf", "hydra_plugins", "pipeline", "stages", "truehalf")
_NO_CODE = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)


def code_lines(source: str) -> int:
    """Lines with a token of the program, docstrings left out."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE:
            lines |= set(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and node.body:
            first = node.body[0]
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                lines -= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return len(lines)


def imports(source: str, names: set[str]) -> set[str]:
    """Modules of the product that a module imports at its top level."""
    found: set[str] = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found & names


def circles(arrows: dict[str, set[str]]) -> list[list[str]]:
    """Strongly connected components of more than one module, by Tarjan's algorithm."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in arrows[name]:
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            component = [stack.pop()]
            while component[-1] != name:
                component.append(stack.pop())
            if len(component) > 1:
                found.append(sorted(component))

    for name in arrows:
        if name not in index:
            visit(name)
    return found


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """How many parameters a function has, self and cls left out."""
    args = function.args
    names = [arg.arg for arg in (*args.posonlyargs, *args.args, *args.kwonlyargs)]
    return len([name for name in names if name not in ("self", "cls")])


def measured(tree: Path) -> dict[str, str]:
    """Rows of the table for one tree of files."""
    files = [path for room in PRODUCT for path in sorted((tree / room).rglob("*.py"))]
    sources = {path.relative_to(tree): path.read_text() for path in files}
    modules = {path: ".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in sources}
    arrows = {modules[path]: imports(text, set(modules.values())) - {modules[path]} for path, text in sources.items()}
    rooms = Counter(str(path.parent) for path in sources if path.stem != "__init__")
    longest = max(sources, key=lambda path: len(sources[path].splitlines()))
    functions = [
        (parameters(node), f"{path}:{node.name}", node)
        for path, text in sources.items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]
    widest = max(functions, key=lambda each: each[0])
    loose = [
        node
        for _, _, node in functions
        if not node.name.startswith("_")
        and any(text in ast.unparse(node.args) + str(node.returns and ast.unparse(node.returns)) for text in _LOOSE)
    ]
    stages = yaml.safe_load((tree / "dvc.yaml").read_text())["stages"].values()
    found = circles(arrows)
    return {
        "modules": str(sum(rooms.values())),
        "largest room": "{0[0]} ({0[1]})".format(rooms.most_common(1)[0]),
        "largest file": f"{longest} ({len(sources[longest].splitlines())})",
        "lines": str(sum(len(text.splitlines()) for text in sources.values())),
        "code lines": str(sum(code_lines(text) for text in sources.values())),
        "circles of imports": f"{len(found)} ({', '.join(str(len(each)) for each in found)})" if found else "0",
        "dependencies in dvc.yaml": str(sum(len(stage.get("deps", [])) for stage in stages)),
        "widest function": f"{widest[1]} ({widest[0]})",
        "public functions with Any in a mapping": str(len(loose)),
    }


_LOOSE = ("dict[str, Any]", "Mapping[str, Any]")


def rooms_of(tree: Path) -> dict[str, int]:
    """Code lines by room: of truehalf by its folders, of the others as wholes."""
    sums: Counter[str] = Counter()
    for room in PRODUCT:
        for path in (tree / room).rglob("*.py"):
            parts = path.relative_to(tree).parts
            inner = room == "truehalf" and len(parts) > 2
            sums["/".join(parts[:2]) if inner else room] += code_lines(path.read_text())
    return dict(sorted(sums.items()))


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        for commit in (*sys.argv[1:],) or (None,):
            tree = ROOT
            if commit is not None:
                tree = Path(name) / commit
                packed = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=True).stdout
                with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
                    archive.extractall(tree, filter="data")
            print(f"== {commit or 'working tree'}")
            for row, value in measured(tree).items():
                print(f"{row:40} {value}")
            print("code lines by room:", ", ".join(f"{room} {count}" for room, count in rooms_of(tree).items()))


if __name__ == "__main__":
    main()
