"""Both files of a comparison, run once more: on inputs moved by half a step, or with inner tensors shown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from truehalf.errors import StageError
from truehalf.io_spec.spec import IoSpec
from truehalf.verification.metrics.half_steps import DRAWS, HalfSteps, moved, unit
from truehalf.verification.open_file import OpenFile
from truehalf.verification.runs import Arrays, Part, Run, outputs_of


@dataclass(frozen=True)
class Rerun:
    """The two files, and the inputs of each run.

    Attributes:
        spec: whose inputs may declare the range of pixels.
        reference: opens the FP32 file, once.
        candidate: the file that is compared, opened; None: it shows nothing.
        parts: gives what went into a run, in one or several parts whose rows follow each other.
        kept: outputs on moved inputs by file, name and count of samples, for further comparisons of the same samples.
    """

    spec: IoSpec
    reference: Callable[[], OpenFile]
    candidate: OpenFile | None
    parts: Callable[[Run], Iterable[Part]]
    kept: dict[object, list[list[Arrays]]] = field(default_factory=dict)

    def outputs(self, file: OpenFile, run: Run, more: Callable[[Part], Arrays] = lambda part: {}) -> Arrays:
        """Outputs of a file on what went into a run.

        Args:
            more: further or other inputs of a part.
        """
        parts = [replace(part, feed={**part.feed, **more(part)}) for part in self.parts(run)]
        return file.run(parts[0]) if len(parts) == 1 else outputs_of(parts, file.run)

    def half_steps(self, runs: Sequence[Run]) -> HalfSteps:
        """Response of the reference to half a step of the inputs of these runs."""

        def outputs() -> list[list[tuple[Arrays, Arrays]]]:
            draws = self.on_moved_inputs(runs)
            return [[(run.reference, made) for run, made in zip(runs, draw, strict=True)] for draw in draws]

        return HalfSteps(lambda: self._step(runs[0]), outputs)

    def _step(self, run: Run) -> str:
        first = next(iter(self.parts(run)))
        return next(filter(None, (unit(values) for values in first.feed.values())), "")

    def on_moved_inputs(self, runs: Sequence[Run]) -> list[list[Arrays]]:
        """Outputs of the reference on inputs moved by half a step, by draw and run; empty where it does not run so."""
        if not self._step(runs[0]):
            return []
        key = tuple((run.feed, run.start, *run.names) for run in runs)
        if key not in self.kept:
            self.kept[key] = self.shown_on_moved_inputs(self.reference(), runs)
        return self.kept[key]

    def shown_on_moved_inputs(self, file: OpenFile, runs: Sequence[Run]) -> list[list[Arrays]]:
        """Outputs of a file in place of the reference, see `on_moved_inputs`."""

        def moving(draw: int) -> Callable[[Part], Mapping[str, np.ndarray]]:
            return lambda part: moved(part.feed, self.spec, (draw, part.number, part.start))

        try:
            return [[self.outputs(file, run, moving(draw)) for run in runs] for draw in range(DRAWS)]
        except StageError:
            return []
