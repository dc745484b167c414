"""Whether an engine has the declared precision: shown, not shown, or shown to be another."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stages.trt.build import version_of
from stages.trt.proof import NO_LAYERS, layer_facts, precision_doubt, precision_fault
from tests.stages.trt.conftest import typed


def layer(nodes: str, read: str, wrote: str, **more: Any) -> dict[str, Any]:
    """A layer that computes some ONNX nodes ("a b c"), reads one type and writes another."""
    tensors = {"Inputs": [{"Format/Datatype": read}], "Outputs": [{"Format/Datatype": wrote}]}
    metadata = "\x1e".join(f"[ONNX Layer: {node}]" for node in nodes.split())
    return {"Name": nodes.replace(" ", "+"), "LayerType": "kgen", "Metadata": metadata, **tensors, **more}


def verdict(layers: list[dict[str, Any]], graph: dict[str, Any], declared: str = "fp16") -> tuple[str | None, ...]:
    facts = NO_LAYERS | layer_facts(json.dumps({"Layers": layers}), version_of("11.4").inspector_dtype)
    return precision_fault(facts, declared, graph), precision_doubt(facts, declared, graph)


def share(fp16_nodes: int, *names: str) -> dict[str, Any]:
    return {"float_nodes": 100, "fp16_nodes": fp16_nodes, "fp16_node_names": [*names]}


@pytest.mark.parametrize(
    ("declared", "half", "floats", "fp16_nodes", "fault", "doubt"),
    [
        ("fp16", 3, 1, 100, None, None),
        ("fp16", 0, 4, 100, "fp16 was declared and none of the engine's 4 layers", None),
        ("fp16", 1, 999, 90, None, "0.1% of the layers that compute floats have"),
        ("fp16", 1, 3, 25, None, None),  # a file with many pins
        (
            "fp16",
            1,
            3,
            60,
            None,
            "25.0% of the layers that compute floats have a Half output, where 60.0% of the file's",
        ),
        ("fp32", 0, 4, 0, None, None),
        ("fp32", 2, 2, 0, "fp32 was declared and 2 of the engine's 4 layers", None),
    ],
)
def test_without_names_of_nodes_the_shares_of_layers_and_nodes_are_compared(
    declared: str, half: int, floats: int, fp16_nodes: int, fault: str | None, doubt: str | None
) -> None:
    """Fusion is unequal, so that a small share decides nothing; no Half at all does."""
    for graph in (share(fp16_nodes), share(fp16_nodes, "/a", "/b")):
        given = verdict([*typed("Half", half), *typed("Float", floats)], graph, declared)
        for said, expected in zip(given, (fault, doubt), strict=True):
            assert said is None if expected is None else said is not None and said.startswith(expected)


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
    assert fault and "9 of the 9 FP16 nodes of the file that can be told lie in layers without Half" in fault
    assert "/n0, /n1, /n2, /n3, /n4" in fault and "/n5" not in fault and doubt is None
    for i in range(3):
        layers[i] = layer(f"/n{i}", "Half", "Float")  # reads Half and puts out the graph's float
    fault, doubt = verdict(layers, graph)
    assert fault is None, "two thirds are the bound"
    assert doubt and doubt.startswith("of 9 FP16 nodes of the file 3 lie in layers with Half and 6 in layers without")
    layers[3:5] = [layer("/n3 /n4", "Float", "Half")]
    assert verdict(layers, graph) == (None, None)


def test_a_node_in_several_layers_is_kept_where_one_of_them_has_half() -> None:
    layers = [layer("/a", "Float", "Float"), layer("/a", "Half", "Float"), layer("/b", "Half", "Half")]
    assert verdict(layers, share(2, "/a", "/b")) == (None, None)
    nodes = [f"/n{i}" for i in range(9)]
    layers = [layer(one, "Float", "Float") for one in nodes] + [layer(one, "Half", "Float") for one in nodes[:3]]
    fault, doubt = verdict(layers, share(9, *nodes))
    assert fault is None and doubt and "3 lie in layers with Half and 6 in layers without; 0 lie" in doubt


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
    assert doubt and doubt.endswith("3 lie in layers that hide what is inside; expected 50% with Half")
    graph = share(9, "/a", "/b", "/c", *(f"/n{i}" for i in range(6)))
    assert verdict([hiding, *(layer(f"/n{i}", "Half", "Half") for i in range(6))], graph) == (None, None)


def test_a_few_nodes_that_are_told_stand_for_no_others() -> None:
    nodes = [f"/n{i}" for i in range(100)]
    whole = layer(" ".join(nodes[:60]), "Float", "Float", Name="{ForeignNode[/n0.../n59]}")
    fault, doubt = verdict([whole, *(layer(one, "Float", "Float") for one in nodes[60:])], share(100, *nodes))
    assert fault is None and doubt and "60 lie in layers that hide" in doubt
    fault, doubt = verdict([layer(one, "Float", "Float") for one in nodes[:40]], share(100, *nodes))
    assert fault and fault.startswith("fp16 was declared and none of the engine's 40 layers"), "too few are named"


def test_a_network_compiled_as_a_whole_is_no_fault_without_names_either() -> None:
    whole = layer("", "Float", "Float", Name="{ForeignNode[/a.../c]}")
    fault, doubt = verdict([whole], share(100))
    assert fault is None and doubt and doubt.startswith("0.0% of the layers") and "names no FP16 nodes" in doubt
    fault, doubt = verdict([whole], share(100, "/a", "/b", "/c"))
    assert fault is None and doubt and doubt.endswith("layers name too few of them")


def test_layers_that_mostly_tell_no_types_are_no_fault() -> None:
    assert verdict([*typed("Float"), *typed("?", 3)], share(100))[0] is None


def test_only_moves_are_no_fault() -> None:
    fault, doubt = verdict(typed("Half", LayerType="Reformat"), share(100))
    assert fault is None and doubt and doubt.startswith("no layer that computes tells a Half output")


def test_layers_of_a_runtime_that_names_no_nodes_are_compared_by_shares() -> None:
    """As those of ONNX Runtime, whose rows have neither metadata nor a count of what is not told."""
    row = {"name": "/a", "type": "Relu", "inputs": ["Float"], "outputs": ["Float"]}
    facts = {"layers": 1, "half_layers": 0, "half_layers_fraction": 0.0}
    for table in ({}, {"layer_table": [row]}):
        fault = precision_fault(facts | table, "fp16", share(100, "/a"))
        assert fault == "fp16 was declared and none of the engine's 1 layers computes a Half output"
        halves = {"half_layers": 1, "half_layers_fraction": 1.0}
        assert precision_doubt(facts | table | halves, "fp16", share(100, "/a")) is None
