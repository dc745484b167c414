"""For hosts that serve with ONNX Runtime: the file optimised ahead of time for one execution provider, and its latency.

    provider   file                                          what runs
    cpu        graph optimised, for this kind of processor   kernels that compute FP16 in FP32
    cuda       graph optimised, for this kind of GPU         kernels of the types in the file
    tensorrt   the engines of TensorRT inside (EP context)   TensorRT 10, which chooses layer types by itself

The provider asked for is the one that runs, or nothing does: what a session falls back to is read back from it, and
where each node ran from a profile of its first run.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from truehalf.config.engine import LatencyConfig
from truehalf.engines.engine_report import EnginePlan
from truehalf.engines.ort_plan import PROVIDERS, cache_folder, io_of
from truehalf.errors import StageError, some_of
from truehalf.files import destination, written_whole
from truehalf.ir.model_forms import ModelFile, file_of
from truehalf.runtime.gpu_clocks import clocks_during, gpu_clocks
from truehalf.runtime.ort.installed import CPU, runtime_version
from truehalf.runtime.ort.session import CUDA, SPINNING, TENSORRT, Kernel, Session
from truehalf.runtime.tensorrt.versions import EngineFacts, Layer
from truehalf.runtime.timing import Timing, timing

_EXTERNAL_FROM_MB = 1000.0  # protobuf files end at 2 GiB, and fusion may fold more weights into the file
_FLOATS = {"float": "Float", "float16": "Half", "double": "Double", "bfloat16": "BFloat16"}


class Deployed:
    """The optimised file, loaded as it will be served.

    Attributes:
        provider: the execution provider, read back from the session.
        path: the optimised file.
        build_seconds: what optimising took.
    """

    def __init__(self, plan: EnginePlan, model: Path | ModelFile, folder: Path) -> None:
        """Optimise the model as the plan says, write it to `folder`, and load what was written.

        The variables of plan["environment"] must be set before a provider has loaded, so that is the caller's to do.

        Raises:
            StageError: when ONNX Runtime refuses the model, or falls back to another provider than the plan's.
        """
        self._name = PROVIDERS[plan["provider"]]
        options = dict(plan["provider_options"])
        if folder_of_caches := options.get("trt_timing_cache_path"):
            options["trt_timing_cache_path"] = str(cache_folder(folder_of_caches))
        folder.mkdir(parents=True, exist_ok=True)
        self.path = destination(folder / Path(plan["engine"]).name)
        started = time.perf_counter()
        with tempfile.TemporaryDirectory(dir=folder, prefix=".optimised") as temporary:
            written = Path(temporary) / self.path.name  # the file of weights is called by this name inside the model
            self._optimise(file_of(model), written, options)
            self.build_seconds = time.perf_counter() - started
            if not written.is_file():
                raise StageError(
                    "runtime-refuses", f"ONNX Runtime wrote no optimised model to {self.path}, and did not say why"
                )
            weights = written.with_name(f"{written.name}.data")
            if not weights.is_file():
                destination(self.path.with_name(weights.name)).unlink(missing_ok=True)  # of an earlier, larger model
            with written_whole(self.path) as building:
                for file in filter(Path.is_file, (weights, written)):
                    file.replace(building.with_name(file.name))
        self._options = options
        # TensorRT's layers are not shown; the CPU provider moves FP16 values, and computes with none
        self._precision_known = self._name == CUDA or (self._name == CPU and plan["declared"] == "fp32")
        self._observed = Session(self.path, self._name, optimize=False, provider_options=options, profiled=True)
        self._timed: Session | None = None
        self.provider = self._observed.provider

    def _optimise(self, file: ModelFile, written: Path, options: Mapping[str, str]) -> None:
        entries: dict[str, Any] = {"optimized_model_filepath": str(written)}
        if self._name == TENSORRT:  # a graph with compiled nodes is written as an EP context, not as an optimised model
            place = str(written)
            entries = {"ep.context_enable": "1", "ep.context_file_path": place, "ep.context_embed_mode": "1"}
        elif file.size_mb > _EXTERNAL_FROM_MB:
            entries["session.optimized_model_external_initializers_file_name"] = f"{written.name}.data"
        # Not every link to external data is followed, and what is unchanged stays external, beside the file it was in.
        by_content = file.external and (self._name != TENSORRT or file.path.is_symlink())
        Session(
            file.written if by_content else file.path, self._name, provider_options=options, profiled=False, **entries
        )

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
            "engine_mb": sum(file.stat().st_size for file in self.path.parent.glob(f"{self.path.name}*")) / 1e6,
            "build_seconds": round(self.build_seconds, 3),
            **kernel_facts(table, known=self._precision_known),
            "nodes_by_provider": dict(sorted(Counter(row["provider"] for row in table).items())),
            "cpu_nodes": self.cpu_nodes,
            "device_memory_mb": None,
            "timing_cache": None,
            "io": io_of(self.path),
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
                self.path,
                self._name,
                optimize=False,
                provider_options=self._options,
                profiled=False,
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
        "untyped_layers": 0,  # the types of a kernel are always known
        "layer_table": rows,
    }
