"""Real servers for the tests of tracking: PostgreSQL from the system's packages, and MLflow's own server on it."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.waiting import HANG_S, until

PASSWORD = "not-for-any-file"


def postgres_binaries() -> Path | None:
    """The folder with initdb and postgres; None where PostgreSQL is not installed."""
    found = shutil.which("initdb")
    if found:
        return Path(found).parent
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return folders[-1].parent if folders else None


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


@contextmanager
def postgres(folder: Path) -> Iterator[str]:
    """A database of its own; yields its address, with the password in it. It refuses to run as root."""
    binaries = postgres_binaries()
    assert binaries is not None
    folder.mkdir(parents=True)
    as_user: list[str] = []
    if os.geteuid() == 0:
        user = pwd.getpwnam("postgres")
        os.chown(folder, user.pw_uid, user.pw_gid)
        for parent in folder.parents:  # pytest's folders are closed to others
            if parent.stat().st_mode & 0o001 == 0:
                parent.chmod(parent.stat().st_mode | 0o011)
        as_user = ["runuser", "-u", "postgres", "--"]
    port, secret = free_port(), folder / "secret"
    secret.write_text(PASSWORD)
    secret.chmod(0o644)
    data = folder / "data"
    initdb = [str(binaries / "initdb"), "-D", str(data), "-U", "mlflow", "--auth=scram-sha-256", f"--pwfile={secret}"]
    subprocess.run([*as_user, *initdb, "--no-sync"], check=True, capture_output=True, cwd="/")
    options = ["-c", "listen_addresses=127.0.0.1", "-c", f"unix_socket_directories={folder}", "-c", "fsync=off"]
    command = [*as_user, str(binaries / "postgres"), "-D", str(data), "-p", str(port), *options]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/")
    try:
        until(lambda: _listens(port), "PostgreSQL answers", alive(server))
        yield f"postgresql://mlflow:{PASSWORD}@127.0.0.1:{port}/postgres"
    finally:
        server.terminate()
        server.wait(timeout=HANG_S)


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


def _listens(port: int) -> bool:
    with socket.socket() as trying:
        return trying.connect_ex(("127.0.0.1", port)) == 0
