"""Runs of a module on inputs that it has seen: a file draws no numbers and keeps nothing from call to call."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from truehalf.config.schema import TraceConfig
from truehalf.errors import StageError
from truehalf.exporting.baked.agreement import Rule, all_finite, largest_values
from truehalf.exporting.baked.subject import Arrays, Subject
from truehalf.exporting.baked.variations import disturbed
from truehalf.io_spec.spec import IoSpec
from truehalf.models.as_made import State, copied
from truehalf.models.calling import network_of
from truehalf.models.own_code import shown_file

_RANDOM = (
    "the module draws random numbers (dropout(training=True), torch.rand), reads a clock, or keeps something from call "
    "to call; a file does none of it: take it out of forward, or give it as an input"
)


def check_repeats(run: Callable[[], Arrays], spec: IoSpec, options: TraceConfig, known: Arrays | None = None) -> None:
    """Run a module twice on the same input; once, where it is known what it has computed.

    Raises:
        StageError: where the outputs differ.
    """
    once, again = run() if known is None else known, run()
    if all_finite(once) and (difference := Rule(spec, options, largest_values([once])).difference(once, again)):
        raise StageError("module-varies", f"torch run twice on the same input: {difference}; {_RANDOM}")


def steady(subject: Subject, feed: Arrays, rule: Rule) -> dict[str, np.ndarray]:
    """What torch computes; twice, where it has drawn random numbers."""
    before = _generators()
    outputs = subject.run(feed)
    if _generators() != before and (difference := rule.difference(outputs, subject.run(feed))):
        raise StageError("module-varies", f"torch run twice on the same input: {difference}; {_RANDOM}")
    return outputs


def _generators() -> tuple[Any, ...]:
    """States of the generators of random numbers that a module may draw from."""
    import torch

    drawn = np.random.get_state(legacy=False)["state"]
    return torch.get_rng_state().numpy().tobytes(), random.getstate(), str(drawn)


def draws(subject: Subject, feed: Arrays) -> bool:
    """Whether a module of the user's draws random numbers: outputs may be others where a draw is a rare one."""
    before = _generators()
    subject.run(feed)
    return _generators() != before and subject.has_user_code


def hangs_on_rounding(subject: Subject, feed: Arrays, outputs: Arrays, rule: Rule) -> bool:
    """Whether torch itself computes other outputs from an input that is off by rounding."""
    for seed in range(2):
        other = disturbed(feed, np.random.default_rng(seed))
        if rule.difference(outputs, subject.run(other)):
            return True
    return False


def changes_of_state(subject: Subject, feeds: Sequence[Arrays]) -> str:
    """Why it is open what the module keeps from call to call; empty where that changes nothing.

    Raises:
        StageError: where the module computes other outputs than one that was just made.
    """
    changed = subject.before.changes()
    if not changed:
        return ""
    if subject.made is None:
        reason = "the module changes itself, and cannot be copied to be run as it was made"
        return reason if any(changed.values()) else ""
    known = [outputs for _, outputs in subject.pairs] or [subject.run(feeds[0])]
    rule = Rule(subject.spec, subject.options, largest_values(known))
    for feed in feeds:
        used, fresh = subject.run(feed), subject.run(feed, copied(subject.made))
        difference = rule.difference(fresh, used) if all_finite(fresh) else ""
        if difference and not hangs_on_rounding(subject, feed, used, rule):
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
