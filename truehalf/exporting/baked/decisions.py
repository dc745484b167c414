"""Lines of source where Python decided while a module was traced, and whether the compared inputs settle each.

settled     nothing is open: what Python read there is the same on every input (parameters, sizes that do not vary), the
            statement only checks or prints, or one truth value, read once a run, is all that the user's code reads of
            the inputs, and they went both ways while the outputs agreed

Where more than one value is read, the inputs would have to meet every combination of what they can be, as one
statement may remember for another (`a = x.min() < 0; b = x.max() > 1; if a and b:`), so that these places stay open.
open        in the user's files: the inputs do not settle it
installed   of a package: outputs were compared, and its code is not read
"""

from __future__ import annotations

import ast
import functools
import linecache
import logging
import re
import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType

from truehalf.exporting.baked.reads import NUMBER, TRUTH, Read
from truehalf.exporting.source_lint.rules import DtypeConstant
from truehalf.linting.finding import Finding
from truehalf.source_files import is_own, nodes_of, shown_file

SETTLED, OPEN, INSTALLED = "settled", "open", "installed"
TRACER = "TracerWarning"
WRITES = "py-attribute-update"  # the runs on copies of the module settle it
_SEEN_BY_COMPARING = {"py-deepcopy"}  # wrong on every input, or on none
_OF_CONSTANTS = ("torch.tensor results", "torch.as_tensor results", "torch.from_numpy results", "There are")
_LEVELS = {"debug", "info", "warning", "warn", "error", "critical", "exception", "log"}
_OF_TORCH = {"_assert", "_check", "_check_value", "_check_index", "_check_is_size", "_check_with"}
# What a message or a check may ask of a tensor: nothing here writes.
_ASKS = {
    "abs", "all", "allclose", "amax", "amin", "any", "argmax", "argmin", "bool", "count_nonzero", "cpu",
    "detach", "dim", "double", "eq", "equal", "flatten", "float", "format", "ge", "gt", "hasattr", "int",
    "is_floating_point", "is_tensor", "is_tracing", "isfinite", "isinf", "isinstance", "isnan", "item", "le",
    "len", "list", "log", "logical_and", "logical_not", "logical_or", "lt", "max", "mean", "median", "min",
    "ndimension", "ne", "norm", "numel", "numpy", "repr", "round", "size", "std", "str", "sum", "tolist",
    "tuple", "type", "var",
}  # fmt: skip
# Errors that an operation raises because of values; others are of what it is given.
_OF_VALUES = re.compile(
    r"\b(Exception|BaseException|\w*(Runtime|Assertion|Value|Index|Arithmetic|Overflow|LinAlg)Error)\b"
)
_NO_ASKING = (ast.NamedExpr, ast.Lambda, ast.Await, ast.Yield, ast.YieldFrom, ast.GeneratorExp, ast.ListComp)
Statement = tuple[str, int]  # file as it is shown, first line


@dataclass
class BakedDecision:
    """A statement, and what is known of it.

    Attributes:
        file: as it is shown: relative to the working folder, or to the folder of installed packages.
        line: its first line.
        in_user_code: whether the file is the user's.
        rules: of lint, and TracerWarning.
        messages: the first words of the exporter's warnings.
        state, reason: see the top of this module.
    """

    file: str
    line: int
    in_user_code: bool
    rules: dict[str, None] = field(default_factory=dict)
    messages: dict[str, None] = field(default_factory=dict)
    state: str = OPEN
    reason: str = ""

    @property
    def sentence(self) -> str:
        what = ", ".join([*(rule for rule in self.rules if rule != TRACER), *self.messages]) or "reads a tensor's value"
        return f"{self.file}:{self.line}: {what}" + (f": {self.reason}" if self.reason else "")


def places_of(
    caught: Iterable[warnings.WarningMessage], findings: Iterable[Finding], runs: Iterable[Sequence[Read]]
) -> dict[Statement, BakedDecision]:
    """By statement: where the exporter warned, where lint found something, and where the user's code read a value.

    Args:
        caught: the exporter's warnings; those of tracing count.
        findings: of lint, in source; warnings count, but for types of constants.
        runs: what was read on each input.
    """
    found: dict[Statement, BakedDecision] = {}

    def place(file: str, line: int) -> BakedDecision:
        key = statement_of(file, line)
        in_user_code = is_own(str(Path.cwd() / file)) and (file.startswith("<") or (Path.cwd() / file).exists())
        return found.setdefault(key, BakedDecision(*key, in_user_code))

    for warning in caught:
        if warning.category.__name__ == TRACER:
            at = place(warning.filename, warning.lineno)
            words = str(warning.message).partition(" might cause")[0].partition(". ")[0].strip()
            at.rules[TRACER] = at.messages[words] = None
    for finding in findings:
        if finding.file is not None and finding.severity == "warning" and finding.rule != DtypeConstant.id:
            place(finding.file, finding.line or 0).rules[finding.rule] = None
    for read in (read for run in runs for read in run):
        if is_own(read.file) and (read.data or read.sizes):
            place(read.file, read.line)
    return found


