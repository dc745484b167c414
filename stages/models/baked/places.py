"""Places in source where Python decided while a module was traced, and whether the compared inputs settle each.

settled     nothing is open: what Python read there is the same on every input (parameters, sizes that do not vary), the
            statement only checks or prints, or the inputs went both ways and the outputs agreed all the same
open        of the user's own files: the inputs do not tell
installed   of a package: outputs were compared, and nobody looks at its code
"""

from __future__ import annotations

import ast
import functools
import linecache
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stages.graph.lint.finding import Finding
from stages.models.baked.reads import NUMBER, TRUTH, Read
from stages.models.lint.dtype_constants import DTYPE_CONSTANT
from stages.models.lint.functions import is_own, shown_file

SETTLED, OPEN, INSTALLED = "settled", "open", "installed"
TRACER = "TracerWarning"
WRITES = "py-attribute-update"  # the runs on copies of the module settle it
_SEEN_BY_COMPARING = {"py-deepcopy"}  # wrong on every input, or on none
_OF_CONSTANTS = ("torch.tensor results", "torch.as_tensor results", "torch.from_numpy results", "There are")
_SAYING = ("print", "warnings.", "logging.", "logger.", "log.", "_logger.", "LOGGER.")
_CHECKS = ("torch._assert", "torch._check", "torch.testing.")
Statement = tuple[str, int]  # file as it is shown, first line


@dataclass
class Place:
    """A statement, and what is known of it.

    Attributes:
        file: as it is shown: relative to the working folder, or to the folder of installed packages.
        line: its first line.
        own: whether the file is the user's.
        rules: of lint, and TracerWarning.
        said: the first words of the exporter's warnings.
        state, reason: see the top of this module.
    """

    file: str
    line: int
    own: bool
    rules: dict[str, None] = field(default_factory=dict)
    said: dict[str, None] = field(default_factory=dict)
    state: str = OPEN
    reason: str = ""

    @property
    def sentence(self) -> str:
        what = ", ".join([*(rule for rule in self.rules if rule != TRACER), *self.said]) or "a tensor's value is read"
        return f"{self.file}:{self.line}: {what}" + (f": {self.reason}" if self.reason else "")


def places_of(
    caught: Iterable[warnings.WarningMessage], findings: Iterable[Finding], runs: Iterable[Sequence[Read]]
) -> dict[Statement, Place]:
    """By statement: where the exporter warned, where lint found something, and where the user's code read a value.

    Args:
        caught: the exporter's warnings; those of tracing count.
        findings: of lint, in source; warnings count, but for types of constants.
        runs: what was read on each input.
    """
    found: dict[Statement, Place] = {}

    def place(file: str, line: int) -> Place:
        key = statement_of(file, line)
        return found.setdefault(key, Place(*key, own=is_own(str(Path.cwd() / file)) and _is_there(file)))

    for warning in caught:
        if warning.category.__name__ == TRACER:
            at = place(warning.filename, warning.lineno)
            at.rules[TRACER] = at.said[_first_words(str(warning.message))] = None
    for finding in findings:
        if finding.file is not None and finding.severity == "warning" and finding.rule != DTYPE_CONSTANT:
            place(finding.file, finding.line or 0).rules[finding.rule] = None
    for read in (read for run in runs for read in run):
        if is_own(read.file) and (read.data or read.sizes):
            place(read.file, read.line)
    return found


def settle(
    found: Mapping[Statement, Place], runs: Sequence[Sequence[Read]] | None, state: str, followed: bool = False
) -> None:
    """Say of each place what it is.

    Args:
        runs: what was read on each of the compared inputs; None where that could not be followed.
        state: why writes to the module are open; empty where they are not.
        followed: whether the exporter follows values itself, and refuses where Python decides by one (dynamo).
    """
    sorted_runs = None if runs is None else [_by_statement(run) for run in runs]
    for key, place in found.items():
        if not place.own:
            place.state = INSTALLED
            continue
        of_values = set(place.rules) - {WRITES} - _SEEN_BY_COMPARING
        events = None if sorted_runs is None else [run.get(key, []) for run in sorted_runs]
        reason = state if WRITES in place.rules else ""
        if not reason and not followed and (of_values or any(events or [])) and not _only_says(key):
            reason = _open(place, key, events)
        place.state, place.reason = (OPEN, reason) if reason else (SETTLED, "")


