"""In a workspace of its own a source is hashed once; what stages make, and links, each time. DVC records the same."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.workspace import PROJECT_VARIABLE
from tests.conftest import ROOT
from tests.pipeline.small_project import environment, make
from tests.tiers import first_of

LOOK = """\
import os, pathlib, sys
from dvc.repo import Repo
from pipeline import dvc_hashes
dvc_hashes.remember()
with Repo() as repo:
    stage = next(stage for stage in repo.index.stages if stage.name == "own")
    files = {dep.def_path: dep for dep in stage.deps}
    before = {name: dep.get_hash() for name, dep in files.items()}
    for name in ("work.py", "out/common/value", "ignored/link"):
        pathlib.Path(name).resolve().write_text("changed")
    print(sorted(name for name, dep in files.items() if dep.get_hash() != before[name]))
"""


def test_what_may_change_is_looked_at_each_time(tmp_path: Path) -> None:
    project = make(tmp_path / "project")
    text = (project / "dvc.yaml").read_text()
    (project / "dvc.yaml").write_text(text.replace("deps: [work.py, out/common]", "deps: [work.py, out, ignored/link]"))
    for folder in ("out/common", "ignored"):
        (project / folder).mkdir(parents=True)
    (project / "out/common/value").write_text("made")
    (tmp_path / "elsewhere").write_text("of the user")
    (project / "ignored/link").symlink_to(tmp_path / "elsewhere")
    told = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", LOOK], cwd=project, env=told, capture_output=True, text=True)
    assert done.stdout.strip() == "['ignored/link', 'out']", done.stderr


@pytest.mark.parametrize("own_workspace", first_of([True, False]))
def test_dvc_records_the_same(tmp_path: Path, own_workspace: bool) -> None:
    texts = []
    for name, command in (("ours", ["pipeline.shared_repro"]), ("of_dvc", ["dvc", "repro"])):
        project = make(tmp_path / name)
        told = environment(tmp_path / "ran") | {"PYTHONPATH": str(ROOT)}
        if own_workspace:
            told[PROJECT_VARIABLE] = str(project)
        subprocess.run([sys.executable, "-m", *command], cwd=project, env=told, capture_output=True, check=True)
        texts.append((project / "dvc.lock").read_text())
    assert texts[0] == texts[1]


def test_a_source_that_is_edited_in_the_project_itself_is_seen(tmp_path: Path) -> None:
    """Where people edit, DVC looks as often as it does without us: the second stage has the file as it ran with it."""
    project = make(tmp_path / "project")
    work = (project / "work.py").read_text()
    (project / "work.py").write_text(
        work + "if name == 'common':\n    with open('work.py', 'a') as file:\n        file.write('# x\\n')\n"
    )
    told = environment(tmp_path / "ran") | {"PYTHONPATH": str(ROOT)}
    told.pop(PROJECT_VARIABLE, None)
    command = [sys.executable, "-m", "pipeline.shared_repro"]
    subprocess.run(command, cwd=project, env=told, capture_output=True, check=True)
    after = hashlib.md5((project / "work.py").read_bytes()).hexdigest()
    assert after in (project / "dvc.lock").read_text().partition("  own:")[2]
