"""Arrays that come with a file: read as they stand, or refused with everything that is wrong."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from tests.messages import expect, raises
from truehalf.codes import codes_in
from truehalf.data.model_samples import model_samples
from truehalf.data.samples import Feeds
from truehalf.ir.facts import fixed_batch

IMAGES = "(float[N,2,3] images, int64[2] size) => (float[N,2,3] y) { y = Relu(images) }"
ROWS = "(float[N,2,3] images, int64[N,2] size) => (float[N,2,3] y) { y = Relu(images) }"
X = np.arange(24, dtype=np.float32).reshape(4, 2, 3)
SIZE = np.array([[640, 480], [1, 2], [3, 4], [5, 6]], np.int64)


def model_of(text: str = IMAGES) -> ir.Model:
    return ir.from_onnx_text(f'<ir_version: 8, opset_import: ["": 17]> g {text}')


def feeds_of(source: Any, text: str = IMAGES) -> Feeds:
    model = model_of(text)
    return Feeds(model_samples(source, model), fixed_batch(model) or 1)


def faults(source: Any, text: str = IMAGES) -> list[str]:
    with raises("wrong-feeds") as error:
        feeds_of(source, text)
    return [line.removeprefix("  - ") for line in str(error.value).splitlines()[1:]]


# --- how arrays become samples ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("inputs", "whole"),
    [
        ("float[N,2,3] images", False),
        ("float[2,2,3] images", False),
        ("float[?,2,3] images", False),
        ("float[N,2,3] images, int64[N] n", False),
        ("float[2,2,3] images, int64[N] n", False),
        ("float[N,2,3] images, int64[M] n", True),
        ("float[2,2,3] images, int64[4] n", True),
        ("float[N,2,3] images, int64 n", True),
    ],
)
def test_rows_are_samples_where_axis_0_counts_them(inputs: str, whole: bool) -> None:
    rows = 2
    arrays = {"images": X[:rows], "n": np.arange(4)[: 4 if "int64[4]" in inputs else rows]}
    given = {name: array for name, array in arrays.items() if f" {name}" in inputs}
    if inputs.endswith("int64 n"):
        given["n"] = np.int64(3)
    samples = model_samples(given, model_of(f"({inputs}) => (float[K,2,3] y) {{ y = Relu(images) }}"))
    assert samples.whole is whole and samples.names == (["feed"] if whole else ["feed[0]", "feed[1]"])
    shape = (rows, 2, 3) if whole else (2, 3)
    assert all(sample.arrays["images"].shape == shape for sample in samples)


def test_rows_of_one_feed_go_in_as_they_stand_where_the_model_fixes_no_batch() -> None:
    samples = model_samples({"images": X, "size": SIZE}, model_of(ROWS))
    (feed,) = Feeds(samples, None)
    assert (feed["images"] == X).all() and (feed["size"] == SIZE).all()
    assert [one["images"].shape for one in Feeds(samples.only([2, 0, 0]), None)] == [(1, 2, 3)] * 3
    assert samples.only([2, 0, 0]).names == ["feed[2]", "feed[0]", "feed[0]"]


def test_feeds_of_several_rows_are_samples_as_they_stand() -> None:
    samples = model_samples([{"images": X[:1], "size": SIZE[:1]}, {"images": X[1:], "size": SIZE[1:]}], model_of(ROWS))
    assert samples.whole and samples.names == ["feed[0]", "feed[1]"]
    assert [len(feed["size"]) for feed in Feeds(samples, 1)] == [1, 3]


def test_one_more_leading_axis_is_a_stack_of_samples_as_they_stand() -> None:
    samples = model_samples({"images": X[:, None], "size": SIZE}, model_of())
    assert samples.whole and samples.names == [f"feed[{number}]" for number in range(4)]
    for feed, image, size in zip(Feeds(samples, 1), X, SIZE, strict=True):
        assert (feed["images"] == image[None]).all() and (feed["size"] == size).all()


def test_scalars_empty_arrays_defaults_unknown_ranks_and_no_inputs() -> None:
    text = "(float x, float[K] e) => (float y) { y = Neg(x) }"
    (feed,) = feeds_of({"x": np.float32(3), "e": np.zeros(0, np.float32)}, text)
    assert (feed["x"].shape, feed["x"].item(), feed["e"].shape) == ((), 3, (0,))
    text = "(float[2] x, float[2] w) => (float[2] y) <float[2] w = {1.0, 2.0}> { y = Add(x, w) }"
    x = np.ones(2, np.float32)
    assert [list(feed) for feed in feeds_of({"x": x[:1].repeat(2)}, text)] == [["x"]]
    model = model_of()
    model.graph.inputs[0].shape = None
    (sample,) = model_samples({"images": X[None], "size": SIZE[0]}, model)
    assert sample.arrays["images"].shape == (1, *X.shape)
    assert list(feeds_of({}, "() => (float[1] y) { y = Constant<value_floats = [1.0]>() }")) == [{}]


@pytest.mark.parametrize(
    ("fixed", "rows", "feeds"),
    [(1, 3, [[0], [1], [2]]), (2, 4, [[0, 1], [2, 3]]), (2, 3, [[0, 1], [2, 2]]), (4, 1, [[0, 0, 0, 0]])],
)
def test_rows_are_cut_into_the_batch_that_the_model_fixes(fixed: int, rows: int, feeds: list[list[int]]) -> None:
    text = f"(float[{fixed},3] a, int64[{fixed}] b) => (float[{fixed},3] y) {{ y = Relu(a) }}"
    a, b = np.arange(rows * 3, dtype=np.float32).reshape(rows, 3), np.arange(rows, dtype=np.int64)
    read = feeds_of({"a": a, "b": b}, text)
    assert [feed["b"].tolist() for feed in read] == feeds
    for feed, chosen in zip(read, feeds, strict=True):
        np.testing.assert_array_equal(feed["a"], a[chosen])


# --- files ------------------------------------------------------------------------------------------------------------


def test_a_file_and_a_folder_of_files_read_one_at_a_time(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "b.npz", images=X[:2], size=SIZE[:2])
    np.savez(tmp_path / "a.npz", images=X[2:3], size=SIZE[2:3])
    (tmp_path / "notes.txt").write_text("not data")
    assert feeds_of(str(tmp_path / "b.npz"), ROWS).names == ["b[0]", "b[1]"]
    samples = model_samples(tmp_path, model_of(ROWS))
    assert samples.names == ["a", "b"] and [path.name for path in samples.paths] == ["a.npz", "b.npz"]
    (tmp_path / "b.npz").write_bytes(b"PK")  # found only when its turn comes
    assert samples[0].arrays["size"].tolist() == [[3, 4]]
    with raises("file-unreadable", tmp_path / "b.npz"):
        _ = samples[1]


def test_faults_of_files(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.npz").write_text("hello")
    np.savez(tmp_path / "pickled.npz", images=np.array([{"a": 1}], dtype=object))
    np.savez(tmp_path / "whole.npz", images=X)
    (tmp_path / "half.npz").write_bytes((tmp_path / "whole.npz").read_bytes()[:150])
    for name, code, facts in (
        ("empty", "file-missing", [".npz"]),
        ("absent.npz", "file-missing", ["JSON"]),
        ("text.npz", "file-unreadable", [".npz", "JSON", "5 bytes"]),
        ("pickled.npz", "file-unreadable", ["'images'", "pickled"]),
        ("half.npz", "file-unreadable", ["150 bytes"]),
    ):
        with raises(code, tmp_path / name, *facts):
            feeds_of(tmp_path / name)
    with raises("wrong-type", ".npz", "JSON", "dict", "int"):
        feeds_of(3)


class Tensor:
    """As torch's: one that has a gradient gives no array before it is detached."""

    def __init__(self, array: np.ndarray, has_gradient: bool = True) -> None:
        self._array, self._has_gradient = array, has_gradient

    def detach(self) -> Tensor:
        return Tensor(self._array, has_gradient=False)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if self._has_gradient:
            raise RuntimeError("Can't call numpy() on Tensor that requires grad")
        return self._array


