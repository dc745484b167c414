"""plan.json: record of an engine build, with the trtexec lines that build the same engine on another machine.

Nothing reads the file back: on the machine with the GPU, run the line, or `truehalf engine model.onnx`.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from pathlib import Path, PurePosixPath
from typing import cast

from truehalf.config.typed import plain
from truehalf.engines.engine_report import EngineOptions, EnginePlan
from truehalf.engines.ort_provider import environment, provider_options
from truehalf.engines.precision import float_facts, fp16_node_names
from truehalf.engines.profiles import check_profiles, profiled_inputs
from truehalf.errors import refuse
from truehalf.files import check_outputs, file_sha256
from truehalf.ir.model_forms import ModelFile, file_of
from truehalf.runtime.tensorrt.versions import BUILDER_OPTIONS, VERSIONS, BuilderOptions, Profile

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


def make_plan(
    model: Path | str | ModelFile,
    *,
    names: tuple[str, str],
    options: EngineOptions,
    profiles: Sequence[Profile],
    declared: str,
) -> EnginePlan:
    """The plan of an engine, as plain data: see EnginePlan.

    Args:
        model: the final ONNX file.
        names: the model and the engine as the plan should call them.
        options: keys of conf/engine/tensorrt.yaml.
        profiles: optimization profiles: [{input: {"min": numbers, "opt": numbers, "max": numbers}}]; the numbers of a
            shape-tensor input are its values.
        declared: "fp16" or "fp32".

    Raises:
        StageError: listing every profile that does not fit the graph, and every plugin that is missing.
    """
    file = file_of(model)
    problems = check_profiles(file.written.graph, profiles)
    libraries = [Path(library) for library in options["plugins"]]
    problems += [f"engine.plugins: {library} is missing" for library in libraries if not library.is_file()]
    refuse("wrong-plan", f"the plan does not fit {file.path}", problems)
    plan: EnginePlan = {
        "backend": options["backend"],
        "onnx": names[0],
        "onnx_data": file.external,
        "onnx_sha256": file.digest,
        "declared": declared,
        "graph": float_facts(file.typed),
        "profiles": plain(profiles),
        "plugins": [{"path": str(library), "sha256": file_sha256(library)} for library in libraries],
    }
    if options["provider"] is not None:
        plan["provider"] = str(options["provider"])
        plan["provider_options"] = provider_options(options, profiles, declared)
        plan["environment"] = environment(options)
        return plan
    plan["engine"] = names[1]
    plan["graph"]["fp16_node_names"] = fp16_node_names(file)
    chosen = {name: plain(value) for name, value in options.items() if name in BUILDER_OPTIONS}
    plan["builder"] = cast("BuilderOptions", chosen)
    wanted = profiled_inputs(file.model.graph)
    plan["trtexec"], plan["trtexec_10"] = (trtexec(plan, major, wanted) for major in (11, 10))
    plan["trtexec_lacks"] = _lacks(plan["builder"])
    return plan


def check_target(plan: EnginePlan, model_path: Path, out_dir: Path, files: Sequence[str]) -> None:
    """Refuse to write over what the engine is made from.

    Args:
        files: names of what is written into `out_dir` beside the engine.

    Raises:
        StageError: when a file that is written is the model, its weights or a plugin, or no regular file.
    """
    sources = [model_path, *(model_path.parent / name for name in plan["onnx_data"])]
    sources += [Path(plugin["path"]) for plugin in plan["plugins"]]
    written = {name: out_dir / name for name in files}
    if "engine" in plan:
        written["the engine"] = out_dir / PurePosixPath(plan["engine"]).name
    check_outputs(written, {f"what it is made from ({path})": path for path in sources})


def trtexec(plan: EnginePlan, major: int, inputs: Collection[str]) -> str:
    """The plan as a command line of the trtexec of a major version; it builds and does not run the engine.

    It names files without folders: it is run in a folder that holds them all.

    Args:
        inputs: those whose shapes or values are not fixed; trtexec refuses shapes for a model that has none.
    """
    options = plan["builder"]
    command = ["trtexec", f"--onnx={Path(plan['onnx']).name}", f"--saveEngine={Path(plan['engine']).name}"]
    command += VERSIONS[major].trtexec
    if not options["tf32"]:
        command.append("--noTF32")
    pools = {_POOLS[name]: limit for name, limit in options["memory_pools_gb"].items() if name in _POOLS}
    if pools:
        command.append("--memPoolSize=" + ",".join(f"{name}:{limit * 1024:g}M" for name, limit in pools.items()))
    if options["builder_optimization_level"] is not None:
        command.append(f"--builderOptimizationLevel={options['builder_optimization_level']}")
    if options["max_aux_streams"] is not None:
        command.append(f"--maxAuxStreams={options['max_aux_streams']}")
    if options["tiling_optimization_level"] != "none":
        command.append(f"--tilingOptimizationLevel={_TILING.index(options['tiling_optimization_level'])}")
    if options["hardware_compatibility"] != "none":
        command.append(f"--hardwareCompatibilityLevel={_COMPATIBILITY[options['hardware_compatibility']]}")
    if options["timing_cache"] is not None:
        command.append(f"--timingCacheFile=trtexec-tensorrt-{major}.cache")
    flags = {"version_compatible": "--versionCompatible", "refit": "--refit", "strip_weights": "--stripWeights"}
    command += [flag for name, flag in flags.items() if options[name]]  # type: ignore[literal-required]
    command.append(f"--profilingVerbosity={options['profiling_verbosity']}")
    # without a folder in its name, the loader would look for a library in system folders
    command += [f"--dynamicPlugins=./{Path(plugin['path']).name}" for plugin in plan["plugins"]]
    for number, given in enumerate(plan["profiles"]):
        profile = {name: one for name, one in given.items() if name in inputs}
        if not profile:
            continue
        if len(plan["profiles"]) > 1:
            command.append(f"--profile={number}")
        for kind in ("min", "opt", "max"):
            shapes = ",".join(f"{_quoted(name)}:{'x'.join(map(str, one[kind]))}" for name, one in profile.items())
            command.append(f"--{kind}Shapes={shapes}")
    return shlex.join([*command, "--skipInference"])


def _quoted(name: str) -> str:
    return f"'{name}'" if set(name) & {":", ",", "*"} else name


def _lacks(options: BuilderOptions) -> list[str]:
    lacks = [f"memory_pools_gb.{name}" for name in options["memory_pools_gb"] if name not in _POOLS]
    return [*lacks, "editable_timing_cache"] if options["editable_timing_cache"] else lacks
