"""Decisions that a trace fixed, found by running torch and the file on inputs that differ.

Beside the samples, variations of one of them are compared (variations.py); where outputs differ, the file is wrong. A
module is also run again on the same input, and as it was made: a file draws no numbers and keeps nothing. Agreement on
some inputs does not prove it for all, so what Python read while the module was traced (reads.py) is reported:

open        in the user's files: read from the inputs, or from sizes that vary. The trace is not verified
installed   of a package: outputs were compared, and its code is not judged

A place is neither if it reads parameters or sizes that do not vary, or if the statement only checks, raises or prints.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import linecache
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from truehalf.config.schema import TraceConfig
from truehalf.errors import StageError
from truehalf.exporting.against_torch import torch_outputs
from truehalf.exporting.reads import Place, Read
from truehalf.exporting.trace_report import SHOWN, Baked
from truehalf.exporting.variations import CHANGES, FLAT, disturbed, other_batches, variations
from truehalf.io_spec.spec import IoSpec
from truehalf.models.as_made import State
from truehalf.models.calling import network_of
from truehalf.models.own_code import has_own_code, is_own, nodes_of, shown_file
from truehalf.models.sizes import other_axes
from truehalf.runtime.ort import Session
from truehalf.verification.metrics.tensors import check_runs, query_outputs

if TYPE_CHECKING:
    import torch

Arrays = Mapping[str, np.ndarray]
_MESSAGE = re.compile(r"print|warnings\.warn|.*\.(debug|info|warning|error|critical|exception|log)")
_OF_ITS_LARGEST, _LEAST = 0.01, 1e-6
_RANDOM = (
    "the module draws random numbers (dropout(training=True), torch.rand), reads a clock, or keeps something from call "
    "to call; a file does none of it: take it out of forward, or give it as an input"
)


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A module, and the file that was traced from it.

    Attributes:
        module: as it is after the export.
        made: a copy of it as it was before its first run, where calls have changed it since; else None.
        path: of the file.
        example: the feed that was traced on.
        pairs: (feed, what torch computes from it) of the samples.
        own, installed: sentences on places where Python decided, in the user's code and in packages.
        options: tolerance of the comparison.
    """

    module: torch.nn.Module
    made: torch.nn.Module | None
    path: Path
    spec: IoSpec
    example: Arrays
    pairs: Sequence[tuple[Arrays, Arrays]]
    own: Sequence[str]
    installed: Sequence[str]
    options: TraceConfig

    def run(self, feed: Arrays, module: torch.nn.Module | None = None) -> dict[str, np.ndarray]:
        """Compute torch's outputs."""
        return torch_outputs(self.module if module is None else module, self.spec, feed, self.example)

    @functools.cached_property
    def _largest(self) -> dict[str, float]:
        """By output, the largest finite value that torch computes from samples."""
        runs = [outputs for _, outputs in self.pairs] or [self.run(self.example)]
        finite = {name: [np.where(np.isfinite(run[name]), run[name], 0) for run in runs] for name in runs[0]}
        return {name: max(float(np.abs(each).max(initial=0.0)) for each in arrays) for name, arrays in finite.items()}

    def difference(self, reference: Arrays, other: Arrays, second: str = "ONNX Runtime") -> str:
        """Say how outputs differ; empty where they agree.

        Queries are compared together, each other output by itself, so that a large one hides no small one. Of an output
        whose values are all small, a difference counts from a hundredth of its largest on.
        """
        together = query_outputs(self.spec)
        for names in ([together] if together else []) + [[name] for name in reference if name not in together]:
            atol = min(self.options.atol, max(_OF_ITS_LARGEST * max(self._largest[name] for name in names), _LEAST))
            one, two = ({name: run[name] for name in names} for run in (reference, other))
            queries = [name for name in names if name in together]
            spec, sides, rtol = replace(self.spec, trained=True), ("torch", second), self.options.rtol
            try:
                check_runs([(one, two)], spec, atol=atol, rtol=rtol, sides=sides, queries=queries)
            except StageError as error:
                return error.text
        return ""


def what_was_baked(subject: Subject) -> Baked:
    """Compare on further inputs, and list the places where Python decided.

    Raises:
        StageError: where outputs differ on one of the inputs, or torch's from call to call.
    """
    kept = check_repeats(subject)
    compared: list[str] = []
    skipped = ["all: random weights keep arbitrary queries"]
    if subject.spec.trained or not query_outputs(subject.spec):
        compared, skipped = _compared(subject)
    return Baked(compared, skipped, [*subject.own, *kept], subject.installed)


