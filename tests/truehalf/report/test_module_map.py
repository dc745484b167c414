"""The map: area is arithmetic, what has FP32 nodes is seen and leads to them; stretches of the graph by stage."""

import math
from xml.etree import ElementTree

import pytest

from truehalf.report.fp32_nodes import kept_in_fp32
from truehalf.report.module_map import FAULT, SHADES, module_map, modules, shade, stages, trunk


def node(name: str, scope: str, flops: float, precision: str = "fp16", op: str = "MatMul", reads=()) -> dict:
    kind = {"fp16": "FP16", "fp32": "FP32"}.get(precision, "INT64")
    return {"node": name, "op": op, "scope": scope, "precision": precision} | {
        "flops": flops,
        "writes": kind,
        "reads": list(reads),
    }


NODES = [
    node("/b/0", "net.model.backbone.0", 600.0),
    node("/b/1", "net.model.backbone.1", 200.0),
    node("/e/0", "net.model.encoder.attn", 190.0),
    node("/cast", "net.model.decoder.attn", 0.0, "fp32", "Cast"),
    node("/d/s", "net.model.decoder.attn", 0.0, "fp32", "Softmax"),
    node("/d/m", "net.model.decoder.head", 10.0),
]
ERRORS = {"/b/0": 2e-6, "/b/1": 2e-4, "/e/0": math.inf, "/d/s": 0.0}


def cells(links=None, depth=6, nodes=NODES, width=1000):
    drawn = ElementTree.fromstring(module_map(modules(nodes, ERRORS), width, depth, links or {}))
    found = {}
    for group in drawn:
        title, box = group.find("title").text.partition(":")[0], group.find("rect")
        found[title] = (group, float(box.get("width")), box.get("fill"))
    return found


def test_the_map_begins_where_the_network_parts() -> None:
    assert trunk(modules(NODES, {})).scope == "net.model"
    assert list(trunk(modules(NODES, {})).inner) == ["backbone", "encoder", "decoder"]


def test_width_is_arithmetic_and_fp32_is_seen() -> None:
    found = cells()
    wide = {name.removeprefix("net.model."): width for name, (_, width, _) in found.items()}
    assert wide["backbone.0"] == pytest.approx(3 * wide["backbone.1"], rel=0.02)
    assert wide["backbone"] == pytest.approx(wide["backbone.0"] + wide["backbone.1"], rel=0.02)
    assert wide["decoder.attn"] > 7, "it has no arithmetic"


def test_colour_is_precision_shade_is_error_and_red_is_not_finite() -> None:
    found = {name.removeprefix("net.model."): fill for name, (_, _, fill) in cells().items()}
    assert found["backbone.0"] == SHADES["fp16"][0] and found["backbone.1"] == SHADES["fp16"][2]
    assert found["encoder.attn"] == FAULT and found["encoder"] == SHADES["fp16"][4]
    assert found["decoder.attn"] == SHADES["fp32"][0]


def test_casts_are_no_nodes_that_stay_fp32() -> None:
    decoder = modules(NODES, {}).inner["net"].inner["model"].inner["decoder"]
    assert (decoder.fp16, decoder.fp32) == (1, 1)


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_rows_are_no_more_than_asked_for(depth: int) -> None:
    assert {name.count(".") - 1 for name in cells(depth=depth)} == set(range(depth + 1))


def test_a_module_leads_to_its_fp32_nodes_and_one_around_it_to_the_first_inside() -> None:
    rows = [{"node": "/d/s", "op": "Softmax", "scope": "net.model.decoder.attn", "precision": "fp32"}]
    rows = [rows[0] | {"rule": "op_block_list", "reason": "listed"}]
    shown = kept_in_fp32(rows, NODES, ERRORS)
    (module,) = shown["modules"]
    drawn = ElementTree.fromstring(shown["map"]["wide"])
    links = {link.get("aria-label").partition(":")[0]: link.get("href") for link in drawn if link.tag == "a"}
    assert links == dict.fromkeys(("net.model", "net.model.decoder", "net.model.decoder.attn"), f"#{module['id']}")
    assert len(module["drawings"]) == 1


def test_a_shade_is_darker_for_a_larger_error() -> None:
    steps = [shade(error) for error in (0.0, 3e-5, 3e-4, 3e-3, 3e-2, math.inf)]
    assert steps == sorted(steps) and steps[0] == 0 and steps[-1] == 4


def test_stages_are_stretches_of_the_graph() -> None:
    nodes = [node(f"/{i}", scope, 1.0) for i, scope in enumerate(["n.a.x"] * 10 + ["n.b"] * 10 + ["n.a"] + ["n.b"] * 9)]
    assert stages(modules(nodes, {}), nodes) == [("a", 0, 9), ("b", 10, 29)]


def test_a_network_without_modules_has_a_map_of_one_cell_and_no_stages() -> None:
    nodes = [node(f"/{i}", "", 1.0) for i in range(5)]
    assert list(cells(nodes=nodes)) == ["the whole network"] and stages(modules(nodes, {}), nodes) == []
