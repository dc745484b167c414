import xml.etree.ElementTree as ET

import numpy as np
import pytest

from tests.messages import expect
from truehalf.verification.metrics.detections import Detections
from truehalf.verification.page import plots

FACTS = {"nodes": 120, "casts": 10, "float_nodes": 80, "fp16_nodes": 60}


def found(score: float, shift: float = 0.0) -> Detections:
    boxes = np.array([[4, 4, 30, 40], [40, 30, 64, 64]], np.float32) + np.float32(shift)
    return Detections(boxes, np.array([3, 7]), np.full(2, score, np.float32))


def texts(file) -> str:
    return " ".join("".join(node.itertext()) for node in ET.parse(file).iter("{http://www.w3.org/2000/svg}text"))


@pytest.mark.parametrize(
    ("values", "facts"),
    [
        (np.array([1e-5, 1e-4, 3e-3]), ["p50 0.0001", "max 0.003"]),
        (np.array([0.0, 0.0, 0.1]), ["2 of 3", "max 0.1"]),
        (np.zeros(4), [4, 0]),
        (np.array([0.25]), ["p50 0.25"]),
    ],
)
def test_distribution_says_its_numbers(tmp_path, values, facts):
    plots.error_distribution(values, "score error", tmp_path / "plot.svg")
    expect(texts(tmp_path / "plot.svg"), None, "score error", *facts)


def test_a_distribution_of_nothing_says_so_and_has_no_number(tmp_path):
    plots.error_distribution(np.zeros(0), "score error", tmp_path / "plot.svg")
    said = texts(tmp_path / "plot.svg").replace("score error", "").replace("detections", "")
    assert said.strip() and not any(letter.isdigit() for letter in said)


def test_equal_input_gives_equal_files(tmp_path):
    for name in ("a.svg", "b.svg"):
        plots.error_distribution(np.array([1e-3, 2e-3]), "score error", tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_node_counts_name_each_stage_and_its_total(tmp_path):
    plots.node_counts({"slim": FACTS | {"fp16_nodes": 0}, "fp16": FACTS}, tmp_path / "nodes.svg")
    text = texts(tmp_path / "nodes.svg")
    assert all(word in text for word in ("slim", "fp16", "120", "FP16", "Cast"))


def test_picture_shows_all_three_kinds_of_boxes(tmp_path):
    from PIL import Image

    image = np.zeros((3, 64, 64), np.float32)
    names = [str(digit) for digit in range(10)]
    truth = Detections(np.array([[20, 2, 60, 20]], np.float32), np.array([1]), np.ones(1))
    plots.boxes_over_image(image, truth, found(0.9), found(0.8, shift=3), names, tmp_path / "picture.png")
    drawn = np.asarray(Image.open(tmp_path / "picture.png").convert("RGB")).reshape(-1, 3)
    for colour in ("#0072b2", "#e69f00", "#d8d8d8"):
        rgb = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)])
        assert (np.abs(drawn.astype(int) - rgb).max(axis=1) < 12).sum() > 50, colour
