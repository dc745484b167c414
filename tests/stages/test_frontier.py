"""The ranking of a model's parts writes over nothing that it reads, and into no place that is no regular file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from stages.frontier import rank
from tests.configurations import write_params
from tests.messages import raises
from tests.truehalf.test_files import REFUSED, made

DOORS: dict[str, Callable[[Path], None]] = {
    "out": lambda place: rank(out=place, checkpoint=Path("other.json"), count=1, samples=1),
    "checkpoint": lambda place: rank(out=Path("other.json"), checkpoint=place, count=1, samples=1),
}


@pytest.fixture(autouse=True)
def _workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_params(tmp_path)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.parametrize("door", DOORS)
def test_no_regular_file(door: str, kind: str, tmp_path: Path) -> None:
    (tmp_path / "places").mkdir()
    place, facts = made(tmp_path / "places", kind)
    before = facts()
    with raises("file-unwritable", place):
        DOORS[door](place)
    assert facts() == before


@pytest.mark.parametrize("door", DOORS)
def test_the_two_are_not_one_file(door: str, tmp_path: Path) -> None:
    Path("linked.json").symlink_to("other.json")
    for place in (tmp_path / "other.json", Path("other.json"), Path("linked.json")):
        with raises("would-overwrite", place):
            DOORS[door](place)
    assert not (tmp_path / "other.json").exists()
