"""A command in a fresh process: its wall time and its memory. Linux only.

peak_mb is the largest resident memory of the process, files that it maps included, as the kernel counts it; anon_mb the
largest private memory (RssAnon), looked at 100 times a second. The kernel's figure starts at that of the process that
starts the command: this module and those that import it stay small.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_EVERY_S = 0.01


@dataclass(frozen=True)
class Usage:
    """What a command took; `error` is its last words when it failed."""

    wall_s: float
    peak_mb: float
    anon_mb: float
    error: str | None


def measured(command: Sequence[str], timeout_s: float, cwd: Path | None = None) -> Usage:
    """Run a command to its end, or to its time limit."""
    with tempfile.TemporaryFile() as output:
        started = time.perf_counter()
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, cwd=cwd)
        anon_kb, late = 0, False
        while True:
            pid, status, used = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            anon_kb = max(anon_kb, _anon_kb(process.pid))
            if not late and time.perf_counter() - started > timeout_s:
                late = True
                os.kill(process.pid, signal.SIGKILL)
            time.sleep(_EVERY_S)
        wall_s = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        words = output.read().decode(errors="replace").strip().splitlines()
    error = None
    if late:
        error = f"stopped after {timeout_s:.0f} s"
    elif process.returncode:
        error = f"exit code {process.returncode}: {words[-1][:300] if words else 'no message'}"
    return Usage(round(wall_s, 2), round(used.ru_maxrss / 1024, 1), round(anon_kb / 1024, 1), error)


def _anon_kb(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    line = next((line for line in status.splitlines() if line.startswith("RssAnon:")), "RssAnon: 0 kB")
    return int(line.split()[1])
