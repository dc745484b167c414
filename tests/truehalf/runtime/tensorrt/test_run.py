"""An engine's buffers, shapes and values, on a stand-in that reads and writes at the addresses that it is given."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.messages import expect, raises
from tests.truehalf.runtime.tensorrt import recording
from tests.truehalf.runtime.tensorrt.recording import Tensor, World, module
from truehalf.runtime.tensorrt import run
from truehalf.runtime.tensorrt.run import Engine

torch = pytest.importorskip("torch")


class Stream:
    cuda_stream = 77

    def __init__(self) -> None:
        self.waited = 0

    def synchronize(self) -> None:
        self.waited += 1


@contextlib.contextmanager
def on(stream: Any) -> Iterator[None]:
    yield


@pytest.fixture
def engine_file(world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The file of an engine that computes scores = images.sum over all but the batch, on this machine's own memory."""
    monkeypatch.setattr(run, "DEVICE", "cpu")
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "stream", on)
    world.outputs = [Tensor("scores", shape=(-1, 2))]
    world.output_shapes = lambda shapes: {"scores": (shapes["images"][0], 2)}
    world.compute = lambda arrays: {
        "scores": np.stack([arrays["images"].sum((1, 2, 3)), arrays["images"].max((1, 2, 3))], 1)
    }
    path = tmp_path / "model.engine"
    path.write_bytes(b"an engine")
    return path


def images(batch: int) -> np.ndarray:
    return np.arange(batch * 192, dtype=np.float32).reshape(batch, 3, 8, 8)


def only_fault(error: pytest.ExceptionInfo[Exception]) -> str:
    """The one line below the first."""
    _, fault = str(error.value).splitlines()
    return fault


def test_an_engine_runs_on_what_it_is_given(world: World, engine_file: Path) -> None:
    engine = Engine(engine_file)
    for batch in (2, 4, 1):
        (scores,) = engine.run({"images": images(batch)}).values()
        assert scores.dtype == np.float32
        np.testing.assert_array_equal(scores[:, 1], images(batch).max((1, 2, 3)))
    assert world.arguments("IExecutionContext.set_input_shape") == [("images", (b, 3, 8, 8)) for b in (2, 4, 1)]
    assert world.arguments("IExecutionContext.execute_async_v3") == [(Stream.cuda_stream,)] * 3
    order = [name for name in world.called() if name.startswith("IExecutionContext")][:6]
    assert order == [
        f"IExecutionContext.{name}"
        for name in ("set_input_shape", "set_tensor_address", "infer_shapes", "get_tensor_shape", "set_tensor_address")
    ] + ["IExecutionContext.execute_async_v3"]


def test_io_and_profiles_are_told(world: World, engine_file: Path) -> None:
    world.profiles = 2
    engine = Engine(engine_file)
    assert engine.io == [
        {"name": "images", "mode": "INPUT", "dtype": "FLOAT", "shape": [-1, 3, 8, 8]},
        {"name": "scores", "mode": "OUTPUT", "dtype": "FLOAT", "shape": [-1, 2]},
    ]
    assert engine.profiles == [{"images": {"min": [1, 3, 8, 8], "opt": [2, 3, 8, 8], "max": [4, 3, 8, 8]}}] * 2


def test_a_profile_is_set_when_it_changes(world: World, engine_file: Path) -> None:
    world.profiles = 2
    engine = Engine(engine_file)
    for profile in (0, 1, 1, 0):
        engine.run({"images": images(1)}, profile)
    assert world.arguments("IExecutionContext.set_optimization_profile_async") == [(1, 77), (0, 77)]


def test_floats_are_rounded_to_the_engine_s_type(world: World, engine_file: Path) -> None:
    world.inputs[0].dtype = world.outputs[0].dtype = "HALF"
    scores = Engine(engine_file).run({"images": images(1) / 7})["scores"]
    assert scores.dtype == np.float16
    assert scores[0, 1] == np.float16(191 / np.float32(7))


