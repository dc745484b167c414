"""Baked-in decisions of a trace, found by running torch and the file on inputs that differ.

Compared are, beside the samples, variations of one of them (variations.py). Where outputs differ, the file is wrong.
That they agree settles only what these inputs exercised: decisions.py judges each place where Python read a tensor's
value while the module was traced (reads.py), and where the exporter warned. A module is also run again on the same
input, and as it was made: a file draws no numbers and keeps nothing.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from truehalf.errors import StageError
from truehalf.exporting.against_torch import tensors_of
from truehalf.exporting.baked.agreement import Rule, all_finite, largest_values
from truehalf.exporting.baked.decisions import (
    INSTALLED,
    OPEN,
    SETTLED,
    BakedDecision,
    places_of,
    settle,
)
from truehalf.exporting.baked.reads import Read, reads
from truehalf.exporting.baked.repeated import changes_of_state, check_repeats, draws, hangs_on_rounding, steady
from truehalf.exporting.baked.subject import Arrays, Subject
from truehalf.exporting.baked.variations import NATURAL, SEARCHING, longer_axes, other_batches, variations
from truehalf.exporting.baked_report import SHOWN, Baked
from truehalf.models.as_made import copied
from truehalf.models.sizes import other_axes
from truehalf.runtime.ort import Session
from truehalf.verification.metrics.tensors import query_outputs


def what_was_baked(subject: Subject) -> Baked:
    """Compare on further inputs, and judge the places where Python decided.

    Raises:
        StageError: where outputs differ on one of the inputs, or torch's from call to call.
    """
    alike = [(feed, outputs) for feed, outputs in subject.pairs if not other_axes(feed, subject.example)]
    base = min([subject.example, *(feed for feed, _ in alike)], key=lambda feed: len(next(iter(feed.values()))))
    seen = [subject.example, *(feed for feed, _ in alike)]
    user_code = _has_own_code(subject) and not subject.followed
    runs = _read(subject, [subject.example, *(feed for feed, _ in subject.pairs)]) if user_code else []
    longer = _longer(subject, base) if runs else []
    found = places_of(subject.caught, runs or [])
    settle(found, runs, subject.followed, longer)
    searched = runs is None or any(place.state == OPEN for place in found.values())
    tried = list(variations(subject.spec, base, seen, NATURAL | (SEARCHING if searched else {})))
    tried += other_batches(subject.spec, seen)
    compared, skipped, hanging = _compared(subject, alike, base, tried, list(found.values()))
    drawn = draws(subject, base)
    open_state = changes_of_state(subject, [base, *compared.values()])
    if runs and searched:  # where the samples went one way, others may have taken the other
        more = _read(subject, list(compared.values()))
        runs = None if more is None else runs + more
        found = places_of(subject.caught, runs or [])
    settle(found, runs, subject.followed, longer, hanging)
    sentences = {
        state: [place.sentence for place in found.values() if place.state == state]
        for state in (OPEN, SETTLED, INSTALLED)
    }
    if open_state:
        sentences[OPEN].append(open_state)
    if drawn:
        sentences[OPEN].append("the module draws random numbers, though outputs agree on the inputs that were tried")
    return Baked(list(compared), skipped, sentences[OPEN], sentences[SETTLED], sentences[INSTALLED])


@contextlib.contextmanager
def explaining(subject: Subject) -> Iterator[None]:
    """Where outputs differ on a sample, say where Python decided while the module was traced.

    Raises:
        StageError: what was raised within, with these places; or of a module whose outputs follow from earlier calls.
    """
    try:
        yield
    except StageError as error:
        if error.code == "not-finite":
            raise
        for feed, known in subject.pairs:
            check_repeats(functools.partial(subject.run, feed), subject.spec, subject.options, known)
        changes_of_state(subject, [feed for feed, _ in subject.pairs])
        decided = _decided(list(places_of(subject.caught, []).values()))
        raise StageError(error.code, f"{error.text}.{decided}" if decided else error.text) from error


def _has_own_code(subject: Subject) -> bool:
    return subject.has_user_code or any(place.in_user_code for place in places_of(subject.caught, []).values())


def _read(subject: Subject, feeds: Sequence[Arrays]) -> list[list[Read]] | None:
    """What Python reads on each feed in what was exported; None where that cannot be followed."""
    runs = []
    for feed in feeds:
        module = (copied(subject.traced) if subject.traced is not None else None) or subject.module
        try:
            runs.append(reads(module, tensors_of(subject.spec, feed)))
        except Exception:  # whatever the module raises, or torch.jit.trace
            return None
    return runs


def _longer(subject: Subject, base: Arrays) -> list[list[Read]]:
    """What Python reads where an axis that varies in the file is twice as long, so which sizes are others then."""
    runs = [_read(subject, [feed]) for feed in longer_axes(subject.spec, base)]
    return [run for each in runs for run in each or []]


def _compared(
    subject: Subject,
    alike: Sequence[tuple[Arrays, Mapping[str, np.ndarray]]],
    base: Arrays,
    tried: Sequence[tuple[str, dict[str, np.ndarray]]],
    places: Sequence[BakedDecision],
) -> tuple[dict[str, Arrays], list[str], bool]:
    """The inputs on which the two agree, by what was changed; what was skipped, with the reason; and whether there is
    one on which the two differ, and torch from itself where it is off by rounding.

    Raises:
        StageError: where they differ.
    """
    spec = subject.spec
    if query_outputs(spec) and not spec.trained:
        return {}, ["all: random weights keep arbitrary queries"], False
    session = Session(subject.path)
    largest = largest_values([outputs for _, outputs in alike] or [subject.run(base)])
    rule = Rule(spec, subject.options, largest)
    compared: dict[str, Arrays] = {}
    hanging = False
    skipped = []
    for change, feed, known in [*(("", feed, outputs) for feed, outputs in alike), *((*each, None) for each in tried)]:
        try:
            outputs = known if known is not None else steady(subject, feed, rule)
        except StageError as error:
            if error.code == "module-varies":
                raise
            skipped.append(f"{change}: {error.text}")
            continue
        if not all_finite(outputs):
            skipped.append(f"{change}: torch's outputs are not finite")
            continue
        try:
            difference = rule.difference(outputs, session.run(feed))
        except StageError as error:  # ONNX Runtime cannot run what torch runs
            difference = error.text
        if difference and hangs_on_rounding(subject, feed, outputs, rule):
            hanging = True
            skipped.append(f"{change or 'a sample'}: torch differs from itself where the input is off by rounding")
        elif difference:
            raise StageError("outputs-differ", _differs(change, base, feed, difference, places))
        elif change:
            compared[change] = feed
    return compared, skipped, hanging


def _differs(change: str, base: Arrays, feed: Arrays, difference: str, places: Sequence[BakedDecision]) -> str:
    changed = [name for name in feed if not np.array_equal(feed[name], base[name])] if change else []
    ranges = ", ".join(f"{name} from {feed[name].min():.4g} to {feed[name].max():.4g}" for name in changed)
    where = f"on an input that is {change} ({ranges})" if change else "on a sample"
    return (
        f"torch and the traced file compute other outputs {where}: {difference}.{_decided(places)} Try the other "
        "exporter (trace.exporter), or set trace.atol and trace.rtol where rounding explains it"
    )


def _decided(places: Sequence[BakedDecision]) -> str:
    """For a message: the places of the user's, or else of packages."""
    named = [place.sentence for place in places if place.in_user_code] or [place.sentence for place in places]
    decided = f" Python decided while it was traced: {'; '.join(named[:SHOWN])}"
    return f"{decided}; compute it with tensors instead." if named else ""
