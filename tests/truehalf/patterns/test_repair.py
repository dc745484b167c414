"""All passes together: the list, the report, the names, and a detector."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from tests.measuring.shipped import shipped
from tests.messages import raises
from tests.tiers import first_of
from tests.tracing import trace_json
from tests.truehalf.models import detectors
from tests.truehalf.patterns.repairing import assert_equal, parsed, repaired, uniform
from truehalf.config.schema import DEFAULT_PASSES, RepairPass
from truehalf.ir.model_file import load_model, save_model
from truehalf.patterns import PASSES, repair
from truehalf.runtime.ort import Session
from truehalf.slimming.slim import slim

TEXT = """net (float[n, 3, 4, 6] x, float[n, p, q, 2] grid) => (float[n, 3, p, q] y)
{ twice = Add (grid, grid)  s = GridSample (x, twice)  c = GridSample <mode = "bicubic"> (x, grid)  y = Add (s, c) }"""


def test_passes_are_those_of_the_configuration() -> None:
    assert tuple(PASSES) == tuple(RepairPass)
    assert tuple(shipped("repair/tensorrt")["passes"]) == DEFAULT_PASSES


def test_passes_run_in_the_order_that_is_given() -> None:
    _, report = repaired(parsed(TEXT), "allowzero", "grid_sample_gather")
    assert list(report.counts) == ["allowzero", "grid_sample_gather"]
    assert report.to_json() == {"counts": report.counts, "refused": report.refused}
    assert [(entry["pass"], entry["node"]) for entry in report.refused] == [
        ("grid_sample_gather", "/net/block.0/GridSample_c")
    ]


def test_no_passes_touch_nothing() -> None:
    before = parsed(TEXT)
    model = ir.from_proto(before)
    repair(model, [])
    assert ir.to_proto(model).SerializeToString() == ir.to_proto(ir.from_proto(before)).SerializeToString()


def test_a_second_run_changes_nothing() -> None:
    once, _ = repaired(parsed(TEXT), *PASSES)
    twice, report = repaired(once, *PASSES)
    assert set(report.counts.values()) == {0}
    assert twice.SerializeToString() == once.SerializeToString()


def test_unknown_passes_are_refused() -> None:
    with raises("unknown-choice", "grid_sample", *PASSES):
        repair(ir.from_proto(parsed(TEXT)), ["grid_sample"])


def test_values_that_stay_keep_their_names_and_new_ones_are_unique() -> None:
    after, _ = repaired(parsed(TEXT), *PASSES)
    values = [name for node in after.graph.node for name in node.output]
    values += [tensor.name for tensor in after.graph.initializer]
    assert len(values) == len(set(values))
    assert {"twice", "s", "c", "y"} <= set(values)
    nodes = [node.name for node in after.graph.node]
    assert len(nodes) == len(set(nodes))
    read = {name for node in after.graph.node for name in node.input}
    assert {tensor.name for tensor in after.graph.initializer} <= read


@pytest.mark.slow
@pytest.mark.parametrize("decoder", first_of(["dfine", "rtdetrv2"]))
def test_a_detector_computes_what_it_did(decoder: str, tmp_path: Path) -> None:
    trace_json(detectors.detector(decoder), detectors.pictures(0, 1), tmp_path / "traced.onnx", spec=detectors.spec())
    slim(tmp_path / "traced.onnx", tmp_path / "slim.onnx", repair=())
    model = load_model(tmp_path / "slim.onnx")
    sampled = [node.outputs[0].name for node in model.graph if node.op_type == "GridSample"]
    report = repair(model, list(PASSES))
    assert report.counts["grid_sample_gather"] == len(sampled) > 0
    save_model(model, tmp_path / "repaired.onnx")
    runs = []
    for name in ("slim.onnx", "repaired.onnx"):
        proto = onnx.load(tmp_path / name)
        proto.graph.output.extend(onnx.helper.make_empty_tensor_value_info(value) for value in sampled)
        runs.append(Session(proto.SerializeToString()).run(detectors.pictures(2, 3)))
    for name in [*sampled, "logits", "boxes"]:
        largest = np.abs(runs[0][name]).max()
        np.testing.assert_allclose(runs[1][name], runs[0][name], rtol=0, atol=1e-6 * largest)  # rounding of float32


FUNCTIONS = """<ir_version: 8, opset_import: ["" : 17, "net" : 1]>
net (float[2, 3, 4, 4] x, float[2, 2, 2, 2] g, bool c) => (float[2, 3, 2, 2] y)
{
    a = net.Head (x, g)
    b = If (c) <
        then_branch = yes () => (float[2, 3, 2, 2] p) { p = net.Head (x, g) },
        else_branch = no () => (float[2, 3, 2, 2] q) { q = Neg (a) }
    >
    y = Add (a, b)
}
<domain: "net", opset_import: ["" : 17, "net" : 1]> Head (x, g) => (y) { t = net.Sampled (x, g)  y = Relu (t) }
<domain: "net", opset_import: ["" : OPSET]> Sampled (x, g) => (y) { s = Softmax <axis = 1> (x)  y = GridSample (s, g) }
"""


def test_what_stands_in_functions_is_repaired() -> None:
    before = onnx.parser.parse_model(FUNCTIONS.replace("OPSET", "17"))
    after, report = repaired(before, *PASSES)
    assert (report.counts["grid_sample_gather"], report.refused, list(after.functions)) == (2, [], [])
    types = {node.op_type for node in ir.from_proto(after).graph.all_nodes()}
    assert "GridSample" not in types
    feed = {"x": uniform(2, 3, 4, 4), "g": uniform(2, 2, 2, 2)}
    assert_equal(before, after, [feed | {"c": np.array(given)} for given in (True, False)], rtol=1e-6)


@pytest.mark.parametrize(
    ("op_type", "inputs", "facts"),
    [
        ("NonZero", [], [1, 0]),
        ("Add", ["", "x"], [2, 1]),
        ("Slice", ["x"], [3, 5, 1]),
        ("Cast", ["x"], ["attribute 'to'"]),
    ],
)
def test_a_node_without_its_inputs_is_named(op_type: str, inputs: list[str], facts: list[object]) -> None:
    model = parsed("net (float[2] x) => (float[2] y) { y = Relu (x) }")
    node = model.graph.node[0]
    node.op_type, node.name = op_type, "/broken"
    node.input[:] = inputs
    for passes in ([name] for name in PASSES):
        with raises("model-invalid", "'/broken'", op_type, *facts, "opset 17"):
            repair(ir.from_proto(model), passes)


def test_a_model_of_old_opset_is_left_alone() -> None:
    before = parsed("net (float[2] x) => (float[2] y) { y = Relu (x) }", opset=9)
    after, report = repaired(before, *PASSES)
    assert [node.op_type for node in after.graph.node] == ["Relu"]
    assert set(report.counts.values()) == {0}
