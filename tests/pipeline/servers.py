"""MLflow's own server, for the tests of tracking."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

from tests.waiting import HANG_S, until

PASSWORD = "not-for-any-file"


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


class MlflowServer:
    """MLflow's server with its artifact proxy, which can be stopped and started again on the same port."""

    def __init__(self, database: str, artifacts: Path, log: Path) -> None:
        self.port, self.log = free_port(), log
        self.address = f"http://127.0.0.1:{self.port}"
        options = ["--backend-store-uri", database, "--artifacts-destination", str(artifacts), "--serve-artifacts"]
        bound = ["--host", "127.0.0.1", "--port", str(self.port), "--workers", "1"]
        self._command = [sys.executable, "-m", "mlflow", "server", *options, *bound]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        alone = os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}  # nobody gives it jobs
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, env=alone, start_new_session=True)
        until(lambda: answers(self.address), "MLflow's server answers", alive(self._process))

    def stop(self) -> None:
        if self._process is not None:
            os.killpg(self._process.pid, 9)
            self._process.wait()
            self._process = None


def answers(address: str) -> bool:
    """Whether a server of MLflow's is there."""
    try:
        with urllib.request.urlopen(f"{address}/health", timeout=HANG_S):
            return True
    except OSError:
        return False


def alive(process: subprocess.Popen[bytes]) -> Callable[[], bool]:
    return lambda: process.poll() is None
