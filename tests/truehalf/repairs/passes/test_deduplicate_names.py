"""Names that are there, and unique."""

from __future__ import annotations

import numpy as np
import onnx

from tests.truehalf.repairs.repairing import assert_equal, parsed, repaired, uniform


def model() -> onnx.ModelProto:
    return parsed("net (float[2] x) => (float[2] y) { a = Relu (x)  b = Neg (a)  c = Exp (b)  y = Tanh (c) }")


def test_missing_names_get_the_scope_of_their_neighbours() -> None:
    before = model()
    before.graph.node[1].name = before.graph.node[2].name = ""
    after, report = repaired(before, "deduplicate_names")
    names = [node.name for node in after.graph.node]
    assert names == ["/net/block.0/Relu_a", "/net/block.0/Neg", "/net/block.0/Exp", "/net/block.0/Tanh_y"]
    assert report.counts == {"deduplicate_names": 2}
    assert_equal(before, after, [{"x": uniform(2)}])


def test_repeated_names_are_numbered() -> None:
    before = model()
    for node in before.graph.node:
        node.name = "same"
    after, report = repaired(before, "deduplicate_names")
    assert [node.name for node in after.graph.node] == ["same", "same_1", "same_2", "same_3"]
    assert report.counts == {"deduplicate_names": 3}


def test_values_of_sibling_bodies_are_told_apart() -> None:
    before = parsed(
        """net (bool c, float[2] x) => (float[2] y)
        { y = If (c) <then_branch = yes () => (float[2] r) { k = Neg (x)  r = Exp (k) },
                      else_branch = no () => (float[2] r) { k = Abs (x)  r = Sqrt (k) }> }"""
    )
    after, _ = repaired(before, "deduplicate_names")
    bodies = [attribute.g for attribute in after.graph.node[0].attribute]
    values = [name for body in bodies for node in body.node for name in node.output]
    assert len(values) == len(set(values)) == 4
    nodes = [node.name for body in bodies for node in body.node]
    assert len(set(nodes)) == 4
    assert_equal(before, after, [{"x": uniform(2), "c": np.array(c)} for c in (True, False)])


def test_nothing_to_do_counts_nothing() -> None:
    assert repaired(model(), "deduplicate_names")[1].counts == {"deduplicate_names": 0}
