"""The final file in a session of ONNX Runtime on one execution provider: outputs, kernels, latency.

    provider   what runs
    cpu        kernels that compute FP16 in FP32
    cuda       kernels of the types in the file
    tensorrt   TensorRT 10, which chooses layer types by itself

The provider asked for is the one that runs, or nothing does: what a session falls back to is read back from it, and
where each node ran from a profile of its first run.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from truehalf.config.engine import KINDS, LatencyConfig
from truehalf.engines.engine_report import EngineOptions, EnginePlan
from truehalf.errors import StageError, some_of
from truehalf.ir.model_forms import ModelFile
from truehalf.runtime.cuda_driver import gpu_key
from truehalf.runtime.gpu_clocks import clocks_during, gpu_clocks
from truehalf.runtime.machine import Machine
from truehalf.runtime.ort.installed import CPU, runtime_version
from truehalf.runtime.ort.session import CUDA, SPINNING, TENSORRT, Kernel, Session
from truehalf.runtime.tensorrt.versions import EngineFacts, Layer, Port, Profile, tensorrt_version
from truehalf.runtime.timing import Timing, timing

PROVIDERS = {"cpu": CPU, "cuda": CUDA, "tensorrt": TENSORRT}
_FLOATS = {"float": "Float", "float16": "Half", "double": "Double", "bfloat16": "BFloat16"}


class Served:
    """A file loaded on a provider as it will be served.

    Attributes:
        provider: the execution provider, read back from the session.
    """

    def __init__(self, plan: EnginePlan, file: ModelFile) -> None:
        """Load the file.

        The variables of plan["environment"] must be set before a provider has loaded, so that is the caller's to do.

        Raises:
            StageError: when ONNX Runtime refuses the model, or falls back to another provider than the plan's.
        """
        self._name = PROVIDERS[plan["provider"]]
        self._options = dict(plan["provider_options"])
        if folder := self._options.get("trt_timing_cache_path"):
            self._options["trt_timing_cache_path"] = str(cache_folder(folder))
        # Not every link to external data is followed by ONNX Runtime.
        self._model = file.written if file.external else file.path
        self._file = file
        # TensorRT's layers are not shown; the CPU provider moves FP16 values, and computes with none
        self._precision_known = self._name == CUDA or (self._name == CPU and plan["declared"] == "fp32")
        self._observed = Session(self._model, self._name, provider_options=self._options, profiled=True)
        self._timed: Session | None = None
        self.provider = self._observed.provider

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Outputs by name."""
        return self._observed.run(feeds)

    @property
    def cpu_nodes(self) -> list[str]:
        """Nodes of a GPU session that computed floats on the CPU provider in the first run, as `name (operator)`."""
        return [] if self._name == CPU else self._observed.cpu_nodes or []

    def facts(self) -> EngineFacts:
        """What ran in the first run.

        Raises:
            StageError: when nothing has run yet, or no node ran on the provider.
        """
        if self._observed.kernels is None:
            raise StageError("not-run", "the session has not run yet; run it once before asking what ran")
        table = self._observed.kernels
        if not any(row["provider"] == self._name for row in table):
            raise StageError("no-device", f"{self.provider} was asked for and none of the {len(table)} nodes ran on it")
        return {
            "onnxruntime": runtime_version(),
            "provider": self.provider,
            **kernel_facts(table, known=self._precision_known),
            "nodes_by_provider": dict(sorted(Counter(row["provider"] for row in table).items())),
            "cpu_nodes": self.cpu_nodes,
            "device_memory_mb": None,
            "timing_cache": None,
            "io": _io_of(self._file),
        }

    def latency(self, feeds: Mapping[str, np.ndarray], *, samples: int, options: LatencyConfig) -> Timing:
        """Time the session by itself, without a profile; on a GPU inputs and outputs stay there.

        Args:
            feeds: inputs of one call.
            samples: how many samples that call takes, for the throughput.
            options: numbers of runs and rounds.

        Returns:
            latency of one run; the throughput is that of runs one after the other.
        """
        if self._timed is None:
            self._timed = Session(
                self._model,
                self._name,
                provider_options=self._options,
                profiled=False,
                optimize=True,
                **{"enable_mem_pattern": True, SPINNING: None},  # as it is served
            )
        once = self._timed.prepared(feeds)
        on_gpu = self._name != CPU
        before = gpu_clocks() if on_gpu else None
        each = []
        for _ in range(options.rounds):
            for _ in range(options.warm_up):
                once()
            each.append(1e3 * np.array([_seconds(once) for _ in range(options.runs)]))
        after = clocks_during(once) if on_gpu else None
        per_s = [1e3 * samples * options.runs / times.sum() for times in each]
        return timing(each, samples, per_s, {"before": before, "after": after} if on_gpu else None)


def said_of_cpu_nodes(nodes: Sequence[str]) -> str:
    """A sentence on `cpu_nodes`: what keeps them on the GPU is to compute them in FP32."""
    operators = ",".join(sorted({node.rpartition(" (")[2].removesuffix(")") for node in nodes}))
    fell = f"{len(nodes)} nodes computed floats on the CPU provider, FP16 in FP32: {some_of(nodes)}"
    return f"{fell}; where the GPU has kernels of FP32 alone, precision.op_block_list=[{operators}] keeps them there"


def _seconds(once: Any) -> float:
    started = time.perf_counter()
    once()
    return time.perf_counter() - started


def kernel_facts(table: Sequence[Kernel], *, known: bool = True) -> EngineFacts:
    """Layers, the share of Half among those that output floats (Casts aside: they compute nothing), and the table
    itself, with TensorRT's names of types.

    Args:
        table: kernels that ran (truehalf.runtime.ort.session.kernels_of).
        known: whether the types in the table tell the precision of what was computed; else the shares are None.
    """
    rows: list[Layer] = [
        {
            "name": row["name"],
            "type": row["type"],
            "inputs": [_FLOATS.get(name, name) for name in row["inputs"]],
            "outputs": [_FLOATS.get(name, name) for name in row["outputs"]],
            "provider": row["provider"],
        }
        for row in table
    ]
    computing = [row for row in rows if row["type"] != "Cast" and set(row["outputs"]) & set(_FLOATS.values())]
    slots = [name for row in computing for name in row["inputs"] + row["outputs"] if name in _FLOATS.values()]
    half = sum("Half" in row["outputs"] for row in computing)
    return {
        "layers": len(rows),
        "half_layers": half if known else None,
        "half_layers_fraction": half / len(computing) if known and computing else None,
        "half_io_fraction": slots.count("Half") / len(slots) if known and slots else None,
        "layer_table": rows,
    }


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


def _io_of(file: ModelFile) -> list[Port]:
    """Inputs and outputs of a file."""
    graph = file.written.graph
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
