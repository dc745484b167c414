"""Lines of the terminal while a run works."""

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from pipeline.summary.stage_lines import CACHED, FAILED, UNCHANGED, StageLines, found
from tests.messages import expect


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def lines_of(tmp_path: Path, stream: io.StringIO) -> StageLines:
    return StageLines(13, tmp_path, stream)


def test_a_stage_has_its_number_what_it_found_and_its_seconds(tmp_path: Path) -> None:
    (tmp_path / "reports").mkdir()
    report = {"model": {"fp16_fraction": 0.948}, "costs": {"placed": {"casts": 15}}}
    (tmp_path / "reports/fp16.json").write_text(json.dumps(report))
    stream = io.StringIO()
    lines = lines_of(tmp_path, stream)
    for stage in ("slim", "fp16", "verify"):
        lines.begin(stage)
        lines.starts(verdict=False)
        lines.end(stage, 1.94, badly=FAILED if stage == "verify" else "")
    slim, fp16, verify = stream.getvalue().splitlines()
    assert re.fullmatch(r"\[ 1/13\] slim +1\.9 s", slim), "there is no report"
    assert re.fullmatch(r"\[ 2/13\] fp16 .*94\.8 %.*\b15\b.* 1\.9 s", fp16) and len(fp16) <= 80
    expect(verify, None, "[ 3/13]", FAILED)


def test_stages_that_had_nothing_to_do_share_a_line(tmp_path: Path) -> None:
    stream = io.StringIO()
    lines = lines_of(tmp_path, stream)
    for stage, why in zip("abcdef", [UNCHANGED] * 3 + [CACHED] * 2 + [None], strict=True):
        lines.begin(stage)
        if why:
            lines.idle(stage, why)
    lines.starts(verdict=True)
    lines.begin("g")
    lines.idle("g", CACHED)
    assert len(stream.getvalue().splitlines()) == 3
    lines.flush()
    first, second, third, last = stream.getvalue().splitlines()
    assert re.fullmatch(rf"\[1-3/13\] a\b.*\bc\b.*{UNCHANGED}", first)
    assert re.fullmatch(rf"\[4-5/13\] d\b.*\be\b.*{CACHED}", second)
    assert third.startswith("[ 6/13]") and re.fullmatch(rf"\[ 7/13\] g +{CACHED}", last)


def test_a_terminal_shows_the_stage_that_works_and_a_pipe_does_not(tmp_path: Path) -> None:
    terminal, pipe = Terminal(), io.StringIO()
    assert [lines_of(tmp_path, stream).begin("trace") for stream in (terminal, pipe)] == ["[ 1/13] trace"] * 2
    assert "trace" in terminal.getvalue() and "\n" not in terminal.getvalue() and not pipe.getvalue()


@pytest.mark.parametrize(
    ("stage", "report", "facts"),
    [
        ("inputs", {"calibration": {"samples": 64}, "verification": {"samples": 500}}, ["64", "500"]),
        ("trace", {"model": {"nodes": 3088}, "parity": {"status": "not verified"}}, ["3088", "not verified"]),
        ("slim", {"model": {"nodes": 1264}, "parity": {"status": "verified"}}, ["1264", "verified"]),
        ("calibrate", {"tensors": 1143, "samples": 64}, ["1143", "64"]),
        ("fp16", {"status": "skipped", "model": {"fp16_fraction": 0.0}}, ["FP32"]),
        ("cast_cleanup", {"casts_before": 40, "casts_after": 33, "model": {"size_mb": 5.966}}, ["7", "5.97"]),
        ("reference", {"samples": 500}, ["500"]),
        ("verify", {"verdict": "failed", "matched_fraction": 0.99996}, ["failed", "99.99 %"]),
        ("probe", {"gpus": [{"name": "NVIDIA T4"}]}, ["NVIDIA T4"]),
        ("engine", {"status": "compiled", "compiled": {}}, ["compiled", "not run"]),
        ("track", {"status": "pending"}, ["pending"]),
    ],
)
def test_what_a_stage_found_fits_a_line(stage: str, report: dict[str, Any], facts: list[str]) -> None:
    words = found(stage, report)
    expect(words, None, *facts)
    assert len(words) <= 44 and "skipped" not in words
    assert found(stage, {}) == found(stage, {}).strip(), "of any version"