def test_a_shape_tensor_is_read_from_the_host(world: World, engine_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copied, copy = [], torch.from_numpy
    monkeypatch.setattr(torch, "from_numpy", lambda array: copied.append(array.shape) or copy(array))
    world.inputs.append(Tensor("size", "INT64", (2,), values=((1, 1), (4, 4), (9, 9))))
    world.compute = lambda arrays: {"scores": np.tile(arrays["size"], (1, 1))}
    world.output_shapes = lambda shapes: {"scores": (1, 2)}
    engine = Engine(engine_file)
    assert engine.profiles[0]["size"] == {"min": [1, 1], "opt": [4, 4], "max": [9, 9]}
    feeds = {"images": images(1), "size": np.array([3, 5])}
    np.testing.assert_array_equal(engine.run(feeds)["scores"], [[3, 5]])
    assert copied == [(1, 3, 8, 8)], "the values stay where TensorRT reads them"
    assert [name for name, _ in world.arguments("IExecutionContext.set_input_shape")] == ["images"]
    with raises("wrong-feeds", engine_file) as error:
        engine.run(feeds | {"size": np.array([3, 10])})
    expect(only_fault(error), "out-of-range", "'size'", "[3, 10]", 0, "[1, 1]", "[9, 9]")
    with raises("wrong-feeds", engine_file) as error:
        engine.run(feeds | {"size": np.array([3])})
    expect(only_fault(error), "wrong-shape", "'size'", "[2]", "[1]")


def test_values_that_tensorrt_does_not_tell_are_not_checked(world: World, engine_file: Path) -> None:
    world.inputs.append(Tensor("size", "INT64", (2,), values=()))
    engine = Engine(engine_file)
    assert "size" not in engine.profiles[0]
    assert engine.run({"images": images(1), "size": np.array([3, 10**6])})["scores"].shape == (1, 2)


def test_an_output_whose_size_depends_on_data_gets_memory_when_it_is_known(world: World, engine_file: Path) -> None:
    world.outputs.append(Tensor("kept", "INT64", (-1,)))
    world.output_shapes = lambda shapes: {"scores": (1, 2), "kept": (-1,)}
    world.compute = lambda arrays: {"scores": np.zeros((1, 2)), "kept": np.flatnonzero(arrays["images"] > 180)}
    np.testing.assert_array_equal(Engine(engine_file).run({"images": images(1)})["kept"], np.arange(181, 192))
    world.compute = lambda arrays: {"scores": np.zeros((1, 2)), "kept": np.zeros(0)}
    assert Engine(engine_file).run({"images": images(1)})["kept"].shape == (0,)


def test_an_output_s_memory_is_used_again_and_grows(world: World, engine_file: Path) -> None:
    """The context keeps every allocator that it is given, and with it its memory."""
    world.outputs = [Tensor("kept", "INT64", (-1,))]
    world.output_shapes = lambda shapes: {"kept": (-1,)}
    counts = (4, 2, 101, 3)
    results: list[np.ndarray] = []
    world.compute = lambda arrays: {"kept": np.flatnonzero(arrays["images"] >= 192 - counts[len(results)])}
    engine = Engine(engine_file)
    for _ in counts:
        results.append(engine.run({"images": images(1)})["kept"])
    (given,) = world.arguments("IExecutionContext.set_output_allocator")
    assert given[0] == "kept" and given[1].memory.numel() == 101 * 8, "grown once, for the largest"
    for count, kept in zip(counts, results, strict=True):
        np.testing.assert_array_equal(kept, np.arange(192 - count, 192))
    world.compute = lambda arrays: {}
    with raises("runtime-refuses", engine_file, "'kept'"):
        engine.run({"images": images(1)})


def test_an_empty_output_has_an_address_all_the_same(world: World, engine_file: Path) -> None:
    world.output_shapes = lambda shapes: {"scores": (0, 2)}
    world.compute = lambda arrays: {}
    assert Engine(engine_file).run({"images": images(1)})["scores"].shape == (0, 2)


def test_all_that_is_wrong_with_feeds_is_said_at_once(engine_file: Path) -> None:
    engine = Engine(engine_file)
    with raises("wrong-feeds", engine_file) as error:
        engine.run({"images": images(5), "other": images(1)})
    _, other, shape = str(error.value).splitlines()
    expect(other, "wrong-name", "'other'", "images")
    expect(shape, "out-of-range", "'images'", "[5, 3, 8, 8]", 0, "[1, 3, 8, 8]", "[4, 3, 8, 8]")
    with raises("wrong-feeds", engine_file) as error:
        engine.run({"images": images(1).astype(np.int64)})
    expect(only_fault(error), "wrong-dtype", "'images'", "float32", "int64")
    with raises("wrong-feeds", engine_file) as error:
        engine.run({})
    expect(only_fault(error), "missing-key", "'images'")
    with raises("out-of-range", engine_file, 1, 0):
        engine.run({"images": images(1)}, 1)


def test_a_fixed_input_has_its_shape(world: World, engine_file: Path) -> None:
    world.inputs = [Tensor("images", shape=(1, 3, 8, 8))]
    engine = Engine(engine_file)
    assert engine.profiles == [{}]
    engine.run({"images": images(1)})
    with raises("wrong-feeds", engine_file) as error:
        engine.run({"images": images(2)})
    expect(only_fault(error), "wrong-shape", "'images'", "[1, 3, 8, 8]", "[2, 3, 8, 8]")


@pytest.mark.parametrize(
    ("change", "code", "facts"),
    [
        ({"starts": False}, "no-device", ["TensorRT"]),
        ({"reads": False}, "file-unreadable", ["TensorRT"]),
        ({"contexts": False}, "runtime-refuses", ["GPU"]),
        ({"outputs": [Tensor("scores", "FP8", (1,))]}, "wrong-dtype", ["scores", "FP8", "FLOAT", "HALF"]),
    ],
)
def test_an_engine_that_cannot_be_used_is_refused(
    world: World, engine_file: Path, change: dict[str, Any], code: str, facts: list[str]
) -> None:
    world.__dict__.update(change)
    version = [module(world).__version__] if code in ("no-device", "file-unreadable") else []
    with raises(code, engine_file, *version, *facts):
        Engine(engine_file)


def test_what_tensorrt_refuses_at_run_time_is_said(world: World, engine_file: Path) -> None:
    engine = Engine(engine_file)
    world.runs = False
    with raises("runtime-refuses", engine_file) as error:
        engine.run({"images": images(1)})
    assert "IExecutionContext.execute_async_v3" in world.called() and "size" not in str(error.value)
    world.unknown_shapes = ["size"]
    with raises("runtime-refuses", engine_file, "size"):
        engine.run({"images": images(1)})


def test_what_the_bindings_raise_is_said_of_the_engine(world: World, engine_file: Path) -> None:
    world.profiles = 2
    engine = Engine(engine_file)
    world.switches_profiles = False
    with raises("runtime-refuses", engine_file, 1, recording.NO_SWITCH):
        engine.run({"images": images(1)}, 1)
    world.infers = False
    with raises("runtime-refuses", engine_file, recording.NO_SHAPES):
        engine.run({"images": images(1)})


def test_plugins_come_first_and_code_of_the_engine_s_own_only_when_told(world: World, engine_file: Path) -> None:
    world.libraries = {"libmine.so"}
    Engine(engine_file, [engine_file.parent / "libmine.so"])
    order = world.called()
    assert order.index("IPluginRegistry.load_library") < order.index("Runtime.deserialize_cuda_engine")
    Engine(engine_file, version_compatible=True)
    assert world.arguments("set Runtime.engine_host_code_allowed") == [(False,), (True,)]
    with raises("file-unreadable", engine_file.parent / "libother.so"):
        Engine(engine_file, [engine_file.parent / "libother.so"])


def test_stripped_weights_are_put_back(world: World, engine_file: Path) -> None:
    Engine(engine_file, weights="model.onnx")
    assert world.arguments("OnnxParserRefitter.refit_from_file") == [("model.onnx",)]
    order = world.called()
    assert order.index("Refitter.refit_cuda_engine") < order.index("ICudaEngine.create_execution_context")


def test_without_a_gpu_it_says_so(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with raises("no-device", tmp_path / "model.engine", "CUDA"):
        Engine(tmp_path / "model.engine")
    assert world.called() == []
