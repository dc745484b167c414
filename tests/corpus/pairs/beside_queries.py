"""Outputs beside a detector's queries with a row for each of them, such as masks. Rounding may put queries in another
order, and these go with them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from tests.corpus.pairs import Pair, numbers, replayed
from tests.corpus.pairs.detections import ROWS, as_queries, scene, spec_of
from truehalf.config.verification import VerifyConfig

Array = np.ndarray


def pairs() -> Iterator[Pair]:
    found, rng = as_queries(scene()), np.random.default_rng(160)
    samples = len(found["boxes"])
    rows = rng.normal(0, 3, (samples, ROWS, 6, 6)).astype(np.float32)
    order = np.argsort(rng.uniform(0, 1, (samples, ROWS)), axis=1)
    moved = {name: _in(value, order) for name, value in found.items()}
    cases: list[tuple[str, dict[str, Array], Array, str, tuple[str, ...]]] = [
        ("moved", moved, _in(rows, order), "passed", ()),
        ("stayed", moved, rows, "not verified", ("other-order",)),
        ("moved-alone", found, _in(rows, order), "failed", ()),
        ("moved-wrong", moved, _in(-rows, order), "failed", ()),
    ]
    for name, candidate, beside, expected, codes in cases:
        models = [replayed(found | {"masks": rows}), replayed(candidate | {"masks": beside})]
        pair = Pair(f"masks-beside-queries-{name}", *models, {"x": numbers(samples)}, expected, spec_of(found))
        yield replace(pair, codes=codes)
        if name == "moved":
            yield replace(pair, name=f"{pair.name}-in-runs", options={"options": VerifyConfig(batch=5)})


def _in(values: Array, order: Array) -> Array:
    return np.take_along_axis(values, order.reshape(order.shape + (1,) * (values.ndim - 2)), axis=1)
