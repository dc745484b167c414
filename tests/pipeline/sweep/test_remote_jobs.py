"""What jobs on other machines are sent, and what becomes of what they send back where others are at work."""

import json
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.job import collect_reports
from pipeline.sweep import remote_jobs as module
from pipeline.sweep.ray_worker import unpack
from pipeline.sweep.remote_jobs import RemoteJobs
from pipeline.sweep.snapshot import take
from pipeline.sweep.sweep import VARIABLE, Sweep
from pipeline.tracking.record import tags
from pipeline.workspace import locked
from tests.configurations import composed
from tests.conftest import ROOT
from tests.messages import expect
from tests.pipeline.small_project import commit, git, line_with, make
from tests.waiting import HANG_S


def remote_jobs_of(project: Path) -> RemoteJobs:
    return RemoteJobs(Sweep("sweep-x", str(project), git(project, "rev-parse", "HEAD"), True, []), share_cache=True)


def test_what_is_too_much_for_workers_is_left_out_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    project = make(tmp_path / "project")
    for name in ("small.pt", "large.pt"):
        (project / name).write_bytes(b"x" * (10 if name == "small.pt" else 100_000))
    monkeypatch.setattr("pipeline.sweep.remote_jobs.MOST_SENT_BYTES", 50_000)
    remote = remote_jobs_of(project)
    values = {"a": {"weights": "small.pt"}, "b": ["large.pt", "work.py", "none", "/etc/hosts", "../project"]}
    assert remote.named(values) == ("small.pt", "large.pt"), "what the snapshot has travels with it"
    for archive in remote.brought(values, put=bytes):
        unpack(archive, tmp_path / "worker")
    assert [path.name for path in (tmp_path / "worker").iterdir()] == ["small.pt"]
    expect(line_with("too-large", capsys.readouterr().err), None, "large.pt")


def test_of_a_folder_what_the_snapshot_lacks_is_sent_and_a_link_is_sent_as_what_it_leads_to(tmp_path: Path) -> None:
    project = make(tmp_path / "project")
    (tmp_path / "sets").mkdir()
    (tmp_path / "sets/a.png").write_text("a")
    (project / "linked").symlink_to(tmp_path / "sets")
    (project / "loose").symlink_to("../sets")
    (project / "pics").mkdir()
    (project / "pics/labels.json").write_text("{}")
    commit(project, "links, and part of a folder")
    (project / "pics/b.pt").write_text("b")
    remote = remote_jobs_of(project)
    values = {"a": "linked", "b": "loose", "c": "pics", "d": "work.py"}
    assert remote.named(values) == ("linked", "loose", "pics")
    worker = tmp_path / "worker"
    for archive in (remote.archive(), *remote.brought(values, put=bytes)):
        unpack(archive, worker)
    assert (worker / "linked/a.png").read_text() == (worker / "loose/a.png").read_text() == "a"
    assert sorted(path.name for path in (worker / "pics").iterdir()) == ["b.pt", "labels.json"]
    assert not (worker / "linked").is_symlink() and not (worker / "loose").is_symlink()


def test_a_worker_without_the_repository_knows_the_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = make(tmp_path / "project")
    head = git(project, "rev-parse", "HEAD")
    (project / "stages").mkdir()
    (project / "stages/new.py").write_text("changed = True\n")
    sweep = Sweep("sweep-x", str(project), take(project), True, [])
    for edited, told in ((sweep, "true"), (replace(sweep, snapshot=head), "false")):
        monkeypatch.setenv(VARIABLE, RemoteJobs(edited, share_cache=False).order(0, []).sweep)
        said = tags(tmp_path, composed(), {}, None)
        assert (said["git_commit"], said["git_dirty"]) == (head, told)
    monkeypatch.delenv(VARIABLE)
    said = tags(tmp_path, composed(), {}, None)
    assert (said["git_commit"], said["git_dirty"]) == ("none", "unknown")


def test_why_a_worker_was_lost_is_noted_without_passwords(tmp_path: Path) -> None:
    sweep = Sweep("sweep-x", str(make(tmp_path / "project")), "", True, [])
    RemoteJobs(sweep, share_cache=False).lost(
        0, ["seed=1"], OSError("a traceback\nno answer from http://u:hid@den@host/x")
    )
    reason = sweep.results()[0].reason
    expect(reason, "job-lost", "OSError", "http://***@host/x")
    assert "hid" not in reason and "den" not in reason and "traceback" not in reason


