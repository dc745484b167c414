"""Islands and drawings of their neighbourhood: what is inside, what is beside it, and the types between."""

from xml.etree import ElementTree

import pytest

from tests.truehalf.report.test_module_map import node
from truehalf.report.graph import islands
from truehalf.report.neighbourhood import neighbourhood

NODES = [
    node("/a", "", 1.0),
    node("/in", "", 0.0, "fp32", "Cast", [(0, "FP16")]),
    node("/s", "", 1.0, "fp32", "Softmax", [(1, "FP32")]),
    node("/m", "", 1.0, "fp32", "Mul", [(2, "FP32"), (-1, "FP32")]),
    node("/out", "", 0.0, "fp16", "Cast", [(3, "FP32")]),
    node("/b", "", 1.0, "fp16", "MatMul", [(4, "FP16"), (0, "FP16")]),
    node("/far", "", 1.0, "fp16", "Relu", [(5, "FP16")]),
    node("/t", "", 1.0, "fp32", "Tanh", [(5, "FP16")]),
]


def drawn(middle, marked=(), nodes=NODES):
    svg = ElementTree.fromstring(neighbourhood(nodes, middle, marked))
    return {group.find("title").text: group for group in svg if group.tag == "g"}, svg


def test_islands_are_connected_by_fp32_tensors() -> None:
    assert islands(NODES) == [[2, 3], [7]]


def test_a_file_without_fp16_has_no_islands() -> None:
    assert islands([node("/a", "", 1.0, "fp32"), node("/b", "", 1.0, "fp32", reads=[(0, "FP32")])]) == []


def test_an_island_has_its_casts_and_what_is_behind_them() -> None:
    boxes, svg = drawn([2, 3])
    assert set(boxes) == {"/a", "/in", "/s", "/m", "/out", "/b"}
    dashed = {name for name, group in boxes.items() if group.find("rect").get("stroke-dasharray")}
    assert dashed == {"/a", "/in", "/out", "/b"}
    assert sorted(text.text for text in svg if text.tag == "text") == ["FP16", "FP16", "FP32", "FP32", "FP32"]


def test_what_is_read_stands_above() -> None:
    boxes, _ = drawn([2, 3])
    height = {name: float(group.find("rect").get("y")) for name, group in boxes.items()}
    assert height["/a"] < height["/in"] < height["/s"] < height["/m"] < height["/out"] < height["/b"]


def test_a_suspect_is_marked() -> None:
    boxes, _ = drawn([5], [5])
    marked = [name for name, group in boxes.items() if group.find("rect").get("stroke-width") == "3"]
    assert marked == ["/b"]


@pytest.mark.parametrize("count", [1, 7, 60, 400])
def test_many_neighbours_and_large_islands_stay_small(count: int) -> None:
    chain = [node("/0", "", 1.0, "fp32")]
    chain += [node(f"/{i}", "", 1.0, "fp32", reads=[(i - 1, "FP32")]) for i in range(1, count)]
    chain += [node(f"/r{i}", "", 1.0, reads=[(0, "FP32")]) for i in range(count)]
    boxes, _ = drawn(range(count), nodes=chain)
    assert 1 <= len(boxes) <= 48
