"""Runs side by side on one cache: what they have in common runs once, and in DVC's own way otherwise."""

import contextlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.summary.stage_lines import CACHED, FAILED, STOPPED
from pipeline.sweep.isolated import isolated
from pipeline.sweep.snapshot import take
from pipeline.workspace import LOCKS, locked
from tests.conftest import ROOT
from tests.pipeline.small_project import environment, make
from tests.tiers import first_of
from tests.waiting import HANG_S
from truehalf.codes import codes_in


def repro(place: Path, ran: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "pipeline.cache.shared_repro"],
        cwd=place,
        env=environment(ran) | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_a_common_stage_runs_once_and_others_run_each(tmp_path: Path) -> None:
    project, ran = make(tmp_path / "project"), tmp_path / "ran"
    commit = take(project)
    with isolated(project, commit, "a", {}) as a, isolated(project, commit, "b", {}) as b:
        (b / "params.yaml").write_text("common: 1\nown: 2\n")
        jobs = [repro(place, ran) for place in (a, b)]
        said = [job.communicate()[0] for job in jobs]
        assert [job.returncode for job in jobs] == [0, 0], said
        assert sorted(ran.read_text().split()) == ["common", "own", "own"]
        assert any(re.search(rf"^\[1/2\] common +{CACHED}$", text, re.MULTILINE) for text in said)
        assert (a / "out/common/value").read_text() == (b / "out/common/value").read_text() == "common"


@pytest.mark.slow
def test_a_change_is_seen_as_dvc_sees_it(tmp_path: Path) -> None:
    project, ran = make(tmp_path / "project"), tmp_path / "ran"
    with isolated(project, take(project), "a", {}) as place:
        for params, expected in (("common: 1\nown: 1\n", 2), ("common: 1\nown: 1\n", 2), ("common: 1\nown: 7\n", 3)):
            (place / "params.yaml").write_text(params)
            job = repro(place, ran)
            said = job.communicate()[0]
            assert job.returncode == 0, said
            assert len(ran.read_text().split()) == expected, said


def test_a_stage_that_fails_frees_its_lock_and_the_next_one_tries(tmp_path: Path) -> None:
    project, ran = make(tmp_path / "project"), tmp_path / "ran"
    work = project / "work.py"
    work.write_text(work.read_text() + "sys.exit(3)\n")
    commit = take(project)
    with isolated(project, commit, "a", {}) as a, isolated(project, commit, "b", {}) as b:
        jobs = [repro(place, ran) for place in (a, b)]
        said = [job.communicate()[0] for job in jobs]
        assert all(job.returncode != 0 for job in jobs) and all(FAILED in text for text in said)
        assert ran.read_text().split() == ["common", "common"]


@pytest.mark.parametrize("ends", first_of(["os.kill(os.getpid(), signal.SIGINT)", "sys.exit(130)"]))
def test_a_stage_that_ctrl_c_stopped_is_no_failed_one(tmp_path: Path, ends: str) -> None:
    """Python ends itself by the signal, whatever the stage said, where Ctrl-C reached it within an exec()."""
    project, ran = make(tmp_path / "project"), tmp_path / "ran"
    work = project / "work.py"
    by_default = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_DFL)\n"
    work.write_text(work.read_text() + by_default + ends + "\n")
    said, _ = repro(project, ran).communicate(timeout=HANG_S)
    assert re.search(rf"^\[1/2\] common +{STOPPED}\b", said, re.MULTILINE), said


def test_what_was_made_is_taken_without_waiting(tmp_path: Path) -> None:
    project, ran = make(tmp_path / "project"), tmp_path / "ran"
    commit = take(project)
    with isolated(project, commit, "a", {}) as a:
        assert repro(a, ran).wait() == 0
    locks = [path for path in (project / ".dvc/cache/truehalf.locks").iterdir() if path.is_file()]
    with contextlib.ExitStack() as held, isolated(project, commit, "b", {}) as b:
        for lock in locks:
            held.enter_context(locked(lock, "nobody else"))
        said, _ = repro(b, ran).communicate(timeout=HANG_S)
        assert "waits-for-another" not in codes_in(said)
        assert len(locks) == 2 and ran.read_text().split() == ["common", "own"]


@pytest.mark.slow
@pytest.mark.parametrize("lost", first_of(["runs", "files"]))
def test_what_the_cache_has_lost_is_made_again_once(tmp_path: Path, lost: str) -> None:
    project, ran = make(tmp_path / "project"), tmp_path / "ran"
    commit = take(project)
    with isolated(project, commit, "a", {}) as place:
        assert repro(place, ran).wait() == 0
    shutil.rmtree(project / ".dvc/cache" / lost)
    with isolated(project, commit, "b", {}) as b, isolated(project, commit, "c", {}) as c:
        jobs = [repro(place, ran) for place in (b, c)]
        said = [job.communicate()[0] for job in jobs]
        assert [job.returncode for job in jobs] == [0, 0], said
        assert (b / "out/own/value").exists() and (c / "out/own/value").exists()
    assert sorted(ran.read_text().split()) == ["common", "common", "own", "own"]


@pytest.mark.slow
def test_where_dvc_is_told_that_a_group_shares_the_cache_it_shares_the_locks(tmp_path: Path) -> None:
    project, ran, cache = make(tmp_path / "project"), tmp_path / "ran", tmp_path / "cache"
    for key, value in {"dir": str(cache), "shared": "group"}.items():
        subprocess.run([sys.executable, "-m", "dvc", "config", "-q", f"cache.{key}", value], cwd=project, check=True)
    said, _ = repro(project, ran).communicate()
    folders = {path.name: f"{path.stat().st_mode & 0o777:o}" for path in (cache, cache / "files", cache / LOCKS)}
    assert folders == {"cache": "775", "files": "775", LOCKS: "775"}, said
    assert {f"{path.stat().st_mode & 0o777:o}" for path in (cache / LOCKS).iterdir()} == {"664"}
