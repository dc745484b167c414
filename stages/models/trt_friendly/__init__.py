"""torch functions in forms that TensorRT builds.

Each computes what torch's own computes (its docstring says where it does not), on any device, and exports with both
exporters. Lint has nothing to say of their graphs, but for the three whose result has a size that only a run knows
(bool_index_to_long, dynamic_slice, unique without a size): data-dependent-size. docs/trt-friendly.md says which to take
when.
"""

from stages.models.trt_friendly.arctangent import atan2
from stages.models.trt_friendly.bitwise import bitwise_and, bitwise_not, bitwise_or
from stages.models.trt_friendly.bool_index import bool_index_to_long
from stages.models.trt_friendly.mix import masked_assign, where
from stages.models.trt_friendly.sampling import grid_sample
from stages.models.trt_friendly.slicing import dynamic_slice
from stages.models.trt_friendly.squeezing import squeeze
from stages.models.trt_friendly.threshold import threshold_topk
from stages.models.trt_friendly.uniques import unique

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
