"""The lock and params.yaml of a workspace."""

import subprocess
import sys
import time
from pathlib import Path

from pipeline.workspace import locked, write_params
from tests.conftest import ROOT

HOLD = "import sys, time; from pathlib import Path; from pipeline.workspace import locked\n"


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
        assert other.stderr and other.stderr.readline() == "waiting\n"
        time.sleep(0.2)
        assert other.poll() is None
    assert other.communicate(timeout=20)[0] == "in\n"


def test_a_child_that_inherits_the_lock_keeps_it_when_the_parent_is_killed(tmp_path: Path) -> None:
    code = (
        HOLD + "import subprocess, os, signal\n"
        "with locked(Path(sys.argv[1]), 'unused') as lock:\n"
        "    subprocess.Popen(['sleep', '1.5'], pass_fds=(lock,))\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "lock")], cwd=ROOT)
    started = time.monotonic()
    with locked(tmp_path / "lock", "waiting for the orphan"):
        assert time.monotonic() - started > 0.3


def test_params_are_written_only_when_they_differ(tmp_path: Path) -> None:
    write_params(tmp_path, {"a": 1})
    path = tmp_path / "params.yaml"
    path.write_text("# by hand\na: 1\n")
    write_params(tmp_path, {"a": 1})
    assert path.read_text() == "# by hand\na: 1\n"
    write_params(tmp_path, {"a": 2})
    assert path.read_text().endswith("a: 2\n") and path.read_text().startswith("# Generated")
