"""One run: params.yaml, then DVC. DVC alone decides what is out of date and executes it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.stale_locks import release
from pipeline.workspace import locked, write_params

LOCK_FILE = ".truehalf.lock"
_WAITING = "pipeline: another run is at work in this workspace; waiting for it to end"


def run(folder: Path, values: Mapping[str, Any]) -> int:
    """Run the chain for a validated configuration and return the exit code: 0, or what went wrong's.

    Progress, the summary table and the gates' verdict come from the stages themselves. When a stage crashes, DVC stops
    before `track`; the run is then tracked from here, as failed.
    """
    with locked(folder / LOCK_FILE, _WAITING) as lock:
        release(folder)
        write_params(folder, values)
        error_file, track_file = folder / "reports" / "error.json", folder / "reports" / "track.json"
        error_file.unlink(missing_ok=True)
        before = track_file.stat().st_mtime_ns if track_file.exists() else None
        code = _execute([sys.executable, "-m", "dvc", "repro"], folder, lock)
        after = track_file.stat().st_mtime_ns if track_file.exists() else None
        if code not in (0, 130) and before == after and error_file.exists():
            stage = json.loads(error_file.read_text())["stage"]
            _execute([sys.executable, "-m", "pipeline.track", "--failed-stage", stage], folder, lock)
        return code if code in (0, 130) else 1  # DVC says 255 for any failed stage


def _execute(command: list[str], folder: Path, lock: int) -> int:
    """Run a command in the workspace; on Ctrl-C wait for it to stop (the terminal has told it, too)."""
    process = subprocess.Popen(command, cwd=folder, env=_environment(), pass_fds=(lock,))
    try:
        return process.wait()
    except KeyboardInterrupt:
        try:
            process.wait(timeout=30)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            process.send_signal(signal.SIGTERM)
            process.wait()
        print("pipeline: stopped; finished stages are kept, the next run goes on from there", file=sys.stderr)
        return 130


def _environment() -> dict[str, str]:
    """DVC calls `python`: it must be this one, whether or not the environment is activated."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    return os.environ | {"PATH": path}
