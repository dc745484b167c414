"""Functions of one element in smaller FLOAT16 nodes, as ONNX Runtime's CUDA provider computes them in half.

Softplus    max(x, 0) + Log(Exp(-|x|) + 1): what is below 2^-11 of it is lost beside the 1, and 0 is left
Mish        x * Tanh(Softplus(x))
Elu         alpha * (Exp(x) - 1) below 0
Selu        gamma * alpha * (Exp(x) - 1) below 0, gamma * x above
"""

from __future__ import annotations

import onnx_ir as ir

from truehalf.emulation.half_nodes import HalfNodes, source_of

_SELU = {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875}  # what ONNX defines


def softplus(build: HalfNodes) -> list[ir.Value]:
    return [_softplus(build, source_of(build)[0])]


def mish(build: HalfNodes) -> list[ir.Value]:
    source, _ = source_of(build)
    return [build.op("Mul", source, build.op("Tanh", _softplus(build, source)))]


def elu(build: HalfNodes) -> list[ir.Value]:
    source, _ = source_of(build)
    return [build.op("Add", build.op("Relu", source), _below(build, source, build.half(_attribute(build, "alpha", 1))))]


def selu(build: HalfNodes) -> list[ir.Value]:
    source, _ = source_of(build)
    alpha, gamma = (build.half(_attribute(build, name, default)) for name, default in _SELU.items())
    above = build.op("Mul", gamma, build.op("Relu", source))
    return [build.op("Add", above, _below(build, source, build.op("Mul", gamma, alpha)))]


def _softplus(build: HalfNodes, source: ir.Value) -> ir.Value:
    shifted = build.op("Add", build.op("Exp", build.op("Neg", build.op("Abs", source))), build.half(1))
    return build.op("Add", build.op("Relu", source), build.op("Log", shifted))


def _below(build: HalfNodes, source: ir.Value, factor: ir.Value) -> ir.Value:
    """factor * (Exp(x) - 1) below 0; 0 above."""
    power = build.op("Exp", build.op("Min", source, build.half(0)))
    return build.op("Mul", factor, build.op("Sub", power, build.half(1)))


def _attribute(build: HalfNodes, name: str, default: float) -> float:
    value = build.node.attributes.get_float(name, default)
    return default if value is None else value
