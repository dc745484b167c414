"""Sessions: what runs is recorded, what cannot run is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

from tests.messages import raises
from truehalf.ir.model_file import load_model
from truehalf.runtime import ort as module
from truehalf.runtime.ort import CPU, CUDA, Session, cpu_float_nodes, kernels_of

TEXT = """<ir_version: 9, opset_import: ["" : 17]>
g (float[N,2] x) => (float[N,2] y, float[N,2] z) <float[2] w = {1.0, 2.0}> { y = Add(x, w)  z = Mul(x, w) }"""
X = np.ones((3, 2), np.float32)
MIXED = """<ir_version: 9, opset_import: ["" : 17]>
g (float[N,2] x) => (float[N,2] y, float[N,2] c, float16[N,2] r, int64[2] s) <float[2] w = {1.0, 2.0}> {
    [half] h = Cast <to = 10> (x)
    [double] d = Add (h, h)
    [back] f = Cast <to = 1> (d)
    [scale] y = Mul (f, w)
    [twice] c = Add (y, x)
    [round] r = Cast <to = 10> (y)
    [size] s = Shape (y)
}"""


def proto() -> onnx.ModelProto:
    return onnx.parser.parse_model(TEXT)


def test_file_bytes_and_model_give_the_same(tmp_path: Path) -> None:
    onnx.save(proto(), tmp_path / "model.onnx")
    for model in (tmp_path / "model.onnx", proto().SerializeToString(), ir.from_proto(proto())):
        session = Session(model)
        assert (session.provider, session.output_names) == (CPU, ["y", "z"])
        result = session.run({"x": X})
        assert list(result) == ["y", "z"]
        np.testing.assert_array_equal(result["y"], [[2, 3]] * 3)
        assert list(session.run({"x": X}, ["z"])) == ["z"]


@pytest.mark.parametrize("count", [1, 4000])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64, np.int64, np.int32, np.uint8, np.bool_])
@pytest.mark.parametrize("inside", [False, True])
def test_weights_in_files_reach_a_model_in_memory(inside: bool, dtype: type, count: int, tmp_path: Path) -> None:
    """Of any type and size, in the graph or in the body of an If."""
    values = np.random.default_rng(0).integers(0, 2, count).astype(dtype)
    head = '<ir_version: 10, opset_import: ["": 21]> g (float[n] x, bool yes) => (float[m] y)'
    body = "c = Cast<to = 1>(w) y = Add(x, c)"
    if inside:
        body = f"""y = If(yes) <then_branch = a () => (float[m] p) <float[1] u = {{0}}> {{ {body.replace("y", "p")} }},
            else_branch = b () => (float[m] q) {{ q = Neg(x) }}>"""
    proto = onnx.parser.parse_model(f"{head} {{ {body} }}")
    graph = proto.graph.node[0].attribute[0].g if inside else proto.graph
    graph.initializer.append(onnx.numpy_helper.from_array(values, "w"))
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    model, feeds = load_model(tmp_path / "m.onnx"), {"x": np.ones(count, np.float32), "yes": np.array(True)}
    before = [value.const_value for each in model.graphs() for value in each.initializers.values()]
    np.testing.assert_array_equal(Session(model).run(feeds)["y"], 1 + values.astype(np.float32))
    assert [value.const_value for each in model.graphs() for value in each.initializers.values()] == before


def test_a_weight_that_nothing_reads_is_no_fault() -> None:
    model = ir.from_proto(proto())
    unused = ir.val("unused", const_value=ir.tensor(np.zeros(1024, np.float32), name="unused"))
    model.graph.register_initializer(unused)
    np.testing.assert_array_equal(Session(model).run({"x": X})["y"], [[2, 3]] * 3)


@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
def test_weights_in_memory_are_copied_when_the_session_is_made(optimize: bool, dtype: type) -> None:
    """They may change or go afterwards; what infers shapes stays in the model, whatever its size."""
    weights = np.arange(600, dtype=dtype).reshape(20, 30)
    rows = np.array([30, 20], np.int64)
    w, s = (ir.val(n, const_value=ir.tensor(a, name=n)) for n, a in (("w", weights), ("s", rows)))
    x = ir.val("x", shape=ir.Shape([1]), type=ir.TensorType(ir.DataType.from_numpy(np.dtype(dtype))))
    flat = ir.node("Reshape", [w, s], name="flat")
    add = ir.node("Add", [flat.outputs[0], x], name="add")
    add.outputs[0].name, add.outputs[0].type = "y", x.type
    flat.outputs[0].name = "f"
    graph = ir.Graph([x], [add.outputs[0]], nodes=[flat, add], initializers=[w, s], opset_imports={"": 17}, name="g")
    model = ir.Model(graph, ir_version=9)
    before = ir.to_proto(model)
    session = Session(model, optimize=optimize)
    assert ir.to_proto(model) == before
    expected = weights.reshape(30, 20) + 1
    weights[:] = 0
    np.testing.assert_array_equal(session.run({"x": np.ones(1, dtype)})["y"], expected)


def test_options_with_a_dot_are_entries_of_the_configuration() -> None:
    session = Session(proto().SerializeToString(), **{"session.disable_prepacking": "1", "intra_op_num_threads": 1})
    np.testing.assert_array_equal(session.run({"x": X})["z"], [[1, 2]] * 3)
    with raises("runtime-refuses", "stoi"):
        Session(proto().SerializeToString(), **{"session.graph_optimizations_loop_level": "none"})


def test_a_missing_provider_is_never_replaced() -> None:
    with raises("no-device", "NoSuchProvider", CPU):
        Session(proto().SerializeToString(), provider="NoSuchProvider")


def test_repeated_names_are_said_with_what_mends_them() -> None:
    model = proto()
    for node in model.graph.node:
        node.name = "same"
    with raises("runtime-refuses", "same", "truehalf repair"):
        Session(model.SerializeToString())


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "broken.onnx"
    path.write_bytes(proto().SerializeToString()[:-40])
    with raises("runtime-refuses", "broken.onnx"):
        Session(path)


def test_a_failing_run_says_why_once(capfd: pytest.CaptureFixture[str]) -> None:
    session = Session(proto().SerializeToString())
    with raises("runtime-refuses", "x"):
        session.run({"x": np.ones((3, 5), np.float32)})
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[a] x, float[b] y) => (float[c] z) { z = Add(x, y) }'
    session = Session(onnx.parser.parse_model(text).SerializeToString())
    with raises("runtime-refuses", "Add"):
        session.run({"x": np.ones(3, np.float32), "y": np.ones(2, np.float32)})
    assert capfd.readouterr().err == ""


def profile(folder: Path) -> list[dict[str, Any]]:
    """What ONNX Runtime writes of a run of MIXED on the CPU provider, where FP16 is gone but for the output `r`."""
    options = {"enable_profiling": True, "profile_file_prefix": str(folder / "run"), "optimize": False}
    session = Session(onnx.parser.parse_model(MIXED).SerializeToString(), **options)
    session.run({"x": X})
    return json.loads(Path(session._session.end_profiling()).read_text())


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("Short. And whole\nand more", "Short. And whole"),
        ("words " * 100, "words " * 66 + "word"),
        (
            "Status Message: /onnxruntime_src/a/b.h:58 void ort::Init(long, long) axis == 1 was false",
            ": axis == 1 was false",
        ),
    ],
)
def test_what_onnx_runtime_says_is_cut(text: str, end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError(text)

    monkeypatch.setattr(module, "_open", fail)
    with raises("runtime-refuses", "m.onnx") as error:
        Session(tmp_path / "m.onnx")
    assert str(error.value).endswith(f"{end} [runtime-refuses]")


def test_nodes_that_compute_floats_on_the_cpu_are_read_from_a_profile(tmp_path: Path) -> None:
    events = profile(tmp_path)
    assert {"Cast", "Shape"} <= {event.get("args", {}).get("op_name") for event in events}
    assert cpu_float_nodes(kernels_of(events)) == ["double (Add)", "scale (Mul)", "twice (Add)"]
    for event in events:
        if event["name"] in ("scale_kernel_time", "twice_kernel_time"):
            event["args"]["provider"] = CUDA
    assert cpu_float_nodes(kernels_of(events + events)) == ["double (Add)"], "named once, however often it ran"


def test_a_session_that_reads_where_its_nodes_ran_does_so_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.tempfile, "tempdir", str(tmp_path))
    session = Session(onnx.parser.parse_model(MIXED).SerializeToString(), CPU, optimize=False, profiled=True)
    assert session.kernels is None
    for _ in range(2):
        np.testing.assert_array_equal(session.run({"x": X})["y"], [[2, 4]] * 3)
        assert cpu_float_nodes(session.kernels or []) == ["double (Add)", "scale (Mul)", "twice (Add)"]
        assert list(tmp_path.iterdir()) == []
    assert session.cpu_nodes is None
    rows = {row["name"]: row for row in session.kernels or []}
    assert rows["scale"] == {
        "name": "scale",
        "type": "Mul",
        "provider": CPU,
        "outputs": ["float"],
    }
    assert rows["round"]["outputs"] == ["float16"]


def test_a_cpu_session_profiles_nothing() -> None:
    session = Session(proto().SerializeToString())
    session.run({"x": X})
    assert session.cpu_nodes is None and session.kernels is None


def test_a_provider_counts_where_a_session_gets_it(capfd: pytest.CaptureFixture[str]) -> None:
    assert CPU in module.loadable_providers()
    assert "EP Error" not in "".join(capfd.readouterr()), "that a provider does not load is no fault to print"


@pytest.mark.parametrize(("options", "tf32"), [(None, "0"), ({"use_tf32": "1"}, "1")])
def test_tf32_is_off_unless_asked_for(options: Any, tf32: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import onnxruntime as ort

    asked: list[Any] = []

    def refuse(model: Any, settings: Any, providers: Any) -> None:
        asked.extend(providers)
        raise RuntimeError("refused-by-test")

    monkeypatch.setattr(ort, "InferenceSession", refuse)
    monkeypatch.setattr(ort, "get_available_providers", lambda: [CUDA, CPU])
    with raises("runtime-refuses", "refused-by-test"):
        Session(proto().SerializeToString(), CUDA, provider_options=options)
    assert asked == [(CUDA, {"use_tf32": tf32})]


def test_a_silent_fall_back_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """ONNX Runtime opens the session on the CPU where CUDA does not load; it says so in its log alone."""
    import onnxruntime as ort

    real = ort.InferenceSession
    monkeypatch.setattr(ort, "get_available_providers", lambda: [CUDA, CPU])
    monkeypatch.setattr(ort, "InferenceSession", lambda path, settings, providers: real(path, settings, [CPU]))
    with raises("no-device", CPU, CUDA):
        Session(proto().SerializeToString(), CUDA)


@pytest.mark.parametrize("weights", ["inside", "beside"])
def test_a_later_version_of_the_file_format_is_run(weights: str, tmp_path: Path) -> None:
    path, newer = tmp_path / "m.onnx", onnx.IR_VERSION + 1
    model = onnx.parser.parse_model(
        f'<ir_version: {newer}, opset_import: ["": 17]> g (float[2] x) => (float[2] y) {{ y = Mul(x, w) }}'
    )
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([2, 3], np.float32), "w"))
    beside = {"save_as_external_data": True, "location": "w.bin", "size_threshold": 0} if weights == "beside" else {}
    onnx.save(model, path, **beside)
    for form in (path, load_model(path)):
        np.testing.assert_array_equal(Session(form).run({"x": np.ones(2, np.float32)})["y"], [2, 3])


def test_a_file_that_is_no_model_is_told_as_before(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"no model")
    with raises("runtime-refuses"):
        Session(tmp_path / "m.onnx")
