"""slim: fewer nodes and the same network, or the name of the pattern that changed it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxslim
import pytest

from tests.measuring.shipped import shipped
from tests.messages import expect, raises
from tests.tiers import first_of
from tests.tracing import trace_json
from tests.truehalf.linked_models import LAYOUTS, linked
from tests.truehalf.models import detectors
from truehalf.api import convert
from truehalf.config.schema import SlimConfig
from truehalf.ir.model_file import load_model
from truehalf.ir.model_forms import ModelFile
from truehalf.patterns import PASSES
from truehalf.patterns.rewrite import Writer
from truehalf.slimming.slim import slim, slim_or_keep

# Identity, a foldable Add of constants, a Transpose pair, Relu and Neg; names with scopes; a dynamic batch.
GRAPH = """
<ir_version: 8, opset_import: ["" : 17]>
net (float[batch, 3, 4] x) => (float[batch, 3, 4] y)
<float[4] a = {1.0, 2.0, 3.0, 4.0}, float[4] b = {0.5, 0.5, 0.5, 0.5}>
{
    same = Identity(x)
    sum = Add(a, b)
    scaled = Mul(same, sum)
    turned = Transpose <perm = [0, 2, 1]> (scaled)
    back = Transpose <perm = [0, 2, 1]> (turned)
    kept = Relu(back)
    y = Neg(kept)
}
"""
FEEDS = [{"x": np.random.default_rng(n).normal(size=(n, 3, 4)).astype(np.float32)} for n in (1, 3)]


def write(path: Path, trained: bool | None = None) -> Path:
    model = onnx.parser.parse_model(GRAPH)
    for node in model.graph.node:
        node.name = f"/net/block.0/{node.op_type}_{node.output[0]}"
    model.metadata_props.add(key="author", value="somebody")
    if trained is not None:
        model.metadata_props.add(key="truehalf.io_spec", value=json.dumps({"outputs": [], "trained": trained}))
    onnx.save(model, path)
    return path


def wrong_pattern(name: str, op: str, replacement: str) -> Any:
    """A pattern of onnxslim that turns one operation into another."""
    from onnxslim.core.pattern import Pattern, PatternMatcher

    class Wrong(PatternMatcher):
        def __init__(self) -> None:
            lines = ("input input 0 1 node_0", f"{op} node_0 1+ 1+ input output", "output output 1 0 node_0")
            super().__init__(Pattern("\n".join(lines)), 1)

        @property
        def name(self) -> str:
            return name

        def rewrite(self, opset: int = 17) -> dict[str, Any]:
            node = self.node_0
            inputs, outputs = list(node.inputs), list(node.outputs)
            node.inputs.clear()
            node.outputs.clear()
            layer = {"op": replacement, "inputs": inputs, "outputs": outputs, "name": node.name, "attrs": {}}
            return {node.name: layer | {"domain": None}}

    return Wrong()


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> Any:
    from onnxslim.core.pattern.registry import DEFAULT_FUSION_PATTERNS

    def register(*args: str) -> None:
        monkeypatch.setitem(DEFAULT_FUSION_PATTERNS, args[0], [wrong_pattern(*args)])

    return register


def test_fewer_nodes_same_results(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    source = write(tmp_path / "source.onnx")
    before = source.read_bytes()
    report = slim(source, tmp_path / "out" / "m.onnx", check_feeds=FEEDS)
    assert report.ops_before == {"Add": 1, "Identity": 1, "Mul": 1, "Neg": 1, "Relu": 1, "Transpose": 2}
    assert report.ops_after == {"Mul": 1, "Neg": 1, "Relu": 1}
    assert (report.nodes_before, report.nodes_after) == (7, 3)
    parity = report.parity
    assert parity["status"] == "verified"
    assert (parity["samples"], parity["batch_sizes"], parity["max_abs"]) == (4, [1, 3], {"y": 0.0})
    assert report.model["untyped_nodes"] == 0
    assert source.read_bytes() == before
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["m.onnx"]
    assert capfd.readouterr().out == ""


def test_names_metadata_types_and_dynamic_batch_are_kept(tmp_path: Path) -> None:
    slim(write(tmp_path / "source.onnx"), tmp_path / "m.onnx")
    model = load_model(tmp_path / "m.onnx")
    assert [node.name for node in model.graph] == [
        "/net/block.0/Mul_scaled",
        "/net/block.0/Relu_kept",
        "/net/block.0/Neg_y",
    ]
    assert dict(model.metadata_props) == {"author": "somebody"}
    assert [str(value.shape) for value in (*model.graph.inputs, *model.graph.outputs)] == ["[batch,3,4]"] * 2
    assert all(str(value.dtype) == "FLOAT" for node in model.graph for value in node.outputs)


def test_nodes_that_onnxslim_made_get_their_scope(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fused(model: onnx.ModelProto, **_: Any) -> onnx.ModelProto:
        model.graph.node[5].name, model.graph.node[6].name = "fusion_0", ""
        return model

    monkeypatch.setattr(onnxslim, "slim", fused)
    slim(write(tmp_path / "source.onnx"), tmp_path / "m.onnx", repair=())
    names = [node.name for node in load_model(tmp_path / "m.onnx").graph]
    assert names[4:] == ["/net/block.0/Transpose_back", "/net/block.0/Relu", "/net/block.0/Neg"]


def test_second_run_over_the_first_adds_nothing(tmp_path: Path) -> None:
    source = write(tmp_path / "source.onnx")
    sizes = []
    for _ in range(2):
        slim(source, tmp_path / "m.onnx", check_feeds=FEEDS)
        sizes.append([(file.name, file.stat().st_size) for file in sorted(tmp_path.iterdir())])
    assert sizes[0] == sizes[1]


def left_out(report: Any, *names: str) -> None:
    """Check that the file agrees with its source without these, and that the report says so."""
    assert sorted(report.left_out) == sorted(names) and report.parity["status"] == "verified"
    expect(report.failed, None, *names)


def test_onnxslim_is_left_out_where_it_is_wrong(tmp_path: Path, register: Any) -> None:
    register("FusionWrong", "Relu", "Sigmoid")
    report = slim(write(tmp_path / "source.onnx"), tmp_path / "m.onnx", check_feeds=FEEDS)
    left_out(report, "onnxslim")
    expect(report.failed, "outputs-differ", "2.08%", "99.9%")
    assert report.ops_after["Transpose"] == 2 and not report.simplified


def test_wrong_pattern_can_be_skipped(tmp_path: Path, register: Any) -> None:
    register("FusionWrong", "Relu", "Sigmoid")
    report = slim(
        write(tmp_path / "source.onnx"),
        tmp_path / "m.onnx",
        check_feeds=FEEDS,
        options=SlimConfig(skip_patterns=["FusionWrong"]),
    )
    assert report.parity["status"] == "verified"
    assert report.skipped_patterns == ["FusionWrong"]


def test_onnxslim_is_left_out_where_it_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, register: Any) -> None:
    register("FusionBroken", "Relu", "Sigmoid")
    from onnxslim.core.pattern.registry import DEFAULT_FUSION_PATTERNS

    def broken(opset: int = 17) -> dict[str, Any]:
        raise KeyError("axes")

    monkeypatch.setattr(DEFAULT_FUSION_PATTERNS["FusionBroken"][0], "rewrite", broken)
    report = slim(write(tmp_path / "source.onnx"), tmp_path / "m.onnx", check_feeds=FEEDS)
    left_out(report, "onnxslim")
    expect(report.failed, "slim-fails", "KeyError: 'axes'")


def test_what_onnxslim_fails_at_may_be_repaired_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(model: onnx.ModelProto, **_: Any) -> onnx.ModelProto:
        raise UnboundLocalError("onnx_tensor")

    file = ModelFile(write(tmp_path / "source.onnx"))
    assert slim_or_keep(file).report.failed is None
    monkeypatch.setattr(onnxslim, "slim", broken)
    report = slim_or_keep(file).report
    assert report.simplified is False
    expect(report.failed, "slim-fails", "UnboundLocalError: onnx_tensor")


def test_what_onnxslim_breaks_is_slimmed_without_it(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[n,4] x) => (float[n,4] y, bool[n,4] kept)
    <float k = {3.0}, float half = {0.5}, bool no = {0}> { a = Add(x, k) d, kept = Dropout(a, half, no) y = Exp(d) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    made = slim_or_keep(ModelFile(tmp_path / "m.onnx"))
    assert made.report.left_out == ["onnxslim"]
    assert [value.name for value in made.model.graph.outputs] == ["y", "kept"]


# What ONNX allows and ONNX Runtime does not load.
UNLOADED = {
    "no kernel": (22, "float[2,3] x", "float[2,3] y", "n = RandomUniformLike<dtype = 11>(x)  y = Cast<to = 1>(n)"),
    "a later opset": (onnx.defs.onnx_opset_version(), "float[2,3] x", "float[2,3] y", "y = Relu(x)"),
    "a type": (15, "float[2] x, uint64[2] k", "float[2] y", "y = Pow(x, k)"),
    "another type": (15, "float[2] x, uint32[2] k", "float[2] y", "y = Pow(x, k)"),
    "a layout": (22, "float[1,2,3] x", "float[1,2,1,4] y", "y = RNN<hidden_size = 4, layout = 1>(x, w, r)"),
}


@pytest.mark.parametrize("case", UNLOADED)
def test_what_onnx_runtime_does_not_load_is_converted_as_it_is(case: str, tmp_path: Path) -> None:
    opset, inputs, outputs, nodes = UNLOADED[case]
    text = f'<ir_version: 10, opset_import: ["" : {opset}]> g ({inputs}) => ({outputs}) {{ {nodes} }}'
    model = onnx.parser.parse_model(text)
    if case == "a layout":
        shapes = {"w": (1, 4, 3), "r": (1, 4, 4)}
        model.graph.initializer.extend(
            onnx.numpy_helper.from_array(np.ones(shape, np.float32), name) for name, shape in shapes.items()
        )
    onnx.save(model, tmp_path / "m.onnx")
    made = slim_or_keep(ModelFile(tmp_path / "m.onnx"))
    expect(made.report.failed, None)
    assert [node.op_type for node in made.model.graph] == [node.op_type for node in model.graph.node]
    result = convert(tmp_path / "m.onnx", tmp_path / "o.onnx")
    check = result.report.check
    assert check is None or check.state == "not verified"
    assert (tmp_path / "o.onnx").is_file() and result.report.slim and result.report.slim.failed


@pytest.mark.parametrize("layout", LAYOUTS)
def test_so_is_one_with_data_behind_links(layout: str, tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 15]> g (float[1,4] x, uint64[4] k) => (float[1,4] y)
    { a = MatMul(x, w)  y = Pow(a, k) }"""
    expect(slim_or_keep(ModelFile(linked(tmp_path, layout, text))).report.failed, "runtime-refuses", "Pow")


