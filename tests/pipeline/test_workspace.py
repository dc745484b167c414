"""The lock and params.yaml of a workspace."""

import signal
import subprocess
import sys
import time
from pathlib import Path
from threading import Event, Thread

import pytest

from pipeline.workspace import lock_in, locked, write_params
from tests.conftest import ROOT
from tests.messages import expect
from tests.other_users import as_user, needs_root, shared_folder
from tests.waiting import HANG_S, until

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


@needs_root
@pytest.mark.parametrize("umask", [0o002, 0o022, 0o077])
def test_in_a_cache_that_a_group_shares_the_second_user_waits_for_the_first(umask: int) -> None:
    code = (
        "with locked(lock_in(Path(sys.argv[1]), 'key'), 'waiting') as lock:\n"
        "    print('in', flush=True)\n"
        "    sys.stdin.read()\n"
        "    os.write(lock, b'made')\n"
    )
    with shared_folder(0o2775) as cache:
        imports = HOLD + "from pipeline.workspace import lock_in"
        first = as_user(64322, umask, imports, code, cache)
        assert first.stdout and first.stdout.readline() == "in\n", first.communicate()[0]
        second = as_user(64323, umask, imports, code, cache)
        assert second.stdout
        expect(second.stdout.readline(), "waits-for-another", "waiting")
        assert first.communicate(timeout=HANG_S)[0] == "" and second.communicate(timeout=HANG_S)[0] == "in\n"
        assert [path.name for path in (cache / "truehalf.locks").iterdir()] == ["key"]


def test_a_lock_in_the_cache_has_the_rights_of_the_cache(tmp_path: Path) -> None:
    for rights, of_folder, of_lock in ((0o770, 0o770, 0o660), (0o755, 0o755, 0o644), (0o1777, 0o777, 0o666)):
        cache = tmp_path / str(rights)
        cache.mkdir()
        cache.chmod(rights)
        lock = lock_in(cache, "key")
        assert (lock.parent.stat().st_mode & 0o7777, lock.stat().st_mode & 0o7777) == (of_folder, of_lock)
        assert lock_in(cache, "key") == lock


def test_a_lock_whose_file_its_holder_removes_is_held_by_one_at_a_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, inside, leave = tmp_path / "lock", Event(), Event()
    order: list[str] = []

    def enter(name: str) -> None:
        with locked(path, f"{name} waits"):
            order.append(f"{name} in")
            inside.set()
            leave.wait(HANG_S)
            order.append(f"{name} out")
            path.unlink()

    second, third = (Thread(target=enter, args=(name,)) for name in ("second", "third"))
    with locked(path, ""):
        second.start()
        until(lambda: "second waits" in capsys.readouterr().err, "the second waits for this file")
        path.unlink()
    assert inside.wait(HANG_S)
    third.start()
    until(lambda: "third waits" in capsys.readouterr().err, "the third waits")
    assert order == ["second in"], "the third waits for the file that is there now"
    leave.set()
    second.join()
    third.join()
    assert order == ["second in", "second out", "third in", "third out"]


def test_params_are_written_only_when_they_differ(tmp_path: Path) -> None:
    write_params(tmp_path, {"a": 1})
    path = tmp_path / "params.yaml"
    path.write_text("# by hand\na: 1\n")
    write_params(tmp_path, {"a": 1})
    assert path.read_text() == "# by hand\na: 1\n"
    write_params(tmp_path, {"a": 2})
    assert path.read_text().endswith("a: 2\n") and path.read_text().startswith("# Generated")
    write_params(tmp_path, {"a": 2.0})
    assert path.read_text().endswith("a: 2.0\n")
