"""A git and DVC project of two stages that take seconds, for what is about running and not about models."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

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
    git(folder, "config", "user.name", "test")
    git(folder, "config", "user.email", "test@example.invalid")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "a project")
    return folder


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def environment(ran: Path) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return os.environ | {"PATH": path, "RAN": str(ran)}
