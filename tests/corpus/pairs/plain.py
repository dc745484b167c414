"""Pairs without a defect of any class: equal files, and FP16's own rounding."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.corpus.pairs import Pair, numbers, replayed

SAMPLES = 8


def pairs() -> Iterator[Pair]:
    values = np.random.default_rng(0).normal(0, 1, (SAMPLES, 16, 8)).astype(np.float32)
    rounded = values.astype(np.float16).astype(np.float32)
    yield Pair("equal", replayed({"y": values}), replayed({"y": values}), {"x": numbers(SAMPLES)}, "passed")
    yield Pair("rounded", replayed({"y": values}), replayed({"y": rounded}), {"x": numbers(SAMPLES)}, "passed")
    yield Pair("negated", replayed({"y": values}), replayed({"y": -values}), {"x": numbers(SAMPLES)}, "failed")
