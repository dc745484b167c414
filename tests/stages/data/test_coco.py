"""COCO's annotations: boxes of the right picture and class, or every fault named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from conf.schema import Config
from conf.validate import validate
from stages.data import coco
from stages.data.samples import TRACE_SAMPLES, calibration_samples, trace_samples, verification_samples
from stages.inputs import fingerprint_data
from stages.io import StageError
from tests.conftest import PICTURES, composed

COUNT = TRACE_SAMPLES + 4
SPEC = {"inputs": PICTURES, "class_names": ["bird", "cat", "dog"]}


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


def faults(folder: Path, annotations: Any) -> str:
    config = written(folder, annotations)
    with pytest.raises(StageError) as error:
        coco.drawn(config, folder, "verification", 0, COUNT)
    return str(error.value)


def by_name(config: Config, folder: Path) -> dict[str, Any]:
    return {sample.name: sample for sample in coco.drawn(config, folder, "verification", 0, COUNT)}


def test_boxes_follow_the_picture_into_the_model_and_categories_are_classes_by_name(tmp_path: Path) -> None:
    annotations = content()
    annotations["annotations"][3] |= {"category_id": 18, "bbox": [0, 0, 64, 32]}
    config = written(tmp_path, annotations)
    groups = [trace_samples(config, TRACE_SAMPLES, tmp_path, SPEC)]
    groups += [calibration_samples(config, tmp_path, SPEC), verification_samples(config, tmp_path, SPEC)]
    samples = {sample.name: sample for group in groups for sample in group}
    assert sorted(samples) == sorted(f"{n % 2}/{n}.png" for n in range(COUNT))
    assert samples["0/2.png"].boxes.tolist() == [[20, 16, 60, 48]]  # 64 x 32 stretched to 128 x 128
    assert samples["0/2.png"].labels.tolist() == [1]
    assert (samples["1/3.png"].boxes.tolist(), samples["1/3.png"].labels.tolist()) == ([[0, 0, 128, 128]], [2])


def test_a_class_that_the_model_has_not_is_named_when_a_box_has_it(tmp_path: Path) -> None:
    annotations = content()
    annotations["annotations"][3]["category_id"] = 90
    config = written(tmp_path, annotations)
    with pytest.raises(StageError, match=r"no class named 'unheard of'; its classes are 'bird', 'cat', 'dog'"):
        trace_samples(config, TRACE_SAMPLES, tmp_path, SPEC)


def test_empty_boxes_and_strays_are_no_labels_and_are_reported(tmp_path: Path) -> None:
    annotations = content()
    annotations["annotations"][1]["bbox"] = [5, 5, 0, 9]
    annotations["annotations"][2]["image_id"] = 12345
    annotations["annotations"].append({"image_id": 0, "category_id": 18, "bbox": [1, 2, 3, 4]})
    config = written(tmp_path, annotations)
    found = by_name(config, tmp_path)
    assert found["0/0.png"].boxes.tolist() == [[10, 4, 30, 12], [1, 2, 4, 6]]
    for empty in ("1/1.png", "0/2.png"):
        assert found[empty].boxes.shape == (0, 4) and found[empty].labels.shape == (0,)
    _, left_out = fingerprint_data(config, tmp_path)
    assert left_out == {
        coco.EMPTY: ["annotations[1] of 1/1.png"],
        coco.STRAY: ["annotations[2]"],
    }


def test_crowds_are_marked(tmp_path: Path) -> None:
    annotations = content()
    annotations["annotations"].append({"image_id": 0, "category_id": 18, "bbox": [1, 2, 3, 4], "iscrowd": 1})
    config = written(tmp_path, annotations)
    assert by_name(config, tmp_path)["0/0.png"].crowds.tolist() == [False, True]
    sample = next(s for s in trace_samples(config, TRACE_SAMPLES, tmp_path, SPEC) if s.name != "0/0.png")
    assert sample.crowds is not None and sample.crowds.tolist() == [False]


def test_a_picture_of_another_size_than_annotated_is_refused(tmp_path: Path) -> None:
    config = written(tmp_path, content())
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (64, 32)).save(tmp_path / "pictures/0/4.png", exif=exif)
    drawn = coco.drawn(config, tmp_path, "verification", 0, COUNT)
    with pytest.raises(StageError, match=r"4\.png: annotated as 64 x 32, but the picture is 32 x 64 as it is shown"):
        drawn[drawn.names.index("0/4.png")]


def test_the_same_picture_twice_is_one(tmp_path: Path) -> None:
    config = written(tmp_path, content())
    (tmp_path / "pictures/1/5.png").write_bytes((tmp_path / "pictures/0/4.png").read_bytes())
    with pytest.raises(StageError, match=f"holds {COUNT - 1} different pictures"):
        coco.drawn(config, tmp_path, "verification", 0, COUNT)
    assert "1/5.png" not in coco.drawn(config, tmp_path, "verification", 0, COUNT - 1).names


def test_all_faults_of_the_file_are_listed(tmp_path: Path) -> None:
    annotations = content()
    annotations["images"][1]["file_name"] = "./0/0.png"
    annotations["images"][2]["id"] = 0
    annotations["images"][3]["file_name"] = "../elsewhere.png"
    annotations["categories"].append({"id": 17, "name": "again"})
    annotations["categories"].append({"id": 5})
    annotations["annotations"][0]["bbox"] = [1, 2, 3]
    annotations["annotations"][1]["category_id"] = 4
    del annotations["annotations"][2]["image_id"]
    annotations["annotations"][3]["bbox"] = [1, 2, 3, float("nan")]
    said = faults(tmp_path, annotations)
    for each in (
        "images: file_name '0/0.png' is there 2 times; which annotations are true is not known",
        "images[2]: id 0 is there twice",
        "file_name '../elsewhere.png': expected a path within data.folder",
        "categories[3]: id 17 is there twice",
        "categories[4]: lacks name",
        "annotations[0]: bbox: expected [x, y, width, height] in pixels, got [1, 2, 3]",
        "annotations[1]: category_id 4 is no id of categories",
        "annotations[2]: expected image_id, category_id and bbox",
        "annotations[3]: bbox",
    ):
        assert each in said, said


def test_ids_that_are_no_ids_and_crowds_that_are_none(tmp_path: Path) -> None:
    annotations = content()
    annotations["images"][1]["id"] = [1]
    annotations["images"][2]["id"] = True
    annotations["categories"].append({"id": {"a": 1}, "name": "deep"})
    annotations["annotations"][3]["image_id"] = [1]
    annotations["annotations"][4]["category_id"] = {}
    annotations["annotations"][5]["image_id"] = None
    annotations["annotations"][6]["iscrowd"] = "0"
    annotations["annotations"][7]["iscrowd"] = 2
    annotations["annotations"][8]["iscrowd"] = None
    said = faults(tmp_path, annotations)
    for each in (
        "images[1]: id: expected an integer or text, got [1]",
        "images[2]: id: expected an integer or text, got True",
        "categories[3]: id: expected an integer or text, got {'a': 1}",
        "annotations[3]: image_id: expected an integer or text, got [1]",
        "annotations[4]: category_id: expected an integer or text, got {}",
        "annotations[5]: image_id: expected an integer or text, got None",
        "annotations[6]: iscrowd: expected 0, 1, true or false, got '0'",
        "annotations[7]: iscrowd: expected 0, 1, true or false, got 2",
        "annotations[8]: iscrowd: expected 0, 1, true or false, got None",
    ):
        assert each in said, said


def test_text_is_an_id_and_a_truth_value_a_crowd(tmp_path: Path) -> None:
    annotations = content()
    annotations["images"][0]["id"] = "first"
    annotations["annotations"][0] |= {"image_id": "first", "iscrowd": True}
    annotations["annotations"][1]["iscrowd"] = False
    del annotations["annotations"][2]["iscrowd"]
    found = by_name(written(tmp_path, annotations), tmp_path)
    assert [found[name].crowds.tolist() for name in ("0/0.png", "1/1.png", "0/2.png")] == [[True], [False], [False]]


def test_files_that_are_no_annotations_and_pictures_that_are_missing(tmp_path: Path) -> None:
    assert "boxes.json lacks annotations, categories; expected COCO's JSON" in faults(tmp_path, {"images": []})
    assert "lacks images, annotations, categories" in faults(tmp_path, [1])
    config = written(tmp_path, content())
    (tmp_path / "pictures/1/5.png").unlink()
    with pytest.raises(StageError, match=rf"lacks 1 of {COUNT} annotated pictures: 1/5\.png"):
        coco.drawn(config, tmp_path, "trace", 0, 1)
    (tmp_path / "boxes.json").write_text("{")
    with pytest.raises(StageError, match=r"boxes\.json is no JSON"):
        coco.drawn(config, tmp_path, "trace", 0, 1)
    (tmp_path / "boxes.json").unlink()
    with pytest.raises(StageError, match=r"boxes\.json: expected COCO's JSON with the boxes, but .*No such file"):
        coco.drawn(config, tmp_path, "trace", 0, 1)


def test_changed_boxes_change_the_fingerprint_of_verification_alone(tmp_path: Path) -> None:
    annotations = content()
    before, _ = fingerprint_data(written(tmp_path, annotations), tmp_path)
    annotations["annotations"][0]["bbox"] = [1, 2, 3, 4]
    after, _ = fingerprint_data(written(tmp_path, annotations), tmp_path)
    assert before["calibration"] == after["calibration"] and before["trace"] == after["trace"]
    assert before["verification"]["annotations"]["sha256"] != after["verification"]["annotations"]["sha256"]
    files = {entry["file"] for each in after.values() for entry in each["files"]}
    assert files == {f"{n % 2}/{n}.png" for n in range(COUNT)}, "by their place in the folder"


def test_what_is_drawn_streams_from_the_files(tmp_path: Path) -> None:
    drawn = coco.drawn(written(tmp_path, content()), tmp_path, "trace", 0, 2)
    pixels = np.asarray(drawn[0].image)
    assert pixels.shape == (32, 64, 3) and drawn.paths[0].name == Path(drawn.names[0]).name
