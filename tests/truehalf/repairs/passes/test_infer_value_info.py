"""value_info for whoever reads the file."""

from __future__ import annotations

import onnx

from tests.truehalf.repairs.repairing import parsed, repaired


def model() -> onnx.ModelProto:
    return parsed(
        """net (float[n, 3] x) => (float[n, 12] y) <int64[2] twice = {1, 4}>
        { a = Relu (x)  b = Shape (a)  c = Tile (a, twice)  y = Neg (c) }"""
    )


def test_every_value_has_type_and_shape() -> None:
    before = model()
    assert not before.graph.value_info
    after, report = repaired(before, "infer_value_info")
    found = {
        info.name: [dim.dim_param or dim.dim_value for dim in info.type.tensor_type.shape.dim]
        for info in after.graph.value_info
        if info.name != "twice"
    }
    assert found == {"a": ["n", 3], "b": [2], "c": ["unk__0", 12]}
    assert report.counts == {"infer_value_info": 3}


def test_what_passes_before_it_inferred_counts() -> None:
    assert repaired(model(), "bool_index", "infer_value_info")[1].counts["infer_value_info"] == 3


def test_what_is_known_counts_nothing() -> None:
    after, _ = repaired(model(), "infer_value_info")
    assert repaired(after, "infer_value_info")[1].counts == {"infer_value_info": 0}


def test_what_cannot_be_inferred_is_said() -> None:
    before = parsed("net (float[2] x) => (float[2] y) { y = Relu (x) }")
    before.opset_import.add(domain="acme", version=1)
    before.graph.node.insert(0, onnx.helper.make_node("Magic", ["x"], ["m"], "magic", domain="acme"))
    before.graph.node.append(onnx.helper.make_node("Identity", ["m"], ["i"], "copy"))
    _, report = repaired(before, "infer_value_info")
    assert [entry["node"] for entry in report.refused] == ["copy"]
