"""An engine that was compiled while its file was verified, kept beside the timing caches until it is asked for.

The compiler has one thread and reads nothing of the verdict, so that it takes a run no time where there is a second
processor.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from truehalf.errors import StageError
from truehalf.files import read_json, remove, write_json
from truehalf.runtime.tensorrt.build import build
from truehalf.runtime.tensorrt.versions import RTX, BuildPlan, EngineFacts, tensorrt_version

_FACTS = "facts.json"  # written last: a folder without it holds no engine


def compile_and_keep(plan: BuildPlan, folder: Path) -> None:
    """Compile a plan, and keep the engine in a folder of its own, in place of what is there.

    Raises:
        BuildError: as truehalf.runtime.tensorrt.build.build.
        RuntimeError: as the library raises it.
    """
    remove(folder)
    folder.mkdir(parents=True)
    write_json(folder / _FACTS, {"of": _identity(plan), "facts": build(plan, folder, module=RTX, compiled=True)})


def taken(plan: BuildPlan, folder: Path, out_dir: Path) -> EngineFacts | None:
    """Facts of the engine that is kept, which is moved to `out_dir`; None where there is none of just this plan."""
    try:
        kept = read_json(folder / _FACTS)
        if kept["of"] != _identity(plan):
            return None
        name = Path(plan["engine"]).name
        shutil.move(folder / name, out_dir / name)
    except (OSError, StageError):  # none, or one that another run has taken
        return None
    remove(folder)
    facts: EngineFacts = kept["facts"]
    return facts


def _identity(plan: BuildPlan) -> str:
    """All that makes an engine what it is."""
    read = ("onnx_sha256", "profiles", "builder", "plugins", "target")
    return json.dumps([tensorrt_version(RTX), *(plan.get(key) for key in read)], sort_keys=True)