def test_tensors_are_read_and_ragged_lists_refused() -> None:
    (feed,) = feeds_of({"images": Tensor(X[:1]), "size": SIZE[0]})
    np.testing.assert_array_equal(feed["images"], X[:1])
    with raises("wrong-type", "'images'"):
        feeds_of({"images": [[1, 2], [3]], "size": SIZE[0]})


# --- faults of arrays -------------------------------------------------------------------------------------------------


def test_all_faults_are_reported_together() -> None:
    found = faults({"images": X.astype(np.float64), "image": X})
    assert [codes_in(fault) for fault in found] == [["wrong-dtype"], ["wrong-name"], ["missing-key"]]
    expect(found[0], None, "feed", "'images'", "float32 [N, 2, 3]", "float64 [4, 2, 3]")
    expect(found[1], None, "feed", "'image'", "'images', 'size'")
    expect(found[2], None, "feed", "'size'", "int64 [2]")


@pytest.mark.parametrize("shape", [(2, 3), (1, 2, 4), (5, 1, 2, 3), ()])
def test_wrong_shapes(shape: tuple[int, ...]) -> None:
    (fault,) = faults({"images": np.zeros(shape, np.float32), "size": SIZE[0]})
    expect(fault, "wrong-shape", "feed", "'images'", "float32 [N, 2, 3]", f"float32 {list(shape)}")


