"""Fingerprints change with content, and only with it."""

from pathlib import Path

from PIL import Image

from tests.configurations import composed
from tests.messages import raises
from truehalf.config.validate import validate
from truehalf.data.run_samples import TRACE_SAMPLES, run_sources
from truehalf.models.configuration import validated
from truehalf.provenance.fingerprints import (
    check_plugins,
    fingerprint,
    fingerprint_code,
    fingerprint_data,
    fingerprint_files,
    fingerprint_model,
)


def test_a_fingerprint_follows_the_content(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one")
    (tmp_path / "b").write_text("one")
    assert fingerprint(tmp_path / "a") == fingerprint(tmp_path / "b")
    (tmp_path / "b").write_text("two")
    assert fingerprint(tmp_path / "a") != fingerprint(tmp_path / "b")
    with raises("file-missing", "model.checkpoint:", tmp_path / "c"):
        fingerprint_files([tmp_path / "c"], tmp_path)


def test_a_folder_is_its_files_by_their_place(tmp_path: Path) -> None:
    (tmp_path / "model/inner").mkdir(parents=True)
    (tmp_path / "model/inner/weights").write_text("one")
    (tmp_path / "model/config").write_text("two")
    found = fingerprint_files([tmp_path / "model"], tmp_path)
    assert list(found) == ["model/config", "model/inner/weights"]
    assert found["model/config"] == fingerprint(tmp_path / "model/config")


def test_pictures_share_one_fingerprint_that_follows_their_content(tmp_path: Path) -> None:
    for number in range(TRACE_SAMPLES + 3):
        Image.new("RGB", (32, 32), (number, 0, 0)).save(tmp_path / f"{number}.png")
    counts = ["data.calibration_samples=2", "data.verification_samples=1"]
    config = validate(composed("data=images", f"data.folder={tmp_path}", *counts))

    def fingerprints() -> list[dict]:
        return [fingerprint_data(config, tmp_path)[0][purpose] for purpose in ("calibration", "verification")]

    before = fingerprints()
    assert before == fingerprints() and [one["samples"] for one in before] == [2, 1]
    calibration = run_sources(config, tmp_path)["calibration"]
    assert [entry["file"] for entry in before[0]["files"]] == [path.name for path in calibration.paths]
    Image.new("RGB", (32, 32), (9, 9, 9)).save(calibration.paths[0])
    after = fingerprints()
    assert after[0] != before[0] and after[1] == before[1]


def test_made_samples_need_no_content() -> None:
    config = validate(composed())
    assert fingerprint_data(config, Path("unused"))[0]["verification"]["samples"] == 500


def test_plugins_are_missed_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "here.so").touch()
    check_plugins(["here.so"], tmp_path)
    with raises("file-missing", "engine.plugins:", "gone.so", "away.so") as caught:
        check_plugins(["gone.so", "here.so", "away.so"], tmp_path)
    assert "here.so" not in str(caught.value)


def test_files_elsewhere_with_the_same_name_are_told_apart(tmp_path: Path) -> None:
    root = tmp_path / "workspace"
    paths = [tmp_path / place for place in ("a/net.py", "b/net.py", "workspace/net.py", "c/lone.py")]
    for path in paths:
        path.parent.mkdir(parents=True)
        path.write_text(str(path))
    found = fingerprint_files(paths, root)
    assert found == {
        "a/net.py": fingerprint(paths[0]),
        "b/net.py": fingerprint(paths[1]),
        "net.py": fingerprint(paths[2]),
        "lone.py": fingerprint(paths[3]),
    }


def test_what_python_compiles_is_no_content(tmp_path: Path) -> None:
    (tmp_path / "pack/__pycache__").mkdir(parents=True)
    for name in ("net.py", "__pycache__/net.pyc"):
        (tmp_path / "pack" / name).write_text("x = 1")
    assert list(fingerprint_files([tmp_path / "pack"], tmp_path)) == ["pack/net.py"]


def test_a_model_is_its_weights_its_code_and_its_settings(tmp_path: Path) -> None:
    for name, content in (("a.onnx", "one"), ("moved/b.onnx", "one"), ("c.onnx", "two")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)

    def sha256(file: str, *overrides: str) -> str:
        config = validated(composed("model=onnx", "data=random", f"model.checkpoint={file}", *overrides))
        return fingerprint_model(config, [tmp_path / file], tmp_path)["sha256"]

    same = [sha256("a.onnx"), sha256("moved/b.onnx"), sha256("a.onnx", "model.name=mine"), sha256("a.onnx", "seed=7")]
    assert len(set(same)) == 1 and len(same[0]) == 12
    others = [sha256("c.onnx"), sha256("a.onnx", "model.image_size=[32,32]"), sha256("a.onnx", "model.classes=[x]")]
    assert len({same[0], *others}) == 4


def test_random_weights_are_another_model_with_another_seed(tmp_path: Path) -> None:
    def sha256(*overrides: str) -> str:
        config = validated(composed("model.checkpoint=null", *overrides))
        return fingerprint_model(config, [], tmp_path)["sha256"]

    assert sha256() != sha256("seed=7") and sha256() != sha256("decoder=rtdetrv2")


def test_samples_are_known_by_what_chooses_them(tmp_path: Path) -> None:
    def verification(*overrides: str) -> object:
        few = ("data.calibration_samples=2", "data.verification_samples=3")
        return fingerprint_data(validate(composed(*few, *overrides)), tmp_path)[0]["verification"]

    assert verification() == verification("verify.batch=5") == verification("model.name=mine")
    changes = [("data.seed=1",), ("data.verification_samples=4",), ("data=random",)]
    assert all(verification(*change) != verification() for change in changes)


def test_a_custom_rule_is_known_by_its_package(tmp_path: Path) -> None:
    (tmp_path / "rules_of_mine").mkdir()
    (tmp_path / "rules_of_mine/keep.py").write_text("def keep(node, ranges): return None\n")
    prints = []
    for reason in ("mine", "ours"):
        (tmp_path / "rules_of_mine/beside.py").write_text(f"WHY = {reason!r}\n")
        prints.append(fingerprint_code("precision.custom_rule", "rules_of_mine.keep:keep", tmp_path))
    assert prints[0]["sha256"] != prints[1]["sha256"]
    assert list(prints[1]["files"]) == ["rules_of_mine/beside.py", "rules_of_mine/keep.py"]
    with raises("function-fails", "precision.custom_rule: 'no.such:rule':", "'no.such'"):
        fingerprint_code("precision.custom_rule", "no.such:rule", tmp_path)
