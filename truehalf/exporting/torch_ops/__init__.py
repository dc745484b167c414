"""torch functions in forms that TensorRT builds; the code of a model imports them from here.

Each computes what torch's function does (its docstring says where it does not), on any device, and exports with both
exporters. Lint has nothing to say of their graphs, but for the three whose result has a size that only a run knows
(bool_index_to_long, dynamic_slice, unique without a size): data-dependent-size. docs/how-to/trt-friendly.md says which
to take when.
"""

from truehalf.exporting.torch_ops.arctangent import atan2
from truehalf.exporting.torch_ops.bitwise import bitwise_and, bitwise_not, bitwise_or
from truehalf.exporting.torch_ops.bool_index import bool_index_to_long
from truehalf.exporting.torch_ops.mix import masked_assign, where
from truehalf.exporting.torch_ops.sampling import grid_sample
from truehalf.exporting.torch_ops.slicing import dynamic_slice
from truehalf.exporting.torch_ops.squeezing import squeeze
from truehalf.exporting.torch_ops.threshold import threshold_topk
from truehalf.exporting.torch_ops.uniques import unique

__all__ = [
    "atan2",
    "bitwise_and",
    "bitwise_not",
    "bitwise_or",
    "bool_index_to_long",
    "dynamic_slice",
    "grid_sample",
    "masked_assign",
    "squeeze",
    "threshold_topk",
    "unique",
    "where",
]