@contextlib.contextmanager
def explaining(subject: Subject) -> Iterator[None]:
    """Add the places where Python decided to an error on the samples.

    Raises:
        StageError: what was raised within, with these places; or of a module whose outputs follow from earlier calls.
    """
    try:
        yield
    except StageError as error:
        if error.code == "not-finite":
            raise
        check_repeats(subject)
        text = error.text.partition("; ")[0] if subject.own and error.code == "wrong-shape" else error.text
        raise StageError(error.code, f"{text}.{_decided(subject)}") from error


def _decided(subject: Subject) -> str:
    places = "; ".join((subject.own or subject.installed)[:SHOWN])
    return f" Python decided while it was traced: {places}; compute it with tensors instead." if places else ""


# --- comparison -------------------------------------------------------------------------------------------------------


def _compared(subject: Subject) -> tuple[list[str], list[str]]:
    """The further inputs on which the two agree, by what was changed; what was skipped, with the reason.

    Raises:
        StageError: where they differ.
    """
    session = Session(subject.path)
    seen = [subject.example, *(feed for feed, _ in subject.pairs if not other_axes(feed, subject.example))]
    base = min(seen, key=lambda feed: len(next(iter(feed.values()))))
    changes = {**CHANGES, **(FLAT if subject.own else {})}
    compared, skipped = [], []
    for change, feed in [*variations(subject.spec, base, seen, changes), *other_batches(subject.spec, seen)]:
        drawn = _generators()
        try:
            outputs = subject.run(feed)
        except StageError as error:
            skipped.append(f"{change}: {error.text}")
            continue
        if _generators() != drawn:
            _check_same(subject, outputs, subject.run(feed), "run twice on the same input")
        if not _all_finite(outputs):
            skipped.append(f"{change}: torch's outputs are not finite")
            continue
        try:
            difference = subject.difference(outputs, session.run(feed))
        except StageError as error:  # ONNX Runtime cannot run what torch runs
            difference = error.text
        if difference and _turns_by_rounding(subject, feed, outputs):
            skipped.append(f"{change}: torch differs from itself where the input is off by rounding")
        elif difference:
            ranges = ", ".join(f"{name} from {each.min():.4g} to {each.max():.4g}" for name, each in feed.items())
            raise StageError(
                "outputs-differ",
                f"torch and the traced file compute other outputs on an input that is {change} ({ranges}): "
                f"{difference}.{_decided(subject)} "
                "Try the other exporter (trace.exporter), or set trace.atol and trace.rtol where rounding explains it",
            )
        else:
            compared.append(change)
    return compared, skipped


def _all_finite(outputs: Arrays) -> bool:
    return all(bool(np.isfinite(array).all()) for array in outputs.values() if array.dtype.kind == "f")


def _turns_by_rounding(subject: Subject, feed: Arrays, outputs: Arrays) -> bool:
    """True if a 1e-5 change of the input changes torch's own outputs."""
    others = (disturbed(feed, np.random.default_rng(seed)) for seed in range(2))
    return any(subject.difference(outputs, subject.run(other)) for other in others)


# --- a module that is no function of its inputs -----------------------------------------------------------------------


def check_repeats(subject: Subject) -> list[str]:
    """Run the module again on a sample, and as it was made; say what the user's code changes in every call.

    Raises:
        StageError: where outputs differ.
    """
    runs = subject.pairs or [(subject.example, subject.run(subject.example))]
    feed, known = max(runs, key=lambda pair: len(next(iter(pair[0].values()))))
    settled, drawn = State(network_of(subject.module)), _generators()
    _check_same(subject, known, subject.run(feed), "run twice on the same input")
    if subject.made is not None:
        fresh = subject.run(feed, subject.made)
        _check_same(subject, fresh, known, "run before on other inputs, and as it was made")
    written = [name for name, in_user_code in settled.changes().items() if in_user_code]
    found = []
    if written:
        part = network_of(subject.module).get_submodule(written[0].rpartition(".")[0])
        code = getattr(type(part).forward, "__code__", None)
        place = f"{shown_file(code.co_filename)}:{code.co_firstlineno}: " if code else ""
        found.append(f"{place}every call writes to the module anew ({', '.join(written)})")
    if _generators() != drawn and has_own_code(subject.module):
        found.append("the module draws random numbers, though outputs agree on the inputs that were tried")
    return found