def test_what_jobs_share_is_sent_once_and_all_of_a_sweep_has_one_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    project = make(tmp_path / "project")
    for number in range(4):
        (project / f"{number}.pt").write_bytes(b"x" * 20_000)
    monkeypatch.setattr("pipeline.sweep.remote_jobs.MOST_SENT_BYTES", 50_000)
    remote, stored = remote_jobs_of(project), []

    def put(archive: bytes) -> int:
        stored.append(archive)
        return len(stored)

    jobs: list[dict[str, Any]] = [{"a": "0.pt"}, {"a": "0.pt", "b": "1.pt"}, {"a": "2.pt", "b": "1.pt"}, {"a": "2.pt"}]
    assert [remote.brought(values, put) for values in jobs] == [[1], [1, 2], [2], []]
    assert len(stored) == 2, "of each file one object, whatever jobs name beside it"
    expect(line_with("too-large", capsys.readouterr().err), None, "2.pt")


def kept_run(place: Path) -> None:
    """What pipeline.tracking.record.save_pending leaves of a run."""
    (place / "reports").mkdir(parents=True)
    (place / "params.yaml").write_text("seed: 0\n")
    (place / "reports" / "trace.json").write_text("{}")
    (place / "record.json").write_text(json.dumps({"failed_stage": None, "tags": {}, "sweep": None}))


def test_a_run_to_be_logged_arrives_whole_and_while_nobody_logs(tmp_path: Path) -> None:
    sent, project = tmp_path / "sent", tmp_path / "project"
    kept_run(sent / "runs/.pending/0123")
    kept_run(project / "runs/.pending/4567")
    code = "import sys; from pathlib import Path; from pipeline.track import adopt_runs\n"
    code += "adopt_runs(*map(Path, sys.argv[1:]))"
    with locked(project / ".truehalf.pending.lock", "unused"):
        command = [sys.executable, "-c", code, str(sent), str(project)]
        other = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
        assert other.stderr
        expect(other.stderr.readline(), "waits-for-another", "track")
        assert [path.name for path in (project / "runs/.pending").iterdir()] == ["4567"]
    assert other.communicate(timeout=HANG_S) == (None, "")
    assert sorted(path.name for path in (project / "runs/.pending").iterdir()) == ["0123", "4567"]
    assert (project / "runs/.pending/0123/reports/trace.json").exists() and not list((sent / "runs/.pending").iterdir())


def test_locks_of_a_workers_cache_stay_there(tmp_path: Path) -> None:
    for name in ("truehalf.locks/0123", "files/md5/ab/cd"):
        (tmp_path / "theirs" / name).parent.mkdir(parents=True)
        (tmp_path / "theirs" / name).write_text("")
    module._move_missing(tmp_path / "theirs", tmp_path / "cache")
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["files"]


def test_two_sweeps_that_bring_the_same_into_the_cache_do_not_meet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, move = tmp_path / "cache", shutil.move
    for name in ("one", "other"):
        (tmp_path / name / "files/md5/ab").mkdir(parents=True)
        (tmp_path / name / "files/md5/ab/cd").write_text("made")

    def while_the_other_does(source: Path, target: Path) -> None:
        move(source, target)
        monkeypatch.setattr(shutil, "move", move)
        module._move_missing(tmp_path / "other", cache)

    monkeypatch.setattr(shutil, "move", while_the_other_does)
    module._move_missing(tmp_path / "one", cache)
    assert [str(path.relative_to(cache)) for path in cache.rglob("*") if path.is_file()] == ["files/md5/ab/cd"]


def test_two_sweeps_that_bring_back_the_same_run_take_turns(tmp_path: Path) -> None:
    for stage in range(10):
        report = tmp_path / "place" / "reports" / f"{stage}.json"
        report.parent.mkdir(parents=True, exist_ok=True)
        report.write_text("{}")
    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(collect_reports, tmp_path / "place", tmp_path / "runs" / "name") for _ in range(40)]:
            done.result()
    assert len(list((tmp_path / "runs/name/reports").iterdir())) == 10
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == [".brought.lock", "name"]