def test_rows_are_not_cut_where_inputs_have_different_numbers_of_them() -> None:
    text = "(float[2,3] a, int64[4] b) => (float[2,3] y) { y = Relu(a) }"
    (fault,) = faults({"a": np.zeros((4, 3), np.float32), "b": np.zeros(4, np.int64)}, text)
    expect(fault, "wrong-shape", "'a'", "float32 [2, 3]", "float32 [4, 3]")


def test_no_samples() -> None:
    for nothing in ({"images": X[:0], "size": SIZE[:0]}, []):
        (fault,) = faults(nothing, ROWS)
        expect(fault, "too-few-samples")


# --- Polygraphy -------------------------------------------------------------------------------------------------------

# What save_json of Polygraphy 0.53 writes for [{"images": float32 zeros [1, 1, 1]}].
POLYGRAPHY = """[
    {
        "images": {
            "array": "k05VTVBZAQB2AHsnZGVzY3InOiAnPGY0JywgJ2ZvcnRyYW5fb3JkZXInOiBGYWxzZSwgJ3NoYXBlJzogKDEsIDEsIDEpLCB9ICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgIAoAAAAA",
            "polygraphy_class": "ndarray"
        }
    }
]"""  # noqa: E501
ONE = "(float[N,1,1] images) => (float[N,1,1] y) { y = Relu(images) }"


def test_polygraphys_own_file(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.write_text(POLYGRAPHY)
    feeds = feeds_of(path, ONE)
    assert feeds.names == ["p[0]"] and [feed["images"].tolist() for feed in feeds] == [[[[0.0]]]]


def encoded(array: np.ndarray) -> dict[str, str]:
    stream = io.BytesIO()
    np.save(stream, array)
    return {"array": base64.b64encode(stream.getvalue()).decode(), "polygraphy_class": "ndarray"}


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ("[", "file-unreadable"),
        (3, "wrong-file"),
        ({"lst": [], "polygraphy_class": "RunResults"}, "wrong-file"),
        ([{"images": {"tensor": "AA", "polygraphy_class": "Tensor"}}], "wrong-file"),
        ([{"images": {"array": "AAAA", "polygraphy_class": "ndarray"}}], "file-unreadable"),
        ([{"images": encoded(np.zeros((1, 1)))}], "wrong-feeds"),
    ],
)
def test_bad_json(content: Any, code: str, tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text(content if isinstance(content, str) else json.dumps(content))
    with raises(code):
        feeds_of(tmp_path / "p.json", ONE)
