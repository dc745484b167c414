"""Decisions that a trace fixed, found by running torch and the file on inputs that differ.

Beside the samples, variations of one of them are compared (variations.py); where outputs differ, the file is wrong. A
module is also run again on the same input, and as it was made: a file draws no numbers and keeps nothing. Agreement on
some inputs does not prove it for all, so what Python read while the module was traced (reads.py) is reported:

open        in the user's files: read from the inputs, or from sizes that vary. The trace is not verified
installed   of a package, where the exporter warned: outputs were compared, and its code is not read

A place is neither if it reads parameters or sizes that do not vary, or if the statement only checks, raises or prints.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import linecache
import random
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from truehalf.config.schema import Exporter, TraceConfig
from truehalf.errors import StageError
from truehalf.exporting.against_torch import tensors_of, torch_outputs
from truehalf.exporting.reads import Read, reads
from truehalf.exporting.trace_report import SHOWN, Baked
from truehalf.exporting.variations import CHANGES, FLAT, disturbed, longer_axes, other_batches, variations
from truehalf.io_spec.spec import IoSpec
from truehalf.models.as_made import State, copied
from truehalf.models.calling import network_of
from truehalf.models.own_code import is_own, is_own_class, nodes_of, shown_file, source_of
from truehalf.models.sizes import other_axes
from truehalf.runtime.ort import Session
from truehalf.verification.metrics.tensors import SHARE, compare_runs, query_outputs

if TYPE_CHECKING:
    import torch

Arrays = Mapping[str, np.ndarray]
Statement = tuple[str, int]  # file as it is shown, first line
_OF_CONSTANTS = ("torch.tensor results", "torch.as_tensor results", "torch.from_numpy results", "There are")
_MESSAGE = re.compile(r"print|warnings\.warn|.*\.(debug|info|warning|error|critical|exception|log)")
_DETECTIONS = ("logits", "boxes", "scores", "labels")  # kinds of outputs whose rows belong together
_OF_ITS_LARGEST, _LEAST = 0.01, 1e-6
_RANDOM = (
    "the module draws random numbers (dropout(training=True), torch.rand), reads a clock, or keeps something from call "
    "to call; a file does none of it: take it out of forward, or give it as an input"
)


@dataclass(frozen=True)
class Rule:
    """Compare outputs on one input: of a detector together, each other output by itself, so that a large one hides no
    small one. Of an output whose values are all small, a difference counts from a hundredth of its largest on.

    Attributes:
        spec: I/O spec, of which the outputs are read.
        options: atol and rtol of the value rule.
        largest: by output, the largest value that torch has computed for it.
    """

    spec: IoSpec
    options: TraceConfig
    largest: Mapping[str, float]

    def difference(self, reference: Arrays, other: Arrays) -> str:
        """What is wrong, for a message; empty where the two agree."""
        for names in self._groups():
            one, two = ({name: run[name] for name in names} for run in (reference, other))
            atol = min(self.options.atol, max(_OF_ITS_LARGEST * max(self.largest[name] for name in names), _LEAST))
            queries = [name for name in query_outputs(self.spec) if name in names]
            try:
                found = compare_runs([(one, two)], atol=atol, rtol=self.options.rtol, queries=queries)
            except StageError as error:
                return error.text
            if not found.agree and any(array.size for array in one.values()):
                errors = ", ".join(f"{name} {error:.3g}" for name, error in found.max_abs.items())
                return (
                    f"{found.share:.2%} of the values agree, expected {SHARE:.1%} (atol {atol:.3g}, rtol "
                    f"{self.options.rtol:g}; largest differences: {errors})"
                )
        return ""

    def _groups(self) -> list[list[str]]:
        together = [each.name for each in self.spec.outputs if each.kind in _DETECTIONS]
        single = [[each.name] for each in self.spec.outputs if each.name not in together]
        return ([together] if together else []) + single


def largest_values(runs: Sequence[Arrays]) -> dict[str, float]:
    """By output, the largest finite value of all runs."""
    found: dict[str, float] = {}
    for run in runs:
        for name, array in run.items():
            finite = np.abs(np.asarray(array, np.float64))
            finite = finite[np.isfinite(finite)]
            found[name] = max(found.get(name, 0.0), float(finite.max(initial=0.0)))
    return found


def all_finite(outputs: Arrays) -> bool:
    return all(bool(np.isfinite(array).all()) for array in outputs.values() if array.dtype.kind == "f")


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A module, and the file that was traced from it.

    Attributes:
        module: as it is after the export.
        made: a copy of it as it was before its first run; None where it cannot be copied.
        traced: a copy of what was exported, before the export: with `prepare`, another module; None as above.
        before: its state then.
        path: of the file.
        example: the feed that was traced on.
        pairs: (feed, what torch computes from it) of the samples.
        caught: the exporter's warnings.
        draws: true if a call draws random numbers.
        options: exporter, and tolerance of the comparison.
    """

    module: torch.nn.Module
    made: torch.nn.Module | None
    traced: torch.nn.Module | None
    before: State
    path: Path
    spec: IoSpec
    example: Arrays
    pairs: Sequence[tuple[Arrays, Mapping[str, np.ndarray]]]
    caught: Sequence[warnings.WarningMessage]
    draws: bool
    options: TraceConfig

    def run(self, feed: Arrays, module: torch.nn.Module | None = None) -> dict[str, np.ndarray]:
        """Compute torch's outputs."""
        return torch_outputs(self.module if module is None else module, self.spec, feed, self.example)

    @functools.cached_property
    def rule(self) -> Rule:
        known = [outputs for feed, outputs in self.pairs if not other_axes(feed, self.example)]
        return Rule(self.spec, self.options, largest_values(known or [self.run(self.example)]))


