"""ONNX files are read with every fault named, and written whole or not at all."""

import errno
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

from tests.conftest import ROOT
from tests.messages import expect, raises
from truehalf.conversion.rounding import half
from truehalf.ir import model_file as onnx_files
from truehalf.ir.model_file import load_model, model_size_mb, save_model

MODEL = '<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) { y = Relu(x) }'


def test_models_are_saved_checked_and_loaded(tmp_path: Path) -> None:
    onnx.save(onnx.parser.parse_model(MODEL), tmp_path / "in.onnx")
    model = load_model(tmp_path / "in.onnx")
    save_model(model, tmp_path / "out.onnx")
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["in.onnx", "out.onnx"]


def test_a_model_that_the_checker_refuses_replaces_nothing(tmp_path: Path) -> None:
    (tmp_path / "out.onnx").write_text("earlier")
    broken = MODEL.replace("Relu(x)", "NoSuchOperator(x)")
    onnx.save(onnx.parser.parse_model(broken), tmp_path / "in.onnx")
    with raises("model-invalid", "in.onnx", "NoSuchOperator"):
        save_model(load_model(tmp_path / "in.onnx"), tmp_path / "out.onnx")
    assert (tmp_path / "out.onnx").read_text() == "earlier"


@pytest.mark.parametrize(
    ("content", "code", "facts"),
    [(b"", "file-unreadable", [0]), (b"not a model at all", "file-unreadable", [18]), (None, "file-missing", [])],
)
def test_broken_models_are_named(tmp_path: Path, content: bytes | None, code: str, facts: list[object]) -> None:
    path = tmp_path / "m.onnx"
    if content is not None:
        path.write_bytes(content)
    with raises(code, path, *facts):
        load_model(path)


def test_a_truncated_model_is_named(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    data = onnx.parser.parse_model(MODEL).SerializeToString()
    path.write_bytes(data[: len(data) // 2])
    with raises("file-unreadable", path, len(data) // 2):
        load_model(path)


def test_the_long_name_of_onnxs_own_domain(tmp_path: Path) -> None:
    proto = onnx.parser.parse_model(MODEL)
    proto.opset_import[0].domain = proto.graph.node[0].domain = "ai.onnx"
    onnx.save(proto, tmp_path / "in.onnx")
    save_model(load_model(tmp_path / "in.onnx"), tmp_path / "out.onnx")
    assert [(entry.domain, entry.version) for entry in onnx.load(tmp_path / "out.onnx").opset_import] == [("", 17)]


# --- external data ----------------------------------------------------------------------------------------------------

PLACES = """<ir_version: 8, opset_import: ["" : 17]> g (float[2] x, bool c) => (float[2] y) {
    k = Constant<value = float[2] {5, 6}>()  a = Add(x, w)  b = Add(a, k)
    y = If(c) <then_branch = t () => (float[2] ty) <float[2] v = {3, 4}> { ty = Add(b, v) },
               else_branch = e () => (float[2] ey) { ey = Neg(b) }> }"""
VALUES = {"w": [1, 2], "v": [3, 4], "k": [5, 6]}


def external(tensor: onnx.TensorProto, location: Path | str, offset: int = 0, length: int | None = None) -> None:
    tensor.ClearField("raw_data")
    tensor.ClearField("float_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    entries = {"location": location, "offset": offset} | ({} if length is None else {"length": length})
    tensor.external_data.extend(onnx.StringStringEntryProto(key=key, value=str(entries[key])) for key in entries)


def places(folder: Path, **locations: Path | str | tuple[Path | str, int, int]) -> Path:
    """A model with weight w, w2 in a branch and a Constant k, those that are named in the file that is named."""
    model = onnx.parser.parse_model(PLACES)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1, 2], np.float32), "w"))
    tensors = {"w": model.graph.initializer[0], "k": model.graph.node[0].attribute[0].t}
    tensors["v"] = model.graph.node[3].attribute[0].g.initializer[0]
    for name, location in locations.items():
        external(tensors[name], *(location if isinstance(location, tuple) else (location,)))
        tensors[name].name = name
    path = folder / "m.onnx"
    folder.mkdir(exist_ok=True)
    onnx.save(model, path)
    return path


def weights(path: Path) -> dict[str, list[float]]:
    """What the three tensors of `places` hold, read by onnx."""
    graph = onnx.load(path).graph
    (branch,) = (a.g for n in graph.node for a in n.attribute if a.name == "then_branch")
    (constant,) = (a.t for n in graph.node if n.op_type == "Constant" for a in n.attribute)
    tensors = {"w": graph.initializer[0], "v": branch.initializer[0], "k": constant}
    return {name: onnx.numpy_helper.to_array(tensor).tolist() for name, tensor in tensors.items()}


def data(*values: float) -> bytes:
    return np.array(values, "<f4").tobytes()


@pytest.mark.parametrize("name", ["w", "v", "k"])
def test_missing_external_data_is_named(tmp_path: Path, name: str) -> None:
    with raises("file-missing", "m.onnx:", "'gone.bin'", f"'{name}'"):
        load_model(places(tmp_path, **{name: "gone.bin"}))


@pytest.mark.parametrize("name", ["w", "v", "k"])
@pytest.mark.parametrize("location", ["absolute", "../w.bin", "sub/../../w.bin", "link.bin", "up/w.bin"])
def test_external_data_outside_the_folder_is_refused(tmp_path: Path, name: str, location: str) -> None:
    (tmp_path / "w.bin").write_bytes(data(1, 2))
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "link.bin").symlink_to(tmp_path / "w.bin")
    (folder / "up").symlink_to(tmp_path)
    outside = tmp_path / "w.bin" if location == "absolute" else location
    with raises("unsafe-data", f"'{outside}'", f"'{name}'", folder.resolve()):
        load_model(places(folder, **{name: outside}))


