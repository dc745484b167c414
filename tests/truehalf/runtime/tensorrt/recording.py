"""A stand-in for the tensorrt module that records what is called. Tests only.

Its classes, enums and functions are made from the names of one version (names/), and have nothing else: a name that
the version lacks is an AttributeError, and so is setting what is read only; a call with arguments that no overload
takes is a TypeError. What they return is as dull as can be, but for the few behaviours below, by which a World answers;
what the bindings refuse with a RuntimeError instead of an answer, these refuse so, too.
"""

from __future__ import annotations

import ctypes
import enum
import json
import re
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

NAMES = Path(__file__).resolve().parent / "names"
VERSIONS = tuple(sorted(file.stem.removeprefix("tensorrt-") for file in NAMES.glob("tensorrt-*.txt")))


class Overload(NamedTuple):
    arguments: tuple[str, ...]
    optional: int  # how many of the last arguments have defaults
    returns: str | None


@dataclass
class Thing:
    """What one line of a names file says: a class or function, a method, a member of an enum, an attribute."""

    name: str
    overloads: list[Overload] = field(default_factory=list)
    value: int | None = None
    attribute: str | None = None
    read_only: bool = False


@cache
def names(version: str) -> dict[str, Thing]:
    """Everything public in a version ("11.4"), by qualified name."""
    things: dict[str, Thing] = {}
    for line in (NAMES / f"tensorrt-{version}.txt").read_text().splitlines():
        if line.startswith("#"):
            continue
        match = re.fullmatch(r"([\w.]+)(?:\((.*?)\)(?: -> (.+))?| = (-?\d+)|: (.+?)(, read only)?)?", line)
        assert match, line
        name, arguments, returns, value, attribute, read_only = match.groups()
        thing = things.setdefault(name, Thing(name))
        if arguments is not None:
            taken = tuple(one for one in arguments.split(", ") if one)
            plain = tuple(one.rstrip("=") for one in taken)
            thing.overloads.append(Overload(plain, sum(one.endswith("=") for one in taken), returns))
        thing.value = int(value) if value else None
        thing.attribute, thing.read_only = attribute, bool(read_only)
    return things


@cache
def _by_owner(version: str) -> dict[str, dict[str, Thing]]:
    """Members of each class and enum, by their own name."""
    grouped: dict[str, dict[str, Thing]] = {}
    for name, thing in names(version).items():
        owner, dot, member = name.rpartition(".")
        if dot:
            grouped.setdefault(owner, {})[member] = thing
    return grouped


def full_version(version: str) -> str:
    head = (NAMES / f"tensorrt-{version}.txt").read_text().splitlines()[0]
    return head.removeprefix("# tensorrt ").split(":")[0]


@dataclass
class Tensor:
    """A network's or an engine's input or output; `values` are a shape tensor's at min, opt and max."""

    name: str
    dtype: str = "FLOAT"
    shape: tuple[int, ...] = (-1, 3, 8, 8)
    profile: tuple[tuple[int, ...], ...] = ((1, 3, 8, 8), (2, 3, 8, 8), (4, 3, 8, 8))
    values: tuple[tuple[int, ...], ...] | None = None


class Call(NamedTuple):
    name: str  # "Builder.create_network", "set IBuilderConfig.max_aux_streams", "Builder" for a constructor
    arguments: tuple[Any, ...]


@dataclass
class World:
    """How the stand-in answers."""

    version: str = "11.4"
    release: str | None = None  # __version__, where it is an older one than the names'
    lacks: frozenset[str] = frozenset()  # qualified names that an older release does not have
    inputs: list[Tensor] = field(default_factory=lambda: [Tensor("images")])
    outputs: list[Tensor] = field(default_factory=lambda: [Tensor("scores", shape=(-1, 5))])
    starts: bool = True
    reads: bool = True  # deserializes engines
    contexts: bool = True
    switches_profiles: bool = True
    infers: bool = True
    libraries: set[str] = field(default_factory=set)  # plugin libraries that the registry takes, by file name
    vc_libraries: list[str] = field(default_factory=list)
    takes_cache: Callable[[bytes], bool] = lambda data: True
    layers: list[Any] = field(default_factory=list)  # of the inspector
    inspects: bool = True  # gives an inspector
    information: str | None = None  # the inspector's text, where it is not that of `layers`
    profiles: int = 1
    runs: bool = True
    unknown_shapes: list[str] = field(default_factory=list)
    output_shapes: Callable[[Mapping[str, tuple[int, ...]]], Mapping[str, tuple[int, ...]]] = lambda shapes: {}
    compute: Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]] = lambda arrays: {}
    calls: list[Call] = field(default_factory=list)
    loaded: int = 0

    def called(self) -> list[str]:
        return [call.name for call in self.calls]

    def arguments(self, name: str) -> list[tuple[Any, ...]]:
        return [call.arguments for call in self.calls if call.name == name]


