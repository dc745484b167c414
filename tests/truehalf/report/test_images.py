"""Pictures side by side: every kind of box is on its side in its own colour, labels do not overlap, what one side alone
has is marked, and equal input gives equal text.
"""

import base64
import io
import re
from xml.etree import ElementTree

import numpy as np
import pytest

from truehalf.report.images import ALONE, BLUE, ORANGE, TRUTH, side_by_side

BLACK = np.zeros((3, 64, 48), np.float32)
BOXES = {
    "truth": [((20, 2, 40, 20), "1", None)],
    "reference": [((4, 4, 30, 40), "3", 0.9), ((30, 30, 48, 64), "7", 0.9)],
    "candidate": [((5, 5, 31, 41), "3", 0.8), ((40, -9, 20, 20), "7", 0.8)],
}


def sides(boxes=BOXES, image=BLACK):
    svg = ElementTree.fromstring(side_by_side(image, boxes, "s/1"))
    return [part for part in svg if part.tag == "g"]


def colours(side) -> list[str]:
    return [node.get("stroke") for node in side.iter() if node.tag == "rect" and node.get("fill") == "none"]


def test_each_side_has_the_true_boxes_and_its_own() -> None:
    left, right = sides()
    assert [colour for colour in colours(left) if colour != "#fff"] == [TRUTH, BLUE, ALONE]
    assert [colour for colour in colours(right) if colour != "#fff"] == [TRUTH, ORANGE, ALONE]
    assert [node.text for node in left.iter() if node.tag == "text"] == ["3 0.90", "7 0.90"]
    assert [node.text for node in right.iter() if node.tag == "text"] == ["3 0.80", "7 0.80"]


@pytest.mark.parametrize(("width", "kind"), [(32, "png"), (256, "png"), (257, "jpeg"), (1200, "jpeg")])
def test_the_image_is_inside_once_and_no_larger_than_it_is_shown(width: int, kind: str) -> None:
    from PIL import Image

    text = side_by_side(np.full((3, 40, width), 0.5, np.float32), {}, "s")
    ((found, data),) = re.findall(r"data:image/(\w+);base64,([^\"]+)", text)
    assert found == kind and text.count("<use ") == 2
    inside = Image.open(io.BytesIO(base64.b64decode(data)))
    assert inside.width == min(width, 500) and abs(np.asarray(inside).astype(int) - 128).max() <= 1


def test_no_label_lies_over_another_or_outside() -> None:
    crowd = [((10 + i, 12 + i, 40, 50), str(i), 0.5) for i in range(5)]
    left, _ = sides({"reference": crowd})
    labels = [node for node in left.iter() if node.tag == "rect" and node.get("fill") != "none"]
    boxes = [tuple(float(label.get(key)) for key in ("x", "y", "width", "height")) for label in labels]
    assert len(boxes) == 5 and all(x >= 0 and y >= 0 and x + w <= 250 for x, y, w, _ in boxes)
    for i, (x, y, w, h) in enumerate(boxes):
        for a, b, c, _ in boxes[:i]:
            assert abs(y - b) >= h or x >= a + c or a >= x + w


def test_a_picture_of_another_sample_has_another_address() -> None:
    addresses = {re.findall(r'image id="([^"]+)"', side_by_side(BLACK, {}, name))[0] for name in ("a/1", "a-1", "b")}
    assert len(addresses) == 3


def test_equal_input_gives_equal_text() -> None:
    assert side_by_side(BLACK, BOXES, "s") == side_by_side(BLACK, BOXES, "s")
