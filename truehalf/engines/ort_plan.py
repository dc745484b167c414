"""Plan of an ONNX Runtime deployment: what is asked of which provider, and which options it does not have."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from truehalf.config.engine import KINDS
from truehalf.engines.engine_report import EnginePlan
from truehalf.engines.plan_files import PLAN_FILE, README_FILE, EngineOptions, plan_of_model
from truehalf.files import write_json, write_text
from truehalf.ir.model_file import load_model
from truehalf.ir.model_forms import ModelFile, file_of
from truehalf.ir.proto.plugins import as_in_file
from truehalf.runtime.cuda_driver import gpu_key
from truehalf.runtime.machine import Machine
from truehalf.runtime.ort.installed import CPU, runtime_version
from truehalf.runtime.ort.session import CUDA, TENSORRT
from truehalf.runtime.tensorrt.versions import Port, Profile, tensorrt_version

PROVIDERS = {"cpu": CPU, "cuda": CUDA, "tensorrt": TENSORRT}
COMMAND = "truehalf engine plan.json"


def make_plan(
    model: Path | str | ModelFile,
    *,
    names: tuple[str, str],
    options: EngineOptions,
    profiles: Sequence[Profile],
    declared: str,
) -> EnginePlan:
    """Everything that deploying takes, as plain data.

    Args:
        model: the final ONNX file.
        names: the model and the optimised file as the plan should call them.
        options: keys of conf/engine/onnxruntime.yaml.
        profiles: [{input: {"min": numbers, "opt": numbers, "max": numbers}}].
        declared: "fp16" or "fp32".

    Raises:
        StageError: listing every profile that does not fit the graph, and every plugin that is missing.
    """
    plan = plan_of_model(file_of(model), names, options["plugins"], profiles, declared)
    plan["provider"] = str(options["provider"])
    plan["provider_options"] = provider_options(options, profiles, declared)
    plan["environment"] = environment(options)
    plan["session"] = {"graph_optimization_level": "ORT_ENABLE_ALL"}
    plan["command"] = COMMAND
    return plan


def provider_options(options: EngineOptions, profiles: Sequence[Profile], declared: str) -> dict[str, str]:
    """The options of the engine section as the provider names them; those that it has no name for, the configuration
    refuses where they ask for something.
    """
    tf32 = str(int(options["tf32"]))
    if options["provider"] == "cpu":
        return {}
    if options["provider"] == "cuda":
        return {"use_tf32": tf32}
    found = {"trt_fp16_enable": str(int(declared == "fp16"))}
    if "workspace" in options["memory_pools_gb"]:
        found["trt_max_workspace_size"] = str(int(options["memory_pools_gb"]["workspace"] * 2**30))
    if options["builder_optimization_level"] is not None:
        found["trt_builder_optimization_level"] = str(options["builder_optimization_level"])
    if options["max_aux_streams"] is not None:
        found["trt_auxiliary_streams"] = str(options["max_aux_streams"])
    if options["timing_cache"] is not None:
        found |= {"trt_timing_cache_enable": "1", "trt_timing_cache_path": str(options["timing_cache"])}
    if options["hardware_compatibility"] == "ampere_plus":
        found["trt_engine_hw_compatible"] = "1"
    if options["plugins"]:
        found["trt_extra_plugin_lib_paths"] = ";".join(map(str, options["plugins"]))
    for kind in KINDS:
        shapes = [f"{name}:{'x'.join(map(str, one[kind]))}" for profile in profiles for name, one in profile.items()]
        found |= {f"trt_profile_{kind}_shapes": ",".join(shapes)} if shapes else {}
    return found


def environment(options: EngineOptions) -> dict[str, str]:
    """Variables under which to optimise and to serve. TensorRT's provider leaves TF32 on, and has no option for it."""
    return {"NVIDIA_TF32_OVERRIDE": "0"} if options["provider"] == "tensorrt" and not options["tf32"] else {}


def write_plan(plan: EnginePlan, folder: Path | str) -> None:
    """Write plan.json and README.txt into a folder."""
    folder = Path(folder)
    write_json(folder / PLAN_FILE, plan)
    variables = "".join(f"Serve it with {name}={value}.\n" for name, value in plan["environment"].items())
    model, weights = Path(plan["onnx"]).name, "".join(f", {name}" for name in plan["onnx_data"])
    text = f"""ONNX Runtime with the provider {plan["provider"]!r} for {model}, declared {plan["declared"]}: the plan,
not the optimised file.

On the host that will serve, with truehalf and the packages of that provider installed, put these files into one folder:
{model}{weights}, plan.json. Then, from a workspace that has artifacts/reference (or without, unverified):

    {plan["command"]}

It optimises the model for that provider, refuses any other that ONNX Runtime falls back to, compares the outputs with
the FP32 reference, and measures latency.
{variables}"""
    write_text(folder / README_FILE, text)


def unavailable_reason(probe: Machine, provider: str) -> str | None:
    """Why the provider cannot run on the machine that `probe` describes, or None when it can."""
    name = PROVIDERS[provider]
    if name == CPU or name in probe["onnxruntime_providers"]:
        return None
    missing = [] if probe["gpus"] else ["no NVIDIA GPU (neither nvidia-smi nor the driver finds one)"]
    if name not in probe["onnxruntime_providers_built"]:
        missing.append(f"the installed ONNX Runtime has no {name} (pip install onnxruntime-gpu)")
    elif probe["gpus"]:
        missing.append(f"ONNX Runtime's {name} does not load (its CUDA, cuDNN or TensorRT libraries are missing)")
    return " and ".join(missing)


def cache_folder(folder: str) -> Path:
    """Where TensorRT's provider keeps timings, for this GPU, ONNX Runtime and TensorRT: a separate subfolder,
    for the provider names its file only by the compute capability.
    """
    versions = f"onnxruntime-{runtime_version()}-tensorrt-{tensorrt_version() or 'unknown'}"
    found = Path(folder).resolve() / "-".join([gpu_key(), versions])
    found.mkdir(parents=True, exist_ok=True)
    return found


def io_of(path: Path) -> list[Port]:
    """Inputs and outputs of a file."""
    graph = as_in_file(load_model(path)).graph
    return [
        {
            "name": str(value.name),
            "mode": mode,
            "dtype": value.dtype.name if value.dtype else None,
            "shape": [side if isinstance(side, int) else -1 for side in value.shape or ()],
        }
        for mode, values in (("INPUT", graph.inputs), ("OUTPUT", graph.outputs))
        for value in values
    ]
