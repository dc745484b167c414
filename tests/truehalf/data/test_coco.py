"""COCO's annotations: boxes of the right picture and class, or every fault named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.configurations import composed
from tests.conftest import PICTURES
from tests.messages import expect, raises
from truehalf.config.schema import Config
from truehalf.config.validate import validate
from truehalf.data import images
from truehalf.data.run_samples import (
    TRACE_SAMPLES,
    run_samples,
    run_sources,
)
from truehalf.data.samples import without_copies
from truehalf.io_spec.spec import IoSpec
from truehalf.provenance.fingerprints import fingerprint_data

COUNT = TRACE_SAMPLES + 4
SPEC = IoSpec.from_json({"inputs": PICTURES, "class_names": ["bird", "cat", "dog"]})


def content() -> dict[str, list[dict[str, Any]]]:
    """COUNT pictures of 64 x 32, each with a cat in the same place; ids as COCO has them, from 1 and with gaps."""
    return {
        "images": [{"id": 7 * n, "file_name": f"{n % 2}/{n}.png", "width": 64, "height": 32} for n in range(COUNT)],
        "annotations": [
            {"id": n, "image_id": 7 * n, "category_id": 17, "bbox": [10, 4, 20, 8], "iscrowd": 0} for n in range(COUNT)
        ],
        "categories": [{"id": 18, "name": "dog"}, {"id": 17, "name": "cat"}, {"id": 90, "name": "unheard of"}],
    }


def written(folder: Path, annotations: Any) -> Config:
    for n in range(COUNT):
        path = folder / f"pictures/{n % 2}/{n}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (64, 32), (n, 0, 0)).save(path)
    (folder / "boxes.json").write_text(json.dumps(annotations))
    overrides = ["data=coco", "data.folder=pictures", "data.annotations=boxes.json"]
    return validate(composed(*overrides, "data.calibration_samples=2", "data.verification_samples=2"))


def faults(folder: Path, annotations: Any) -> list[str]:
    """The lines of the message; the first names the file."""
    written(folder, annotations)
    with raises(None, "data.annotations", folder / "boxes.json") as error:
        images.coco(folder / "boxes.json", folder / "pictures")
    return [line.removeprefix("  - ") for line in str(error.value).splitlines()]


def by_name(folder: Path) -> dict[str, Any]:
    source = images.coco(folder / "boxes.json", folder / "pictures")
    return {name: source.load(position) for position, name in enumerate(source.names)}


def test_boxes_follow_the_picture_into_the_model_and_categories_are_classes_by_name(tmp_path: Path) -> None:
    annotations = content()
    annotations["annotations"][3] |= {"category_id": 18, "bbox": [0, 0, 64, 32]}
    config = written(tmp_path, annotations)
    groups = [run_samples("trace", config, tmp_path, SPEC)]
    groups += [run_samples("calibration", config, tmp_path, SPEC), run_samples("verification", config, tmp_path, SPEC)]
    samples = {sample.name: sample for group in groups for sample in group}
    assert sorted(samples) == sorted(f"{n % 2}/{n}.png" for n in range(COUNT))
    assert samples["0/2.png"].boxes.tolist() == [[20, 16, 60, 48]]  # 64 x 32 stretched to 128 x 128
    assert samples["0/2.png"].labels.tolist() == [1]
    assert (samples["1/3.png"].boxes.tolist(), samples["1/3.png"].labels.tolist()) == ([[0, 0, 128, 128]], [2])


def test_a_class_that_the_model_has_not_is_named_when_a_box_has_it(tmp_path: Path) -> None:
    annotations = content()
    annotations["annotations"][3]["category_id"] = 90
    config = written(tmp_path, annotations)
    with raises("wrong-name", "'unheard of'", "'bird', 'cat', 'dog'", "model.classes"):
        run_samples("trace", config, tmp_path, SPEC)


def test_empty_boxes_and_strays_are_no_labels_and_are_reported(tmp_path: Path) -> None:
    annotations = content()
    annotations["annotations"][1]["bbox"] = [5, 5, 0, 9]
    annotations["annotations"][2]["image_id"] = 12345
    annotations["annotations"].append({"id": 99, "image_id": 0, "category_id": 18, "bbox": [1, 2, 3, 4]})
    config = written(tmp_path, annotations)
    found = by_name(tmp_path)
    assert found["0/0.png"].boxes.tolist() == [[10, 4, 30, 12], [1, 2, 4, 6]]
    for empty in ("1/1.png", "0/2.png"):
        assert found[empty].boxes.shape == (0, 4) and found[empty].labels.shape == (0,)
    _, left_out = fingerprint_data(config, tmp_path)
    assert left_out == {
        images.EMPTY: ["annotation 1"],
        images.STRAY: ["annotation 2"],
    }


def test_crowds_are_marked(tmp_path: Path) -> None:
    annotations = content()
    annotations["annotations"].append({"id": 99, "image_id": 0, "category_id": 18, "bbox": [1, 2, 3, 4], "iscrowd": 1})
    config = written(tmp_path, annotations)
    assert by_name(tmp_path)["0/0.png"].crowds.tolist() == [False, True]
    sample = next(s for s in run_samples("trace", config, tmp_path, SPEC) if s.name != "0/0.png")
    assert sample.crowds is not None and sample.crowds.tolist() == [False]


def test_a_picture_of_another_size_than_annotated_is_refused(tmp_path: Path) -> None:
    written(tmp_path, content())
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (64, 32)).save(tmp_path / "pictures/0/4.png", exif=exif)
    source = images.coco(tmp_path / "boxes.json", tmp_path / "pictures")
    with raises("wrong-file", tmp_path / "pictures/0/4.png", "64 x 32", "32 x 64", "EXIF"):
        source.load(source.names.index("0/4.png"))


def test_the_same_picture_twice_is_one(tmp_path: Path) -> None:
    written(tmp_path, content())
    (tmp_path / "pictures/1/5.png").write_bytes((tmp_path / "pictures/0/4.png").read_bytes())
    names = without_copies(images.coco(tmp_path / "boxes.json", tmp_path / "pictures")).names
    assert len(names) == COUNT - 1 and "1/5.png" not in names


def test_all_faults_of_the_file_are_listed(tmp_path: Path) -> None:
    annotations = content()
    annotations["images"][1]["file_name"] = "./0/0.png"
    annotations["images"][3]["file_name"] = "../elsewhere.png"
    annotations["categories"].append({"id": 17, "name": "again"})
    annotations["annotations"][0]["bbox"] = [1, 2, 3]
    annotations["annotations"][1]["category_id"] = 4
    annotations["annotations"][3]["bbox"] = [1, 2, 3, float("nan")]
    first, *listed = faults(tmp_path, annotations)
    expect(first, "file-unreadable")
    expected: list[tuple[str, list[object]]] = [
        ("given-twice", ["categories: id", 17]),
        ("wrong-name", ["images:", "file_name '../elsewhere.png'", "data.folder"]),
        ("given-twice", ["images: file_name", "'0/0.png'", 2]),
        ("wrong-type", ["annotations[0]:", "bbox:", "[x, y, width, height]", "[1, 2, 3]"]),
        ("wrong-name", ["annotations[1]:", "category_id 4", "categories"]),
        ("wrong-type", ["annotations[3]:", "bbox:", "[1, 2, 3, nan]"]),
    ]
    assert len(listed) == len(expected), listed
    for code, facts in expected:
        (line,) = [line for line in listed if line.startswith(str(facts[0])) and str(facts[1]) in line]
        expect(line, code, *facts)


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        ("images", "id", [1]),
        ("images", "file_name", ...),
        ("categories", "id", {}),
        ("categories", "name", ...),
        ("annotations", "image_id", ...),
        ("annotations", "category_id", {}),
    ],
)
def test_an_entry_without_what_coco_says_is_one_sentence(tmp_path: Path, kind: str, key: str, value: Any) -> None:
    annotations = content()
    if value is ...:
        del annotations[kind][3 % len(annotations[kind])][key]
    else:
        annotations[kind][3 % len(annotations[kind])][key] = value
    expect(faults(tmp_path, annotations)[0], "file-unreadable")


def test_files_that_are_no_annotations_and_pictures_that_are_missing(tmp_path: Path) -> None:
    (message,) = faults(tmp_path, {"images": []})
    expect(message, "file-unreadable", "annotations")
    (message,) = faults(tmp_path, [1])
    expect(message, "file-unreadable", "images", "annotations", "categories")
    twice = content()
    twice["images"][2]["id"] = 0
    _, message = faults(tmp_path, twice)
    expect(message, "given-twice", "images: id 0")
    config = written(tmp_path, content())
    (tmp_path / "pictures/1/5.png").unlink()
    with raises("file-missing", "data.folder", tmp_path / "pictures", f"1 of {COUNT}", "1/5.png", "data.annotations"):
        run_sources(config, tmp_path)
    (tmp_path / "boxes.json").write_text("{")
    with raises("file-unreadable", "data.annotations", tmp_path / "boxes.json", "JSON"):
        run_sources(config, tmp_path)
    (tmp_path / "boxes.json").unlink()
    with raises("file-missing", "data.annotations", tmp_path / "boxes.json", "JSON"):
        run_sources(config, tmp_path)


def test_changed_boxes_change_the_fingerprint_of_verification_alone(tmp_path: Path) -> None:
    annotations = content()
    before, _ = fingerprint_data(written(tmp_path, annotations), tmp_path)
    annotations["annotations"][0]["bbox"] = [1, 2, 3, 4]
    after, _ = fingerprint_data(written(tmp_path, annotations), tmp_path)
    assert before["calibration"] == after["calibration"] and before["trace"] == after["trace"]
    assert before["verification"]["annotations"]["sha256"] != after["verification"]["annotations"]["sha256"]
    files = {entry["file"] for each in after.values() for entry in each["files"]}
    assert files == {f"{n % 2}/{n}.png" for n in range(COUNT)}, "by their place in the folder"