def test_a_relative_path_checks_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "w.bin").write_bytes(data(1, 2))
    places(tmp_path / "model", w="../w.bin")
    monkeypatch.chdir(tmp_path / "model")
    for path in ("m.onnx", "../model/m.onnx"):
        with raises("unsafe-data", "'../w.bin'", "'w'"):
            load_model(path)


def test_a_hard_link_is_refused_before_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(data(1, 2))
    (tmp_path / "model").mkdir()
    (tmp_path / "model/w.bin").hardlink_to(tmp_path / "secret")
    with raises("unsafe-data", "'w.bin'", "'w'"):
        load_model(places(tmp_path / "model", w="w.bin"))


def test_files_inside_the_folder_are_read(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/w.bin").write_bytes(data(0, 1, 2))
    (tmp_path / "link.bin").symlink_to("sub/w.bin")
    model = load_model(places(tmp_path, w=("sub/../sub/w.bin", 4, 8), k=("link.bin", 0, 8)))
    assert model.graph.initializers["w"].const_value.numpy().tolist() == [1, 2]


@pytest.mark.parametrize(
    ("place", "facts"),
    [
        (("w.bin", 0, 8), ["'w.bin'", "'w'", 0, 8, 7]),
        (("w.bin", 4, 8), ["'w.bin'", "'w'", 4, 12, 7]),
        (("w.bin", -4, 8), ["m.onnx:", "offset", -4]),
    ],
)
def test_external_data_too_short(tmp_path: Path, place: tuple[str, int, int], facts: list[object]) -> None:
    (tmp_path / "w.bin").write_bytes(data(1, 2)[:7])
    with raises("file-unreadable", *facts):
        load_model(places(tmp_path, w=place))


def test_a_folder_is_no_model(tmp_path: Path) -> None:
    with raises("wrong-file", tmp_path):
        load_model(tmp_path)


@pytest.mark.parametrize("above", [0, 1_000_000])
def test_weights_go_outside_together_or_inside_together(
    tmp_path: Path, above: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_files, "_EXTERNAL_DATA_FROM", above)
    monkeypatch.setattr(onnx_files, "_INSIDE_UP_TO", 1)
    (tmp_path / "w.bin").write_bytes(data(1, 2, 3, 4, 5, 6))
    model = load_model(places(tmp_path, w=("w.bin", 0, 8), v=("w.bin", 8, 8), k=("w.bin", 16, 8)))
    for _ in range(2):  # a model stays as it is when it is saved
        save_model(model, tmp_path / "out/m16.onnx")
        assert weights(tmp_path / "out/m16.onnx") == VALUES
        found = {file.name: file.stat().st_size for file in (tmp_path / "out").iterdir()}
        assert found.get("m16.onnx.data") == (None if above else 16)
        assert model_size_mb(tmp_path / "out/m16.onnx") == sum(found.values()) / 1e6


def test_large_weights_start_on_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_files, "_EXTERNAL_DATA_FROM", 0)
    proto = onnx.parser.parse_model(MODEL)
    arrays = {
        "small": np.ones(300, np.float32),
        "large": np.arange((1 << 18) + 1, dtype=np.float32),
        "nibbles": None,
    }
    for name, array in arrays.items():
        tensor = (
            onnx.helper.make_tensor(name, onnx.TensorProto.INT4, [1001], np.arange(1001) % 8)
            if array is None
            else onnx.numpy_helper.from_array(array, name)
        )
        proto.graph.initializer.append(tensor)
    onnx.save(proto, tmp_path / "in.onnx")
    save_model(load_model(tmp_path / "in.onnx"), tmp_path / "out.onnx")
    stored = {
        tensor.name: tensor for tensor in onnx.load(tmp_path / "out.onnx", load_external_data=False).graph.initializer
    }
    offsets = {
        name: int(next(entry.value for entry in tensor.external_data if entry.key == "offset"))
        for name, tensor in stored.items()
        if tensor.external_data
    }
    assert offsets == {"small": 0, "large": 4096, "nibbles": 4100 + (1 << 20)}
    again = {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(tmp_path / "out.onnx").graph.initializer}
    for name, array in arrays.items():
        np.testing.assert_array_equal(again[name], np.arange(1001) % 8 if array is None else array)


