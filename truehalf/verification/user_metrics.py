"""User-defined metrics: functions of both files' outputs, compared with a limit.

    "my_metrics:mean_iou >= 0.98"        function(reference, candidate) -> a number; both {output: [samples, ...]}

A function is called with the outputs of all samples in their order; where shapes differ between runs, once for each
shape, and the worst value counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from truehalf.config.verification import METRIC
from truehalf.errors import StageError
from truehalf.user_code import described, imported
from truehalf.verification.findings import Finding
from truehalf.verification.gates import held
from truehalf.verification.runs import Arrays, Run, joined

CHECK = "metrics"


@dataclass(frozen=True)
class UserMetric:
    """One entry of verify.metrics.

    Attributes:
        name: module:function.
        function: of both files' outputs.
        at_least: True if the limit is the smallest value that passes, else it is the largest.
        limit: of the value.
    """

    name: str
    function: Callable[[Arrays, Arrays], float]
    at_least: bool
    limit: float

    def value(self, runs: Sequence[Run]) -> float:
        """Compute the worst value over all runs; NaN is worse than any.

        Raises:
            StageError: when the function raises, or returns something else than a number.
        """
        values = [self._called(*sides) for sides in _joined(runs)]
        worst = np.min if self.at_least else np.max  # both keep a NaN
        return float(worst(values))

    def _called(self, reference: Arrays, candidate: Arrays) -> float:
        try:
            value = self.function(reference, candidate)
        except Exception as error:
            raise StageError("function-fails", f"verify.metrics: {self.name!r} {described(error)}") from error
        try:
            return float(value)
        except (TypeError, ValueError) as error:
            raise StageError(
                "wrong-return", f"verify.metrics: {self.name!r} returned {value!r}; expected a number"
            ) from error


def user_metrics(entries: Sequence[str]) -> list[UserMetric]:
    """Import the functions that entries of verify.metrics name, in the current folder or from installed packages.

    Raises:
        StageError: see truehalf.user_code.imported.
    """
    found = []
    for entry in entries:
        name, sign, limit = METRIC.fullmatch(entry).groups()  # type: ignore[union-attr]  # VerifyConfig has checked it
        found.append(UserMetric(name, imported("verify.metrics", name, Path.cwd()), sign == ">=", float(limit)))
    return found


def judge_metrics(runs: Sequence[Run], entries: Sequence[str]) -> list[Finding]:
    """Judge a gate for each entry of verify.metrics; outputs that a file does not have are missing in its arguments."""
    metrics = user_metrics(entries)
    return [held(CHECK, metric.name, metric.value(runs), metric.limit, metric.at_least) for metric in metrics]


def _joined(runs: Sequence[Run]) -> Iterator[tuple[dict[str, np.ndarray], dict[str, np.ndarray]]]:
    """Both files' outputs: of runs whose rows are samples, those of equal shapes joined; each other run separately."""
    groups: dict[object, list[Run]] = {}
    for number, run in enumerate(runs):
        joins = run.rows and all(map(np.ndim, (*run.reference.values(), *run.candidate.values())))
        groups.setdefault((_shapes(run.reference), _shapes(run.candidate)) if joins else number, []).append(run)
    for group in groups.values():
        yield joined([run.reference for run in group]), joined([run.candidate for run in group])


def _shapes(outputs: Mapping[str, np.ndarray]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return tuple((name, np.shape(values)[1:]) for name, values in outputs.items())
