"""probe: what this machine can run.

An engine is bound to its GPU, driver, TensorRT and plugins, a file that ONNX Runtime optimised for the CPU to the
processor. So `engine` depends on these facts: what another machine built comes from a shared cache only where they are
equal.
"""

from __future__ import annotations

from stages.frame import Stage, stage_main
from truehalf.config.engine import Backend, Provider
from truehalf.runtime.machine import Machine, probe


def run(stage: Stage) -> Machine:
    engine = stage.config.engine
    return probe(engine.plugins, stage.root, engine.backend is Backend.onnxruntime and engine.provider is Provider.cpu)


if __name__ == "__main__":
    stage_main("probe", run)
