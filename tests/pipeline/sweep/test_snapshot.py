"""A snapshot has what is on disk, and leaves the user's repository as it was."""

from pathlib import Path

from pipeline.sweep.snapshot import LARGE_BYTES, NoSnapshot, take
from tests.messages import raises
from tests.pipeline.small_project import git, make


def test_a_clean_project_is_its_own_snapshot(tmp_path: Path) -> None:
    project = make(tmp_path / "project")
    assert take(project) == git(project, "rev-parse", "HEAD")


def test_what_is_changed_staged_untracked_and_deleted_is_in_it(tmp_path: Path) -> None:
    project = make(tmp_path / "project")
    (project / "work.py").write_text("changed = True\n")
    (project / "new name.py").write_text("untracked = True\n")
    (project / "staged.py").write_text("staged = True\n")
    git(project, "add", "staged.py")
    (project / "params.yaml").unlink()
    (project / "ignored").mkdir()
    (project / "ignored/weights").write_text("not known to git")
    status, index = git(project, "status", "--porcelain"), (project / ".git/index").read_bytes()
    commit = take(project)
    names = git(project, "ls-tree", "-r", "--name-only", commit).splitlines()
    assert {"work.py", "new name.py", "staged.py"} <= set(names)
    assert not {"params.yaml", "ignored/weights"} & set(names)
    assert git(project, "show", f"{commit}:work.py") == "changed = True"
    assert git(project, "rev-parse", f"{commit}^") == git(project, "rev-parse", "HEAD")
    assert git(project, "status", "--porcelain") == status and (project / ".git/index").read_bytes() == index
    assert take(project) != git(project, "rev-parse", "HEAD")


def test_a_large_untracked_file_is_left_out(tmp_path: Path) -> None:
    project = make(tmp_path / "project")
    with (project / "weights.bin").open("wb") as file:
        file.truncate(LARGE_BYTES + 1)
    assert take(project) == git(project, "rev-parse", "HEAD")


def test_a_name_that_is_no_text_comes_along(tmp_path: Path) -> None:
    project = make(tmp_path / "project")
    (project / "ümlaut\nline.txt").write_text("x")
    assert "line.txt" in git(project, "ls-tree", "-r", "-z", "--name-only", take(project))


def test_no_repository_and_no_commit_are_said(tmp_path: Path) -> None:
    with raises("no-snapshot", tmp_path, "not a git repository", error=NoSnapshot):  # as git says
        take(tmp_path)
    git(tmp_path, "init", "-q")
    with raises("no-snapshot", tmp_path, "git rev-parse", error=NoSnapshot) as caught:
        take(tmp_path)
    assert "not a git repository" not in str(caught.value)
