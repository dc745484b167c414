"""Table of operator traits: what each operator of ONNX does, in one row, which every room asks.

A new operator of a new opset is one more row here (tests/truehalf/ir/test_ops.py fails until it is there); a new
question about operators is one more trait, or one more field of `Op`. Traits hold of the operator whatever its
attributes are; where an attribute decides, a function below asks the node.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Flag, auto
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx_ir as ir


class Trait(Flag):
    """What an operator does."""

    # how its output comes from its inputs
    NO_ARITHMETIC = auto()  # the output's elements are those of inputs, or facts of the shape: nothing is computed
    EXACT = auto()  # each element of the output is one of an input, its negation, an integer next to it or a bound
    VIEW = auto()  # the same elements in the same order, under another shape: nothing is moved in memory
    PERMUTES = auto()  # the same elements, perhaps in another order
    LAYOUT = auto()  # the same elements, perhaps in another order or repeated along an axis of length 1
    FILLS = auto()  # puts 0, or a given number, beside what it moves
    SAME = auto()  # the same numbers, perhaps of another type
    PRODUCT = auto()  # matrix products, convolutions, recurrences
    LINEAR = auto()  # of finite operands finite or an overflow; an Inf in it stays one
    NORMALIZES = auto()  # divides by a mean, a norm or a sum over axes
    POOLS = auto()
    SAMPLES = auto()  # reads at positions between elements, or at frequencies
    COMPARES = auto()
    LOGIC = auto()  # of booleans
    BITWISE = auto()
    COMMUTES = auto()  # the order of its inputs does not matter
    RANDOM = auto()
    QUANTIZED = auto()  # writes, reads or computes quantized tensors
    SEQUENCE = auto()  # lists of tensors, optional tensors
    SHAPE_ONLY = auto()  # reads no values, only the shape
    # sums
    ACCUMULATES = auto()  # sums or multiplies elements, or has such sums inside (but see `adds_up`)
    # what becomes of errors and of special numbers
    STEPS = auto()  # a small difference of its input may make another element, position or number of the output
    RISES = auto()  # the larger its input, the larger its output
    CHOOSES = auto()  # an Inf among its inputs need not be in its output
    # sizes
    COUNTS = auto()  # how many elements there are depends on what its input holds
    SIZED_BY_FIRST = auto()  # the output has the size of the first input, whatever the others hold
    STAYS_A_SIZE = auto()  # of sizes it gives a size
    INTEGER_DATA = auto()  # has inputs that no float can be, and that are data all the same
    # types
    FLOAT32_ONLY = auto()  # its schema has float16; no runtime that we know of, or its meaning, has not


T = Trait
NONE = T(0)


@dataclass(frozen=True)
class Op:
    """A row.

    Attributes:
        traits: see `Trait`.
        moved: positions of the inputs whose values end up in the outputs of an operator that only moves values, None:
            all. What else it adds is 0. A move commutes with every elementwise function.
        scaled: positions of the inputs in which it is linear, the others being fixed; or that it chooses from.
        sizes: positions of the inputs whose values decide the output's shape; None: all.
        coordinates: names of float inputs that say where or how many: rounded, they would mean other elements.
        decides: names of further float inputs that do, which may be float16.
        choice: position of the output that is a choice: which element is the largest is no arithmetic.
        moves_when: attribute, value, default: with that value it accumulates nothing.
    """

    traits: Trait = NONE
    moved: tuple[int, ...] | None = ()
    scaled: tuple[int, ...] = ()
    sizes: tuple[int, ...] | None = ()
    coordinates: tuple[str, ...] = ()
    decides: tuple[str, ...] = ()
    choice: int | None = None
    moves_when: tuple[str, str, str] | None = None


_MOVE = T.NO_ARITHMETIC | T.EXACT
_VIEW = _MOVE | T.VIEW | T.PERMUTES | T.LAYOUT
_SIZES = T.STAYS_A_SIZE
_TERMS = T.LINEAR | _SIZES
_BLENDS = T.SAMPLES | T.ACCUMULATES
_NEAREST = ("mode", "nearest", "nearest")
_NORM = T.NORMALIZES | T.ACCUMULATES
# Neither ONNX Runtime, on a CPU or with CUDA, nor TensorRT's parser has them in float16 (tests/truehalf/ir/test_slots
# asks two of these). BitCast means the bits of its input, not the value. What onnx defines MeanVarianceNormalization by
# adds float32 constants, so that its checker refuses float16.
_SINGLE = T.FLOAT32_ONLY
_REDUCTION = ("reduction", "none", "none")

_ROWS: tuple[tuple[str, Op], ...] = (
    # moves
    ("Reshape Squeeze Unsqueeze", Op(_VIEW | _SIZES, (0,), sizes=(1,))),
    ("Flatten", Op(_VIEW, (0,))),
    ("Identity", Op(_VIEW | T.SAME | _SIZES, (0,))),
    ("Transpose", Op(_MOVE | T.PERMUTES | T.LAYOUT, (0,))),
    ("DepthToSpace SpaceToDepth", Op(_MOVE | T.PERMUTES, (0,))),
    ("Expand", Op(_MOVE | T.LAYOUT, (0,), sizes=(1,))),
    ("Split Tile", Op(_MOVE, (0,), sizes=(1,))),
    ("Concat", Op(_MOVE | _SIZES, None)),
    ("Gather", Op(_MOVE | _SIZES, (0,))),
    ("GatherElements GatherND ReverseSequence", Op(_MOVE, (0,))),
    ("Slice", Op(_MOVE | _SIZES, (0,), sizes=(1, 2, 3, 4))),
    ("Compress", Op(_MOVE | T.COUNTS, (0,))),
    ("Trilu", Op(_MOVE | T.FILLS, (0,))),
    ("CenterCropPad", Op(_MOVE | T.FILLS, (0,), sizes=(1,))),
    ("Pad", Op(_MOVE | T.FILLS, (0, 2), sizes=(1, 3))),
    ("Scatter", Op(T.EXACT | T.SIZED_BY_FIRST, (0, 2))),
    ("ScatterElements ScatterND", Op(T.ACCUMULATES | T.SIZED_BY_FIRST, (0, 2), moves_when=_REDUCTION)),
    ("TensorScatter", Op(T.NO_ARITHMETIC | T.SIZED_BY_FIRST)),
    ("Where", Op(_MOVE | T.CHOOSES | T.INTEGER_DATA, (1, 2), scaled=(1, 2))),
    ("Cast", Op(T.NO_ARITHMETIC | T.SAME | _SIZES)),
    ("CastLike", Op(T.NO_ARITHMETIC | T.SAME)),
    ("Dropout", Op(T.NO_ARITHMETIC)),
    ("BitCast", Op(_SINGLE)),
    # shapes, constants, subgraphs, sequences
    ("Shape Size", Op(T.NO_ARITHMETIC | T.SHAPE_ONLY)),
    ("Constant", Op(T.NO_ARITHMETIC)),
    ("ConstantOfShape", Op(_MOVE, sizes=(0,))),
    ("EyeLike", Op(T.EXACT)),
    ("OneHot", Op(T.EXACT, sizes=(1,), coordinates=("indices", "depth"))),
    ("Range", Op(T.ACCUMULATES, sizes=None, decides=("start", "limit", "delta"))),
    ("If Loop Scan", Op(_MOVE)),
    ("ConcatFromSequence Optional OptionalGetElement SequenceAt SplitToSequence", Op(_MOVE | T.SEQUENCE)),
    ("SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SequenceMap", Op(_MOVE | T.SEQUENCE)),
    ("OptionalHasElement SequenceLength", Op(T.NO_ARITHMETIC | T.SEQUENCE)),
    # functions of one element
    ("Abs Relu", Op(T.EXACT)),
    ("Neg", Op(T.EXACT | T.LINEAR)),
    ("Clip", Op(T.EXACT | T.CHOOSES | T.SIZED_BY_FIRST)),
    ("Ceil Floor Round Sign", Op(T.EXACT | T.STEPS)),
    ("Atan Erf Exp Log Sigmoid Softplus Softsign Sqrt Tanh", Op(T.RISES)),
    ("Acos Acosh Asin Asinh Atanh Celu Cos Cosh Elu Gelu HardSigmoid HardSwish LeakyRelu", Op()),
    ("Mish Reciprocal Selu Shrink Sin Sinh Swish Tan ThresholdedRelu", Op()),
    ("IsInf IsNaN", Op()),
    ("Not", Op(T.LOGIC | T.INTEGER_DATA)),
    ("BitwiseNot", Op(T.BITWISE | T.INTEGER_DATA)),
    # functions of one element of each input
    ("Add Mul", Op(_TERMS | T.COMMUTES, scaled=(0, 1))),
    ("Sub", Op(_TERMS, scaled=(0, 1))),
    ("Div", Op(_SIZES, scaled=(0,))),
    ("Mod PRelu Pow SwiGLU", Op()),
    ("Max Min", Op(T.EXACT | T.COMMUTES | T.CHOOSES | _SIZES)),
    ("Equal", Op(T.COMPARES | T.COMMUTES | T.STEPS | T.INTEGER_DATA)),
    ("Greater GreaterOrEqual Less LessOrEqual", Op(T.COMPARES | T.STEPS)),
    ("And Or Xor", Op(T.LOGIC | T.COMMUTES | T.INTEGER_DATA)),
    ("BitShift BitwiseAnd BitwiseOr BitwiseXor", Op(T.BITWISE | T.INTEGER_DATA)),
    # products
    ("Conv ConvTranspose Einsum Gemm MatMul", Op(T.PRODUCT | T.ACCUMULATES)),
    ("Attention CausalConvWithState DeformConv GRU LSTM LinearAttention RNN", Op(T.PRODUCT | T.ACCUMULATES)),
    ("ConvInteger MatMulInteger QLinearMatMul", Op(T.PRODUCT | T.QUANTIZED)),
    ("QLinearConv", Op(T.PRODUCT | T.QUANTIZED | T.INTEGER_DATA)),
    ("DequantizeLinear", Op(T.QUANTIZED | T.INTEGER_DATA)),
    ("DynamicQuantizeLinear QuantizeLinear", Op(T.QUANTIZED)),
    ("AffineGrid Det", Op(T.ACCUMULATES | _SINGLE)),
    ("MelWeightMatrix RotaryEmbedding", Op(T.ACCUMULATES)),
    # norms, sums, pools
    ("LogSoftmax Softmax", Op(_NORM | T.CHOOSES)),
    ("Hardmax", Op(T.CHOOSES)),
    ("LayerNormalization", Op(_NORM | T.SIZED_BY_FIRST)),
    ("BatchNormalization", Op(T.NORMALIZES)),  # mean and variance are given
    ("GroupNormalization InstanceNormalization", Op(_NORM)),
    ("LRN LpNormalization RMSNormalization", Op(_NORM)),
    ("MeanVarianceNormalization", Op(_NORM | _SINGLE)),
    ("Sum", Op(T.ACCUMULATES | T.COMMUTES)),
    ("CumSum", Op(T.ACCUMULATES | T.SIZED_BY_FIRST)),
    ("CumProd", Op(T.ACCUMULATES | _SINGLE)),
    ("Mean ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp", Op(T.ACCUMULATES)),
    ("ReduceMean ReduceSum ReduceSumSquare", Op(T.ACCUMULATES)),
    ("ReduceProd", Op(T.ACCUMULATES | _SIZES)),
    ("ReduceMax ReduceMin", Op(T.EXACT | T.CHOOSES)),
    ("NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss", Op(T.ACCUMULATES | _SINGLE)),
    ("AveragePool GlobalAveragePool GlobalLpPool LpPool", Op(T.POOLS | T.ACCUMULATES)),
    ("MaxPool", Op(T.POOLS | T.EXACT | T.CHOOSES, choice=1)),
    ("GlobalMaxPool", Op(T.POOLS | T.EXACT | T.CHOOSES)),
    ("MaxUnpool", Op(T.POOLS | T.EXACT | _SINGLE)),
    # samplers
    ("GridSample", Op(_BLENDS, moves_when=("mode", "nearest", "linear"))),
    ("Resize", Op(_BLENDS, sizes=(3,), coordinates=("roi",), decides=("scales",), moves_when=_NEAREST)),
    ("Upsample", Op(_BLENDS, sizes=(1,), decides=("scales",), moves_when=_NEAREST)),
    ("DFT RoiAlign", Op(_BLENDS)),
    ("MaxRoiPool", Op(T.SAMPLES | _SINGLE)),
    ("Col2Im STFT", Op(_BLENDS | _SINGLE)),
    # choices
    ("TopK", Op(T.EXACT | T.STEPS | T.CHOOSES, sizes=(1,), choice=1)),
    ("ArgMax ArgMin", Op(T.STEPS, choice=0)),
    ("NonMaxSuppression", Op(T.STEPS | T.COUNTS, decides=("iou_threshold", "score_threshold"), choice=0)),
    ("NonZero", Op(T.STEPS | T.COUNTS, decides=("X",))),
    ("Unique", Op(T.EXACT | T.STEPS | T.COUNTS, decides=("X",))),
    # made of nothing, of an integer, of text
    ("Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike", Op(T.RANDOM)),
    ("BlackmanWindow HammingWindow HannWindow ImageDecoder", Op()),
    ("RegexFullMatch StringConcat StringNormalizer StringSplit", Op()),
    ("TfIdfVectorizer ai.onnx.ml::CategoryMapper", Op(T.INTEGER_DATA)),
)

TABLE: Mapping[str, Op] = MappingProxyType({name: row for names, row in _ROWS for name in names.split()})
MOVES = frozenset(name for name, row in TABLE.items() if row.moved != ())
# What TensorRT's plugins are called (plugin/README.md of NVIDIA/TensorRT); exporters may write them without a domain.
NAMED_AS_PLUGIN = re.compile(
    "^TRT|_TRT$|Plugin(Dynamic)?$|^(CoordConvAC|CropAndResize(Dynamic)?|ModulatedDeformConv2d|Proposal(Dynamic)?)$"
)
_NO_ROW = Op()


@functools.cache
def with_trait(traits: Trait) -> frozenset[str]:
    """Operator types that have one of the traits, or several."""
    return frozenset(name for name, row in TABLE.items() if row.traits & traits)


def row_of(node: ir.Node | None) -> Op:
    """The row of a node's operator; an empty one for an operator that has none."""
    return TABLE.get(_name(node), _NO_ROW) if node is not None else _NO_ROW


def has(node: ir.Node | None, traits: Trait) -> bool:
    """Whether a node's operator has one of the traits, or several."""
    return node is not None and _name(node) in with_trait(traits)


def _name(node: ir.Node) -> str:
    return f"{node.domain}::{node.op_type}" if node.domain else node.op_type


def adds_up(node: ir.Node) -> bool:
    """Whether a node accumulates, its attributes looked at: a Scatter without reduction does not."""
    row = row_of(node)
    if row.moves_when is not None:
        name, moving, default = row.moves_when
        return node.attributes.get_string(name, default) != moving
    return bool(row.traits & T.ACCUMULATES)


def moved_inputs(node: ir.Node) -> tuple[int, ...]:
    """Positions of the inputs that a node moves to its outputs; empty when it does anything else with them."""
    row = row_of(node)
    if row.moved == () or adds_up(node):
        return ()
    given = range(len(node.inputs))
    return tuple(given) if row.moved is None else tuple(index for index in row.moved if index in given)
