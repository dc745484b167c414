"""Run an engine on the GPU: the buffers are torch's, the shapes and values come with each call."""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from truehalf.codes import coded
from truehalf.errors import StageError, refuse
from truehalf.runtime.tensorrt.plugins import load_plugins, message_log
from truehalf.runtime.tensorrt.proof import ports, profile_values
from truehalf.runtime.tensorrt.versions import TENSORRT, BuildError, quoted

DEVICE = "cuda"
_TYPES = {  # trt.DataType -> the name of both numpy's and torch's type
    **{"FLOAT": "float32", "HALF": "float16", "INT64": "int64", "INT32": "int32", "INT8": "int8", "UINT8": "uint8"},
    "BOOL": "bool",
}


class Engine:
    """A deserialized engine with one execution context and one CUDA stream.

    Args:
        path: the engine's file.
        plugins: libraries of plugins that it was built with.
        weights: the ONNX file whose weights are put back into a weight-stripped engine.
        version_compatible: whether it was built so: such an engine brings host code, which is then allowed to run.

    Attributes:
        io: [{name, mode ("INPUT" or "OUTPUT"), dtype ("HALF", ...), shape (-1 where dynamic)}].
        profiles: [{input: {"min": numbers, "opt": numbers, "max": numbers}}] of the dynamic inputs; the numbers of a
            shape-tensor input are its values.
        stream: on which `enqueue` runs the engine.

    Raises:
        StageError: without a GPU, or when TensorRT refuses the file, a plugin, or the weights.
    """

    def __init__(
        self,
        path: Path | str,
        plugins: Iterable[Path | str] = (),
        *,
        weights: Path | str | None = None,
        version_compatible: bool = False,
        module: str = TENSORRT,
    ) -> None:
        import torch

        trt = importlib.import_module(module)

        if DEVICE == "cuda" and not torch.cuda.is_available():
            message = f"{path}: torch sees no CUDA device; an engine runs on the GPU that it was built for"
            raise StageError("no-device", message)
        self.path = Path(path)
        self._trt, self._torch = trt, torch
        self._log = message_log(trt)
        try:
            load_plugins(trt, self._log, plugins)
        except BuildError as error:
            raise StageError(error.code, str(error)) from error
        try:
            self._runtime = trt.Runtime(self._log)
        except TypeError as error:  # by which the bindings say that the library gave none
            raise StageError(
                "no-device", self._told(f"TensorRT {trt.__version__} does not start on this machine")
            ) from error
        self._runtime.engine_host_code_allowed = version_compatible
        engine = self._runtime.deserialize_cuda_engine(self.path.read_bytes())
        if engine is None:
            what = f"cannot be read by TensorRT {trt.__version__}; build it anew with this version and GPU"
            raise StageError("file-unreadable", self._told(what))
        if weights is not None:
            self._refit(engine, weights)
        self._engine = engine
        self.stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self._context = context = engine.create_execution_context()
        if context is None:
            raise self._refused("TensorRT makes no execution context of it, perhaps for want of GPU memory")
        self._profile = 0
        self.io = ports(engine)
        for one in self.io:
            if one["dtype"] not in _TYPES:
                message = f"{self.path}: {one['name']} is of type {one['dtype']}; expected one of {', '.join(_TYPES)}"
                raise StageError("wrong-dtype", message)
        self._inputs = [one["name"] for one in self.io if one["mode"] == "INPUT"]
        self._outputs = [one["name"] for one in self.io if one["mode"] == "OUTPUT"]
        self._dtypes = {one["name"]: _TYPES[str(one["dtype"])] for one in self.io}  # of numpy and of torch
        self.profiles = [self._read_profile(number) for number in range(engine.num_optimization_profiles)]
        self._buffers: dict[str, Any] = {}  # what the context's addresses point to
        self._allocators: dict[str, Any] = {}  # the context keeps every one that it is given: one for each output

    def run(self, feeds: Mapping[str, np.ndarray], profile: int = 0) -> dict[str, np.ndarray]:
        """Outputs for some inputs.

        Args:
            feeds: an array for each input; float arrays are rounded to the input's type, others must have it.
            profile: number of the optimization profile.

        Raises:
            StageError: for feeds that do not fit the engine or the profile (all of them at once), or when TensorRT
                does not run.
        """
        self.bind(feeds, profile)
        self.enqueue()
        self.stream.synchronize()
        return {name: self._fetch(name) for name in self._outputs}

    def bind(self, feeds: Mapping[str, np.ndarray], profile: int = 0) -> None:
        """Copy the inputs to the GPU and make room for the outputs, so that `enqueue` runs the engine on them.

        Raises:
            StageError: for feeds that do not fit the engine or the profile, all of them at once, or when TensorRT
                refuses the profile, a shape or memory.
        """
        arrays = self._checked(feeds, profile)
        context = self._context
        if profile != self._profile:
            try:  # the bindings raise where the library says no, here and in infer_shapes
                context.set_optimization_profile_async(profile, self.stream.cuda_stream)
            except RuntimeError as error:
                raise self._refused(f"profile {profile} cannot be set: {error}") from error
            self._profile = profile
        self._buffers = {}
        with self._torch.cuda.stream(self.stream):
            for name, array in arrays.items():
                self._bind_input(name, array)
            try:
                unknown = context.infer_shapes()
            except RuntimeError as error:
                raise self._refused(f"shapes do not follow from the inputs: {error}") from error
            if unknown:
                raise self._refused(f"shapes do not follow from the inputs for {', '.join(unknown)}")
            for name in self._outputs:
                self._bind_output(name)
        self.stream.synchronize()

    def enqueue(self) -> None:
        """Start the engine on what was bound, on the engine's stream, without waiting for it.

        Raises:
            StageError: when TensorRT refuses to.
        """
        if not self._context.execute_async_v3(self.stream.cuda_stream):
            raise self._refused("TensorRT did not run")

    def _refused(self, what: str) -> StageError:
        return StageError("runtime-refuses", self._told(what))

    def _told(self, what: str) -> str:
        """What is wrong with the engine, and below it what TensorRT has logged of it."""
        return f"{self.path}: {what}{quoted(self._log.errors)}"

    def _refit(self, engine: Any, weights: Path | str) -> None:
        refitter = self._trt.Refitter(engine, self._log)
        parser = self._trt.OnnxParserRefitter(refitter, self._log)
        if not parser.refit_from_file(str(weights)) or not refitter.refit_cuda_engine():
            what = f"the weights of {weights} do not fit this engine; take the file that it was built from"
            raise StageError("wrong-file", self._told(what))

    def _on_host(self, name: str) -> bool:
        return bool(self._engine.get_tensor_location(name) == self._trt.TensorLocation.HOST)

    def _read_profile(self, number: int) -> dict[str, dict[str, list[int]]]:
        engine = self._engine
        ranges = {}
        for name in self._inputs:
            if self._on_host(name):
                points = [one.reshape(-1).tolist() for one in profile_values(self._trt, engine, name, number)]
                if not points:
                    continue
            elif -1 in list(engine.get_tensor_shape(name)):
                points = [list(one) for one in engine.get_tensor_profile_shape(name, number)]
            else:
                continue
            ranges[name] = dict(zip(("min", "opt", "max"), points, strict=True))
        return ranges

    def _checked(self, feeds: Mapping[str, np.ndarray], profile: int) -> dict[str, np.ndarray]:
        """The feeds in the engine's order and types."""
        if not 0 <= profile < len(self.profiles):
            message = f"{self.path}: no profile {profile}; expected 0 to {len(self.profiles) - 1}"
            raise StageError("out-of-range", message)
        problems = [coded("missing-key", f"input {name!r} is missing") for name in self._inputs if name not in feeds]
        problems += [
            coded("wrong-name", f"no input {name!r}; expected {', '.join(self._inputs)}")
            for name in feeds
            if name not in self._inputs
        ]
        arrays = {}
        for name in (one for one in self._inputs if one in feeds):
            array, dtype = np.asarray(feeds[name]), np.dtype(self._dtypes[name])
            if array.dtype != dtype and not (array.dtype.kind == dtype.kind == "f"):
                problems.append(coded("wrong-dtype", f"input {name!r}: expected {dtype}, got {array.dtype}"))
            ranges = self.profiles[profile].get(name)
            host, shape = self._on_host(name), list(array.shape)
            declared = list(self._engine.get_tensor_shape(name))
            if (host or not ranges) and shape != declared:
                problems.append(coded("wrong-shape", f"input {name!r}: expected the shape {declared}, got {shape}"))
            elif ranges and not _inside(given := array.reshape(-1).tolist() if host else shape, ranges):
                what, bounds = "values" if host else "shape", f"{ranges['min']} to {ranges['max']}"
                outside = f"input {name!r}: {what} {given} outside profile {profile}, {bounds}"
                problems.append(coded("out-of-range", outside))
            arrays[name] = np.ascontiguousarray(array.astype(dtype, copy=False)).reshape(array.shape)
        refuse("wrong-feeds", f"{self.path}: the inputs do not fit", problems)
        return arrays

    def _bind_input(self, name: str, array: np.ndarray) -> None:
        context, host = self._context, self._on_host(name)
        if not host and not context.set_input_shape(name, tuple(array.shape)):
            raise self._refused(f"input {name!r}: TensorRT refuses the shape {array.shape}")
        buffer = array if host else self._torch.from_numpy(array).to(DEVICE)
        self._set_address(name, buffer)

    def _bind_output(self, name: str) -> None:
        shape = tuple(self._context.get_tensor_shape(name))
        dtype = self._dtypes[name]
        if -1 in shape or name in self._allocators:  # known only after the run: TensorRT asks for the memory then
            if name not in self._allocators:
                allocator = _output_allocator(self._trt, self._torch)
                if not self._context.set_output_allocator(name, allocator):
                    raise self._refused(f"output {name!r}: TensorRT takes no allocator for its data-dependent shape")
                self._allocators[name] = allocator
            self._buffers[name] = self._allocators[name]
            self._buffers[name].shape = None  # of an earlier run
        elif self._on_host(name):
            self._set_address(name, np.zeros(shape, dtype))
        else:
            self._set_address(name, self._torch.empty(shape, dtype=getattr(self._torch, dtype), device=DEVICE))

    def _set_address(self, name: str, buffer: Any) -> None:
        self._buffers[name] = buffer
        if isinstance(buffer, np.ndarray):
            address = buffer.ctypes.data
        elif buffer.numel():
            address = buffer.data_ptr()
        else:  # torch gives an empty tensor no address, and TensorRT takes no null
            spare = self._buffers[f"{name} (empty)"] = self._torch.empty(1, device=DEVICE)
            address = spare.data_ptr()
        if not self._context.set_tensor_address(name, address):
            raise self._refused(f"{name!r}: TensorRT refuses its memory")

    def _fetch(self, name: str) -> np.ndarray:
        buffer = self._buffers[name]
        if isinstance(buffer, np.ndarray):
            return buffer
        if isinstance(buffer, self._torch.Tensor):
            return np.asarray(buffer.cpu().numpy())
        if buffer.shape is None or buffer.memory is None:
            raise self._refused(f"output {name!r}: TensorRT gave no shape for it")
        dtype = np.dtype(self._dtypes[name])
        used = buffer.memory[: math.prod(buffer.shape) * dtype.itemsize]
        content = used.to("cpu", copy=True).numpy()  # the next run writes there again
        return np.asarray(content.view(dtype).reshape(buffer.shape))