def settle(
    found: Mapping[Statement, BakedDecision],
    runs: Sequence[Sequence[Read]] | None,
    state: str,
    followed: bool = False,
    longer: Sequence[Sequence[Read]] = (),
) -> None:
    """Say of each place what it is.

    Args:
        runs: what was read on each of the compared inputs; None where that could not be followed.
        state: why writes to the module are open; empty where they are not.
        followed: whether the exporter follows values itself, and refuses where Python decides by one (dynamo).
        longer: what was read on inputs of other sizes, which say what sizes vary and settle nothing.
    """
    others = [_by_statement(run) for run in longer]
    sorted_runs = None if runs is None else [_by_statement(run) for run in runs]
    judged = {}
    for key, place in found.items():
        if not place.in_user_code:
            place.state = INSTALLED
            continue
        events = None if sorted_runs is None else [run.get(key, []) for run in sorted_runs]
        of_values = set(place.rules) - {WRITES} - _SEEN_BY_COMPARING
        place.state, place.reason = SETTLED, ""
        if WRITES in place.rules and state:
            place.state, place.reason = OPEN, state
        elif not followed and (of_values or any(events or [])) and not _only_says(key, events):
            judged[key] = events
    live = {
        key: _live(events, [run.get(key, []) for run in others]) for key, events in judged.items() if events is not None
    }
    only_one = sum(any(events) for events in live.values()) == 1
    for key, events in judged.items():
        place = found[key]
        place.reason = _open(place, events, live.get(key, []), only_one)
        place.state = OPEN if place.reason else SETTLED


def open_where(found: dict[Statement, BakedDecision], reasons: Mapping[tuple[str, int], str]) -> None:
    """Statements of the user's code that are open whatever inputs are tried, by file and line, with the reason."""
    for (file, line), why in reasons.items():
        key = statement_of(file, line)
        place = found.setdefault(key, BakedDecision(*key, in_user_code=True))
        place.state, place.reason = OPEN, ""
        place.messages[why] = None


def catching(functions: Iterable[CodeType]) -> dict[tuple[str, int], str]:
    """Where functions go on after an error that an operation may raise because of values: by file and line."""
    found = {}
    for code in functions:
        lines = [line for *_, line in code.co_lines() if line]
        for node in _blocks("".join(linecache.getlines(code.co_filename))):
            if lines and min(lines) <= node.lineno <= max(lines) and _goes_on(node):
                found[code.co_filename, node.lineno] = "an error that may follow from values is caught"
    return found


def _goes_on(node: ast.Try | ast.TryStar | ast.With) -> bool:
    if isinstance(node, ast.With):
        asked = [item.context_expr for item in node.items if "suppress" in ast.unparse(item.context_expr)]
        return any(map(_OF_VALUES.search, map(ast.unparse, asked)))
    going = [each for each in node.handlers if not isinstance(each.body[-1], ast.Raise)]
    return any(each.type is None or _OF_VALUES.search(ast.unparse(each.type)) for each in going)


def turned(runs: Sequence[Sequence[Read]]) -> list[Statement]:
    """Statements that read other values on one run than on another."""
    one, *others = [_by_statement(run) for run in runs]
    values = {key: [read.value for read in reads] for key, reads in one.items()}
    return [key for key in values if any([read.value for read in run.get(key, [])] != values[key] for run in others)]


def _live(events: Sequence[Sequence[Read]], others: Sequence[Sequence[Read]]) -> list[list[Read]]:
    """By run, what is read of the inputs, and of sizes that vary from run to run, or to one of the others."""
    sizes = {tuple(sorted(size for read in run for size in read.sizes)) for run in [*events, *filter(None, others)]}
    return [[read for read in run if read.data or (read.sizes and len(sizes) > 1)] for run in events]


def _open(
    place: BakedDecision, events: Sequence[Sequence[Read]] | None, live: Sequence[Sequence[Read]], only_one: bool
) -> str:
    """Why a place is open; empty where it is settled.

    Args:
        events: what was read there, by run; None where that could not be followed.
        live: of it, what can differ.
        only_one: whether something can differ at this place only.
    """
    of_constants = set(place.rules) == {TRACER} and all(each.startswith(_OF_CONSTANTS) for each in place.messages)
    if of_constants and not any(events or []):
        return ""
    if events is None:
        return "what is read there could not be followed on other inputs"
    if not any(events):
        return "no input led there"
    if not any(live):
        return ""
    if any(read.kind == NUMBER for run in live for read in run):
        return "Python reads numbers there; that the outputs agree does not say what else follows from them"
    ways = {read.value for run in live for read in run}
    if len(ways) < 2:
        return f"the {len(events)} inputs went one way ({', '.join(map(str, ways))})"
    if not only_one or any(len(run) > 1 for run in live):
        return "more than one value is read, and the inputs do not meet every combination of them"
    return ""


