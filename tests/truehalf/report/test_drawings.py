"""Inline SVG: every number has its place, nothing breaks on what is not finite or not there."""

import math
import re
from xml.etree import ElementTree

import pytest

from truehalf.report.drawings import error_chart

ROWS = [
    {"node": "/a<b>", "op_type": "MatMul", "precision": "fp16", "local_error": 1e-3, "error": 1e-3},
    {"node": "/c", "op_type": "Softmax", "precision": "fp32", "local_error": 1e-7, "error": 2e-3},
    {"node": "/d", "op_type": "Reshape", "precision": "fp16", "local_error": 0.0, "error": 2e-3},
    {"node": "/e", "op_type": "Mul", "precision": "fp16", "local_error": math.inf, "error": math.inf},
]


def drawn(rows=ROWS, worst=(3, 0), width=1080, titles=True):
    return ElementTree.fromstring(error_chart(rows, worst, (width, 380), (), titles))


def texts(svg) -> list[str]:
    return [node.text or "" for node in svg.iter() if node.tag == "text"]


@pytest.mark.parametrize("width", [400, 1080])
def test_points_tell_precision_by_form_and_say_their_node(width: int) -> None:
    svg = drawn(width=width)
    points = {title.text: node.tag for node in svg.iter() for title in node if title.tag == "title"}
    assert points == {
        "/a<b> (MatMul, fp16): 0.001": "circle",
        "/c (Softmax, fp32): 1e-07": "rect",
        "/e (Mul, fp16): not finite": "path",
    }
    numbers = [text for text in texts(svg) if re.fullmatch(r"\d+", text)]
    assert {"1", "2"} <= set(numbers), "the worst are numbered"
    xs = [float(node.get("cx")) for node in svg.iter() if node.tag == "circle"]
    assert all(0 <= x <= width for x in xs)


def test_a_smaller_error_stands_lower() -> None:
    svg = drawn()
    circle = next(node for node in svg.iter() if node.tag == "circle")
    square = next(node for node in svg.iter() if node.tag == "rect")
    assert float(circle.get("cy")) < float(square.get("y"))


@pytest.mark.parametrize("rows", [ROWS[2:3], ROWS[3:], ROWS[:1], ROWS * 300])
def test_any_profile_can_be_drawn(rows) -> None:
    svg = drawn(rows, worst=[0] if rows[0]["local_error"] else [])
    assert "nan" not in ElementTree.tostring(svg, encoding="unicode").replace("finite", "")


def test_a_run_that_is_not_finite_hides_no_error_of_a_node() -> None:
    rows = [row | {"error": math.inf} for row in ROWS]
    svg = drawn(rows)
    assert [node.tag for node in svg.iter() if any(part.tag == "title" for part in node)] == ["circle", "rect", "path"]
    ticks = [node for node in svg.iter() if node.tag == "path" and not len(node)]
    assert len(ticks) == 4 and not [node for node in svg.iter() if node.tag == "polyline"]


@pytest.mark.parametrize("broken", [(2,), (0, 3), (1, 2, 4), range(6), ()])
def test_the_line_has_a_gap_where_values_are_not_finite(broken) -> None:
    rows = [ROWS[0] | {"error": math.inf if i in broken else 1e-3} for i in range(6)]
    lines = [node.get("points").split() for node in drawn(rows).iter() if node.tag == "polyline"]
    stretches = "".join(" " if i in broken else "x" for i in range(6)).split()
    assert [len(line) for line in lines] == [len(stretch) for stretch in stretches]


def test_stages_of_the_network_are_bands_with_their_names() -> None:
    svg = ElementTree.fromstring(error_chart(ROWS * 20, [], (1080, 380), [("backbone", 0, 39), ("head", 41, 79)]))
    assert {"backbone", "head"} <= set(texts(svg))
    names = {node[0].text: float(node.get("x")) for node in svg.iter() if node.tag == "rect" and len(node)}
    assert names["backbone"] < names["head"]


def test_without_titles_no_node_is_named() -> None:
    assert "MatMul" not in error_chart(ROWS, [0], (400, 320), titles=False)
