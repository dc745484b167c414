"""A git and DVC project of two stages that take seconds, for what is about running and not about models."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.conftest import make_workspace
from tests.pipeline.empty_store import with_empty_store
from tests.waiting import until
from truehalf.codes import codes_in

DVC_YAML = """\
stages:
  common:
    cmd: python work.py common
    deps: [work.py]
    params: [common]
    outs: [out/common]
  own:
    cmd: python work.py own
    deps: [work.py, out/common]
    params: [own]
    outs: [out/own]
"""
WORK = """\
import os, pathlib, sys, time
name = sys.argv[1]
with open(os.environ["RAN"], "a") as file:
    file.write(name + "\\n")
time.sleep(0.5)
out = pathlib.Path("out") / name
out.mkdir(parents=True, exist_ok=True)
(out / "value").write_text(name)
"""
# The same two stages as a chain that `python -m pipeline` configures: one that depends on the seed, one on data_max.
CHAIN = """\
stages:
  common:
    cmd: python work.py common '^seed'
    deps: [work.py]
    params: [seed]
    outs: [artifacts/common]
  own:
    cmd: python work.py own data_max
    deps: [work.py, artifacts/common]
    params: [precision.data_max]
    outs: [artifacts/own]
    metrics: [reports/verify.json]
"""
TRACK = """\
  finish:
    cmd: python -m pipeline.finish
    always_changed: true
    deps: [artifacts/own]
    params: [tracking]
    outs:
      - reports/track.json: {cache: false, persist: true}
"""
CHAIN_WORK = """\
import json, os, pathlib, re, sys, time
name, key = sys.argv[1:]
name += "-" + re.search(key + r": (.*?)(?:\\.0)?$", pathlib.Path("params.yaml").read_text(), re.M)[1]
ran = pathlib.Path(os.environ["RAN"])
with ran.open("a") as file:
    file.write(f"{name} {os.getpid()}\\n")
while ran.with_name("hold-" + name).exists():
    time.sleep(0.05)
out = pathlib.Path("artifacts") / sys.argv[1]
out.mkdir(parents=True, exist_ok=True)
(out / "value").write_text(name)
pathlib.Path("reports").mkdir(exist_ok=True)
pathlib.Path("reports/verify.json").write_text(json.dumps({"status": "ok", "verdict": "passed", "of": name}))
"""


def make_chain(folder: Path, tracked: bool = False) -> Path:
    """The whole project, but for its chain: that is of two stages that take no time, and where asked for of track."""
    make_workspace(folder)
    (folder / "dvc.yaml").write_text(CHAIN + TRACK if tracked else CHAIN)
    (folder / "work.py").write_text(CHAIN_WORK)
    commit(folder, "a short chain")
    return with_empty_store(folder) if tracked else folder


class Ran:
    """What the stages of chains say of themselves, and a way to hold one: each line is a stage, its value, its process.

    Its path is to be the variable RAN of the environment in which stages run.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "ran"

    def names(self) -> list[str]:
        """The stages that began, in order."""
        return [line.split()[0] for line in self._lines()]

    def hold(self, name: str) -> None:
        """Let a stage not end."""
        self.path.with_name(f"hold-{name}").touch()

    def release(self, name: str) -> None:
        self.path.with_name(f"hold-{name}").unlink()

    def wait_for(self, name: str, times: int = 1) -> int:
        """Wait until a stage has begun as often as this; return its last process."""

        def processes() -> list[int]:
            found = [int(line.split()[1]) for line in self._lines() if line.split()[0] == name]
            return found if len(found) >= times else []

        return until(processes, f"{name} begins {times} times")[-1]

    def forget(self) -> None:
        self.path.unlink(missing_ok=True)

    def _lines(self) -> list[str]:
        return self.path.read_text().splitlines() if self.path.exists() else []


def line_with(code: str, output: str) -> str:
    """The one line of an output that has a code."""
    (line,) = (line for line in output.splitlines() if code in codes_in(line))
    return line


def make(folder: Path) -> Path:
    """The project, committed."""
    folder.mkdir(parents=True)
    for name, text in {
        "dvc.yaml": DVC_YAML,
        "work.py": WORK,
        "params.yaml": "common: 1\nown: 1\n",
        ".gitignore": "/ignored/\n/runs/\n/out/\n*.pt\n",
    }.items():
        (folder / name).write_text(text)
    git(folder, "init", "-q")
    subprocess.run([sys.executable, "-m", "dvc", "init", "-q"], cwd=folder, check=True)
    commit(folder, "a project")
    return folder


def commit(folder: Path, message: str) -> None:
    git(folder, "config", "user.name", "test")
    git(folder, "config", "user.email", "test@example.invalid")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", message)


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def environment(ran: Path) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return os.environ | {"PATH": path, "RAN": str(ran)}
