"""Passes over a model: one transformation each, in place, which says what it did; a list of passes is one, too.

    NORMALIZE = Passes(NameNodes(), InferTypes(), OpsetsOfSubgraphs())
    NORMALIZE(model).counts["named"]

Lists are run here, not by onnx_ir's Sequential: that one makes a PassError of every error, which then has no code, and
drops counts and refusals.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from dataclasses import dataclass, field
from typing import cast

import onnx_ir as ir


@dataclass
class Done(ir.passes.PassResult):
    """What a pass did.

    Attributes:
        model: the one that it was given.
        modified: whether it was changed.
        counts: how often something was done, by its name: an operator that was replaced, a rule that was applied.
        refused: {node, reason} of each place that has the pattern and was left as it is; node is "" where it is none.
    """

    counts: Counter[str] = field(default_factory=Counter)
    refused: list[dict[str, str]] = field(default_factory=list)

    def refuse(self, node: ir.Node | None, reason: str) -> None:
        self.refused.append({"node": (node.name if node is not None else "") or "", "reason": reason})

    def notes(self) -> list[str]:
        """What was done and what was not, as lines of a report."""
        return [*self.counts, *(refusal["reason"] for refusal in self.refused)]


class Pass(ir.passes.InPlacePass):
    """One transformation. It keeps nothing of a model, so that one object may run on many."""

    @abstractmethod
    def edit(self, model: ir.Model, done: Done) -> None:
        """Change a model, and count in `done` what was changed."""

    def call(self, model: ir.Model) -> Done:
        done = Done(model, modified=False)
        self.edit(model, done)
        done.modified = done.modified or done.counts.total() > 0
        return done

    def __call__(self, model: ir.Model | ir.passes.PassResult, /) -> Done:
        return cast(Done, super().__call__(model))


class Passes(Pass):
    """Passes one after the other, with their counts together."""

    def __init__(self, *passes: Pass) -> None:
        self.passes = passes

    def edit(self, model: ir.Model, done: Done) -> None:
        for each in self.passes:
            result = each(model)
            done.modified = done.modified or result.modified
            done.counts.update(result.counts)
            done.refused += result.refused