def _inside(numbers: list[int], ranges: Mapping[str, list[int]]) -> bool:
    low, high = ranges["min"], ranges["max"]
    return len(numbers) == len(low) and all(a <= one <= b for a, one, b in zip(low, numbers, high, strict=True))


def _output_allocator(trt: Any, torch: Any) -> Any:
    """Memory for one output whose size TensorRT knows after the run: .memory (bytes on the GPU) and .shape.

    It is used again by the next run, and replaced when that needs more.
    """

    class OutputAllocator(trt.IOutputAllocator):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.IOutputAllocator.__init__(self)
            self.memory: Any = None
            self.shape: tuple[int, ...] | None = None

        def reallocate_output(self, tensor_name: str, memory: int, size: int, alignment: int) -> int:
            if self.memory is None or self.memory.numel() < size:
                self.memory = torch.empty(max(size, 1), dtype=torch.uint8, device=DEVICE)  # aligned to 512 bytes
            return int(self.memory.data_ptr())

        def reallocate_output_async(self, tensor_name: str, memory: int, size: int, alignment: int, stream: int) -> int:
            return self.reallocate_output(tensor_name, memory, size, alignment)

        def notify_shape(self, tensor_name: str, shape: Any) -> None:
            self.shape = tuple(shape)

    return OutputAllocator()
