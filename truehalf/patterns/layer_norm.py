"""Layer norms that are spelt out.

    m = ReduceMean(x)    d = x - m    v = ReduceMean(d^2)    y = d / sqrt(v + eps)

with d^2 as Pow(d, 2) or Mul(d, d), and the root as Sqrt or Pow(v, +-0.5).
"""

from __future__ import annotations

import onnx_ir as ir

from truehalf.ir.facts import is_op, producer_of
from truehalf.patterns.frame import Pattern, Subject, scalar

# By power of a root: the operators that divide by it.
_DIVIDERS: dict[float | None, tuple[str, ...]] = {0.5: ("Div", "Reciprocal"), -0.5: ("Mul",)}


class DecomposedLayerNorm(Pattern):
    """a layer norm spelt out as means and squares

    A layer norm spelt out: its squares leave float16 from |x - mean| = 256 on, and TensorRT fuses it only where it
    recognises it.

    Instead: torch.nn.functional.layer_norm, with the channels permuted to the end and back, exported with opset 17 or
    later.

    That is `ReduceMean`, `Sub`, a square, `ReduceMean`, `Sqrt`, `Div` (or a `Pow` by 0.5 or -0.5). Exporters write it
    below opset 17; models write it for channels that are not last.

    ```python
    (x - x.mean(1, keepdim=True)) / torch.sqrt(x.var(1, keepdim=True, unbiased=False) + eps)
    torch.nn.functional.layer_norm(x.permute(0, 2, 3, 1), (channels,), weight, bias, eps).permute(0, 3, 1, 2)  # instead
    ```

    Source: float16 ends at 65504; opset 17 has LayerNormalization.
    """

    id, op_types = "decomposed-layer-norm", ("Sqrt", "Pow")

    def holds(self, node: ir.Node, subject: Subject) -> bool:
        power = 0.5 if node.op_type == "Sqrt" else scalar(node.inputs[1])
        dividers = [reader for reader in node.outputs[0].consumers() if is_op(reader, *_DIVIDERS.get(power, ()))]
        variance = _mean_above(producer_of(node.inputs[0], "Add"))
        return bool(dividers) and variance is not None and _is_variance(variance)


def _mean_above(add: ir.Node | None) -> ir.Node | None:
    """Find the ReduceMean that a small number is added to."""
    if add is None or all(scalar(value) is None for value in add.inputs):
        return None
    return next((node for value in add.inputs if (node := producer_of(value, "ReduceMean")) is not None), None)


def _is_variance(variance: ir.Node) -> bool:
    """Return True for ReduceMean((x - ReduceMean(x))^2)."""
    square = producer_of(variance.inputs[0], "Pow", "Mul")
    if square is None:
        return False
    is_square = scalar(square.inputs[1]) == 2 if square.op_type == "Pow" else square.inputs[0] is square.inputs[1]
    minus = producer_of(square.inputs[0], "Sub")
    mean = producer_of(minus.inputs[1], "ReduceMean") if minus is not None else None
    return is_square and minus is not None and mean is not None and mean.inputs[0] is minus.inputs[0]


PATTERNS = (DecomposedLayerNorm(),)
