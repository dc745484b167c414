"""Digit scenes: the same everywhere, exact boxes, handwriting split by sample."""

import hashlib

import numpy as np
import pytest

from examples.digits.scenes import _handwriting, scene
from tests.messages import raises

SCENES = "9f85158ed9605b9804321fee33c24b851f6810c3d0da35b49aaf86ac940ecb68"  # of the boxes and labels of five scenes


def test_a_scene_is_a_function_of_seed_split_and_index() -> None:
    a, b = scene(3, "val", seed=5), scene(3, "val", seed=5)
    assert np.array_equal(a.image, b.image) and np.array_equal(a.boxes, b.boxes) and np.array_equal(a.labels, b.labels)
    for other in (scene(4, "val", seed=5), scene(3, "train", seed=5), scene(3, "val", seed=6)):
        assert not np.array_equal(a.image, other.image)


def test_the_scenes_the_weights_were_trained_on_have_not_changed() -> None:
    digest = hashlib.sha256()
    for index in range(5):
        made = scene(index, "val")
        digest.update(made.boxes.tobytes() + made.labels.tobytes())
    assert digest.hexdigest() == SCENES, "the generator changed: train again, or undo"


def test_boxes_lie_in_the_picture_and_touch_no_other() -> None:
    for index in range(40):
        made = scene(index, "val")
        assert made.image.shape == (128, 128, 3) and made.image.dtype == np.uint8
        assert made.boxes.shape == (len(made.labels), 4) and set(made.labels) <= set(range(10))
        assert ((made.boxes >= 0) & (made.boxes <= 128)).all()
        for i, (x0, y0, x1, y1) in enumerate(made.boxes):
            assert x1 - x0 >= 4 and y1 - y0 >= 4
            for a0, b0, a1, b1 in made.boxes[i + 1 :]:
                assert x1 <= a0 or a1 <= x0 or y1 <= b0 or b1 <= y0


def test_no_handwriting_is_in_both_splits() -> None:
    train, val = ({image.tobytes() for image in _handwriting(split)[0]} for split in ("train", "val"))
    assert len(train) > 1400 and len(val) > 350 and not train & val


def test_larger_scenes_scale() -> None:
    made = scene(1, "train", size=640)
    assert made.image.shape == (640, 640, 3)


@pytest.mark.parametrize("arguments", [(0, "test", 128), (-1, "val", 128), (0, "val", 16)])
def test_wrong_arguments_are_refused(arguments: tuple[int, str, int]) -> None:
    with raises(None, "scene", error=ValueError):
        scene(*arguments)
