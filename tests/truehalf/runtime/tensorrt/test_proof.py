"""FP16 nodes of a file that an engine computes in layers without Half."""

from __future__ import annotations

from typing import Any

import pytest

from tests.truehalf.conftest import typed
from truehalf.runtime.tensorrt.proof import NO_LAYERS, changed_nodes, layer_facts
from truehalf.runtime.tensorrt.versions import version_of


def layer(nodes: str, read: str, wrote: str, **more: Any) -> dict[str, Any]:
    """A layer that computes some ONNX nodes ("a b c"), reads one type and writes another."""
    tensors = {"Inputs": [{"Format/Datatype": read}], "Outputs": [{"Format/Datatype": wrote}]}
    metadata = "\x1e".join(f"[ONNX Layer: {node}]" for node in nodes.split())
    return {"Name": nodes.replace(" ", "+"), "LayerType": "kgen", "Metadata": metadata, **tensors, **more}


def changed(layers: list[dict[str, Any]], *names: str) -> list[str] | None:
    facts = NO_LAYERS | layer_facts(layers, version_of("11.4").inspector_dtype)
    graph: Any = {"float_nodes": 100, "fp16_nodes": 100, "fp16_node_names": [*names]}
    return changed_nodes(facts, graph)


def test_nodes_in_layers_without_half_are_named() -> None:
    layers = [layer("/a", "Half", "Half"), layer("/b", "Float", "Float"), layer("/c /d", "Half", "Float")]
    assert changed(layers, "/a", "/b", "/c", "/d") == ["/b"]


def test_a_node_in_several_layers_is_kept_where_one_of_them_has_half() -> None:
    layers = [layer("/a", "Float", "Float"), layer("/a", "Half", "Float"), layer("/b", "Half", "Half")]
    assert changed(layers, "/a", "/b") == []


@pytest.mark.parametrize(
    "hiding",
    [
        layer("/a /b /c", "Float", "Float", Name="{ForeignNode[/a.../c]}", LayerType="Myelin"),
        layer("/in/Cast /a /b /c /out/Cast", "Float", "Float", Name="__myl_CastMulAddReluCast_myl0_1"),
        layer("/a /b /c", "N/A due to dynamic shapes", "Float"),
    ],
)
def test_a_layer_that_shows_nothing_of_its_inside_tells_nothing(hiding: dict[str, Any]) -> None:
    assert changed([hiding], "/a", "/b", "/c") is None
    names = [f"/n{i}" for i in range(6)]
    assert changed([hiding, *(layer(each, "Half", "Half") for each in names)], "/a", "/b", "/c", *names) == []


def test_a_few_nodes_that_are_told_stand_for_no_others() -> None:
    nodes = [f"/n{i}" for i in range(100)]
    assert changed([layer(one, "Float", "Float") for one in nodes[:40]], *nodes) is None
    assert changed([layer(one, "Float", "Float") for one in nodes[:60]], *nodes) == sorted(nodes[:60])


def test_layers_that_name_no_nodes_tell_nothing() -> None:
    assert changed(typed("Half", 3), "/a") is None and changed(typed("Float", 3), "/a") is None
