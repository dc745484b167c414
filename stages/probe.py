"""probe: what this machine can run.

An engine is bound to its GPU, driver, TensorRT and plugins; so `engine` depends on these facts.
"""

from __future__ import annotations

from typing import Any

from stages.io import Stage, stage_main
from stages.machine import probe


def run(stage: Stage) -> dict[str, Any]:
    return probe(stage.config.engine.plugins, stage.root)


def main() -> None:
    stage_main("probe", run, timed=False)  # seconds would change the file each time, and so re-build the engine


if __name__ == "__main__":
    main()
