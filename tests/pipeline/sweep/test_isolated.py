"""A workspace of its own: on the project's cache, with what the configuration names, and gone afterwards."""

import fcntl
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pipeline.sweep.isolated import FOLDER, cache_of, isolated, link_inputs, remove_abandoned
from pipeline.sweep.snapshot import NoSnapshot, take
from tests.messages import raises
from tests.pipeline.small_project import git, make


def test_it_has_the_snapshot_and_the_cache_and_is_removed(tmp_path: Path) -> None:
    project = make(tmp_path / "project")
    (project / "work.py").write_text("changed = True\n")
    with isolated(project, take(project), "one", {}) as place:
        (project / "work.py").write_text("changed again, meanwhile\n")
        assert (place / "work.py").read_text() == "changed = True\n"
        assert cache_of(place) == cache_of(project) == project / ".dvc/cache"
        assert not git(project, "status", "--porcelain", "--", "runs", ".dvc")
    assert not place.exists() and len(git(project, "worktree", "list").splitlines()) == 1


def test_it_is_removed_when_the_run_fails(tmp_path: Path) -> None:
    project = make(tmp_path / "project")
    with pytest.raises(RuntimeError), isolated(project, take(project), "one", {}) as place:
        raise RuntimeError
    assert not place.exists() and not list((project / FOLDER).iterdir())


def test_relative_places_of_cache_and_remotes_stay_where_they_are(tmp_path: Path) -> None:
    project = make(tmp_path / "project")
    (project / ".dvc/config").write_text(
        "[core]\n    remote = store\n['remote \"store\"']\n    url = ../../store\n['remote \"far\"']\n    url = s3://b/c\n"
    )
    (project / ".dvc/config.local").write_text(
        "[cache]\n    dir = ../../cache\n['remote \"far\"']\n    secret_access_key = k%y\n"
    )
    with isolated(project, take(project), "one", {}) as place:
        local = (place / ".dvc/config.local").read_text()
        assert f"dir = {tmp_path / 'cache'}" in local and f"url = {tmp_path / 'store'}" in local
        assert "secret_access_key = k%y" in local and "s3://" not in local
        assert (place / ".dvc/config.local").stat().st_mode & 0o077 == 0
        assert cache_of(place) == cache_of(project) == tmp_path / "cache"


def test_what_the_configuration_names_comes_along(tmp_path: Path) -> None:
    project, place = tmp_path / "project", tmp_path / "place"
    for name in ("ignored/pictures/1.png", "model.pt", "nets/fp32.onnx", "nets/fp32.onnx.data", "nets/other.onnx"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(name)
    place.mkdir()
    link_inputs(
        project,
        place,
        {
            "data": {"folder": "ignored/pictures", "file": None},
            "model": {"checkpoint": "nets/fp32.onnx", "names": ["model.pt", "", ".", "../outside", "missing.pt"]},
        },
    )
    assert (place / "ignored/pictures").is_symlink() and (place / "ignored/pictures/1.png").read_text()
    assert (place / "model.pt").is_symlink()
    copied = sorted(path.name for path in (place / "nets").iterdir())
    assert copied == ["fp32.onnx", "fp32.onnx.data"]
    assert not any(path.is_symlink() for path in (place / "nets").iterdir())


def test_of_a_folder_that_the_snapshot_has_in_part_the_rest_comes_along(tmp_path: Path) -> None:
    project, place = tmp_path / "project", tmp_path / "place"
    for name in ("pics/labels.json", "pics/a.png", "pics/more/b.png", "nets/readme", "nets/m.onnx", "nets/m.onnx.data"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(f"{name} of the project")
    for name in ("pics/labels.json", "nets/readme"):
        (place / name).parent.mkdir(parents=True)
        (place / name).write_text("of the snapshot")
    link_inputs(project, place, {"folder": "./pics", "model": "nets"})
    for name in ("pics/a.png", "pics/more/b.png", "nets/m.onnx", "nets/m.onnx.data"):
        assert (place / name).read_text() == f"{name} of the project"
    assert (place / "pics/labels.json").read_text() == (place / "nets/readme").read_text() == "of the snapshot"
    assert (place / "pics/a.png").is_symlink() and not any(path.is_symlink() for path in (place / "nets").iterdir())


def test_a_link_of_the_project_to_a_place_beside_it_leads_there(tmp_path: Path) -> None:
    project = make(tmp_path / "project")
    (tmp_path / "sets").mkdir()
    (tmp_path / "sets/a.png").write_text("a")
    (project / "pictures").symlink_to("../sets")
    with isolated(project, take(project), "one", {"data": {"folder": "pictures"}}) as place:
        assert (place / "pictures/a.png").read_text() == "a"


def test_a_cache_that_is_configured_for_the_user_is_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = make(tmp_path / "project")
    monkeypatch.setenv("DVC_GLOBAL_CONFIG_DIR", str(tmp_path / "user"))
    (tmp_path / "user").mkdir()
    (tmp_path / "user/config").write_text(f"[cache]\n    dir = {tmp_path / 'team'}\n")
    assert cache_of(project) == tmp_path / "team"


def test_what_killed_runs_left_is_removed_and_what_works_is_not(tmp_path: Path) -> None:
    project = make(tmp_path / "project")
    for name in ("dead", "alive"):
        (project / FOLDER / name).mkdir(parents=True)
        (project / FOLDER / f"{name}.lock").touch()
    with (project / FOLDER / "alive.lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert remove_abandoned(project) == ["dead"]
    assert sorted(path.name for path in (project / FOLDER).iterdir()) == ["alive", "alive.lock"]


def test_git_makes_one_worktree_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """git itself fails now and then where an `add` runs beside a `prune`; this git does so always."""
    project = make(tmp_path / "project")
    head = git(project, "rev-parse", "HEAD")
    strict = tmp_path / "bin" / "git"
    strict.parent.mkdir()
    turn, real = tmp_path / "turn", shutil.which("git")
    alone = f'mkdir {turn} || exit 128; sleep 0.1; {real} "$@"; code=$?; rmdir {turn}; exit $code'
    strict.write_text(f'#!/bin/sh\nif [ "$1" = worktree ]; then {alone}; fi\nexec {real} "$@"\n')
    strict.chmod(0o755)
    monkeypatch.setenv("PATH", f"{strict.parent}{os.pathsep}{os.environ['PATH']}")

    def make_one(name: str) -> bool:
        with isolated(project, head, name, {}) as place:
            return (place / "work.py").exists()

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(make_one, ["one", "two", "three"])) == [True, True, True]
    assert not list((project / FOLDER).iterdir())


def test_what_git_says_is_handed_on(tmp_path: Path) -> None:
    project = make(tmp_path / "project")
    wanted = raises("no-snapshot", "git worktree add", project, "0" * 7, error=NoSnapshot)
    with wanted, isolated(project, "0" * 7, "one", {}):
        pass
