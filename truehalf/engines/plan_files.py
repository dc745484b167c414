"""Plan of an engine build: plain data and files that can be copied to a GPU's host.

The files: plan.json, build_engine.py (build.py and what it imports of ours in one, which needs tensorrt and numpy
only), README.txt.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import cast

from truehalf.config.typed import plain
from truehalf.engines.engine_report import EnginePlan
from truehalf.engines.precision import float_facts, fp16_node_names
from truehalf.engines.profiles import check_profiles, profiled_inputs, shape_inputs
from truehalf.errors import refuse
from truehalf.files import write_json, write_text
from truehalf.ir.model_forms import ModelFile, file_of
from truehalf.runtime import cuda_driver
from truehalf.runtime.tensorrt import build as builder
from truehalf.runtime.tensorrt import builder_config, layer_log, plan_content, proof, rtx, timing_cache, versions
from truehalf.runtime.tensorrt import plugins as plugins_of_process
from truehalf.runtime.tensorrt.versions import BuilderOptions, Profile

PLAN_FILE = "plan.json"
SCRIPT_FILE = "build_engine.py"
README_FILE = "README.txt"
OPTIONS = versions.BUILDER_OPTIONS
# Modules of build_engine.py, one that imports another before it.
_PARTS = (
    *(rtx, builder_config, plan_content, plugins_of_process, proof, timing_cache, versions, layer_log),
    cuda_driver,
)


class EngineOptions(BuilderOptions):
    """The section `engine` as plain values, as far as plans read it."""

    provider: str | None
    plugins: list[str]


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
    """The plan of an engine: what truehalf.runtime.tensorrt.build.build takes.

    Args:
        model: the final ONNX file.
        names: the model and the engine as the plan should call them.
        options: keys of conf/engine/tensorrt.yaml; those that are none of the builder's (OPTIONS) are left out.
        profiles: optimization profiles: [{input: {"min": numbers, "opt": numbers, "max": numbers}}]; the numbers of a
            shape-tensor input are its values.
        declared: "fp16" or "fp32".

    Returns:
        format, onnx, onnx_data (files of weights beside it), onnx_sha256 (of all of these, one after the other),
        engine, declared, graph (float_nodes and fp16_nodes of the model, and fp16_node_names), network, builder,
        profiles, plugins ([{path, sha256}]), trtexec (the command for TensorRT 11) and trtexec_10 (for TensorRT 10),
        to be run in the folder that the files are put into, trtexec_lacks (options that trtexec has no flag for),
        shape_inputs.

    Raises:
        StageError: listing every profile that does not fit the graph, and every plugin that is missing.
    """
    file = file_of(model)
    plan = plan_of_model(file, names, options["plugins"], profiles, declared)
    plan["graph"]["fp16_node_names"] = fp16_node_names(file)
    plan["network"] = {"strongly_typed": True}
    plan["builder"] = cast("BuilderOptions", {name: plain(value) for name, value in options.items() if name in OPTIONS})
    wanted = profiled_inputs(file.model.graph)
    plan["trtexec"], plan["trtexec_10"] = (trtexec(plan, major, wanted) for major in (11, 10))
    plan["trtexec_lacks"] = _lacks(plan["builder"])
    return plan


def plan_of_model(
    file: ModelFile, names: tuple[str, str], plugins: Sequence[str], profiles: Sequence[Profile], declared: str
) -> EnginePlan:
    """What every plan says of the model; the arguments are those of `make_plan`.

    Raises:
        StageError: listing every profile that does not fit the graph, and every plugin that is missing.
    """
    graph = file.written.graph
    problems = check_profiles(graph, profiles)
    problems += [f"engine.plugins: {file} is missing" for file in plugins if not Path(file).is_file()]
    refuse("wrong-plan", f"the plan does not fit {file.path}", problems)
    return {
        "format": versions.PLAN_FORMAT,
        "onnx": names[0],
        "onnx_data": file.external,
        "onnx_sha256": file.digest,
        "engine": names[1],
        "declared": declared,
        "graph": float_facts(file.typed),
        "profiles": plain(profiles),
        "plugins": [{"path": str(file), "sha256": plan_content.sha256(Path(file))} for file in plugins],
        "shape_inputs": sorted(shape_inputs(graph)),
    }


def write_plan(plan: EnginePlan, folder: Path | str) -> None:
    """Write plan.json, build_engine.py and README.txt into a folder."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / PLAN_FILE, plan)
    write_text(folder / SCRIPT_FILE, script())
    write_text(folder / README_FILE, _readme(plan))


def script() -> str:
    """build.py with what it imports of ours in the places where it does, as one file."""
    text = Path(str(builder.__file__)).read_text()
    for module in _PARTS:
        _, _, part = Path(str(module.__file__)).read_text().partition("from __future__ import annotations\n")
        before, _, after = re.split(_import_of(module.__name__), text, flags=re.MULTILINE)  # or none
        text = before + re.sub(_import_of(r"truehalf[\w.]*", escaped=True), "", part, flags=re.MULTILINE) + after
    return text


def _import_of(name: str, escaped: bool = False) -> str:
    """A pattern for a line, or lines in parentheses, that imports from a module; one group."""
    return rf"^from {name if escaped else re.escape(name)} import (\([^)]*\)|[^(\n]*)\n"


def trtexec(plan: EnginePlan, major: int, inputs: Collection[str]) -> str:
    """The plan as a command line of the trtexec of a major version; it builds and does not run the engine.

    It names files without folders: README.txt has them put into one folder, where it is run.

    Args:
        inputs: those whose shapes or values are not fixed; trtexec refuses shapes for a model that has none.
    """
    options = plan["builder"]
    command = ["trtexec", f"--onnx={Path(plan['onnx']).name}", f"--saveEngine={Path(plan['engine']).name}"]
    command += versions.VERSIONS[major].trtexec
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


def _readme(plan: EnginePlan) -> str:
    weights = "".join(f", {name}" for name in plan["onnx_data"])
    inside = ", weights in the folder named with them" if any("/" in name for name in plan["onnx_data"]) else ""
    plugins = "".join(f", {Path(plugin['path']).name}" for plugin in plan["plugins"])
    lacks = f"trtexec has no flag for: {', '.join(plan['trtexec_lacks'])}. Use the script for these.\n\n"
    return f"""A TensorRT engine of {Path(plan["onnx"]).name}, declared {plan["declared"]}: the plan, not the engine.

Put these files into one folder on the host with the GPU{inside}:
{Path(plan["onnx"]).name}{weights}{plugins}, plan.json, build_engine.py.

    pip install tensorrt numpy
    python build_engine.py plan.json

The script checks that the model is the plan's (sha256), builds {Path(plan["engine"]).name}
strongly typed, writes engine.json, and ends with 1 when the engine is not {plan["declared"]},
with 3 when it is unknown.
It does not run the engine: where truehalf is installed,
`truehalf engine plan.json` does, and compares the engine's outputs with the model's.

The same by hand, in that folder, with the trtexec of TensorRT 11:

    {plan["trtexec"]}

and with that of TensorRT 10, which needs a flag for a strongly typed network:

    {plan["trtexec_10"]}

{lacks if plan["trtexec_lacks"] else ""}Profiles, pools and all other options: plan.json.
"""
