"""Folders of models that tests of several sources open."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.truehalf.models.sources.hf_families import saved


@pytest.fixture
def yolos(tmp_path: Path) -> Path:
    """The family that is made and run fastest."""
    saved(tmp_path / "yolos", "yolos")
    return tmp_path / "yolos"
