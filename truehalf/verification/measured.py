"""Runs of a file beside those of its reference, as the I/O spec declares their outputs: detections matched, rows of
queries paired.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from truehalf.config.verification import VerifyConfig
from truehalf.io_spec.outputs import DETECTIONS, task_of
from truehalf.verification.metrics.decoded import confident_queries, detections_of
from truehalf.verification.metrics.detections import Detections, Matching, match
from truehalf.verification.metrics.tensors import in_rows, pair_queries, query_outputs
from truehalf.verification.output_shapes import comparable, decodable
from truehalf.verification.runs import Arrays, Run


@dataclass(frozen=True)
class Paired:
    """The outputs of one run whose rows are queries, paired one to one (truehalf.verification.metrics.tensors).

    Attributes:
        rows: int64 [images, queries], the candidate's row of each of the reference's.
        outputs: the candidate's, in the reference's rows.
        confident: bool [images, queries], whether the reference's score reaches the threshold.
    """

    rows: np.ndarray
    outputs: Arrays
    confident: np.ndarray


class Measured:
    """What the runs of a model of detections hold.

    Attributes:
        found: by sample, what the reference finds, and the candidate; empty where one side has another shape than
            detections have, and of other models.
        matchings: of these.
        decodable: whether the outputs of all runs have shapes that detections have.
    """

    def __init__(
        self,
        runs: Sequence[Run],
        spec: Mapping[str, Any],
        options: VerifyConfig,
        known: Sequence[Detections] | None = None,
    ) -> None:
        """Decode and match.

        Args:
            runs: at least one.
            known: by sample, what the reference finds, where it was decoded before.
        """
        self._runs, self._spec, self._threshold = runs, spec, options.score_threshold
        self.decodable = all(decodable(run.reference, run.candidate, spec) for run in runs)
        self.found: list[tuple[Detections, Detections]] = []
        for run in runs if self.decodable and task_of(spec) == DETECTIONS else ():
            expected = detections_of(run.reference, spec, run.size) if known is None else known[: run.rows]
            self.found += zip(expected, detections_of(run.candidate, spec, run.size), strict=True)
        thresholds = options.score_threshold, options.iou_threshold
        self.matchings: list[Matching] = [match(*pair, *thresholds) for pair in self.found]

    @cached_property
    def paired(self) -> list[Paired]:
        """By run; empty without queries, and where their shapes differ."""
        names, runs = query_outputs(self._spec), self._runs
        if not names or any({*names} - {*comparable(run.reference, run.candidate)} for run in runs):
            return []
        return [_paired(run, names, self._spec, self._threshold) for run in runs]


def _paired(run: Run, names: Sequence[str], spec: Mapping[str, Any], threshold: float) -> Paired:
    rows = pair_queries(run.reference, run.candidate, names)
    outputs = {name: in_rows(run.candidate[name], rows) for name in names}
    return Paired(rows, outputs, confident_queries(run.reference, spec, threshold))