def test_weights_pass_through_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_files, "_EXTERNAL_DATA_FROM", 1 << 20)
    count = 12 << 20
    (tmp_path / "w.bin").write_bytes(bytes(4 * count))
    proto = onnx.parser.parse_model(MODEL)
    for name in ("kept", "result"):
        proto.graph.initializer.append(onnx.TensorProto(name=name, data_type=1, dims=[count]))
        external(proto.graph.initializer[-1], "w.bin")
    onnx.save(proto, tmp_path / "in.onnx")
    model = load_model(tmp_path / "in.onnx")
    weight = model.graph.initializers["result"]
    weight.const_value, weight.dtype = half(weight.const_value, "result"), ir.DataType.FLOAT16
    tracemalloc.start()
    save_model(model, tmp_path / "out.onnx")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (tmp_path / "out.onnx.data").stat().st_size == 6 * count
    assert peak < 8_000_000  # bytes, beside 48 MB of weights in each tensor


# --- writing over what is there, and failing to write -----------------------------------------------------------------


def test_a_model_with_external_data_is_written_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_files, "_EXTERNAL_DATA_FROM", 0)
    monkeypatch.setattr(onnx_files, "_INSIDE_UP_TO", 1)
    (tmp_path / "m.onnx.data").write_bytes(data(3, 4, 1, 2))
    path = places(tmp_path, w=("m.onnx.data", 8, 8), v=("m.onnx.data", 0, 8))
    for _ in range(2):
        save_model(load_model(path), path)
        assert weights(path) == VALUES
    assert sorted(file.name for file in tmp_path.iterdir()) == ["m.onnx", "m.onnx.data"]


def test_the_weights_of_the_model_that_was_read_are_not_written_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_files, "_EXTERNAL_DATA_FROM", 0)
    monkeypatch.setattr(onnx_files, "_INSIDE_UP_TO", 1)
    (tmp_path / "out.onnx.data").write_bytes(data(1, 2))
    path = places(tmp_path, w="out.onnx.data")
    with raises("would-overwrite", tmp_path / "out.onnx.data", path, "out.onnx"):
        save_model(load_model(path), tmp_path / "out.onnx")
    assert weights(path) == VALUES
    assert sorted(file.name for file in tmp_path.iterdir()) == ["m.onnx", "out.onnx.data"]


def test_the_size_of_a_model_is_with_its_weights(tmp_path: Path) -> None:
    path = places(tmp_path, w="weights.bin")
    (tmp_path / "weights.bin").write_bytes(bytes(1000))
    assert model_size_mb(path) == (path.stat().st_size + 1000) / 1e6


def test_data_that_a_model_does_not_name_is_not_its_size(tmp_path: Path) -> None:
    path = places(tmp_path)
    (tmp_path / "m.onnx.data").write_bytes(bytes(1000))
    assert model_size_mb(path) == path.stat().st_size / 1e6


@pytest.mark.parametrize("place", ["folder", "file/out.onnx"])
def test_places_where_no_file_can_be_written(tmp_path: Path, place: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("a file")
    with raises("file-unwritable", place):
        save_model(load_model(places(tmp_path)), tmp_path / place)
    assert sorted(file.name for file in tmp_path.rglob("*")) == ["file", "folder", "m.onnx"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_write_permission(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir(mode=0o500)
    with raises("file-unwritable", os.strerror(errno.EACCES), "folder/out.onnx"):
        save_model(load_model(places(tmp_path)), tmp_path / "folder/out.onnx")


@pytest.mark.parametrize("limit", [100, 100_000])
def test_no_space_left(tmp_path: Path, limit: int) -> None:
    """A limit on file size, above or below the model without its weights, fails a write as a full disk does."""
    (tmp_path / "w.bin").write_bytes(bytes(400_000))
    proto = onnx.parser.parse_model(MODEL)
    proto.graph.initializer.append(onnx.TensorProto(name="w", data_type=1, dims=[100_000]))
    external(proto.graph.initializer[0], "w.bin")
    onnx.save(proto, tmp_path / "in.onnx")
    for name in ("out.onnx", "out.onnx.data"):
        (tmp_path / name).write_text("earlier")
    code = (
        "import resource, sys; from truehalf.ir import model_file; model_file._EXTERNAL_DATA_FROM = 0\n"
        f"model = model_file.load_model('in.onnx'); resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))\n"
        "try: model_file.save_model(model, 'out.onnx')\n"
        "except model_file.StageError as error: sys.exit(str(error))"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    expect(done.stderr, "file-unwritable", f"out.onnx: {os.strerror(errno.EFBIG)}")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["in.onnx", "out.onnx", "out.onnx.data", "w.bin"]
    assert (tmp_path / "out.onnx").read_text() == (tmp_path / "out.onnx.data").read_text() == "earlier"


@pytest.mark.parametrize("ending", ["json", "txtpb", "textproto", "onnxtxt"])
def test_broken_text_of_a_model_is_refused(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"m.{ending}"
    path.write_text("{ no model")
    with raises(None, path.name):
        load_model(path)
