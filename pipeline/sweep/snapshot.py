"""A snapshot of the project: one commit, on no branch, of all that git knows or would add, as it is on disk now.

All jobs of a sweep work on one snapshot, whatever is edited meanwhile. It is made with a separate index, so the
user's index, branches and files stay as they are. git keeps such a commit for two weeks, and as long as a worktree is
on it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from truehalf.codes import coded

SUBJECT = "truehalf: snapshot of "
LARGE_BYTES = 10_000_000  # an untracked file above this is not copied into git
_AUTHOR = {
    **{"GIT_AUTHOR_NAME": "truehalf", "GIT_AUTHOR_EMAIL": "truehalf@localhost"},
    **{"GIT_COMMITTER_NAME": "truehalf", "GIT_COMMITTER_EMAIL": "truehalf@localhost"},
}


class NoSnapshot(Exception):
    """Why the project's files cannot be copied: what, where, what to do."""


def take(project: Path) -> str:
    """The id of a commit of the project's files as they are, uncommitted and small untracked ones included.

    It is HEAD itself where nothing differs.

    Raises:
        NoSnapshot: where the folder is no git repository, holds no commit, or git fails.
    """
    head = git(project, "rev-parse", "--verify", "--quiet", "HEAD", remedy="commit the project first")
    with tempfile.TemporaryDirectory() as folder:
        index = Path(folder) / "index"
        shutil.copy2(git(project, "rev-parse", "--path-format=absolute", "--git-path", "index"), index)
        environment = {"GIT_INDEX_FILE": str(index)}
        git(project, "add", "--update", environment=environment)
        untracked = git(project, "ls-files", "-z", "--others", "--exclude-standard").split("\0")
        small = [name for name in untracked if name and _is_small(project / name)]
        git(project, "update-index", "--add", "-z", "--stdin", environment=environment, given="\0".join(small))
        tree = git(project, "write-tree", environment=environment)
    if tree == git(project, "rev-parse", "HEAD^{tree}"):
        return head
    return git(project, "commit-tree", tree, "-p", head, "-m", SUBJECT + head, environment=_AUTHOR)


def _is_small(path: Path) -> bool:
    return path.is_symlink() or (path.is_file() and path.stat().st_size <= LARGE_BYTES)


def git(
    project: Path,
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    given: str | None = None,
    remedy: str = "see what `git status` says",
) -> str:
    try:
        done = subprocess.run(
            ["git", *arguments],
            cwd=project,
            env=os.environ | (environment or {}),
            input=given,
            capture_output=True,
            text=True,
            check=True,
        )
    except FileNotFoundError as error:
        message = "workspace.isolated: git is not installed, and isolated workspaces are git worktrees"
        raise NoSnapshot(coded("no-snapshot", message)) from error
    except subprocess.CalledProcessError as error:
        reason = next(iter(error.stderr.strip().splitlines()), f"exit code {error.returncode}")
        command = f"git {' '.join(arguments[:2])}"
        message = f"workspace.isolated: {project}: `{command}`: {reason}; expected a git repository: {remedy}"
        raise NoSnapshot(coded("no-snapshot", message)) from error
    return done.stdout.strip()