def test_where_onnxslim_makes_no_model_the_file_is_repaired_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnxslim, "slim", lambda *_, **__: None)
    report = slim(write(tmp_path / "source.onnx"), tmp_path / "m.onnx", check_feeds=FEEDS)
    left_out(report, "onnxslim")
    assert not report.simplified
    expect(report.failed, "slim-fails")


def test_prints_of_onnxslim_stay_out_of_stdout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def chatty(model: onnx.ModelProto, **_: Any) -> onnx.ModelProto:
        print("| a table |")
        return model

    monkeypatch.setattr(onnxslim, "slim", chatty)
    slim(write(tmp_path / "source.onnx"), tmp_path / "m.onnx", check_feeds=FEEDS)
    assert capsys.readouterr().out == ""


def test_what_changes_outputs_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def renamed(model: onnx.ModelProto, **_: Any) -> onnx.ModelProto:
        model.graph.output[0].name = model.graph.node[-1].output[0] = "renamed"
        return model

    monkeypatch.setattr(onnxslim, "slim", renamed)
    report = slim(write(tmp_path / "source.onnx"), tmp_path / "m.onnx")
    assert report.left_out == ["onnxslim"]
    expect(report.failed, "slim-fails", "onnxslim", "y: FLOAT", "renamed: FLOAT")


