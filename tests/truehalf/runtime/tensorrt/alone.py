"""The script that builds a plan on another machine, run from a folder of its own."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

from truehalf.engines.plan_files import script

HALF = [{"Name": "a", "Inputs": [{"Format/Datatype": "Half"}], "Outputs": [{"Format/Datatype": "Half"}]}]


def alone(folder: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """`python build_engine.py ...` in this process, where the stand-in is; returns the exit code."""
    (folder / "build_engine.py").write_text(script())
    monkeypatch.setattr(sys, "argv", ["build_engine.py", *arguments])
    monkeypatch.setattr("ctypes.CDLL", lambda *_, **__: (_ for _ in ()).throw(OSError("no driver here")))
    try:
        runpy.run_path(str(folder / "build_engine.py"), run_name="__main__")
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
            return 1
        return int(end.code or 0)
    return 0
