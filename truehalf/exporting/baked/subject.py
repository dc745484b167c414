"""A module and the file that was traced from it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from truehalf.config.schema import Exporter, TraceConfig
from truehalf.exporting.against_torch import torch_outputs
from truehalf.io_spec.spec import IoSpec
from truehalf.models.as_made import State
from truehalf.models.own_code import is_own_class

if TYPE_CHECKING:
    import torch

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A module, and the file that was traced from it.

    Attributes:
        module: as it is after the export.
        made: a copy of it as it was before its first run; None where it cannot be copied.
        traced: a copy of what was exported, before the export: with `prepare`, another module; None as above.
        before: its state then.
        path: of the file.
        spec: I/O spec.
        example: the feed that was traced on.
        pairs: (feed, what torch computes from it) of the samples.
        caught: the exporter's warnings.
        options: exporter, and tolerance of the comparison.
    """

    module: torch.nn.Module
    made: torch.nn.Module | None
    traced: torch.nn.Module | None
    before: State
    path: Path
    spec: IoSpec
    example: Arrays
    pairs: Sequence[tuple[Arrays, Mapping[str, np.ndarray]]]
    caught: Sequence[warnings.WarningMessage]
    options: TraceConfig

    @property
    def has_user_code(self) -> bool:
        """Whether a part's class is in a file of the user's."""
        return any(is_own_class(type(part)) for part in self.module.modules())

    @property
    def followed(self) -> bool:
        """Whether the exporter follows values itself, and refuses where Python reads one."""
        return self.options.exporter is Exporter.dynamo

    def run(self, feed: Arrays, module: torch.nn.Module | None = None) -> dict[str, np.ndarray]:
        """What torch computes."""
        return torch_outputs(self.module if module is None else module, self.spec, feed, self.example)
