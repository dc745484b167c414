"""A killed DVC's locks are released; a living one's are not."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from pipeline.cache.stale_locks import release
from tests.waiting import until


def rwlock(folder: Path, *pids: int) -> Path:
    path = folder / ".dvc/tmp/rwlock"
    path.parent.mkdir(parents=True, exist_ok=True)
    infos = [{"pid": pid, "cmd": "dvc repro"} for pid in pids]
    path.write_text(json.dumps({"write": {f"/out{i}": info for i, info in enumerate(infos)}, "read": {"/dep": infos}}))
    return path


@pytest.fixture
def zombie():  # type: ignore[no-untyped-def]
    child = subprocess.Popen(["true"])
    until(lambda: Path(f"/proc/{child.pid}/stat").read_text().split()[2] == "Z", "the child has ended")
    yield child.pid
    child.wait()


def test_zombies_and_the_dead_are_released_the_living_kept(tmp_path: Path, zombie: int) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    path = rwlock(tmp_path, os.getpid(), zombie, gone.pid)
    release(tmp_path)
    kept = json.loads(path.read_text())
    assert [info["pid"] for info in kept["write"].values()] == [os.getpid()]
    assert [info["pid"] for info in kept["read"]["/dep"]] == [os.getpid()]


def test_nothing_to_release(tmp_path: Path) -> None:
    release(tmp_path)
    path = rwlock(tmp_path, os.getpid())
    before = path.stat()
    release(tmp_path)
    assert path.stat() == before