# What the bindings say with their RuntimeErrors.
NO_SWITCH = "Error in set optimization profile async."
NO_SHAPES = "Encountered an error during shape inference"

NUMPY = {"FLOAT": np.float32, "HALF": np.float16, "INT32": np.int32, "INT64": np.int64, "BOOL": np.bool_}


def module(world: World) -> types.ModuleType:
    """The stand-in of a World's version."""
    return _Maker(world).module


class _Maker:
    def __init__(self, world: World) -> None:
        self.world = world
        self.things = {name: thing for name, thing in names(world.version).items() if not self._lacks(name)}
        self.module = types.ModuleType("tensorrt")
        self.module.__dict__["__version__"] = world.release or full_version(world.version)
        for name, thing in self.things.items():
            if "." not in name:
                setattr(self.module, name, self._top(thing))
        unknown = [name for name in BEHAVIOURS if name not in self.things and not self._lacks(name)]
        assert not unknown, f"the stand-in behaves where TensorRT {world.version} has no name: {unknown}"

    def _top(self, thing: Thing) -> Any:
        if thing.name[0].islower():
            return self._function(thing.name) if thing.overloads else thing.name
        return self._class(thing.name)

    def _members(self, name: str) -> dict[str, Thing]:
        members = _by_owner(self.world.version).get(name, {})
        return {member: thing for member, thing in members.items() if thing.name in self.things}

    def _lacks(self, name: str) -> bool:
        return any(name == one or name.startswith(f"{one}.") for one in self.world.lacks)

    def _class(self, name: str) -> Any:
        members = self._members(name)
        if members and all(thing.value is not None for thing in members.values()):
            body = {member: thing.value for member, thing in members.items()}
            return enum.Enum(name.rpartition(".")[2], body, type=_Whole, module="tensorrt.tensorrt")
        made: dict[str, Any] = {"__setattr__": _only_attributes(set(members)), "_maker": self, "_made": True}
        made["__module__"] = "tensorrt.tensorrt"
        for member, thing in members.items():
            if thing.attribute is not None:
                made[member] = self._attribute(thing)
            elif thing.overloads:
                made[member] = self._function(thing.name)
            elif self._members(thing.name):
                made[member] = self._class(thing.name)
            else:
                made[member] = member
        if name == "IHostMemory":
            made["__bytes__"] = lambda host: host.content
        if name == "IOptimizationProfile":
            made["__bool__"] = lambda profile: True
        made["__init__"] = self._constructor(name)
        return type(name, (), made)

    def _constructor(self, name: str) -> Callable[..., None]:
        thing, recorded = self.things[name], self._call

        def construct(instance: Any, *arguments: Any) -> None:
            if not thing.overloads:
                raise TypeError(f"tensorrt.{name}: No constructor defined!")
            recorded(thing, None, arguments)

        return construct

    def _function(self, name: str) -> Callable[..., Any]:
        thing, recorded = self.things[name], self._call
        if "." not in name:
            return lambda *arguments: recorded(thing, None, arguments)
        return lambda instance, *arguments: recorded(thing, instance, arguments)

    def _call(self, thing: Thing, instance: Any, arguments: tuple[Any, ...]) -> Any:
        fitting = [one for one in thing.overloads if _takes(one, arguments)]
        if not fitting:
            raise TypeError(f"{thing.name} takes {thing.overloads}, got {len(arguments)} arguments")
        self.world.calls.append(Call(thing.name, arguments))
        behaviour = BEHAVIOURS.get(thing.name)
        if behaviour:
            return behaviour(self, instance, *arguments)
        return self.make(fitting[0].returns)

    def _attribute(self, thing: Thing) -> property:
        world, short, behaviour = self.world, f"_{thing.name.rpartition('.')[2]}", BEHAVIOURS.get(thing.name)

        def read(instance: Any) -> Any:
            if short in instance.__dict__:
                return instance.__dict__[short]
            return behaviour(self, instance) if behaviour else self.make(thing.attribute)

        def write(instance: Any, value: Any) -> None:
            world.calls.append(Call(f"set {thing.name}", (value,)))
            instance.__dict__[short] = value

        return property(read, None if thing.read_only else write)

    def make(self, kind: str | None, **state: Any) -> Any:
        """A value of a type that a names file calls so; of a class, an instance with some state."""
        plain = {"bool": True, "int": 0, "str": "", "float": 0.0}
        if kind in plain:
            return plain[kind]
        if kind and kind.startswith("list"):
            return []
        found = getattr(self.module, kind, None) if kind and kind.isidentifier() else None
        if not isinstance(found, type) or issubclass(found, enum.Enum):
            return None
        instance = object.__new__(found)
        instance.__dict__.update(state)
        return instance