def what_was_baked(subject: Subject) -> Baked:
    """Compare on further inputs, and list the places where Python decided.

    Raises:
        StageError: where outputs differ on one of the inputs, or torch's from call to call.
    """
    seen = [subject.example, *(feed for feed, _ in subject.pairs if not other_axes(feed, subject.example))]
    base = min(seen, key=lambda feed: len(next(iter(feed.values()))))
    own, installed = _places(subject, base)
    compared: dict[str, Arrays] = {}
    skipped = ["all: random weights keep arbitrary queries"]
    if subject.spec.trained or not query_outputs(subject.spec):
        compared, skipped = _compared(subject, base, seen, own, installed)
    opened = list(own)
    if kept := changes_of_state(subject, [base, *compared.values()]):
        opened.append(kept)
    if subject.draws and _has_user_code(subject):
        opened.append("the module draws random numbers, though outputs agree on the inputs that were tried")
    return Baked(list(compared), skipped, opened, installed)


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
        for feed, known in subject.pairs:
            check_repeats(lambda feed=feed: subject.run(feed), subject.spec, subject.options, known)
        changes_of_state(subject, [feed for feed, _ in subject.pairs])
        own, installed = _warned(subject.caught)
        text = error.text.partition("; ")[0] if own and error.code == "wrong-shape" else error.text
        raise StageError(error.code, f"{text}.{_decided(list(own.values()) or installed)}") from error


# --- comparison -------------------------------------------------------------------------------------------------------


def _compared(
    subject: Subject, base: Arrays, seen: Sequence[Arrays], own: Sequence[str], installed: Sequence[str]
) -> tuple[dict[str, Arrays], list[str]]:
    """The further inputs on which the two agree, by what was changed; what was skipped, with the reason.

    Raises:
        StageError: where they differ.
    """
    session = Session(subject.path)
    compared, skipped = {}, []
    changes = {**CHANGES, **(FLAT if own else {})}
    samples = [("", feed, known) for feed, known in subject.pairs if not other_axes(feed, subject.example)]
    further = [*variations(subject.spec, base, seen, changes), *other_batches(subject.spec, seen)]
    for change, feed, known in [*samples, *((*each, None) for each in further)]:
        try:
            outputs = known or _steady(subject, feed)
        except StageError as error:
            if error.code == "module-varies":
                raise
            skipped.append(f"{change}: {error.text}")
            continue
        if not all_finite(outputs):
            skipped.append(f"{change}: torch's outputs are not finite")
            continue
        try:
            difference = subject.rule.difference(outputs, session.run(feed))
        except StageError as error:  # ONNX Runtime cannot run what torch runs
            difference = error.text
        if difference and _turns_by_rounding(subject, feed, outputs):
            skipped.append(f"{change or 'a sample'}: torch differs from itself where the input is off by rounding")
        elif difference:
            ranges = ", ".join(f"{name} from {each.min():.4g} to {each.max():.4g}" for name, each in feed.items())
            places = own or installed
            where = f"an input that is {change} ({ranges})" if change else "a sample"
            raise StageError(
                "outputs-differ",
                f"torch and the traced file compute other outputs on {where}: {difference}.{_decided(places)} "
                "Try the other exporter (trace.exporter), or set trace.atol and trace.rtol where rounding explains it",
            )
        elif change:
            compared[change] = feed
    return compared, skipped


