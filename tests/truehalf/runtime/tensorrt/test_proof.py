"""Whether an engine has the declared precision: shown, not shown, or shown to be another."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.messages import expect
from tests.truehalf.conftest import typed
from truehalf.runtime.tensorrt.proof import NO_LAYERS, layer_facts, precision_doubt, precision_problem
from truehalf.runtime.tensorrt.versions import version_of


def layer(nodes: str, read: str, wrote: str, **more: Any) -> dict[str, Any]:
    """A layer that computes some ONNX nodes ("a b c"), reads one type and writes another."""
    tensors = {"Inputs": [{"Format/Datatype": read}], "Outputs": [{"Format/Datatype": wrote}]}
    metadata = "\x1e".join(f"[ONNX Layer: {node}]" for node in nodes.split())
    return {"Name": nodes.replace(" ", "+"), "LayerType": "kgen", "Metadata": metadata, **tensors, **more}


def verdict(layers: list[dict[str, Any]], graph: dict[str, Any], declared: str = "fp16") -> tuple[str | None, ...]:
    facts = NO_LAYERS | layer_facts(layers, version_of("11.4").inspector_dtype)
    return precision_problem(facts, declared, graph), precision_doubt(facts, declared, graph)


def share(fp16_nodes: int, *names: str) -> dict[str, Any]:
    return {"float_nodes": 100, "fp16_nodes": fp16_nodes, "fp16_node_names": [*names]}


def numbers(said: str) -> list[str]:
    """The numbers of a verdict, in their order; those of names (FP16, /n3) are none."""
    return re.findall(r"(?<![\w./])\d+(?:\.\d+)?\b%?", said)


@pytest.mark.parametrize(
    ("declared", "half", "floats", "fp16_nodes", "fault", "doubt"),
    [
        ("fp16", 3, 1, 100, None, None),
        ("fp16", 0, 4, 100, ["fp16", 4, "Half"], None),
        ("fp16", 1, 999, 90, None, ["0.1%", "90.0%", "Half"]),
        ("fp16", 1, 3, 25, None, None),  # a file with many pins
        ("fp16", 1, 3, 60, None, ["25.0%", "60.0%", "Half"]),
        ("fp32", 0, 4, 0, None, None),
        ("fp32", 2, 2, 0, ["fp32", 2, 4, "Half"], None),
    ],
)
def test_without_names_of_nodes_the_shares_of_layers_and_nodes_are_compared(
    declared: str, half: int, floats: int, fp16_nodes: int, fault: list[object] | None, doubt: list[object] | None
) -> None:
    """Fusion is unequal, so that a small share decides nothing; no Half at all does."""
    for graph in (share(fp16_nodes), share(fp16_nodes, "/a", "/b")):
        given = verdict([*typed("Half", half), *typed("Float", floats)], graph, declared)
        for said, expected in zip(given, (fault, doubt), strict=True):
            assert (said is None) == (expected is None)
            expect(str(said), None, *expected or ())


def test_layers_that_fuse_much_do_not_make_an_engine_another() -> None:
    """70 of 100 nodes are FP16; TensorRT fuses them into 20 layers, and the 30 others into none."""
    halves = [layer(" ".join(f"/h{i}_{j}" for j in range(7)), "Half", "Half") for i in range(10)]
    floats = [layer(f"/f{i}", "Float", "Float") for i in range(30)]
    graph = share(70, *(f"/h{i}_{j}" for i in range(10) for j in range(7)))
    assert verdict(halves + floats, graph) == (None, None)


def test_fp16_nodes_in_layers_without_half_are_counted_and_named() -> None:
    graph = share(9, *(f"/n{i}" for i in range(9)))
    layers = [layer(f"/n{i}", "Float", "Float") for i in range(9)]
    fault, doubt = verdict(layers, graph)
    assert fault and doubt is None
    expect(fault, None, "fp16", 9, "67%", "/n0, /n1, /n2, /n3, /n4")
    assert "/n5" not in fault
    for i in range(3):
        layers[i] = layer(f"/n{i}", "Half", "Float")  # reads Half and puts out the graph's float
    fault, doubt = verdict(layers, graph)
    assert fault is None, "two thirds are the bound"
    assert doubt and numbers(doubt) == ["9", "3", "6", "0", "50%"], "seen, kept, lost, unknown"
    layers[3:5] = [layer("/n3 /n4", "Float", "Half")]
    assert verdict(layers, graph) == (None, None)


def test_a_node_in_several_layers_is_kept_where_one_of_them_has_half() -> None:
    layers = [layer("/a", "Float", "Float"), layer("/a", "Half", "Float"), layer("/b", "Half", "Half")]
    assert verdict(layers, share(2, "/a", "/b")) == (None, None)
    nodes = [f"/n{i}" for i in range(9)]
    layers = [layer(one, "Float", "Float") for one in nodes] + [layer(one, "Half", "Float") for one in nodes[:3]]
    fault, doubt = verdict(layers, share(9, *nodes))
    assert fault is None and doubt and numbers(doubt) == ["9", "3", "6", "0", "50%"]


@pytest.mark.parametrize(
    "hiding",
    [
        layer("/a /b /c", "Float", "Float", Name="{ForeignNode[/a.../c]}", LayerType="Myelin"),
        layer("/in/Cast /a /b /c /out/Cast", "Float", "Float", Name="__myl_CastMulAddReluCast_myl0_1"),
        layer("/a /b /c", "N/A due to dynamic shapes", "Float"),
    ],
)
def test_a_layer_that_shows_nothing_of_its_inside_is_no_fault_and_no_proof(hiding: dict[str, Any]) -> None:
    fault, doubt = verdict([hiding], share(3, "/a", "/b", "/c"))
    assert fault is None
    assert doubt and numbers(doubt) == ["3", "0", "0", "3", "50%"]
    graph = share(9, "/a", "/b", "/c", *(f"/n{i}" for i in range(6)))
    assert verdict([hiding, *(layer(f"/n{i}", "Half", "Half") for i in range(6))], graph) == (None, None)


def test_a_few_nodes_that_are_told_stand_for_no_others() -> None:
    nodes = [f"/n{i}" for i in range(100)]
    whole = layer(" ".join(nodes[:60]), "Float", "Float", Name="{ForeignNode[/n0.../n59]}")
    fault, doubt = verdict([whole, *(layer(one, "Float", "Float") for one in nodes[60:])], share(100, *nodes))
    assert fault is None and doubt and numbers(doubt) == ["100", "0", "40", "60", "50%"]
    fault, doubt = verdict([layer(one, "Float", "Float") for one in nodes[:40]], share(100, *nodes))
    assert fault and numbers(fault) == ["40"] and "/n" not in fault, "too few are named"


def test_a_network_compiled_as_a_whole_is_no_fault_without_names_either() -> None:
    whole = layer("", "Float", "Float", Name="{ForeignNode[/a.../c]}")
    fault, unnamed = verdict([whole], share(100))
    assert fault is None and unnamed and numbers(unnamed) == ["0.0%", "100.0%"]
    fault, too_few = verdict([whole], share(100, "/a", "/b", "/c"))
    assert fault is None and too_few and numbers(too_few) == ["0.0%", "100.0%"] and too_few != unnamed


def test_layers_that_mostly_tell_no_types_are_no_fault() -> None:
    assert verdict([*typed("Float"), *typed("?", 3)], share(100))[0] is None


def test_only_moves_are_no_fault() -> None:
    fault, doubt = verdict(typed("Half", LayerType="Reformat"), share(100))
    assert fault is None and doubt and numbers(doubt) == ["100.0%"]


def test_layers_of_a_runtime_that_names_no_nodes_are_compared_by_shares() -> None:
    """As those of ONNX Runtime, whose rows have neither metadata nor a count of what is not told."""
    row = {"name": "/a", "type": "Relu", "inputs": ["Float"], "outputs": ["Float"]}
    facts = {"layers": 1, "half_layers": 0, "half_layers_fraction": 0.0}
    for table in ({}, {"layer_table": [row]}):
        fault = precision_problem(facts | table, "fp16", share(100, "/a"))
        assert fault and numbers(fault) == ["1"]
        expect(fault, None, "fp16", "Half")
        halves = {"half_layers": 1, "half_layers_fraction": 1.0}
        assert precision_doubt(facts | table | halves, "fp16", share(100, "/a")) is None