class _Whole(enum.Enum):
    """Members that are told apart like those of pybind11: int() gives their number, no order among them."""

    def __int__(self) -> int:
        return int(self.value)

    __index__ = __int__


def _takes(overload: Overload, arguments: tuple[Any, ...]) -> bool:
    return len(overload.arguments) - overload.optional <= len(arguments) <= len(overload.arguments)


def _only_attributes(members: set[str]) -> Callable[[Any, str, Any], None]:
    def set_attribute(instance: Any, name: str, value: Any) -> None:
        if type(instance).__dict__.get("_made") and name not in members:  # subclasses in Python may have their own
            raise AttributeError(f"'tensorrt.tensorrt.{type(instance).__name__}' object has no attribute {name!r}")
        object.__setattr__(instance, name, value)

    return set_attribute


# --- behaviours: (maker, instance, arguments) -------------------------------------------------------------------------


def _constructed(maker: _Maker, instance: Any, *arguments: Any) -> None:
    if not maker.world.starts:
        raise TypeError("pybind11::init(): factory function returned nullptr")


def _parse(maker: _Maker, parser: Any, model: str) -> bool:
    assert isinstance(model, str) and Path(model).is_file()
    return True


def _cache(maker: _Maker, config: Any, data: bytes) -> Any:
    return maker.make("ITimingCache", content=data) if maker.world.takes_cache(data) else None


def _set_cache(maker: _Maker, config: Any, timing_cache: Any, ignore_mismatch: bool) -> bool:
    config.__dict__["attached"] = timing_cache
    return True


def _combine(maker: _Maker, timing_cache: Any, other: Any, ignore_mismatch: bool) -> bool:
    timing_cache.__dict__["content"] += b"+" + other.content
    return True


def _tensor(world: World, name: str) -> Tensor:
    return next(one for one in world.inputs + world.outputs if one.name == name)


def _switch_profile(maker: _Maker, context: Any, profile: int, stream: int) -> bool:
    if not maker.world.switches_profiles:
        raise RuntimeError(NO_SWITCH)
    return True


def _infer(maker: _Maker, context: Any) -> list[str]:
    if not maker.world.infers:
        raise RuntimeError(NO_SHAPES)
    return maker.world.unknown_shapes


def _load_library(maker: _Maker, registry: Any, path: str) -> Any:
    if Path(path).name not in maker.world.libraries:
        return None
    maker.world.loaded += 1
    return object()


def _values(maker: _Maker, engine: Any, profile: int, name: str) -> list[list[int]]:
    assert isinstance(profile, int) and isinstance(name, str)
    return [list(one) for one in _tensor(maker.world, name).values or ()]


def _address(maker: _Maker, context: Any, name: str, memory: int) -> bool:
    assert isinstance(memory, int) and memory
    context.__dict__.setdefault("addresses", {})[name] = memory
    return True


def _input_shape(maker: _Maker, context: Any, name: str, shape: tuple[int, ...]) -> bool:
    context.__dict__.setdefault("shapes", {})[name] = shape
    return True


def _allocator(maker: _Maker, context: Any, name: str, allocator: Any) -> bool:
    assert isinstance(allocator, maker.module.IOutputAllocator)
    context.__dict__.setdefault("allocators", {})[name] = allocator
    return True


def _tensor_shape(maker: _Maker, context: Any, name: str) -> tuple[int, ...]:
    return tuple(maker.world.output_shapes(context.__dict__.get("shapes", {}))[name])


