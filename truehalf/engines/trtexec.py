"""plan.json: record of an engine build, with the trtexec lines that build the same engine on another machine.

Nothing reads the file back: on the machine with the GPU, run the line, or `truehalf engine model.onnx`.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from truehalf.config.engine import Backend, EngineConfig
from truehalf.config.typed import plain
from truehalf.engines.profiles import dynamic_inputs
from truehalf.files import check_outputs, file_sha256
from truehalf.ir.facts import model_facts
from truehalf.ir.model_forms import ModelFile
from truehalf.json_values import JsonObject
from truehalf.runtime.tensorrt import Profile

PLAN_FILE = "plan.json"
_POOLS = {
    "workspace": "workspace",
    "dla_managed_sram": "dlaSRAM",
    "dla_local_dram": "dlaLocalDRAM",
    "dla_global_dram": "dlaGlobalDRAM",
    "tactic_shared_memory": "tacticSharedMem",
}
_TILING = ("none", "fast", "moderate", "full")  # trtexec counts them
_COMPATIBILITY = {"ampere_plus": "ampere+", "same_compute_capability": "sameComputeCapability"}
_FLAGS = {"version_compatible": "--versionCompatible", "refit": "--refit", "strip_weights": "--stripWeights"}
_OF_CHECKS = ("backend", "provider", "profiles", "plugins", "plugin_ops", "gates", "latency", "when_unavailable")


def plan_of(
    file: ModelFile, names: tuple[str, str], options: EngineConfig, profiles: Sequence[Profile], declared: str
) -> JsonObject:
    """The record of a build.

    Args:
        file: the final ONNX file.
        names: the model and the engine as the plan calls them.
        declared: "fp16" or "fp32".

    Returns:
        {backend, onnx, onnx_data (files of weights), onnx_sha256 (of all, one after the other), declared, graph (FP16
        nodes), profiles, plugins}; of ONNX Runtime {provider}; of TensorRT {engine, builder (options), trtexec
        and trtexec_10 (command lines for TensorRT 11 and 10, to be run in a folder that holds the files), trtexec_lacks
        (options that trtexec has no flag for)}.
    """
    facts = model_facts(file.typed)
    plan: dict[str, Any] = {
        "backend": options.backend.value,
        "onnx": names[0],
        "onnx_data": file.external,
        "onnx_sha256": file.digest,
        "declared": declared,
        "graph": {name: facts[name] for name in ("float_nodes", "fp16_nodes")},
        "profiles": plain(profiles),
        "plugins": [{"path": library, "sha256": file_sha256(Path(library))} for library in options.plugins],
    }
    if options.backend is Backend.onnxruntime:
        return plan | {"provider": str(options.provider)}
    varying = dynamic_inputs(file.written.graph)
    lacks = [f"memory_pools_gb.{name}" for name in options.memory_pools_gb if name not in _POOLS]
    return plan | {
        "engine": names[1],
        "builder": {name: value for name, value in plain(options).items() if name not in _OF_CHECKS},
        "trtexec": trtexec(names, options, profiles, varying, 11),
        "trtexec_10": trtexec(names, options, profiles, varying, 10),
        "trtexec_lacks": [*lacks, *(["editable_timing_cache"] if options.editable_timing_cache else [])],
    }


def check_places(file: ModelFile, out_dir: Path, names: Sequence[str], options: EngineConfig) -> None:
    """Refuse to write over the files that an engine is made from.

    Args:
        names: of the files that are written into `out_dir`.

    Raises:
        StageError: a file that is written is the model, its weights or a plugin, or no regular file.
    """
    sources = [file.path, *file.data, *map(Path, options.plugins)]
    check_outputs(
        {name: out_dir / name for name in names}, {f"what it is made from ({path})": path for path in sources}
    )


def trtexec(
    names: tuple[str, str], options: EngineConfig, profiles: Sequence[Profile], varying: Collection[str], major: int
) -> str:
    """A command line of trtexec that builds the engine and does not run it.

    It names files without folders: it is run in a folder that holds them all.

    Args:
        names: the model and the engine.
        varying: inputs whose shapes are not fixed; trtexec refuses shapes for a model that has none.
        major: version of TensorRT.
    """
    command = ["trtexec", f"--onnx={Path(names[0]).name}", f"--saveEngine={Path(names[1]).name}"]
    command += ["--stronglyTyped"] if major == 10 else []
    command += [] if options.tf32 else ["--noTF32"]
    pools = {_POOLS[name]: limit for name, limit in options.memory_pools_gb.items() if name in _POOLS}
    if pools:
        command.append("--memPoolSize=" + ",".join(f"{name}:{limit * 1024:g}M" for name, limit in pools.items()))
    if options.builder_optimization_level is not None:
        command.append(f"--builderOptimizationLevel={options.builder_optimization_level}")
    if options.max_aux_streams is not None:
        command.append(f"--maxAuxStreams={options.max_aux_streams}")
    if options.tiling_optimization_level != "none":
        command.append(f"--tilingOptimizationLevel={_TILING.index(options.tiling_optimization_level)}")
    if options.hardware_compatibility != "none":
        command.append(f"--hardwareCompatibilityLevel={_COMPATIBILITY[options.hardware_compatibility]}")
    if options.timing_cache is not None:
        command.append(f"--timingCacheFile=trtexec-tensorrt-{major}.cache")
    command += [flag for name, flag in _FLAGS.items() if getattr(options, name)]
    command.append(f"--profilingVerbosity={options.profiling_verbosity}")
    # without a folder in its name, the loader would look for a library in system folders
    command += [f"--dynamicPlugins=./{Path(plugin).name}" for plugin in options.plugins]
    for number, ranges in enumerate(profiles):
        profile = {name: numbers for name, numbers in ranges.items() if name in varying}
        if not profile:
            continue
        command += [f"--profile={number}"] if len(profiles) > 1 else []
        for kind in ("min", "opt", "max"):
            shapes = ",".join(f"{_quoted(name)}:{'x'.join(map(str, ranges[kind]))}" for name, ranges in profile.items())
            command.append(f"--{kind}Shapes={shapes}")
    return shlex.join([*command, "--skipInference"])


def _quoted(name: str) -> str:
    return f"'{name}'" if set(name) & {":", ",", "*"} else name
