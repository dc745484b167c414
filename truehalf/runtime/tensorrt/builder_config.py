"""Configuration of the builder: options and optimization profiles of a plan, set in TensorRT."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from truehalf.runtime.tensorrt.versions import BUILDER_FLAGS, BuilderOptions, BuildError, Profile


def member(trt: Any, kind: str, name: str, key: str) -> Any:
    """The member of an enum of TensorRT that a plan calls by its name in lower case."""
    members = getattr(trt, kind, None)
    if members is None:
        message = f"{key}: TensorRT {trt.__version__} lacks {kind}; leave it out, or install a later one"
        raise BuildError("not-supported", message)
    if name.upper() not in members.__members__:
        known = ", ".join(sorted(one.lower() for one in members.__members__))
        message = f"{key}: this TensorRT knows no {name!r}; expected one of: {known}"
        raise BuildError("unknown-choice", message)
    return members.__members__[name.upper()]


def configure(trt: Any, config: Any, options: BuilderOptions) -> None:
    for name, limit_gb in options["memory_pools_gb"].items():
        pool = member(trt, "MemoryPoolType", name, "engine.memory_pools_gb")
        config.set_memory_pool_limit(pool, int(limit_gb * 2**30))
    if options["builder_optimization_level"] is not None:
        config.builder_optimization_level = options["builder_optimization_level"]
    if options["max_aux_streams"] is not None:
        config.max_aux_streams = options["max_aux_streams"]
    if options["tiling_optimization_level"] != "none":
        config.tiling_optimization_level = member(
            trt, "TilingOptimizationLevel", options["tiling_optimization_level"], "engine.tiling_optimization_level"
        )
    if options["hardware_compatibility"] != "none":
        config.hardware_compatibility_level = member(
            trt, "HardwareCompatibilityLevel", options["hardware_compatibility"], "engine.hardware_compatibility"
        )
    verbosity = options["profiling_verbosity"]
    config.profiling_verbosity = member(trt, "ProfilingVerbosity", verbosity, "engine.profiling_verbosity")
    for option, flag in BUILDER_FLAGS.items():
        if options[option]:  # type: ignore[literal-required]
            config.set_flag(member(trt, "BuilderFlag", flag, f"engine.{option}"))
    if not options["tf32"]:
        config.clear_flag(trt.BuilderFlag.TF32)  # the only one that is on by default


def _fits(tensor: Any, numbers: Sequence[int]) -> bool:
    """Whether a shape has the axes and fixed sides of an input; of a shape tensor, whether values are as many."""
    shape: tuple[int, ...] = tuple(tensor.shape)
    if tensor.is_shape_tensor:
        return len(numbers) == math.prod(shape)
    return len(numbers) == len(shape) and all(a in (-1, b) for a, b in zip(shape, numbers, strict=True))


def add_profiles(builder: Any, network: Any, config: Any, profiles: Iterable[Profile]) -> None:
    """Add the profiles; numbers are values where the parser found a shape tensor, else shapes."""
    inputs = {tensor.name: tensor for tensor in (network.get_input(i) for i in range(network.num_inputs))}
    problems = []
    for number, ranges in enumerate(profiles):
        profile = builder.create_optimization_profile()
        for name, numbers in ranges.items():
            where = f"engine.profiles[{number}].{name}"
            if name not in inputs:
                problems.append(f"{where}: no such input; the network has {', '.join(inputs)}")
                continue
            tensor = inputs[name]
            shape = tuple(tensor.shape)
            kind = f"values of a shape tensor of {shape}" if tensor.is_shape_tensor else f"shapes of {shape}"
            if not all(_fits(tensor, given) for given in numbers.values()):  # TensorRT says so late and without a name
                problems.append(f"{where}: expected {kind}, got {dict(numbers)}")
                continue
            try:
                if tensor.is_shape_tensor:
                    profile.set_shape_input(name, numbers["min"], numbers["opt"], numbers["max"])
                else:
                    profile.set_shape(name, numbers["min"], numbers["opt"], numbers["max"])
            except (RuntimeError, ValueError) as error:  # the bindings raise where the library refuses
                problems.append(f"{where}: TensorRT refuses {dict(numbers)} as {kind}: {error}")
        for name, tensor in inputs.items():
            if name not in ranges and (tensor.is_shape_tensor or -1 in tuple(tensor.shape)):
                wanted = "a shape tensor: give its values" if tensor.is_shape_tensor else "dynamic: give its shapes"
                problems.append(f"engine.profiles[{number}]: input {name!r} is missing and is {wanted}")
        if not problems and config.add_optimization_profile(profile) < 0:
            problems.append(f"engine.profiles[{number}]: TensorRT refuses it as inconsistent: {dict(ranges)}")
    if problems:
        raise BuildError("wrong-plan", "\n".join(problems))
