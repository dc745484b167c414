"""A params.yaml that is older than a file of conf/ is refused, with the command that writes it anew."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.conftest import ROOT
from tests.messages import raises
from truehalf.config.params import params_digest, read_params
from truehalf.provenance.composed import digest_of_file, refuse_stale

FILE = "conf/precision/fp16.yaml"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / FILE).parent.mkdir(parents=True)
    (tmp_path / FILE).write_text("dtype: fp16\n")
    composed = {"overrides": ["precision.op_block_list=[Softmax]"], "files": {FILE: digest_of_file(tmp_path / FILE)}}
    (tmp_path / "params.yaml").write_text(yaml.safe_dump({"seed": 0, "composed": composed}))
    return tmp_path


def test_the_same_files_pass(workspace: Path) -> None:
    refuse_stale(workspace)
    (workspace / "conf/precision/fp32.yaml").write_text("not read by this composition")
    refuse_stale(workspace)


def test_an_edited_file_and_one_that_is_gone_are_named_with_the_command(workspace: Path) -> None:
    command = "python -m pipeline 'precision.op_block_list=[Softmax]'"
    (workspace / FILE).write_text("dtype: fp32\n")
    with raises("stale-configuration", FILE, command):
        refuse_stale(workspace)
    (workspace / FILE).unlink()
    with raises("stale-configuration", FILE, command):
        refuse_stale(workspace)


def test_what_another_program_wrote_is_taken_as_it_is(workspace: Path) -> None:
    (workspace / "params.yaml").write_text("seed: 0\n")
    refuse_stale(workspace)


def test_the_section_is_no_part_of_the_configuration(workspace: Path) -> None:
    digest = params_digest(workspace)
    assert read_params(workspace) == {"seed": 0}
    (workspace / "params.yaml").write_text("seed: 0\n")
    assert params_digest(workspace) == digest


def test_the_committed_params_yaml_is_of_the_committed_configuration() -> None:
    refuse_stale(ROOT)
