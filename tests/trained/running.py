"""Run modules that print JSON, each in a process of its own, a few side by side."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 1500  # seconds of one process


def all_rows(commands: Sequence[tuple[str, ...]], jobs: int = 2) -> Iterator[list[dict[str, Any]]]:
    """What `python -m MODULE ARGUMENTS...` prints last, for each command, in the order in which they end.

    One that fails or takes longer than LIMIT gives a row with `error`, named after its first argument.
    """
    with ThreadPoolExecutor(jobs) as pool:
        for done in as_completed([pool.submit(rows_of, command) for command in commands]):
            yield done.result()


def rows_of(command: tuple[str, ...]) -> list[dict[str, Any]]:
    """The rows of one process, each with `seconds` of the whole process."""
    start = time.perf_counter()
    # A core for each process: thread pools that share two cores take turns and measure each other.
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            [sys.executable, "-m", *command], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LIMIT
        )
        found = json.loads(done.stdout.strip().splitlines()[-1]) if done.returncode == 0 else None
        error = (done.stderr.strip().splitlines() or ["no output"])[-1][:300]
    except subprocess.TimeoutExpired:
        found, error = None, f"not done after {LIMIT} s"
    rows = [{"model": command[-1], "error": error}] if found is None else found if isinstance(found, list) else [found]
    seconds = round(time.perf_counter() - start, 1)
    return [row | {"seconds": seconds} for row in rows]
