"""The lock and params.yaml of a workspace."""

import signal
import subprocess
import sys
import time
from pathlib import Path
from threading import Event, Thread

import pytest

from pipeline.workspace import write_params
from tests.conftest import ROOT
from tests.messages import expect
from tests.waiting import HANG_S, until
from truehalf.files import locked

HOLD = "import sys, time; from pathlib import Path; from truehalf.files import locked\n"


def test_the_second_run_waits_and_says_so(tmp_path: Path) -> None:
    code = HOLD + "with locked(Path(sys.argv[1]), 'waiting'): print('in', flush=True)"
    with locked(tmp_path / "lock", "unused"):
        other = subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path / "lock")],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert other.stderr
        expect(other.stderr.readline(), "waits-for-another", "waiting")
        time.sleep(0.2)
        assert other.poll() is None
    assert other.communicate(timeout=HANG_S)[0] == "in\n"


def test_a_child_that_inherits_the_lock_keeps_it_when_the_parent_is_killed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = (
        HOLD + "import subprocess, os, signal\n"
        "with locked(Path(sys.argv[1]), 'unused') as lock:\n"
        "    subprocess.Popen(['cat'], pass_fds=(lock,))\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "lock")], cwd=ROOT, stdin=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert parent.wait(HANG_S) == -signal.SIGKILL and parent.stdin is not None
    taken = Event()

    def take() -> None:
        with locked(tmp_path / "lock", "waits for the orphan"):
            taken.set()

    second = Thread(target=take)
    second.start()
    until(lambda: "waits for the orphan" in capsys.readouterr().err, "the second waits")
    assert not taken.is_set()
    parent.stdin.close()  # and with it the orphan ends
    second.join(HANG_S)
    assert taken.is_set()


def test_params_say_that_they_are_generated(tmp_path: Path) -> None:
    write_params(tmp_path, {"a": 2.0})
    text = (tmp_path / "params.yaml").read_text()
    assert text.startswith("# Generated") and text.endswith("a: 2.0\n")