def _check_same(subject: Subject, once: Arrays, again: Arrays, how: str) -> None:
    if _all_finite(once) and (difference := subject.difference(once, again, "torch")):
        raise StageError("module-varies", f"torch, {how}: {difference}; {_RANDOM}")


def _generators() -> tuple[Any, ...]:
    """Read the states of the generators of random numbers that a module may draw from."""
    import torch

    drawn = np.random.get_state(legacy=False)["state"]
    return torch.get_rng_state().numpy().tobytes(), random.getstate(), str(drawn)


# --- places -----------------------------------------------------------------------------------------------------------


def places_of(found: Sequence[Read], at_double: Callable[[], Sequence[Read]]) -> tuple[list[str], list[str]]:
    """Say where Python decided: in the user's code, by what it read of the inputs or of sizes that vary; in packages,
    by what it read of either.

    Args:
        found: reads during the export; none of dynamo, which refuses code that decides by values.
        at_double: reads with every axis that varies twice as long, asked for where the user's code reads sizes.
    """
    own = [read for read in found if is_own(read.place[0])]
    installed = [read.place for read in found if not is_own(read.place[0]) and (read.data or read.sizes)]
    first = _by_statement(own)
    longer = _by_statement(at_double()) if any(read.sizes for read in own) else first
    decided = []
    for place, read in first.items():
        sizes = [frozenset[int]().union(*(each.sizes for each in run)) for run in (read, longer.get(place, []))]
        if (any(each.data for each in read) or sizes[0] != sizes[1]) and not _only_says(place, read):
            decided.append(_sentence(place))
    return decided, list(map(_sentence, dict.fromkeys(installed)))


def _by_statement(found: Sequence[Read]) -> dict[Place, list[Read]]:
    places: dict[Place, list[Read]] = {}
    for read in found:
        places.setdefault(statement_of(*read.place), []).append(read)
    return places


def _sentence(place: Place) -> str:
    code = linecache.getline(*place).strip()
    return f"{shown_file(place[0])}:{place[1]}: reads a tensor{f' (`{code}`)' if code else ''}"


def statement_of(file: str, line: int) -> Place:
    """Find the statement that a line belongs to; of an `if`, `while` or `for` only its condition."""
    node = _statement(file, line)
    return file, line if node is None else node.lineno


def _statement(file: str, line: int) -> ast.stmt | None:
    around = []
    for node in nodes_of(file):
        if isinstance(node, ast.stmt):
            block = getattr(node, "body", None)
            last = max(node.lineno, block[0].lineno - 1) if block else (node.end_lineno or node.lineno)
            if node.lineno <= line <= last:
                around.append((last - node.lineno, node.lineno, node))
    return min(around, key=lambda each: each[:2])[2] if around else None


def _only_says(place: Place, read: Sequence[Read]) -> bool:
    """True if a statement changes nothing in the graph: an assertion, a message, an `if` that only raises or has one.
    Where what it raises may be caught by the user's code, it decides.
    """
    node = _statement(*place)
    if node is None or any(_may_catch(*each) for each in [place, *(caller for one in read for caller in one.callers)]):
        return False
    binds = any(isinstance(each, ast.NamedExpr) for each in ast.walk(node))
    said = node.body if isinstance(node, ast.If) and not node.orelse else [node]
    return not binds and all(map(_says, said))


def _says(node: ast.stmt) -> bool:
    called = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and ast.unparse(node.value.func)
    return isinstance(node, ast.Raise | ast.Assert | ast.Pass) or bool(called and _MESSAGE.fullmatch(called))


def _may_catch(file: str, line: int) -> bool:
    """True if an exception that is raised on a line may end within its function: in a `try`, or a `with` of anything
    but torch's.
    """
    return any(
        node.body[0].lineno <= line <= (node.body[-1].end_lineno or line)
        for node in nodes_of(file)
        if (isinstance(node, ast.Try | ast.TryStar) and node.handlers)
        or (isinstance(node, ast.With) and not all(ast.unparse(each).startswith("torch.") for each in node.items))
    )
