"""Arrays by name in .npz files: whatever ONNX may call a tensor goes there and back."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.configurations import composed
from tests.messages import raises
from truehalf.config.validate import validate
from truehalf.data.arrays import read_arrays, read_headers, write_arrays
from truehalf.data.feeds import load_feeds
from truehalf.data.npz import drawn
from truehalf.ir.model_file import load_model

NAMES = [
    *(
        "x",
        "file",
        "allow_pickle",
        "self",
        "args",
        "kwds",
        "arr_0",
        "0",
        "images:0",
        "input.1",
        "batch size",
        "onnx::Add_3",
    ),
    *(
        "",
        " ",
        ".",
        "..",
        "../../up",
        "/absolute",
        "a/b/c",
        "a\\b",
        "a.npy",
        "a.npy.npy",
        ".npy",
        "a\0b",
        "\0",
        "'\"`$%&",
    ),
    *("größe", "输入", "🙂", "e\u0301", "\u00e9", "A", "a", "CON", "a\nb", "n" * 300, "ü" * 20_000),
]

CONFIG = validate(composed("data=npz", "data.file=a.npz"))


def arrays(names: list[str]) -> dict[str, np.ndarray]:
    """Each name's own array, of 2 samples."""
    return {name: np.full((2, 3), i, np.float32 if i % 2 else np.int64) for i, name in enumerate(names)}


def same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    return list(one) == list(other) and all(
        one[name].dtype == other[name].dtype and np.array_equal(one[name], other[name]) for name in one
    )


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_any_name(name: str, tmp_path: Path) -> None:
    write_arrays(tmp_path / "a.npz", arrays([name]))
    assert same(read_arrays(tmp_path / "a.npz"), arrays([name])) and list(read_headers(tmp_path / "a.npz")) == [name]
    assert [path.name for path in tmp_path.rglob("*")] == ["a.npz"]


@pytest.mark.parametrize("seed", range(8))
def test_any_names_together(seed: int, tmp_path: Path) -> None:
    """Also such that are another's with an ending, in another case, or up to a NUL."""
    draw = random.Random(seed)
    names = draw.sample(NAMES, 8)
    names = list(
        dict.fromkeys([*names, *(draw.choice(["{}.npy", "{}\0", "{}/", "{}.", "./{}"]).format(n) for n in names)])
    )
    given = arrays(names)
    write_arrays(tmp_path / "a.npz", given)
    assert same(read_arrays(tmp_path / "a.npz"), given)


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_samples_by_any_name(name: str, tmp_path: Path) -> None:
    """Both readers of samples: of feeds for a file, and of data=npz."""
    given = arrays([name, f"{name}.npy"])
    write_arrays(tmp_path / "a.npz", given)
    rows = drawn(CONFIG, tmp_path, "verification", 0, 2)
    assert all(list(rows.item(i).arrays) == list(given) for i in range(2))
    assert all(np.array_equal(rows.item(1).arrays[key], given[key][1]) for key in given)
    if "\0" in name or len(name) > 1000:
        return
    ends = [
        onnx.helper.make_tensor_value_info(key, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), ["n", 3])
        for key, array in given.items()
    ]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Identity", [ends[0].name], ["y"])], "g", ends, [])
    graph.output.append(onnx.helper.make_tensor_value_info("y", ends[0].type.tensor_type.elem_type, ["n", 3]))
    onnx.save(onnx.helper.make_model(graph), tmp_path / "m.onnx")
    feeds = list(load_feeds(tmp_path / "a.npz", load_model(tmp_path / "m.onnx")))
    assert same(feeds[0], given)


def test_numpy_reads_what_is_written(tmp_path: Path) -> None:
    given = {"a": np.arange(6, dtype=np.float16).reshape(2, 3), "b": np.array(True), "c/d": np.zeros((0, 2), np.uint8)}
    write_arrays(tmp_path / "a.npz", given | {"f": np.asfortranarray(np.ones((2, 3)))})
    with np.load(tmp_path / "a.npz", allow_pickle=False) as stored:
        assert all(np.array_equal(stored[name], array) for name, array in given.items()) and len(stored.files) == 4


def test_no_pickles(tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        write_arrays(tmp_path / "a.npz", {"a": np.array([{}], object)})
    np.savez(tmp_path / "a.npz", a=np.array([{}], object))
    with raises("file-unreadable", tmp_path / "a.npz"):
        read_arrays(tmp_path / "a.npz")
