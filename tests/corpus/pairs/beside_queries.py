"""Outputs beside a detector's queries with a row for each of them: masks, keypoints, embeddings, numbers. Rounding may
put queries in another order, and these go with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from tests.corpus.pairs import Pair, numbers, replayed
from tests.corpus.pairs.detections import ROWS, as_queries, as_top_k, scene, spec_of
from truehalf.config.verification import VerifyConfig

Array = np.ndarray


def pairs() -> Iterator[Pair]:
    makers: Mapping[str, Callable[..., dict[str, Array]]] = {"queries": as_queries, "top-k": as_top_k}
    shapes: Mapping[str, tuple[int, ...]] = {"masks": (6, 6), "numbers": ()}
    for seed, (kind, shape) in enumerate(shapes.items()):
        made, make = [*makers.items()][seed % 2]
        found = make(scene(seed))
        samples = len(found["boxes"])
        rng = np.random.default_rng(160 + seed)
        rows = rng.normal(0, 3, (samples, ROWS, *shape)).astype(np.float32)
        rows = rng.permuted(np.tile(np.arange(ROWS), (samples, 1)), axis=1) if kind == "numbers" else rows
        order = np.argsort(rng.uniform(0, 1, (samples, ROWS)), axis=1)
        moved = {name: _in(value, order) for name, value in found.items()}
        cases: list[tuple[str, dict[str, Array], Array, str, tuple[str, ...]]] = [
            ("moved", moved, _in(rows, order), "passed", ()),
            ("stayed", moved, rows, "not verified", ("other-order",)),
            ("moved-alone", found, _in(rows, order), "failed", ()),
            ("moved-wrong", moved, _in(-rows, order), "failed", ()),
        ]
        for name, candidate, beside, expected, codes in cases:
            models = [replayed(found | {kind: rows}), replayed(candidate | {kind: beside})]
            pair = Pair(f"{kind}-beside-{made}-{name}", *models, {"x": numbers(samples)}, expected, spec_of(found))
            yield replace(pair, codes=codes)
            if name == "moved":
                in_runs = {"options": VerifyConfig(batch=5)}
                yield replace(pair, name=f"{pair.name}-in-runs", options=in_runs, codes=codes)


def _in(values: Array, order: Array) -> Array:
    return np.take_along_axis(values, order.reshape(order.shape + (1,) * (values.ndim - 2)), axis=1)
