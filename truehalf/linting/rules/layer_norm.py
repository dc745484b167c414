"""Layer norms that are spelt out.

    m = ReduceMean(x)    d = x - m    v = ReduceMean(d^2)    y = d / sqrt(v + eps)

with d^2 as Pow(d, 2) or Mul(d, d), the root as Sqrt or Pow(v, 0.5), and y as a quotient, a product with the reciprocal,
or a product with Pow(v, -0.5).
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from truehalf.ir.facts import is_op, producer_of
from truehalf.linting.base import Check, LocatedFinding, Rule, Subject, scalar
from truehalf.linting.sizes import constant


class DecomposedLayerNorm(Rule):
    """a layer norm spelt out as means and squares

    A layer norm written out: `ReduceMean`, `Sub`, a square, `ReduceMean`, `Sqrt`, `Div` (or a `Pow` by 0.5 or -0.5).
    The square leaves float16 from |x - mean| = 256 on, and TensorRT fuses it only where it recognises the pattern.
    Exporters write it below opset 17; models write it for channels that are not last.

    ```python
    (x - x.mean(1, keepdim=True)) / torch.sqrt(x.var(1, keepdim=True, unbiased=False) + eps)
    torch.nn.functional.layer_norm(x.permute(0, 2, 3, 1), (channels,), weight, bias, eps).permute(0, 3, 1, 2)  # instead
    ```
    """

    id = "decomposed-layer-norm"
    source = "float16 ends at 65504; opset 17 has LayerNormalization"


def layer_norms(subject: Subject) -> Iterator[LocatedFinding]:
    for node in subject.of_type("Sqrt", "Pow"):
        if (power := _power(node)) is not None and (mean := _mean_of(node, power)) is not None:
            yield DecomposedLayerNorm.at(
                node,
                "A layer norm spelt out: its squares leave float16 from |x - mean| = 256 on, and TensorRT fuses it "
                "only where it recognises it.",
                _remedy(_is_last(mean), subject.opset < 17),
            )


def _remedy(last: bool, old: bool) -> str:
    if last and old:
        return "Export with opset 17 or later."
    permuted = "" if last else ", with the channels permuted to the end and back"
    return f"torch.nn.functional.layer_norm{permuted}" + (", exported with opset 17 or later." if old else ".")


def _power(node: ir.Node) -> float | None:
    """0.5 or -0.5, of a Sqrt or Pow; None for another power."""
    power = 0.5 if node.op_type == "Sqrt" else scalar(node.inputs[1])
    return power if power in (0.5, -0.5) else None


def _mean_of(root: ir.Node, power: float) -> ir.Node | None:
    """The mean about which the root of a variance is taken; None: it is another root."""
    shifted = producer_of(root.inputs[0], "Add")
    if shifted is None or all(scalar(value) is None for value in shifted.inputs):
        return None
    variance = next((node for value in shifted.inputs if (node := producer_of(value, "ReduceMean"))), None)
    if variance is None or (difference := _squared(variance.inputs[0])) is None:
        return None
    minus = producer_of(difference, "Sub")
    mean = producer_of(minus.inputs[1], "ReduceMean") if minus is not None else None
    if minus is None or mean is None or mean.inputs[0] is not minus.inputs[0] or not _divides(root, power, difference):
        return None
    return mean


def _squared(value: ir.Value | None) -> ir.Value | None:
    power = producer_of(value, "Pow", "Mul")
    if power is None:
        return None
    if power.op_type == "Pow":
        return power.inputs[0] if scalar(power.inputs[1]) == 2 else None
    return power.inputs[0] if power.inputs[0] is power.inputs[1] else None


def _divides(root: ir.Node, power: float, difference: ir.Value) -> bool:
    """Whether the difference is divided by the root, by whatever way; another Sub(x, mean) counts as the same."""
    minus = difference.producer()
    if power < 0:
        return any(is_op(reader, "Mul") for reader in root.outputs[0].consumers())
    for reader in root.outputs[0].consumers():
        if is_op(reader, "Reciprocal"):
            return any(is_op(next_reader, "Mul") for next_reader in reader.outputs[0].consumers())
        if is_op(reader, "Div"):
            top = reader.inputs[0]
            other = producer_of(top, "Sub")
            if top is difference or (other is not None and minus is not None and other.inputs[0] is minus.inputs[0]):
                return True
            if scalar(top) == 1:
                return True
    return False


def _is_last(mean: ir.Node) -> bool:
    """Whether a mean is over the last axis, or over the last ones."""
    axes: list[int] = list(mean.attributes.get_ints("axes", ()))
    tensor = constant(mean.inputs[1]) if len(mean.inputs) > 1 else None
    if tensor is not None:
        axes = [int(axis) for axis in tensor.numpy().ravel()]
    shape = mean.inputs[0].shape if mean.inputs[0] is not None else None
    known = len(shape) if shape is not None else None
    return -1 in axes or (known is not None and known - 1 in axes)


RULES: tuple[type[Rule], ...] = (DecomposedLayerNorm,)
CHECKS: tuple[Check, ...] = (layer_norms,)