def _open(place: Place, key: Statement, events: Sequence[Sequence[Read]] | None) -> str:
    """Why a place is open; empty where it is settled."""
    of_constants = set(place.rules) == {TRACER} and all(each.startswith(_OF_CONSTANTS) for each in place.said)
    if of_constants and not any(events or []):
        return ""
    if events is None:
        return "what is read there could not be followed on other inputs"
    if not any(events):
        return "no input led there"
    sizes = {tuple(sorted(size for read in run for size in read.sizes)) for run in events}
    live = [[read for read in run if read.data or (read.sizes and len(sizes) > 1)] for run in events]
    if not any(live):
        return ""
    if any(read.kind == NUMBER for run in live for read in run):
        return "Python reads numbers there; that the outputs agree does not say what else follows from them"
    if not _one_condition(key):
        return "more than one condition hangs on it, and the inputs do not tell them apart"
    counts = {len(run) for run in live}
    if len(counts) > 1 or any(len({run[i].value for run in live}) < 2 for i in range(next(iter(counts)))):
        ways = {read.value for run in live for read in run}
        return f"the {len(events)} inputs went one way ({', '.join(map(str, sorted(ways)))})"
    return ""


def _by_statement(run: Sequence[Read]) -> dict[Statement, list[Read]]:
    found: dict[Statement, list[Read]] = {}
    for read in run:
        assert read.kind in (TRUTH, NUMBER)
        found.setdefault(statement_of(read.file, read.line), []).append(read)
    return found


def _first_words(message: str) -> str:
    return message.partition(" might cause")[0].partition(". ")[0].strip()


def _is_there(file: str) -> bool:
    return file.startswith("<") or (Path.cwd() / file).exists()


# --- statements -------------------------------------------------------------------------------------------------------


def statement_of(file: str, line: int) -> Statement:
    """The statement that a line belongs to; of an `if`, `while` or `for` its condition alone."""
    node = _statement(file, line)
    return shown_file(str(Path.cwd() / file)), line if node is None else node.lineno


def _statement(file: str, line: int) -> ast.stmt | None:
    spans = _spans("".join(linecache.getlines(str(Path.cwd() / file))))
    around = [(last - first, node) for first, last, node in spans if first <= line <= last]
    return min(around, key=lambda pair: pair[0])[1] if around else None


@functools.lru_cache(maxsize=64)
def _spans(source: str) -> list[tuple[int, int, ast.stmt]]:
    """First and last line of each statement, without the statements in it."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return []
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            last = max(node.lineno, body[0].lineno - 1) if body else (node.end_lineno or node.lineno)
            found.append((node.lineno, last, node))
    return found


def _only_says(key: Statement) -> bool:
    """Whether a statement changes nothing in the graph: an assertion, a check that only raises, a message."""
    node = _statement(*key)
    if isinstance(node, ast.If):
        return not node.orelse and all(_says(each) for each in node.body)
    return node is not None and _says(node)


def _says(node: ast.stmt) -> bool:
    if isinstance(node, (ast.Assert, ast.Raise, ast.Pass)):
        return True
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return ast.unparse(node.value.func).startswith((*_SAYING, *_CHECKS))
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _one_condition(key: Statement) -> bool:
    """Whether one truth value is all that a statement can ask for."""
    node = _statement(*key)
    if node is None or isinstance(node, (ast.For, ast.While)):
        return False
    asked = node.test if isinstance(node, ast.If) else node
    several = (ast.BoolOp, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Lambda)
    inner = list(ast.walk(asked))
    chained = any(isinstance(each, ast.Compare) and len(each.ops) > 1 for each in inner)
    choices = sum(isinstance(each, ast.IfExp) for each in inner) + isinstance(node, ast.If)
    return not chained and choices < 2 and not any(isinstance(each, several) for each in inner)
