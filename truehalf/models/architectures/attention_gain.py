"""Attention values scaled by a power of two: the same function, with activations that overflow FP16."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_PROJECTIONS = (("v_proj", "o_proj"), ("value_proj", "output_proj"))  # of values, and of what attention makes of them


def scale_attention_values(module: torch.nn.Module, gain_log2: int) -> list[str]:
    """Multiply attention values by 2^n and the output projections that follow by 2^-n: the same function, other ranges.

        out(A v(x)) = W_o A (W_v x + b_v) + b_o = (2^-n W_o) A (2^n W_v x + 2^n b_v) + b_o

    A stands for what lies between, which is linear in the values: weights from a softmax, sampling, masks that are 0.
    Powers of two are exact in FP32. Applies to self-attention (v_proj, o_proj) and to RT-DETRv2's deformable attention
    (value_proj, output_proj); D-FINE's deformable attention has no projections.

    Args:
        module: changed in place.
        gain_log2: n.

    Returns:
        names of the attention modules that were changed.
    """
    import torch

    changed = []
    with torch.no_grad():
        for name, attention in module.named_modules():
            for value_name, output_name in _PROJECTIONS:
                value, output = getattr(attention, value_name, None), getattr(attention, output_name, None)
                if not isinstance(value, torch.nn.Linear) or not isinstance(output, torch.nn.Linear):
                    continue
                value.weight.mul_(2.0**gain_log2)
                value.bias.mul_(2.0**gain_log2)
                output.weight.mul_(2.0**-gain_log2)
                changed.append(name)
    return changed
