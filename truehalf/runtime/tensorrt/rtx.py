"""Options that only TensorRT for RTX has: targets of an engine that is built without a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from truehalf.runtime.tensorrt.builder_config import member


def set_target(trt: Any, config: Any, capabilities: Sequence[str]) -> None:
    """GPUs that the engine is for, by compute capability ("sm86", ...); none: what TensorRT for RTX does by itself."""
    chosen = [member(trt, "ComputeCapability", name, "target.compute_capability") for name in capabilities]
    if chosen:
        config.num_compute_capabilities = len(chosen)
    for index, capability in enumerate(chosen):
        config.set_compute_capability(capability, index)
