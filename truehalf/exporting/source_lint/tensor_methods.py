"""What torch's functions and a tensor's methods return, as far as reading source needs it."""

from __future__ import annotations

from truehalf.exporting.source_lint.values import SHAPE, SIZE, TENSOR, UNKNOWN, Value, listed, sequence

READ_OUT = {"item", "tolist", "numpy", "__bool__", "__int__", "__float__"}  # the numbers leave the graph
_SIZES = {
    "dim", "ndim", "ndimension", "numel", "nelement", "stride", "itemsize", "nbytes", "element_size", "get_device",
    "storage_offset",
}  # fmt: skip
_PLAIN = {
    "dtype", "device", "layout", "requires_grad", "grad_fn", "names", "type", "data_ptr", "untyped_storage",
    "backward", "register_hook",
}  # fmt: skip
_MANY = {
    "split", "split_with_sizes", "chunk", "unbind", "tensor_split", "hsplit", "vsplit", "dsplit", "meshgrid",
    "broadcast_tensors", "atleast_1d", "unique_consecutive",
}  # fmt: skip
_PAIRS = {
    "topk", "sort", "kthvalue", "mode", "cummax", "cummin", "aminmax", "frexp", "slogdet", "std_mean", "var_mean",
    "qr", "eig", "eigh",
}  # fmt: skip
_PAIRS_GIVEN_AN_AXIS = {"max", "min", "median", "nanmedian"}
_NO_TENSOR = {
    "finfo", "iinfo", "is_tensor", "is_grad_enabled", "device", "Size", "dtype", "no_grad", "enable_grad",
    "inference_mode", "set_grad_enabled", "autocast", "manual_seed", "get_default_dtype", "set_default_dtype",
    "broadcast_shapes", "compile", "numel", "promote_types", "result_type", "can_cast", "_check",
    "_check_tensor_all", "_assert", "is_autocast_enabled", "get_autocast_dtype", "is_available", "current_device",
    "record_function", "is_inference_mode_enabled", "Generator", "get_rng_state", "warn", "annotate",
}  # fmt: skip
_PREDICATES = ("is_", "has_", "_has_")
_SEVERAL_RESULTS = {"LSTM", "GRU", "RNN", "LSTMCell", "MultiheadAttention", "AdaptiveMaxPool2d_with_indices"}


def attribute(name: str) -> Value | None:
    """Of a tensor; None for a method, which is for `method` to know."""
    if name == "shape":
        return SHAPE
    if name in ("T", "mT", "H", "mH", "data", "grad", "real", "imag"):
        return TENSOR
    if name in ("ndim", "itemsize", "nbytes"):
        return SIZE
    if name in _PLAIN - {"type"} or name in ("is_cuda", "is_leaf", "is_sparse", "is_quantized", "is_meta"):
        return UNKNOWN
    return None


def method(name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Of a tensor, and of torch's function of the same name with the tensor left out of `args`."""
    if name == "size":
        return SIZE if args or kwargs else SHAPE
    if name in _SIZES:
        return SIZE
    if name in _NO_TENSOR or name.startswith(_PREDICATES) or (name in _PLAIN and not args):
        return UNKNOWN
    if name in _MANY or (name == "nonzero" and _given(kwargs, "as_tuple")):
        return sequence(TENSOR)
    if name in _PAIRS:
        return listed([TENSOR, TENSOR])
    if name in _PAIRS_GIVEN_AN_AXIS and ("dim" in kwargs or (args and not args[0].is_tensor)):
        return listed([TENSOR, TENSOR])
    if name == "unique" and any(_given(kwargs, key) for key in ("return_inverse", "return_counts")):
        return sequence(TENSOR)
    return TENSOR


def function(name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Of torch."""
    if name == "where" and len(args) == 1:
        return sequence(TENSOR)
    return method(name, args[1:], kwargs)


def module(class_name: str) -> Value:
    """What a module of torch returns."""
    return sequence(TENSOR) if class_name in _SEVERAL_RESULTS else TENSOR


def _given(kwargs: dict[str, Value], key: str) -> bool:
    return key in kwargs and kwargs[key].kind == "known" and bool(kwargs[key].known)
