"""Functions of one element in smaller FLOAT16 nodes, as ONNX Runtime's CUDA provider computes them in half.

Softplus    max(x, 0) + Log(Exp(-|x|) + 1): what is below 2^-11 of it is lost beside the 1, and 0 is left
Mish        x * Tanh(Softplus(x))
Elu         alpha * (Exp(x) - 1) below 0
Selu        gamma * alpha * (Exp(x) - 1) below 0, gamma * x above
"""

from __future__ import annotations

import onnx_ir as ir

from truehalf.emulation.half_nodes import HalfNodes, Rule

_SELU = {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875}  # what ONNX defines


def softplus(build: HalfNodes) -> list[ir.Value]:
    return [_softplus(build)]


def mish(build: HalfNodes) -> list[ir.Value]:
    return [build.op("Mul", build.source, build.op("Tanh", _softplus(build)))]


def elu(build: HalfNodes) -> list[ir.Value]:
    return [_parted(build, build.source, build.half(build.node.attributes.get_float("alpha", 1.0)))]


def selu(build: HalfNodes) -> list[ir.Value]:
    given = build.node.attributes
    alpha, gamma = (build.half(given.get_float(name, default)) for name, default in _SELU.items())
    return [_parted(build, build.op("Mul", gamma, build.source), build.op("Mul", gamma, alpha))]


RULES: dict[str, Rule] = {"Softplus": softplus, "Mish": mish, "Elu": elu, "Selu": selu}


def _softplus(build: HalfNodes) -> ir.Value:
    power = build.op("Exp", build.op("Neg", build.op("Abs", build.source)))
    return build.op("Add", build.op("Relu", build.source), build.op("Log", build.op("Add", power, build.half(1))))


def _parted(build: HalfNodes, above: ir.Value, factor: ir.Value) -> ir.Value:
    """`above` where x > 0, else factor * (Exp(x) - 1)."""
    below = build.op("Mul", factor, build.op("Sub", build.op("Exp", build.source), build.half(1)))
    is_above = build.op("Greater", build.source, build.half(0), dtype=ir.DataType.BOOL)
    return build.op("Where", is_above, above, below)
