"""Measurements on one GPU take turns."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.messages import expect
from tests.waiting import HANG_S
from truehalf.codes import codes_in
from truehalf.runtime.machine import device_lock

# Holds the GPU until its input ends; prints when it has it.
IMPORTS = "import sys; from pathlib import Path; from truehalf.runtime import machine"
MEASURE = """
machine.LOCKS = Path(sys.argv[1])
with machine.device_lock():
    print("measures", flush=True)
    sys.stdin.read()
"""


def measuring(folder: Path) -> subprocess.Popen[str]:
    """A process that holds the GPU until its input ends; its first line tells that it does.

    It has a TMPDIR of its own, as jobs on many clusters.
    """
    pipe, env = subprocess.PIPE, os.environ | {"TMPDIR": tempfile.mkdtemp(dir=folder)}
    command = [sys.executable, "-c", f"{IMPORTS}\n{MEASURE}", str(folder)]
    return subprocess.Popen(command, cwd=ROOT, env=env, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True)


def says(process: subprocess.Popen[str]) -> str:
    """The next line."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_processes_measure_one_after_the_other(tmp_path: Path) -> None:
    first = measuring(tmp_path)
    assert says(first) == "measures"
    second, third = measuring(tmp_path), measuring(tmp_path)
    for process in (second, third):
        expect(says(process), "waits-for-another", "gpu")
    assert [process.poll() for process in (first, second, third)] == [None] * 3
    assert first.communicate(timeout=HANG_S)[0] == ""
    for process in (second, third):  # one of the two has it now, and the other after it
        assert process.stdin is not None
        process.stdin.close()
        process.stdin = None
    assert [process.communicate(timeout=HANG_S)[0] for process in (second, third)] == ["measures\n"] * 2


def test_a_killed_process_holds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("truehalf.runtime.machine.LOCKS", tmp_path)
    process = measuring(tmp_path)
    assert says(process) == "measures"
    process.kill()
    process.wait()
    with device_lock():
        assert codes_in(capsys.readouterr().err) == []


def test_the_lock_is_in_tmp_whatever_the_job_is_told(tmp_path: Path) -> None:
    code = "from truehalf.runtime import machine; print(machine.LOCKS)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env={"TMPDIR": str(tmp_path)}, capture_output=True, text=True
    )
    assert done.stdout == "/tmp\n", done.stderr
