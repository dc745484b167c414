"""Every stage answers --help, and runs nothing when it is asked something else."""

from __future__ import annotations

import importlib
import sys

import pytest

from stages.frame import stage_main
from tests.conftest import ROOT, in_workspace
from tests.messages import expect

STAGES = sorted(path.stem for path in (ROOT / "stages").glob("*.py") if path.stem not in ("__init__", "frame", "lines"))


def answered(stage: str, *arguments: str) -> int:
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as ended:
        patch.setattr(sys, "argv", [f"stages.{stage}", *arguments])
        module = importlib.import_module(f"stages.{stage}")
        module.main() if hasattr(module, "main") else stage_main(stage, module.run)
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_answers_help_and_refuses_what_it_does_not_know(stage: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert answered(stage, "--help") == 0
    expect(capsys.readouterr().out, None, f"python -m stages.{stage}")
    assert answered(stage, "--no-such-flag") == 2


def test_a_stage_is_a_command() -> None:
    done = in_workspace(ROOT, "python", "-m", "stages.fp16", "a.onnx")
    assert done.returncode == 2 and "a.onnx" in done.stderr