def test_untrained_model_that_differs_is_not_verified(tmp_path: Path, register: Any) -> None:
    register("FusionWrong", "Relu", "Sigmoid")
    report = slim(write(tmp_path / "source.onnx", trained=False), tmp_path / "m.onnx", check_feeds=FEEDS)
    assert report.parity["status"] == "not verified"
    expect(report.parity["reason"], "weights-random", "2.08%")


def test_without_samples_nothing_is_verified(tmp_path: Path) -> None:
    parity = slim(write(tmp_path / "source.onnx"), tmp_path / "m.onnx").parity
    assert parity["status"] == "not verified" and set(parity) == {"status", "reason"}, "no samples, no numbers"


def test_unknown_pattern_is_refused(tmp_path: Path) -> None:
    with raises("unknown-choice", "onnxslim", "FusionTypo", "FusionGemm", "weight_tying"):
        slim(write(tmp_path / "source.onnx"), tmp_path / "m.onnx", SlimConfig(skip_patterns=["FusionTypo"]))


SAMPLED = """
<ir_version: 8, opset_import: ["" : 17]>
net (float[batch, 3, 4, 6] x, float[batch, 5, 2, 2] grid) => (float[batch, 3, 5, 2] y)
{
    sampled = GridSample <mode = "bilinear"> (x, grid)
    other = GridSample <mode = "nearest"> (x, grid)
    y = Add (sampled, other)
}
"""


