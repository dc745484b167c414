"""Samples of a run: those that trace, calibrate and verify. No sample calibrates and verifies.

A source that lists files is shared out in an order fixed by data.seed; one that makes samples makes others for each
purpose.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from truehalf.config.schema import Config, DataSource
from truehalf.data import digits, sources
from truehalf.data.coco import coco
from truehalf.data.fitting import adversarial_samples as made_adversarial
from truehalf.data.fitting import fitted
from truehalf.data.samples import Sample, Samples, Split, split
from truehalf.data.sources import PURPOSES, Source
from truehalf.errors import StageError
from truehalf.io_spec.spec import IoSpec

TRACE_SAMPLES = 16  # at most; other samples than those of calibrate and verify where there are enough
_AT_MOST = {"calibration": 32, "verification": 64}  # where data.*_samples is null
# (config, root) -> all samples; and (config, root, number of the purpose, count) -> those of a purpose.
_LISTED: dict[DataSource, Callable[[Config, Path], Source]] = {
    DataSource.images: sources.images,
    DataSource.coco: coco,
    DataSource.npz: sources.npz,
}
_MADE: dict[DataSource, Callable[[Config, Path, int, int], Source]] = {
    DataSource.digits: digits.digits,
    DataSource.random: sources.noise,
    DataSource.function: sources.function,
}


@dataclass(frozen=True)
class RunSources:
    """Sources of the three purposes."""

    trace: Source
    calibration: Source
    verification: Source

    def of(self, purpose: str) -> Source:
        source: Source = getattr(self, purpose)
        return source


def run_sources(config: Config, root: Path) -> RunSources:
    """Share out the samples of the configured source; its listing is read once.

    Args:
        root: the workspace; paths in data.* are relative to it.

    Raises:
        StageError: the source cannot be read, or holds fewer samples than the purposes need together.
    """
    data = config.data
    wanted = {
        "trace": TRACE_SAMPLES,
        "calibration": data.calibration_samples or _AT_MOST["calibration"],
        "verification": data.verification_samples or _AT_MOST["verification"],
    }
    if data.source in _MADE:
        make = _MADE[data.source]
        return RunSources(*(make(config, root, number, wanted[name]) for number, name in enumerate(PURPOSES)))
    source = _LISTED[data.source](config, root)
    order = [int(position) for position in np.random.default_rng(data.seed).permutation(len(source.names))]
    parts = _shared_out(config, source, order, wanted)
    # Rows of a file in the order in which they lie there, so that a file is read once.
    in_order = sorted if data.source is DataSource.npz else list
    return RunSources(*(source.only(in_order(getattr(parts, name))) for name in PURPOSES))


def trace_samples(config: Config, count: int, root: Path, spec: IoSpec) -> Samples:
    """Samples to trace on and to check the trace with: `count`, at most TRACE_SAMPLES, or fewer if there are fewer."""
    if count > TRACE_SAMPLES:
        raise ValueError(f"trace_samples: at most {TRACE_SAMPLES} are set apart, {count} were asked for")
    samples = fitted(run_sources(config, root).trace, spec)
    return samples.only(range(min(count, len(samples))))


def calibration_samples(config: Config, root: Path, spec: IoSpec) -> Samples:
    """`data.calibration_samples` samples; also those that slim is checked with."""
    return fitted(run_sources(config, root).calibration, spec)


def verification_samples(config: Config, root: Path, spec: IoSpec) -> Samples:
    """`data.verification_samples` samples that no other stage has seen, unless there is only one."""
    return fitted(run_sources(config, root).verification, spec)


def adversarial_samples(config: Config, spec: IoSpec) -> list[Sample]:
    """Make adversarial samples by the seed of the data (truehalf.data.fitting.adversarial_samples)."""
    return made_adversarial(spec, config.data.seed)


def _shared_out(config: Config, source: Source, order: list[int], wanted: dict[str, int]) -> Split:
    """Share out as many samples as there are: numbers that are not given are lowered, to a third and two thirds.

    Raises:
        StageError: the numbers that are given do not fit.
    """
    held = len(order)
    calibration, verification = config.data.calibration_samples, config.data.verification_samples
    if held < sum(wanted.values()):
        if calibration is None and verification is None and held < wanted["calibration"] + wanted["verification"]:
            calibration = max(1, round(held / 3))
        if verification is None:
            verification = min(wanted["verification"], max(1, held - (calibration or wanted["calibration"])))
        if calibration is None:
            calibration = min(wanted["calibration"], max(1, held - verification))
    try:
        return split(
            order, calibration or wanted["calibration"], verification or wanted["verification"], wanted["trace"]
        )
    except ValueError as error:
        parts = ", ".join(f"{number} {name}" for name, number in wanted.items())
        raise StageError(
            "too-few-samples",
            f"{source.holds}; the run takes {sum(wanted.values())}: {parts}, of which trace can do with some of "
            f"calibration's; add some, or lower data.calibration_samples or data.verification_samples: {held} together",
        ) from error
