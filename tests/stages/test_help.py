"""Every stage answers --help, and runs nothing when it is asked something else."""

import pytest

from tests.conftest import ROOT, in_workspace


@pytest.mark.parametrize("stage", ["trace", "slim", "calibrate", "fp16", "cast_cleanup", "verify", "engine", "probe"])
def test_a_stage_answers_help_and_refuses_what_it_does_not_know(stage: str) -> None:
    asked = in_workspace(ROOT, "python", "-m", f"stages.{stage}", "--help")
    assert asked.returncode == 0 and f"python -m stages.{stage}" in asked.stdout
    wrong = in_workspace(ROOT, "python", "-m", f"stages.{stage}", "--no-such-flag")
    assert wrong.returncode == 2


@pytest.mark.parametrize(
    ("stage", "command"), [("fp16", "convert"), ("verify", "verify"), ("cast_cleanup", "clean-casts")]
)
def test_a_stage_that_is_handed_files_names_the_command_for_them(stage: str, command: str) -> None:
    done = in_workspace(ROOT, "python", "-m", f"stages.{stage}", "a.onnx", "b.onnx")
    assert done.returncode == 2 and f"truehalf {command} " in done.stderr
