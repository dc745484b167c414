"""The final file in a session of ONNX Runtime on one execution provider: outputs, kernels, latency.

    provider   kernels
    cpu        compute FP16 in FP32
    cuda       of the types in the file

The provider asked for is the one that runs, or nothing does: a session's fallback is read back from it, and where each
node ran from a profile of its first run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from truehalf.config.engine import EngineConfig, Provider
from truehalf.errors import StageError, some_of
from truehalf.ir.model_forms import ModelFile
from truehalf.runtime.machine import Machine
from truehalf.runtime.ort import CPU, CUDA, SPINNING, Session

PROVIDERS = {Provider.cpu: CPU, Provider.cuda: CUDA}


class Served:
    """A file loaded on a provider: a `Runner` of truehalf.verification.open_file.

    Attributes:
        provider: the execution provider, read back from the session.
        cpu_nodes: of CUDA, after the first run, nodes that computed floats on the CPU provider, as `name (operator)`.
        not_split: nothing of the kind.
    """

    def __init__(self, file: ModelFile, options: EngineConfig) -> None:
        """Load the file.

        Raises:
            StageError: when ONNX Runtime refuses the model, or falls back to another provider.
        """
        self._name = PROVIDERS[Provider(str(options.provider))]
        self._options = {"use_tf32": str(int(options.tf32))} if self._name == CUDA else {}
        # Not every link to external data is followed by ONNX Runtime.
        self._model = file.written if file.external else file.path
        self._session = Session(self._model, self._name, provider_options=self._options, profiled=True)
        self._timed: Session | None = None
        self.provider, self.not_split = self._session.provider, self._session.not_split
        self.cpu_nodes: list[str] | None = None

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Outputs by name."""
        outputs = self._session.run(feeds)
        self.cpu_nodes = self._session.cpu_nodes if self._name == CUDA else None
        return outputs

    def prepared(self, feeds: Mapping[str, np.ndarray]) -> Callable[[], object]:
        """A call that runs the session as it is served, without a profile; on a GPU inputs and outputs stay there."""
        if self._timed is None:
            served = {"enable_mem_pattern": True, SPINNING: None}
            self._timed = Session(
                self._model, self._name, provider_options=self._options, profiled=False, optimize=True, **served
            )
        return self._timed.prepared(feeds)

    def close(self) -> None:
        """Free the sessions."""
        for session in filter(None, (self._session, self._timed)):
            session.close()

    def nodes_by_provider(self) -> dict[str, int]:
        """Number of the nodes of the first run by the execution provider that ran them.

        Raises:
            StageError: when nothing has run yet, or no node ran on the provider.
        """
        table = self._session.kernels
        if table is None:
            raise StageError("not-run", "the session has not run yet; run it once before asking what ran")
        counts = Counter(row["provider"] for row in table)
        if not counts[self._name]:
            raise StageError("no-device", f"{self.provider} was asked for and none of the {len(table)} nodes ran on it")
        return dict(sorted(counts.items()))


def cpu_nodes_sentence(nodes: Sequence[str]) -> str:
    """Warning about nodes that fell back to the CPU, with the op_block_list that keeps them on the GPU in FP32."""
    operators = ",".join(sorted({node.rpartition(" (")[2].removesuffix(")") for node in nodes}))
    fell = f"{len(nodes)} nodes computed floats on the CPU provider, FP16 in FP32: {some_of(nodes)}"
    return f"{fell}; where the GPU has kernels of FP32 alone, precision.op_block_list=[{operators}] keeps them there"


def unavailable_reason(probe: Machine, provider: str) -> str | None:
    """Reason why the provider cannot run on a machine, or None when it can."""
    name = PROVIDERS[Provider(provider)]
    if name == CPU or name in probe["onnxruntime_providers"]:
        return None
    missing = [] if probe["gpus"] else ["no NVIDIA GPU (nvidia-smi finds none)"]
    if name not in probe["onnxruntime_providers_built"]:
        missing.append(f"the installed ONNX Runtime has no {name} (pip install onnxruntime-gpu)")
    elif probe["gpus"]:
        missing.append(f"ONNX Runtime's {name} does not load (its CUDA or cuDNN libraries are missing)")
    return " and ".join(missing)