def _decided(places: Sequence[str]) -> str:
    decided = f" Python decided while it was traced: {'; '.join(places[:SHOWN])}; compute it with tensors instead."
    return decided if places else ""


def _turns_by_rounding(subject: Subject, feed: Arrays, outputs: Arrays) -> bool:
    """True if a 1e-5 change of the input changes torch's own outputs."""
    others = (disturbed(feed, np.random.default_rng(seed)) for seed in range(2))
    return any(subject.rule.difference(outputs, subject.run(other)) for other in others)


# --- a module that is no function of its inputs -----------------------------------------------------------------------


def check_repeats(run: Any, spec: IoSpec, options: TraceConfig, known: Arrays | None = None) -> None:
    """Run a module twice on the same input; once, where its outputs are known.

    Raises:
        StageError: where the outputs differ.
    """
    once, again = run() if known is None else known, run()
    if all_finite(once) and (difference := Rule(spec, options, largest_values([once])).difference(once, again)):
        raise StageError("module-varies", f"torch run twice on the same input: {difference}; {_RANDOM}")


def _steady(subject: Subject, feed: Arrays) -> dict[str, np.ndarray]:
    """Compute torch's outputs; twice, where it has drawn random numbers."""
    before = generators()
    outputs = subject.run(feed)
    if generators() != before:
        check_repeats(lambda: subject.run(feed), subject.spec, subject.options, outputs)
    return outputs


def generators() -> tuple[Any, ...]:
    """Read the states of the generators of random numbers that a module may draw from."""
    import torch

    drawn = np.random.get_state(legacy=False)["state"]
    return torch.get_rng_state().numpy().tobytes(), random.getstate(), str(drawn)


def changes_of_state(subject: Subject, feeds: Sequence[Arrays]) -> str:
    """Say why it is open what the module keeps from call to call; empty where that changes nothing.

    Raises:
        StageError: where the module computes other outputs than one that was just made.
    """
    changed = subject.before.changes()
    if not changed:
        return ""
    if subject.made is None:
        reason = "the module changes itself, and cannot be copied to be run as it was made"
        return reason if any(changed.values()) else ""
    for feed in feeds:
        used, fresh = subject.run(feed), subject.run(feed, copied(subject.made))
        difference = subject.rule.difference(fresh, used) if all_finite(fresh) else ""
        if difference and not _turns_by_rounding(subject, feed, used):
            message = f"torch, run before on other inputs, and as it was made: {difference}; {_RANDOM}"
            raise StageError("module-varies", message)
    settled = State(network_of(subject.module))
    subject.run(feeds[-1])
    written = [name for name, in_user_code in settled.changes().items() if in_user_code]
    if not written:
        return ""
    part = network_of(subject.module).get_submodule(written[0].rpartition(".")[0])
    code = getattr(type(part).forward, "__code__", None)
    place = f"{shown_file(code.co_filename)}:{code.co_firstlineno}: " if code else ""
    return f"{place}every call writes to the module anew ({', '.join(written)})"


def _has_user_code(subject: Subject) -> bool:
    return any(is_own_class(type(part)) for part in subject.module.modules())