def _at(address: int, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    kind = np.dtype(NUMPY[dtype])
    count = int(np.prod(shape, dtype=np.int64))
    buffer = (ctypes.c_char * (count * kind.itemsize)).from_address(address)
    return np.frombuffer(buffer, kind).reshape(shape)


def _execute(maker: _Maker, context: Any, stream: int) -> bool:
    """Read the inputs from their addresses, compute, write the outputs to theirs."""
    world, shapes = maker.world, context.__dict__.get("shapes", {})
    if not world.runs:
        return False
    arrays = {
        one.name: _at(context.addresses[one.name], shapes.get(one.name, one.shape), one.dtype) for one in world.inputs
    }
    for name, result in world.compute(arrays).items():
        given = np.ascontiguousarray(result, NUMPY[_tensor(world, name).dtype])
        if name in context.__dict__.get("allocators", {}):
            allocator = context.allocators[name]
            address = allocator.reallocate_output(name, 0, given.nbytes, 256)
            allocator.notify_shape(name, given.shape)
        else:
            address = context.addresses[name]
        ctypes.memmove(address, given.ctypes.data, given.nbytes)
    return True


BEHAVIOURS: dict[str, Callable[..., Any]] = {
    "Builder": _constructed,
    "Runtime": _constructed,
    "ILogger": lambda maker, logger: None,
    "IProgressMonitor": lambda maker, monitor: None,
    "IBuilderConfig.progress_monitor": lambda maker, config: None,
    "IOutputAllocator": lambda maker, allocator: None,
    "OnnxParser.parse_from_file": _parse,
    "OnnxParser.get_used_vc_plugin_libraries": lambda maker, parser: maker.world.vc_libraries,
    "INetworkDefinition.num_inputs": lambda maker, network: len(maker.world.inputs),
    "INetworkDefinition.get_input": lambda maker, network, i: maker.make("ITensor", tensor=maker.world.inputs[i]),
    "ITensor.name": lambda maker, tensor: tensor.tensor.name,
    "ITensor.shape": lambda maker, tensor: tensor.tensor.shape,
    "ITensor.is_shape_tensor": lambda maker, tensor: tensor.tensor.values is not None,
    "IBuilderConfig.create_timing_cache": _cache,
    "IBuilderConfig.set_timing_cache": _set_cache,
    "IBuilderConfig.get_timing_cache": lambda maker, config: config.__dict__.get("attached"),
    "ITimingCache.combine": _combine,
    "ITimingCache.serialize": lambda maker, one: maker.make("IHostMemory", content=one.content + b"+timed"),
    "Builder.build_serialized_network": lambda maker, b, n, config: maker.make("IHostMemory", content=b"an engine"),
    "Runtime.deserialize_cuda_engine": lambda maker, r, data: maker.make("ICudaEngine") if maker.world.reads else None,
    "get_plugin_registry": lambda maker, _: maker.make("IPluginRegistry"),
    "IPluginRegistry.load_library": _load_library,
    "IPluginRegistry.all_creators": lambda maker, registry: [  # in no order that is promised: here the newest first
        types.SimpleNamespace(name=f"Twist{i}", plugin_version="1", plugin_namespace="")
        for i in reversed(range(maker.world.loaded))
    ],
    "ICudaEngine.num_io_tensors": lambda maker, engine: len(maker.world.inputs + maker.world.outputs),
    "ICudaEngine.num_optimization_profiles": lambda maker, engine: maker.world.profiles,
    "ICudaEngine.device_memory_size_v2": lambda maker, engine: 3_000_000,
    "ICudaEngine.create_engine_inspector": lambda maker, engine: (
        maker.make("EngineInspector") if maker.world.inspects else None
    ),
    "ICudaEngine.get_tensor_name": lambda maker, engine, i: (maker.world.inputs + maker.world.outputs)[i].name,
    "ICudaEngine.get_tensor_shape": lambda maker, engine, name: _tensor(maker.world, name).shape,
    "ICudaEngine.get_tensor_dtype": lambda maker, e, name: maker.module.DataType[_tensor(maker.world, name).dtype],
    "ICudaEngine.get_tensor_mode": lambda maker, e, name: maker.module.TensorIOMode[
        "INPUT" if _tensor(maker.world, name) in maker.world.inputs else "OUTPUT"
    ],
    "ICudaEngine.get_tensor_location": lambda maker, e, name: maker.module.TensorLocation[
        "DEVICE" if _tensor(maker.world, name).values is None else "HOST"
    ],
    "ICudaEngine.get_tensor_profile_shape": lambda maker, e, name, i: list(_tensor(maker.world, name).profile),
    "ICudaEngine.get_tensor_profile_values": _values,
    "ICudaEngine.create_execution_context": lambda maker, engine, *strategy: (
        maker.make("IExecutionContext") if maker.world.contexts else None
    ),
    "EngineInspector.get_engine_information": lambda maker, i, kind: (
        json.dumps({"Layers": maker.world.layers}) if maker.world.information is None else maker.world.information
    ),
    "IExecutionContext.set_input_shape": _input_shape,
    "IExecutionContext.set_tensor_address": _address,
    "IExecutionContext.set_output_allocator": _allocator,
    "IExecutionContext.get_tensor_shape": _tensor_shape,
    "IExecutionContext.infer_shapes": _infer,
    "IExecutionContext.set_optimization_profile_async": _switch_profile,
    "IExecutionContext.execute_async_v3": _execute,
}