def write_sampled(path: Path) -> Path:
    model = onnx.parser.parse_model(SAMPLED)
    for node in model.graph.node:
        node.name = f"/net/block.0/{node.op_type}_{node.output[0]}"
    onnx.save(model, path)
    return path


def sampled_feeds() -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    return [
        {
            "x": rng.normal(size=(n, 3, 4, 6)).astype(np.float32),
            "grid": rng.uniform(-1.2, 1.2, (n, 5, 2, 2)).astype("f"),
        }
        for n in (1, 3)
    ]


def test_repair_runs_at_the_end_and_is_reported(tmp_path: Path) -> None:
    source = write_sampled(tmp_path / "source.onnx")
    report = slim(source, tmp_path / "m.onnx", check_feeds=sampled_feeds())
    assert list(report.repair["counts"]) == list(shipped("repair/tensorrt")["passes"])
    assert report.repair["counts"]["grid_sample_gather"] == 1
    refused = [entry for entry in report.repair["refused"] if entry["pass"] == "grid_sample_gather"]
    assert [entry["node"] for entry in refused] == ["/net/block.0/GridSample_other"]
    assert (report.ops_after["GridSample"], report.ops_after["GatherND"]) == (1, 1)
    assert report.parity["status"] == "verified"
    assert report.model["untyped_nodes"] == 0
    assert all(node.name.startswith("/net/block.0/") for node in load_model(tmp_path / "m.onnx").graph)


def test_repair_of_the_same_file_is_the_same_to_the_byte(tmp_path: Path) -> None:
    source = write_sampled(tmp_path / "source.onnx")
    for name in ("a.onnx", "b.onnx"):
        slim(source, tmp_path / name)
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()


def test_no_repair_where_none_is_wanted(tmp_path: Path) -> None:
    report = slim(write_sampled(tmp_path / "source.onnx"), tmp_path / "m.onnx", repair=())
    assert report.repair == {"counts": {}, "refused": []}
    assert report.ops_after["GridSample"] == 2


def test_wrong_repair_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(writer: Writer) -> None:
        next(node for node in writer.model.graph if node.op_type == "Add").op_type = "Mul"
        writer.done.counts["Add"] += 1

    monkeypatch.setitem(PASSES, "allowzero", wrong)  # type: ignore[arg-type]
    source, passes = write_sampled(tmp_path / "source.onnx"), ["grid_sample_gather", "allowzero"]
    left_out(slim(source, tmp_path / "m.onnx", check_feeds=sampled_feeds(), repair=passes), *passes)


def test_unknown_repair_is_refused(tmp_path: Path) -> None:
    with raises("unknown-choice", "repair", "grid_sample", "allowzero", "deduplicate_names"):
        slim(write(tmp_path / "source.onnx"), tmp_path / "m.onnx", repair=["grid_sample"])


