"""What holds for any valid model: the result is valid, keeps inputs and outputs, computes the same, and is cheapest."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import onnx
import onnx_ir as ir
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator

from tests.measuring.converted import only
from tests.tiers import examples
from tests.truehalf.random_graphs import FEEDS, models
from truehalf.conversion import partition
from truehalf.conversion.casts_of_file import clean_model
from truehalf.conversion.convert import convert_to_fp16
from truehalf.conversion.decide import decide
from truehalf.conversion.partition import cost
from truehalf.conversion.ports import FP16, FP32, ports
from truehalf.conversion.rewrite import Rewrite
from truehalf.conversion.rules.base import Verdict
from truehalf.ir.normalize import PREPARE, concrete_shapes
from truehalf.ir.selectors import Lists

SETTINGS = settings(max_examples=examples(150), suppress_health_check=list(HealthCheck))
# Op types to pin: with Identity and If among them, control flow is cut in the middle.
PINS = st.lists(
    st.sampled_from(["Exp", "Softmax", "Add", "MatMul", "Identity", "If", "Loop", "Mul", "Cast"]), max_size=3
)


def ready(proto: onnx.ModelProto) -> ir.Model:
    model = ir.from_proto(onnx.ModelProto.FromString(proto.SerializeToString()))
    PREPARE(model)
    return model


def run(proto: onnx.ModelProto) -> list[np.ndarray]:
    """By onnx's own reference, which computes in true FP16. ONNX Runtime must load the file, too; it does not run it
    here, as 1.31 loses a Cast in front of another whose result only a body reads, in plain FP32 files as well.
    """
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    half = {i.name for i in proto.graph.input if i.type.tensor_type.elem_type == onnx.TensorProto.FLOAT16}
    feeds = {name: array.astype(np.float16) if name in half else array for name, array in FEEDS.items()}
    with np.errstate(all="ignore"):
        return list(ReferenceEvaluator(proto).run(None, feeds))


def check(before: onnx.ModelProto, after: onnx.ModelProto, keep: bool | list[str]) -> None:
    onnx.checker.check_model(after, full_check=True)
    for old, new in ((before.graph.input, after.graph.input), (before.graph.output, after.graph.output)):
        assert [value.name for value in old] == [value.name for value in new]
        for a, b in zip(old, new, strict=True):
            kept = a.type.tensor_type.elem_type != onnx.TensorProto.FLOAT or keep is True
            kept |= isinstance(keep, list) and a.name in keep
            assert b.type.tensor_type.elem_type == (a.type.tensor_type.elem_type if kept else onnx.TensorProto.FLOAT16)
            assert a.type.tensor_type.shape == b.type.tensor_type.shape


@SETTINGS
@given(models(), PINS, st.one_of(st.booleans(), st.just(["x0"])), st.sampled_from(["min_cut", "eager"]))
def test_the_result_is_valid_and_computes_the_same(
    proto: onnx.ModelProto, pins: list[str], keep: bool | list[str], placement: str
) -> None:
    """Values stay small, and rounding moves an integer Cast by at most one at these magnitudes: hence the tolerance."""
    rules = only(block=Lists(op=tuple(pins)), fp16_ops=("MatMul",))
    model = ready(proto)
    convert_to_fp16(model, None, replace(rules, placement=placement, keep_io_types=keep))
    result = ir.to_proto(model)
    check(proto, result, keep)
    integers = any(
        a.i == onnx.TensorProto.INT64 for n in _all_nodes(proto.graph) if n.op_type == "Cast" for a in n.attribute
    )
    for expected, got in zip(run(proto), run(result), strict=True):
        assert expected.shape == got.shape
        if not integers:
            big = np.abs(expected) > 1e3  # exponentials of exponentials: beyond FP16 they differ rightly
            np.testing.assert_allclose(got[~big].astype(np.float64), expected[~big], rtol=5e-2, atol=2e-2)


def _all_nodes(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    found = []
    for node in graph.node:
        found.append(node)
        for attribute in node.attribute:
            if attribute.HasField("g"):
                found += _all_nodes(attribute.g)
    return found


@SETTINGS
@given(models(), PINS)
def test_the_placement_is_the_cheapest_and_the_graph_costs_what_it_says(
    proto: onnx.ModelProto, pins: list[str]
) -> None:
    rules = only(block=Lists(op=tuple(pins)), fp16_ops=("MatMul",))
    model = ready(proto)
    decisions = decide(model, None, rules)
    found = ports(model, [node for node, d in decisions.nodes.items() if d.verdict is not Verdict.fp32])
    problem = partition.problem(found, decisions.nodes, concrete_shapes(model))
    assignment = partition.min_cut(problem)
    free = list(problem.fp32)
    if len(free) <= 9:
        every = itertools.product((FP32, FP16), repeat=len(free))
        options = (problem.fixed | dict(zip(free, types, strict=True)) for types in every)
        assert cost(problem, assignment).bytes == min(cost(problem, option).bytes for option in options)
    assert cost(problem, assignment).bytes <= cost(problem, partition.eager(problem)).bytes
    counts = Rewrite(found, assignment)(model).counts
    assert counts["casts_to_fp16"] + counts["casts_to_fp32"] == cost(problem, assignment).casts


@SETTINGS
@given(models(), PINS)
def test_nothing_is_left_to_do_and_two_runs_agree(proto: onnx.ModelProto, pins: list[str]) -> None:
    """Exact clean-up finds none of our Casts, but for those that undo one of the model's, each of which may take one
    along; the bytes are the same every time.
    """
    rules = only(block=Lists(op=(*pins, "Cast")), fp16_ops=("MatMul",))
    first, second = ready(proto), ready(proto)
    ours = convert_to_fp16(first, None, rules).counts
    convert_to_fp16(second, None, rules)
    assert ir.to_proto(first).SerializeToString() == ir.to_proto(second).SerializeToString()
    theirs = sum(node.op_type == "Cast" for node in _all_nodes(proto.graph))
    assert ours.get("casts_to_fp16", 0) + ours.get("casts_to_fp32", 0) + theirs == sum(
        node.op_type == "Cast" for node in _all_nodes(ir.to_proto(first).graph)
    )
    report = clean_model(second, strict=True)
    assert report.casts_before - report.casts_after <= 2 * theirs


def test_a_mask_is_clamped() -> None:
    proto = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
        g (float[2,4] x, bool[2,4] c, float[4,4] w) => (float[2,4] y) <float big = {-3e38}>
        { s = MatMul(x, w) t = Where(c, big, s) u = Identity(t) p = Softmax(u) y = MatMul(p, w) }""")
    model = ready(proto)
    result = convert_to_fp16(model, None, only(masks=True, fp16_ops=("MatMul",)))
    (stored,) = [tensor for tensor in ir.to_proto(model).graph.initializer if tensor.name == "big"]
    assert float(onnx.numpy_helper.to_array(stored).min()) == -16384.0
    assert [value.name for value in result.decisions.masks] == ["big"]
