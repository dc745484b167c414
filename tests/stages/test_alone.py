"""Measurements on one device take turns; those on two do not wait."""

import itertools
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from stages.alone import CPU, alone_on
from tests.conftest import ROOT

MEASURE = """
import sys, time
from stages.alone import alone_on
with alone_on(sys.argv[1]):
    print(time.monotonic(), flush=True)
    time.sleep(0.5)
    print(time.monotonic(), flush=True)
"""


def measuring(device: str, folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", MEASURE, device],
        cwd=ROOT,
        env={"TMPDIR": str(folder), "PATH": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_two_processes_measure_one_after_the_other(tmp_path: Path) -> None:
    spans, waited = [], 0
    for process in [measuring(CPU, tmp_path) for _ in range(3)]:
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        spans.append(tuple(map(float, out.split())))
        waited += "another job measures on cpu; waiting" in err
    spans.sort()
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(spans))
    assert waited >= 1


def test_another_device_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with alone_on(CPU):
        out, err = measuring("cuda", tmp_path).communicate(timeout=60)
    assert len(out.split()) == 2 and "waiting" not in err


def test_a_killed_process_holds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    process = measuring(CPU, tmp_path)
    assert process.stdout is not None
    process.stdout.readline()
    process.kill()
    process.wait()
    before = time.monotonic()
    with alone_on(CPU):
        assert time.monotonic() - before < 0.4