def test_repair_that_makes_an_invalid_file_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(writer: Writer) -> None:
        next(node for node in writer.model.graph if node.op_type == "Add").op_type = "NoSuchOperator"
        writer.done.counts["Add"] += 1

    monkeypatch.setitem(PASSES, "allowzero", wrong)  # type: ignore[arg-type]
    report = slim(write_sampled(tmp_path / "source.onnx"), tmp_path / "m.onnx", repair=["allowzero"])
    assert report.left_out == ["allowzero"]
    expect(report.failed, "model-invalid", "NoSuchOperator")


def test_truncated_file_is_refused(tmp_path: Path) -> None:
    source = write(tmp_path / "source.onnx")
    source.write_bytes(source.read_bytes()[:100])
    with raises("file-unreadable", source, 100):
        slim(source, tmp_path / "m.onnx")


@pytest.mark.parametrize("decoder", first_of(["rtdetrv2", "dfine"]))
def test_detector_keeps_scopes_types_and_results(decoder: str, tmp_path: Path) -> None:
    source = tmp_path / "trace.onnx"
    trace_json(detectors.detector(decoder), detectors.pictures(0, 1), source, spec=detectors.spec())
    checks = [detectors.pictures(2), detectors.pictures(3, 4, 5)]
    report = slim(source, tmp_path / "m.onnx", check_feeds=checks)
    assert report.parity["status"] == "verified"
    assert report.parity["share"] == 1.0
    assert report.nodes_after < report.nodes_before / 2
    assert report.model["untyped_nodes"] == 0
    model = load_model(tmp_path / "m.onnx")
    assert model.metadata_props == load_model(source).metadata_props
    names = [node.name for node in model.graph]
    assert all(name.startswith("/network/") or name.count("/") == 1 for name in names)
    assert len(set(names)) == len(names)


def test_wrong_repair_is_left_out_without_onnxslim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(writer: Writer) -> None:
        next(node for node in writer.model.graph if node.op_type == "Add").op_type = "Mul"
        writer.done.counts["Add"] += 1

    monkeypatch.setattr(onnxslim, "slim", None)
    monkeypatch.setitem(PASSES, "allowzero", wrong)  # type: ignore[arg-type]
    source, passes = write_sampled(tmp_path / "source.onnx"), ["grid_sample_gather", "allowzero"]
    left_out(slim(source, tmp_path / "m.onnx", check_feeds=sampled_feeds(), repair=passes, simplify=False), *passes)


def test_a_file_without_onnxslim_and_repair_keeps_its_nodes(tmp_path: Path) -> None:
    report = slim(write(tmp_path / "source.onnx"), tmp_path / "m.onnx", check_feeds=FEEDS, repair=(), simplify=False)
    assert report.ops_after == report.ops_before
    assert report.parity["max_abs"] == {"y": 0.0}


@pytest.mark.parametrize("named", [(), (0,), (1, 2), (0, 1, 2)])
def test_nodes_without_a_name_are_called_as_conversion_calls_them(named: Sequence[int], tmp_path: Path) -> None:
    body = "g (float[N,4] x) => (float[N,4] y) { a = Erf(x) b = Tan(a) y = Sin(b) }"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {body}')
    for index in named:
        model.graph.node[index].name = f"own{index}"
    onnx.save(model, tmp_path / "model.onnx")
    slim(tmp_path / "model.onnx", tmp_path / "slim.onnx")
    names = ["Erf_a", "Tan_b", "Sin_y"]
    expected = [f"own{index}" if index in named else name for index, name in enumerate(names)]
    assert [node.name for node in onnx.load(tmp_path / "slim.onnx").graph.node] == expected


def test_an_operator_whose_types_onnx_does_not_infer_keeps_the_stated_ones(tmp_path: Path) -> None:
    text = """<ir_version: 10, opset_import: ["" : 21]> g (float[N,4,5] x) => (float[N,4,5] y)
    <float[N,4,5] h, float[4] w = {1.0, 2.0, 3.0, 4.0}>
    { h = GroupNormalization <num_groups = 2> (x, w, w) a = Relu(h) y = Identity(a) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    made = slim_or_keep(ModelFile(tmp_path / "m.onnx"))
    assert made.report.failed is None
    assert [node.op_type for node in made.model.graph] == ["GroupNormalization", "Relu"]
