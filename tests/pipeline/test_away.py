"""What jobs on other machines are sent."""

from pathlib import Path

import pytest

from pipeline.away import Away
from pipeline.ray_worker import unpack
from pipeline.sweep import Sweep
from tests.pipeline.small_project import git, make


def test_what_is_too_much_for_workers_is_left_out_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    project = make(tmp_path / "project")
    for name in ("small.pt", "large.pt"):
        (project / name).write_bytes(b"x" * (10 if name == "small.pt" else 100_000))
    monkeypatch.setattr("pipeline.away.MOST_SENT_BYTES", 50_000)
    away = Away(Sweep("sweep-x", str(project), git(project, "rev-parse", "HEAD"), True, []), share_cache=True)
    names = away.named({"a": {"weights": "small.pt"}, "b": ["large.pt", "work.py", "none", "/etc/hosts", "../project"]})
    assert names == ("small.pt", "large.pt"), "what the snapshot has travels with it"
    unpack(away.packed(names), tmp_path / "worker")
    assert [path.name for path in (tmp_path / "worker").iterdir()] == ["small.pt"]
    assert "large.pt (0.0 GB) is not sent to workers" in capsys.readouterr().err


def test_why_a_worker_was_lost_is_noted_without_passwords(tmp_path: Path) -> None:
    sweep = Sweep("sweep-x", str(make(tmp_path / "project")), "", True, [])
    Away(sweep, share_cache=False).lost(0, ["seed=1"], OSError("a traceback\nno answer from http://u:hid@den@host/x"))
    assert sweep.results()[0]["reason"] == "OSError: no answer from http://***@host/x"
