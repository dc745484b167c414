"""What DVC reads and writes stays the same when it parses each text once."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.pipeline.small_project import environment, make

# Values that a writer of YAML has to quote, and texts that look like numbers.
PARAMS = """\
common:
  text: "1234567890123456789012345678e01"
  list: [1, 2.5e-7, "yes", "null", null, true, "a: b", ""]
  nested: {empty: {}, none: [], deep: {x: "0x1f", y: 'it''s', z: "two\\nlines"}}
own: %s
"""


@pytest.mark.slow
def test_the_lock_file_is_byte_for_byte_what_dvc_writes(tmp_path: Path) -> None:
    texts = []
    for name, module in (("ours", "pipeline.cache.shared_repro"), ("of_dvc", "dvc")):
        project = make(tmp_path / name)
        for own in ("1", "[a, {c: 1}]"):
            (project / "params.yaml").write_text(PARAMS % own)
            command = [sys.executable, "-m", module, *(["repro"] if module == "dvc" else [])]
            told = environment(tmp_path / "ran") | {"PYTHONPATH": str(ROOT)}
            done = subprocess.run(command, cwd=project, env=told, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
        texts.append((project / "dvc.lock").read_text())
    assert texts[0] == texts[1]


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    project = make(tmp_path / "project")
    (project / "params.yaml").write_text("common: [1\nown: 1\n")
    told = environment(tmp_path / "ran") | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "pipeline.cache.shared_repro"], cwd=project, env=told, capture_output=True, text=True
    )
    assert done.returncode != 0 and "params.yaml" in done.stderr
