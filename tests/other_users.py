"""Processes of other users of this machine, which only root can start, and a folder that a group shares."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import ROOT

GROUP = 64321
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can start processes of other users")
# Imports come first: as another user, the interpreter may not be able to read its library.
_SCRIPT = """
import os, sys
{imports}
os.setgroups([])
os.setgid({group})
os.setuid({user})
os.umask({umask})
{code}
"""


def as_user(user: int, umask: int, imports: str, code: str, *arguments: object) -> subprocess.Popen[str]:
    """Start Python code as a user, in the group; all that it says comes as its output."""
    script = _SCRIPT.format(imports=imports, group=GROUP, user=user, umask=umask, code=code)
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@contextmanager
def shared_folder(mode: int) -> Iterator[Path]:
    """A folder of the group with these rights, where other users can reach it: pytest's are its user's alone."""
    folder = Path(tempfile.mkdtemp(prefix="truehalf-test-"))
    try:
        os.chown(folder, -1, GROUP)
        folder.chmod(mode)
        yield folder
    finally:
        shutil.rmtree(folder)