def _by_statement(run: Sequence[Read]) -> dict[Statement, list[Read]]:
    found: dict[Statement, list[Read]] = {}
    for read in run:
        assert read.kind in (TRUTH, NUMBER)
        found.setdefault(statement_of(read.file, read.line), []).append(read)
    return found


# --- statements -------------------------------------------------------------------------------------------------------


def statement_of(file: str, line: int) -> Statement:
    """The statement that a line belongs to; of an `if`, `while` or `for` only its condition."""
    node = _statement(file, line)
    return shown_file(str(Path.cwd() / file)), line if node is None else node.lineno


def _statement(file: str, line: int) -> ast.stmt | None:
    spans = _spans("".join(linecache.getlines(str(Path.cwd() / file))))
    around = [(last - first, node) for first, last, node in spans if first <= line <= last]
    return min(around, key=lambda pair: pair[0])[1] if around else None


@functools.lru_cache(maxsize=64)
def _spans(source: str) -> list[tuple[int, int, ast.stmt]]:
    """First and last line of each statement, without the statements in it."""
    found = []
    for node in nodes_of(source):
        if isinstance(node, ast.stmt):
            block = getattr(node, "body", None)
            last = max(node.lineno, block[0].lineno - 1) if block else (node.end_lineno or node.lineno)
            found.append((node.lineno, last, node))
    return found


def _only_says(key: Statement, events: Sequence[Sequence[Read]] | None) -> bool:
    """Whether a statement changes nothing in the graph: an assertion, a check that only raises, a message. Where what
    it raises may be caught by the user's code, it decides.
    """
    node = _statement(*key)
    while_caught = [key, *(caller for run in events or [] for read in run for caller in read.callers)]
    if node is None or any(_may_catch(*place) for place in while_caught):
        return False
    if isinstance(node, ast.If):
        return not node.orelse and _asks(node.test) and all(_says(each, key[0]) for each in node.body)
    return _says(node, key[0])


def _says(node: ast.stmt, file: str) -> bool:
    if isinstance(node, ast.Pass):
        return True
    if isinstance(node, ast.Assert):
        return _asks(node.test) and (node.msg is None or _asks(node.msg))
    if isinstance(node, ast.Raise):
        return True
    if not isinstance(node, ast.Expr):
        return False
    if not isinstance(node.value, ast.Call):
        return isinstance(node.value, ast.Constant)
    given = [*node.value.args, *(keyword.value for keyword in node.value.keywords)]
    return _is_message(node.value.func, file) and all(map(_asks, given))


def _is_message(function: ast.expr, file: str) -> bool:
    """Whether it is print, a logger's, of warnings, or a check of torch's, by what the name is in that file."""
    spaces = [vars(each) for each in list(sys.modules.values()) if _is_of(each, file)]
    if isinstance(function, ast.Name):
        return function.id == "print" and bool(spaces) and all(space.get("print", print) is print for space in spaces)
    if not isinstance(function, ast.Attribute) or not isinstance(function.value, ast.Name):
        return False
    owners = [space.get(function.value.id) for space in spaces]
    allowed = (
        ((lambda owner: owner in (logging, warnings) or type(owner) is logging.Logger), _LEVELS),
        ((lambda owner: getattr(owner, "__name__", "") == "torch"), _OF_TORCH),
    )
    return bool(owners) and any(function.attr in names and all(map(is_it, owners)) for is_it, names in allowed)


def _is_of(module: object, file: str) -> bool:
    place = getattr(module, "__file__", None)
    return isinstance(place, str) and shown_file(place) == file


def _asks(node: ast.expr) -> bool:
    """Whether an expression only looks: it calls nothing but what _ASKS names, and binds no name."""
    for each in ast.walk(node):
        if isinstance(each, _NO_ASKING):
            return False
        if isinstance(each, ast.Call):
            name = each.func.attr if isinstance(each.func, ast.Attribute) else getattr(each.func, "id", "")
            if name not in _ASKS:
                return False
    return True


def _may_catch(file: str, line: int) -> bool:
    """Whether an exception that is raised on a line may end within its function: in a `try`, or a `with` of anything
    but torch's.
    """
    blocks = _blocks("".join(linecache.getlines(str(Path.cwd() / file))))
    bodies = [(node, node.body[0].lineno, node.body[-1].end_lineno or node.body[-1].lineno) for node in blocks]
    around = [node for node, first, last in bodies if first <= line <= last]
    return any(isinstance(node, (ast.Try, ast.TryStar)) or not _is_torchs(node) for node in around)


def _is_torchs(node: ast.Try | ast.TryStar | ast.With) -> bool:
    return isinstance(node, ast.With) and all(
        ast.unparse(item.context_expr).startswith("torch.") for item in node.items
    )


@functools.lru_cache(maxsize=64)
def _blocks(source: str) -> list[ast.Try | ast.TryStar | ast.With]:
    return [
        node
        for node in nodes_of(source)
        if isinstance(node, ast.With) or (isinstance(node, (ast.Try, ast.TryStar)) and node.handlers)
    ]