# --- places -----------------------------------------------------------------------------------------------------------


def _places(subject: Subject, base: Arrays) -> tuple[list[str], list[str]]:
    """Sentences on the places where Python decided: in the user's code, by what it read of the inputs or of sizes that
    vary; in packages, where the exporter warned.

    Dynamo follows values itself, and refuses where Python decides by one.
    """
    own, installed = _warned(subject.caught)
    if subject.options.exporter is Exporter.dynamo or not (own or _has_user_code(subject)):
        return [], installed
    runs = [_by_statement(subject, feed) for feed in (base, *longer_axes(subject.spec, base))]
    first, others = runs[0], [run for run in runs[1:] if run is not None]
    if first is None:
        return [f"{said}: what is read there could not be followed" for said in own.values()], installed
    found = []
    for place in {**own, **first}:
        read = first.get(place, [])
        sizes = {frozenset[int]().union(*(each.sizes for each in run.get(place, []))) for run in (first, *others)}
        live = any(each.data for each in read) or (len(sizes) > 1 and any(each.sizes for each in read))
        unread = not read and place in own
        if (live or unread) and not _only_says(place, read):
            found.append(own.get(place) or _sentence(place, "reads a tensor's value"))
    return found, installed


def _warned(caught: Sequence[warnings.WarningMessage]) -> tuple[dict[Statement, str], list[str]]:
    """Sentences on the exporter's TracerWarnings, of constants apart: by statement of the user's, and of packages."""
    own: dict[Statement, str] = {}
    installed: dict[str, None] = {}
    for each in caught:
        words = str(each.message).partition(" might cause")[0].partition(". ")[0].strip()
        if each.category.__name__ != "TracerWarning":
            continue
        file = str(Path.cwd() / each.filename)
        place = statement_of(each.filename, each.lineno)
        if not (is_own(file) and (each.filename.startswith("<") or Path(file).exists())):
            installed[_sentence(place, words)] = None
        elif not words.startswith(_OF_CONSTANTS):
            own.setdefault(place, _sentence(place, words))
    return own, list(installed)


def _by_statement(subject: Subject, feed: Arrays) -> dict[Statement, list[Read]] | None:
    """List the reads of tensors by the user's code on a feed, or on its behalf; None where they cannot be followed."""
    module = (copied(subject.traced) if subject.traced is not None else None) or subject.module
    found: dict[Statement, list[Read]] = {}
    try:
        every = reads(module, tensors_of(subject.spec, feed))
    except Exception:  # whatever the module raises, or torch.jit.trace
        return None
    for read in every:
        if is_own(read.file):
            found.setdefault(statement_of(read.file, read.line), []).append(read)
    return found


def _sentence(place: Statement, words: str) -> str:
    file, line = place
    code = linecache.getline(str(Path.cwd() / file), line).strip()
    return f"{file}:{line}: {words}{f' (`{code}`)' if code else ''}"


def statement_of(file: str, line: int) -> Statement:
    """Find the statement that a line belongs to; of an `if`, `while` or `for` only its condition."""
    node = _statement(file, line)
    return shown_file(str(Path.cwd() / file)), line if node is None else node.lineno


def _statement(file: str, line: int) -> ast.stmt | None:
    around = []
    for node in nodes_of(source_of(str(Path.cwd() / file))):
        if isinstance(node, ast.stmt):
            block = getattr(node, "body", None)
            last = max(node.lineno, block[0].lineno - 1) if block else (node.end_lineno or node.lineno)
            if node.lineno <= line <= last:
                around.append((last - node.lineno, node.lineno, node))
    return min(around, key=lambda each: each[:2])[2] if around else None


def _only_says(place: Statement, read: Sequence[Read]) -> bool:
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
    blocks = [
        node
        for node in nodes_of(source_of(str(Path.cwd() / file)))
        if (isinstance(node, ast.Try | ast.TryStar) and node.handlers)
        or (isinstance(node, ast.With) and not all(ast.unparse(each).startswith("torch.") for each in node.items))
    ]
    return any(node.body[0].lineno <= line <= (node.body[-1].end_lineno or line) for node in blocks)
