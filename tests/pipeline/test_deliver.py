"""The file that a run delivers: a link to the final file, with its external data, and none of another configuration."""

import os
from pathlib import Path
from typing import Any

import pytest

from pipeline.deliver import deliver, withdraw
from pipeline.run_record import Crash, Run
from pipeline.workspace import PROJECT_VARIABLE

PARAMS: dict[str, Any] = {
    "model": {"name": "org/mine"},
    "decoder": {"name": "dfine"},
    "precision": {"dtype": "fp16", "method": "convert"},
}
FP32 = PARAMS | {"precision": {"dtype": "fp32"}, "decoder": {"name": "none"}}


@pytest.fixture
def final(tmp_path: Path) -> Path:
    folder = tmp_path / "artifacts" / "cast_cleanup"
    folder.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(b"model")
    (folder / "model.onnx.data").write_bytes(b"weights")
    return folder / "model.onnx"


def run_of(folder: Path, params: dict[str, Any], crash: Crash | None = None, verdict: str = "passed") -> Run:
    reports = {"verify": {"status": "done", "verdict": verdict}, "engine": {"status": "planned"}}
    return Run(folder, params, reports, crash)


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "artifacts").iterdir() if path.is_file())


def test_it_is_the_final_file_under_its_name_with_its_data_beside_it(tmp_path: Path, final: Path) -> None:
    assert deliver(run_of(tmp_path, PARAMS)) == Path("artifacts/org_mine-dfine.fp16.onnx")
    assert files(tmp_path) == ["model.onnx.data", "org_mine-dfine.fp16.onnx"]
    assert (tmp_path / "artifacts/org_mine-dfine.fp16.onnx").samefile(final)
    assert final.with_name("model.onnx.data").stat().st_nlink == 1, "readers of ONNX refuse data of several links"
    assert (tmp_path / "artifacts/model.onnx.data").read_bytes() == b"weights"
    assert deliver(run_of(tmp_path, PARAMS)) is not None and len(files(tmp_path)) == 2, "again"


def test_links_of_other_configurations_go_and_files_of_the_user_stay(tmp_path: Path, final: Path) -> None:
    deliver(run_of(tmp_path, PARAMS))
    (tmp_path / "artifacts/mine.onnx").write_bytes(b"of the user")
    final.with_name("model.onnx.data").unlink()
    assert deliver(run_of(tmp_path, FP32)) == Path("artifacts/org_mine.fp32.onnx")
    assert files(tmp_path) == ["mine.onnx", "org_mine.fp32.onnx"]
    withdraw(tmp_path)
    withdraw(tmp_path)
    assert files(tmp_path) == ["mine.onnx"] and final.exists()


def test_where_links_are_impossible_it_is_a_copy(tmp_path: Path, final: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError("no links here")

    monkeypatch.setattr(os, "link", refused)
    made = deliver(run_of(tmp_path, PARAMS))
    assert made and (tmp_path / made).read_bytes() == b"model" and not (tmp_path / made).samefile(final)


def test_a_file_in_the_cache_is_linked_and_not_the_link_to_it(tmp_path: Path, final: Path) -> None:
    final.rename(tmp_path / "cached")
    final.symlink_to(tmp_path / "cached")
    made = deliver(run_of(tmp_path, PARAMS))
    assert made and not (tmp_path / made).is_symlink() and (tmp_path / made).samefile(tmp_path / "cached")


def test_nothing_is_delivered_without_a_final_file_or_in_a_workspace_that_goes(
    tmp_path: Path, final: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PROJECT_VARIABLE, str(tmp_path.parent))
    assert deliver(run_of(tmp_path, PARAMS)) is None
    monkeypatch.setenv(PROJECT_VARIABLE, str(tmp_path))
    assert deliver(run_of(tmp_path, PARAMS))
    final.unlink()
    assert deliver(run_of(tmp_path, PARAMS)) is None and files(tmp_path) == []


@pytest.mark.parametrize(("stage", "stays"), [("trace", True), ("slim", False), ("verify", False), ("unknown", False)])
def test_a_crash_before_there_is_a_file_leaves_the_delivered_one(
    tmp_path: Path, final: Path, stage: str, stays: bool
) -> None:
    place = deliver(run_of(tmp_path, PARAMS))
    assert place and deliver(run_of(tmp_path, PARAMS, Crash(stage, "no memory"))) is None
    assert (tmp_path / place).exists() is stays


def test_a_run_that_failed_delivers_nothing(tmp_path: Path, final: Path) -> None:
    place = deliver(run_of(tmp_path, PARAMS))
    failed = Run(tmp_path, PARAMS, {"verify": {"status": "failed", "verdict": "failed", "reasons": ["AP fell"]}})
    assert place and deliver(failed) is None and not (tmp_path / place).exists()
