"""One session that computes a model with any assignment of FP16 and FP32 to its nodes (see
truehalf.verification.pinning.switched_graph).

Weights reach their nodes through a Where, so ONNX Runtime neither packs them nor picks the kernels that want constant
weights, and between two nodes there is always a choice, so it fuses nothing. A session of the converted file sums in
the same order when it does neither: optimize=False and "session.disable_prepacking": "1". Then both give the same bits.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from truehalf.calibration.ranges_form import RangesJson
from truehalf.config.precision import Precision
from truehalf.conversion.ports import FP16
from truehalf.data.samples import Sample, batches, repeated, stacked
from truehalf.emulation.emulate import emulate
from truehalf.emulation.sessions import widened
from truehalf.errors import StageError, some_of
from truehalf.ir.facts import all_nodes
from truehalf.ir.model_forms import loaded_from
from truehalf.runtime.ort import Session
from truehalf.verification.pinning.switched_graph import switchboard
from truehalf.verification.runs import joined

Feeds = Mapping[str, np.ndarray] | Sequence[Mapping[str, np.ndarray]]
_NAMED = 5


def full_batches(samples: Sequence[Sample], size: int) -> list[dict[str, np.ndarray]]:
    """Feeds of just `size` samples each, the last one filled up with its last sample."""
    return [repeated(stacked(group), size) for group in batches(samples, size)]


class Switchboard:
    """See above.

    Attributes:
        nodes: names of the nodes that have a switch, in graph order.
        scopes: of each, the dotted path of its module, "" where none is known.
        runs: how often `run` was called.
    """

    def __init__(
        self,
        model: Path | str | ir.Model,
        precision: Precision | None = None,
        ranges: RangesJson | None = None,
        **options: Any,
    ) -> None:
        """Build the graph and open the session.

        Args:
            model: FP32; path or loaded model.
            precision, ranges: of the conversion, see truehalf.verification.pinning.switched_graph.switchboard.
            options: further attributes of onnxruntime.SessionOptions.

        Raises:
            StageError: when the file cannot be loaded, or nothing in it can be switched.
        """
        fp32 = loaded_from(model)
        board = switchboard(fp32, precision or Precision(), ranges)
        self.nodes: list[str] = list(board.nodes)
        self.scopes = dict(board.scopes)
        self.runs = 0
        self._positions = {name: position for position, name in enumerate(self.nodes)}
        self._fixed, self._input = board.fixed, board.input
        self._choices = [(np.array(bits), np.any if any_ else np.all) for bits, any_ in board.choices]
        settings: dict[str, Any] = {"session.disable_prepacking": "1"}  # of the weights hardly one is constant
        # ONNX Runtime computes FP16 nodes that the model had before in FP32, and drops the roundings between them.
        names = {value.name for node in all_nodes(fp32) for value in node.outputs}
        made = (value for node in all_nodes(board.model) for value in node.outputs if value.name in names)
        had_fp16 = any(value.dtype == FP16 for value in made)
        self._session = Session(emulate(board.model) if had_fp16 else board.model, **(settings | options))

    def run(self, feeds: Feeds, fp32: Collection[str]) -> dict[str, np.ndarray]:
        """Outputs by name, float ones as float32, with the named nodes in FP32 and all others in FP16.

        Args:
            feeds: arrays by input name; or a list of such, whose outputs are then joined along the first axis.
            fp32: names of nodes; those without a switch are FP32 anyway.

        Raises:
            StageError: when the model has no node of a name, or the run fails.
        """
        bits = self._bits(fp32)
        self.runs += 1
        batches = [feeds] if isinstance(feeds, Mapping) else feeds
        return joined([self._session.run(widened(one) | {self._input: bits}) for one in batches])

    def effect(self, fp32: Collection[str]) -> bytes:
        """What a set of nodes in FP32 comes to: two sets of one effect give the same outputs.

        A node that is the only FP32 one between FP16 nodes, and reads no weight that rounding changes, has none.

        Raises:
            StageError: when the model has no node of a name.
        """
        bits = self._bits(fp32)
        return np.array([bool(combine(bits[at])) for at, combine in self._choices], bool).tobytes()

    def _bits(self, fp32: Collection[str]) -> np.ndarray:
        bits = np.zeros(len(self.nodes), bool)
        unknown = []
        for name in fp32:
            if name in self._positions:
                bits[self._positions[name]] = True
            elif name not in self._fixed:
                unknown.append(name)
        if unknown:
            raise StageError(
                "wrong-name",
                f"switchboard: the model has no node {some_of(map(repr, sorted(unknown)), _NAMED)}; expected names of "
                "the FP32 model's nodes, as decisions.json has them",
            )
        return bits
