"""Fingerprints change with content, and only with it."""

from pathlib import Path

import pytest
from PIL import Image

from conf.validate import validate
from stages.data.samples import TRACE_SAMPLES, ImageSamples, calibration_samples, verification_samples
from stages.inputs import check_plugins, fingerprint, fingerprint_rule, fingerprint_samples, fingerprint_weights
from stages.io import StageError
from tests.conftest import composed


def test_a_fingerprint_follows_the_content(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one")
    (tmp_path / "b").write_text("one")
    assert fingerprint(tmp_path / "a") == fingerprint(tmp_path / "b")
    (tmp_path / "b").write_text("two")
    assert fingerprint(tmp_path / "a") != fingerprint(tmp_path / "b")
    with pytest.raises(StageError, match=r"model\.weights: no such file"):
        fingerprint_weights(tmp_path / "c")


def test_pictures_share_one_fingerprint_that_follows_their_content(tmp_path: Path) -> None:
    for number in range(TRACE_SAMPLES + 3):
        Image.new("RGB", (32, 32), (number, 0, 0)).save(tmp_path / f"{number}.png")
    counts = ["data.calibration_samples=2", "data.verification_samples=1"]
    config = validate(composed("data=images", f"data.folder={tmp_path}", *counts))

    def fingerprints() -> list[dict]:
        return [fingerprint_samples(read(config, tmp_path)) for read in (calibration_samples, verification_samples)]

    before = fingerprints()
    assert before == fingerprints() and [one["samples"] for one in before] == [2, 1]
    calibration: ImageSamples = calibration_samples(config, tmp_path)  # type: ignore[assignment]
    Image.new("RGB", (32, 32), (9, 9, 9)).save(calibration.paths[0])
    after = fingerprints()
    assert after[0] != before[0] and after[1] == before[1]


def test_made_samples_need_no_content() -> None:
    config = validate(composed())
    assert fingerprint_samples(verification_samples(config, Path("unused")))["samples"] == 500


def test_plugins_are_missed_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "here.so").touch()
    check_plugins(["here.so"], tmp_path)
    with pytest.raises(StageError, match=r"engine\.plugins: no such file: gone\.so, away\.so"):
        check_plugins(["gone.so", "here.so", "away.so"], tmp_path)


def test_a_custom_rule_is_known_by_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "rule_of_mine.py").write_text("def keep(node, ranges): return None\n")
    before = fingerprint_rule("rule_of_mine:keep")
    (tmp_path / "rule_of_mine.py").write_text("def keep(node, ranges): return 'mine'\n")
    assert fingerprint_rule("rule_of_mine:keep") != before
    with pytest.raises(StageError, match=r"precision\.custom_rule: 'no\.such:rule': expected a module"):
        fingerprint_rule("no.such:rule")
