"""Origins of NaN and Inf in inner tensors."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet

import numpy as np
import onnx_ir as ir

from truehalf.calibration.instrument import main_values
from truehalf.ir.facts import reached, values_read


def origins(model: ir.Model, nonfinite: AbstractSet[str], targets: Iterable[str]) -> list[ir.Value]:
    """Values in `nonfinite` whose producer reads none of them, and which reach a target through such values only.

    Graph inputs and constants are origins too. In graph order.
    """
    order = main_values(model)

    def sources(name: str) -> list[str]:
        return [source for source in _read_by_producer(order[name]) if source in nonfinite] if name in order else []

    found = {name for name in reached((name for name in targets if name in nonfinite), sources) if not sources(name)}
    return [value for name, value in order.items() if name in found]


def nonfinite_constants(model: ir.Model) -> set[str]:
    """Names of initializers and Constant outputs that hold NaN or Inf."""
    found = set()
    for name, value in main_values(model).items():
        tensor = ir.convenience.get_const_tensor(value)
        if tensor is not None and tensor.dtype.is_floating_point() and not np.isfinite(tensor.numpy()).all():
            found.add(name)
    return found


def _read_by_producer(value: ir.Value) -> list[str]:
    producer = value.producer()
    return [str(source.name) for source in values_read(producer)] if producer is not None else []
