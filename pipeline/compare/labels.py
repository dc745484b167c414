"""Labels of runs: the parameters that differ between them, under the shortest clear name."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Mapping, Sequence

from pipeline.compare.compared_runs import ComparedRun
from pipeline.tracking.record import NO_EFFECT

_LONG = 60  # characters of a value that are shown
_NAMES = ("model.name", "decoder.name")
# Keys of the model, and those whose defaults are made of them (conf/).
_OF_MODEL = (
    *("model.", "decoder.", "trace.dynamic_axes", "engine.profiles"),
    *("data.calibration_samples", "data.verification_samples"),
)
_CALLED = {"model.name": "model", "decoder.name": "decoder", "precision.dtype": "precision"}


def labels(runs: Sequence[ComparedRun]) -> list[str]:
    """Of each run what distinguishes it: the params that differ between the runs, under the shortest clear name.

    A param counts among the runs in which it has an effect. One that says what another says already (the checkpoint
    that belongs to a decoder) is left out, and of a model whatever its name stands for; of a run, lists that are empty.
    """
    keys = sorted({key for run in runs for key in run.params}, key=_place_of)
    differing: dict[str, list[str]] = {}
    for key in keys:
        values = [run.params.get(key, NO_EFFECT) for run in runs]
        if len({value for value in values if value != NO_EFFECT}) < 2 or _follows(key, values, differing):
            continue
        if not any(_says_the_same(values, others) for others in differing.values()):
            differing[key] = values
    differing = {key: _short(values) for key, values in differing.items()}
    last = [key.rsplit(".", 1)[-1] for key in differing]
    named = {key: key if last.count(name) > 1 else name for key, name in zip(differing, last, strict=True)} | _CALLED
    return [
        ", ".join(
            f"{named[key]}={values[i]}" for key, values in differing.items() if values[i] not in (NO_EFFECT, "[]")
        )
        or run.title
        for i, run in enumerate(runs)
    ]


def _short(values: list[str]) -> list[str]:
    """Values to be read in a line: of a long list how many entries it has."""
    shown = [_counted(value) if len(value) > _LONG else _plain(value) for value in values]
    if len(set(shown)) == len(set(values)):
        return shown
    digests = [hashlib.sha256(value.encode()).hexdigest()[:4] for value in values]
    return [
        text if len(value) <= _LONG else f"{text} ({digest})"
        for value, text, digest in zip(values, shown, digests, strict=True)
    ]


def _plain(value: str) -> str:
    """A number as short as it can be, entries of a list without brackets."""
    with contextlib.suppress(json.JSONDecodeError):
        found = json.loads(value)
        if isinstance(found, float):
            return f"{found:g}"
        if isinstance(found, list) and found and all(isinstance(each, str) for each in found):
            return "+".join(found)
    return value


def _counted(value: str) -> str:
    with contextlib.suppress(json.JSONDecodeError):
        entries = json.loads(value)
        if isinstance(entries, list):
            return f"{len(entries)} {'entry' if len(entries) == 1 else 'entries'}"
    return f"{value[:_LONG]}…"


def _place_of(key: str) -> tuple[int, str]:
    """What is chosen first stands first."""
    first = ("model.name", "decoder.name", "precision.dtype", "precision.method")
    return (first.index(key) if key in first else len(first) + (not key.startswith("precision.")), key)


def _follows(key: str, values: Sequence[str], differing: Mapping[str, Sequence[str]]) -> bool:
    """Whether a param is of the model, or made of one that is, and the names of model and decoder settle it."""
    names = [differing[name] for name in _NAMES if name in differing]
    if key in _NAMES or not key.startswith(_OF_MODEL) or not names:
        return False
    return len(set(zip(*names, strict=True))) == len(set(zip(*names, values, strict=True)))


def _says_the_same(values: Sequence[str], others: Sequence[str]) -> bool:
    """Whether two params vary together, and each value of one is part of that of the other."""
    pairs = set(zip(values, others, strict=True))
    together = len(pairs) == len(set(values)) == len(set(others))
    return together and all(a in b or b in a for a, b in pairs)
