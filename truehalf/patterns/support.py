"""Table of the ONNX operators that TensorRT builds, by version.

Source: the operator matrix of the ONNX parser (onnx/onnx-tensorrt, docs/operators.md) as of TensorRT 10.15, the latest
that was read, and the parser's change log and the release notes of TensorRT (10.1 to 11.5) for what came when. An
operator that is in neither is looked for among the plugins, and building fails where there is none.
"""

from __future__ import annotations

from truehalf.errors import StageError

Version = tuple[int, int]

# Versions that a model is checked against where none is named, and what a bare major version means.
CHECKED: tuple[Version, ...] = ((10, 16), (11, 4))

TOPK_MAX = 3840  # the largest k of TopK

# The latest opset that the parser is documented to read, from that version on.
OPSET_MIN = 9
OPSET_MAX: dict[Version, int] = {(10, 0): 20, (10, 15): 24, (11, 5): 25}

# fmt: off
_BUILT = frozenset({
    "Abs", "Acos", "Acosh", "Add", "And", "ArgMax", "ArgMin", "Asin", "Asinh", "Atan", "Atanh", "AveragePool",
    "BatchNormalization", "Cast", "CastLike", "Ceil", "Celu", "Clip", "Concat", "Constant", "ConstantOfShape", "Conv",
    "ConvTranspose", "Cos", "Cosh", "CumSum", "DepthToSpace", "DequantizeLinear", "Div", "Dropout", "Einsum", "Elu",
    "Equal", "Erf", "Exp", "Expand", "EyeLike", "Flatten", "Floor", "GRU", "Gather", "GatherElements", "GatherND",
    "Gelu", "Gemm", "GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool", "Greater", "GreaterOrEqual", "GridSample",
    "GroupNormalization", "HardSigmoid", "HardSwish", "Hardmax", "Identity", "If", "ImageScaler",
    "InstanceNormalization", "IsInf", "IsNaN", "LRN", "LSTM", "LayerNormalization", "LeakyRelu", "Less", "LessOrEqual",
    "Log", "LogSoftmax", "Loop", "LpNormalization", "LpPool", "MatMul", "Max", "MaxPool", "Mean",
    "MeanVarianceNormalization", "Min", "Mish", "Mod", "Mul", "Neg", "NonMaxSuppression", "NonZero", "Not", "OneHot",
    "Or", "PRelu", "Pad", "ParametricSoftplus", "Pow", "QuantizeLinear", "RNN", "RandomNormal", "RandomNormalLike",
    "RandomUniform", "RandomUniformLike", "Range", "Reciprocal", "ReduceL1", "ReduceL2", "ReduceLogSum",
    "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare", "Relu",
    "Reshape", "Resize", "ReverseSequence", "RoiAlign", "Round", "ScaledTanh", "Scan", "Scatter", "ScatterElements",
    "ScatterND", "Selu", "Shape", "Shrink", "Sigmoid", "Sign", "Sin", "Sinh", "Size", "Slice", "Softmax", "Softplus",
    "Softsign", "SpaceToDepth", "Split", "Sqrt", "Squeeze", "Sub", "Sum", "Tan", "Tanh", "ThresholdedRelu", "Tile",
    "TopK", "Transpose", "Trilu", "Unsqueeze", "Upsample", "Where", "Xor",
})
# fmt: on
_SINCE: dict[str, Version] = {
    "DeformConv": (10, 1),
    "BlackmanWindow": (10, 4),
    "HammingWindow": (10, 4),
    "HannWindow": (10, 4),
    "STFT": (10, 5),
    "Attention": (10, 14),
    "RMSNormalization": (10, 15),
    "RotaryEmbedding": (10, 15),
    "TensorScatter": (10, 15),
    "Swish": (11, 0),
    "DFT": (11, 2),
}


def builds(op_type: str, version: Version) -> bool:
    """Return True if TensorRT builds an operator of the default domain."""
    return op_type in _BUILT or (op_type in _SINCE and version >= _SINCE[op_type])


def since(op_type: str) -> Version | None:
    """Return the version that an operator came with, if after 10.0."""
    return _SINCE.get(op_type)


def opset_max(version: Version) -> int:
    """Return the latest opset that a version reads."""
    return max(opset for first, opset in OPSET_MAX.items() if version >= first)


def parse_version(text: str | None) -> tuple[Version, ...]:
    """Read the versions that are stated by "10", "11.4" or "10.16.1.11"; None means those of CHECKED.

    Raises:
        StageError: when it is none of 10 or 11.
    """
    if text is None:
        return CHECKED
    parts = text.split(".")
    if not all(part.isdigit() for part in parts) or parts[0] not in ("10", "11"):
        expected = "expected a version of TensorRT such as 10, 11 or 11.4"
        raise StageError("bad-syntax", f"lint: {expected}, got {text!r}")
    major = int(parts[0])
    return ((major, int(parts[1])),) if len(parts) > 1 else tuple(known for known in CHECKED if known[0] == major)


def named(version: Version) -> str:
    """ "TensorRT 11.4" """
    return f"TensorRT {version[0]}.{version[1]}"
