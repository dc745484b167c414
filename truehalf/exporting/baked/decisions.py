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
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from truehalf.exporting.baked.reads import NUMBER, Read
from truehalf.models.own_code import is_own, nodes_of, shown_file, source_of

SETTLED, OPEN, INSTALLED = "settled", "open", "installed"
_TRACER = "TracerWarning"
_OF_CONSTANTS = ("torch.tensor results", "torch.as_tensor results", "torch.from_numpy results", "There are")
_MESSAGE = re.compile(r"print|warnings\.warn|log(ging|ger)?\.\w+", re.IGNORECASE)
Statement = tuple[str, int]  # file as it is shown, first line


@dataclass
class BakedDecision:
    """A statement, and what is known of it.

    Attributes:
        file: as it is shown: relative to the working folder, or to the folder of installed packages.
        line: its first line.
        in_user_code: whether the file is the user's.
        messages: the first words of the exporter's TracerWarnings.
        state, reason: see the top of this module.
    """

    file: str
    line: int
    in_user_code: bool
    messages: dict[str, None] = field(default_factory=dict)
    state: str = OPEN
    reason: str = ""

    @property
    def sentence(self) -> str:
        what = ", ".join(self.messages) or "reads a tensor's value"
        return f"{self.file}:{self.line}: {what}" + (f": {self.reason}" if self.reason else "")


def places_of(
    caught: Iterable[warnings.WarningMessage], runs: Iterable[Sequence[Read]]
) -> dict[Statement, BakedDecision]:
    """By statement: where the exporter warned, and where the user's code read a value.

    Args:
        caught: the exporter's warnings; those of tracing count.
        runs: what was read on each input.
    """
    found: dict[Statement, BakedDecision] = {}

    def place(file: str, line: int) -> BakedDecision:
        key = statement_of(file, line)
        in_user_code = is_own(str(Path.cwd() / file)) and (file.startswith("<") or (Path.cwd() / file).exists())
        return found.setdefault(key, BakedDecision(*key, in_user_code))

    for warning in caught:
        if warning.category.__name__ == _TRACER:
            at = place(warning.filename, warning.lineno)
            words = str(warning.message).partition(" might cause")[0].partition(". ")[0].strip()
            at.messages[words] = None
    for read in (read for run in runs for read in run):
        if is_own(read.file) and (read.data or read.sizes):
            place(read.file, read.line)
    return found


def settle(
    found: Mapping[Statement, BakedDecision],
    runs: Sequence[Sequence[Read]] | None,
    followed: bool = False,
    longer: Sequence[Sequence[Read]] = (),
    hanging: bool = False,
) -> None:
    """Say of each place what it is.

    Args:
        runs: what was read on each of the compared inputs; None where that could not be followed.
        followed: whether the exporter follows values itself, and refuses where Python decides by one (dynamo).
        longer: what was read on inputs of other sizes, which say what sizes vary and settle nothing.
        hanging: whether rounding decides on one of the inputs, so that torch alone explains what turns there.
    """
    others = [_by_statement(run) for run in longer]
    sorted_runs = None if runs is None else [_by_statement(run) for run in runs]
    judged = {}
    for key, place in found.items():
        if not place.in_user_code:
            place.state = INSTALLED
            continue
        events = None if sorted_runs is None else [run.get(key, []) for run in sorted_runs]
        place.state, place.reason = SETTLED, ""
        if not followed and (place.messages or any(events or [])) and not _only_says(key, events):
            judged[key] = events
    live = {
        key: _live(events, [run.get(key, []) for run in others]) for key, events in judged.items() if events is not None
    }
    only_one = sum(any(events) for events in live.values()) == 1
    for key, events in judged.items():
        place = found[key]
        place.reason = _open(place, events, live.get(key, []), only_one, hanging)
        place.state = OPEN if place.reason else SETTLED


def _live(events: Sequence[Sequence[Read]], others: Sequence[Sequence[Read]]) -> list[list[Read]]:
    """By run, what is read of the inputs, and of sizes that vary from run to run, or to one of the others."""
    sizes = {tuple(sorted(size for read in run for size in read.sizes)) for run in [*events, *filter(None, others)]}
    return [[read for read in run if read.data or (read.sizes and len(sizes) > 1)] for run in events]


def _open(
    place: BakedDecision,
    events: Sequence[Sequence[Read]] | None,
    live: Sequence[Sequence[Read]],
    only_one: bool,
    hanging: bool,
) -> str:
    """Why a place is open; empty where it is settled.

    Args:
        events: what was read there, by run; None where that could not be followed.
        live: of it, what can differ.
        only_one: whether something can differ at this place only.
        hanging: see settle.
    """
    of_constants = bool(place.messages) and all(each.startswith(_OF_CONSTANTS) for each in place.messages)
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
    return "rounding of the input decides on one of the inputs" if hanging else ""


def _by_statement(run: Sequence[Read]) -> dict[Statement, list[Read]]:
    found: dict[Statement, list[Read]] = {}
    for read in run:
        found.setdefault(statement_of(read.file, read.line), []).append(read)
    return found


# --- statements -------------------------------------------------------------------------------------------------------


def statement_of(file: str, line: int) -> Statement:
    """The statement that a line belongs to; of an `if`, `while` or `for` only its condition."""
    node = _statement(file, line)
    return shown_file(str(Path.cwd() / file)), line if node is None else node.lineno


def _statement(file: str, line: int) -> ast.stmt | None:
    spans = _spans(source_of(str(Path.cwd() / file)))
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
    """Whether a statement changes nothing in the graph: an assertion, a message, an `if` that only raises or has one.
    Where what it raises may be caught by the user's code, it decides.
    """
    node = _statement(*key)
    while_caught = [key, *(caller for run in events or [] for read in run for caller in read.callers)]
    if node is None or any(_may_catch(*place) for place in while_caught):
        return False
    binds = any(isinstance(each, ast.NamedExpr) for each in ast.walk(node))
    said = node.body if isinstance(node, ast.If) and not node.orelse else [node]
    return not binds and all(map(_says, said))


def _says(node: ast.stmt) -> bool:
    called = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and ast.unparse(node.value.func)
    return isinstance(node, ast.Raise | ast.Assert | ast.Pass) or bool(called and _MESSAGE.fullmatch(called))


def _may_catch(file: str, line: int) -> bool:
    """Whether an exception that is raised on a line may end within its function: in a `try`, or a `with` of anything
    but torch's.
    """
    blocks = _blocks(source_of(str(Path.cwd() / file)))
    return any(node.body[0].lineno <= line <= (node.body[-1].end_lineno or line) for node in blocks)


@functools.lru_cache(maxsize=64)
def _blocks(source: str) -> list[ast.Try | ast.TryStar | ast.With]:
    return [
        node
        for node in nodes_of(source)
        if (isinstance(node, (ast.Try, ast.TryStar)) and node.handlers)
        or (isinstance(node, ast.With) and not all(ast.unparse(each).startswith("torch.") for each in node.items))
    ]
