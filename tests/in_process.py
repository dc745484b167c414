"""Stages called as DVC calls them, `python -m stages NAME` in a workspace, but in this process."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from stages.frame import run_stage
from tests.configurations import write_params

TO_VERIFY = ("inputs", "trace", "slim", "calibrate", "fp16", "cast_cleanup", "reference", "verify")


def run_stages(workspace: Path, *overrides: str, stages: tuple[str, ...] = TO_VERIFY) -> None:
    """Write params.yaml and run the stages, one after the other.

    Raises:
        SystemExit: as the stage that fails ends its process.
    """
    write_params(workspace, *overrides)
    for stage in stages:
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(workspace)
            run_stage(stage, importlib.import_module(f"stages.{stage}").run)


def report(workspace: Path, stage: str) -> dict[str, Any]:
    content = json.loads((workspace / "reports" / f"{stage}.json").read_text())
    assert isinstance(content, dict)
    return content
