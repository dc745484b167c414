"""Build in a process of its own: a compiler that dies takes nothing else with it.

TensorRT for RTX 1.7 ends in a segmentation fault on some graphs, which no `except` catches.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from truehalf.runtime.tensorrt.build import build
from truehalf.runtime.tensorrt.versions import BuildError, BuildPlan, EngineFacts


def build_apart(plan: BuildPlan, folder: Path | str, *, module: str) -> EngineFacts:
    """As truehalf.runtime.tensorrt.build.build where nothing is run, in a process of its own, which takes about half a
    second to start.

    Raises:
        BuildError: as `build`, and when the process ends without an answer.
        RuntimeError: as the library raises it.
    """
    with tempfile.TemporaryDirectory() as temporary:
        order, answer = Path(temporary) / "order.json", Path(temporary) / "answer.json"
        order.write_text(json.dumps([plan, str(folder), module]))
        command = [sys.executable, "-m", __name__, str(order), str(answer)]
        paths = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        ended = subprocess.run(command, env=os.environ | paths, stdin=subprocess.DEVNULL, check=False).returncode
        said: dict[str, Any] = json.loads(answer.read_text()) if answer.is_file() else {}
    if "error" in said:
        raised: list[Any] = said["error"]
        raise BuildError(*raised)
    if "refused" in said:
        raise RuntimeError(said["refused"])
    if "facts" not in said:
        by = signal.Signals(-ended).name if ended < 0 else f"exit code {ended}"
        raise BuildError(
            "runtime-refuses",
            f"{plan['onnx']}: {module} ended with {by} and without a message; expected an engine or an error\n"
            "truehalf lint names nodes that it is known to refuse; an earlier engine is as it was",
        )
    facts: EngineFacts = said["facts"]
    return facts


def main() -> None:
    """Build what the file of the first argument orders, and write facts or error to that of the second."""
    order, answer = map(Path, sys.argv[1:])
    plan, folder, module = json.loads(order.read_text())
    said: dict[str, Any]
    try:
        said = {"facts": build(plan, folder, module=module, compiled=True)}
    except BuildError as error:
        said = {"error": [*error.args, error.errors, error.facts]}
    except RuntimeError as error:
        said = {"refused": str(error)}
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    answer.write_text(json.dumps(said))


if __name__ == "__main__":
    main()
