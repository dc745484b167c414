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
X = np.arange(24, dtype=np.float32).reshape(4, 1, 2, 3)
SIZE = np.array([[640, 480], [1, 2], [3, 4], [5, 6]], np.int64)


def model_of(text: str = IMAGES) -> ir.Model:
    return ir.from_onnx_text(f'<ir_version: 8, opset_import: ["": 17]> g {text}')


def feeds_of(source: Any, model: ir.Model) -> Feeds:
    return Feeds(model_samples(source, model), fixed_batch(model) or 1)


def faults(source: Any, text: str = IMAGES) -> list[str]:
    with raises("wrong-feeds") as error:
        feeds_of(source, model_of(text))
    return [line.removeprefix("  - ") for line in str(error.value).splitlines()[1:]]


def scalar_model() -> ir.Model:
    return model_of("(float x, float[K] e) => (float y) { y = Neg(x) }")


# --- what is a feed and what a stack ----------------------------------------------------------------------------------


def test_an_array_of_the_inputs_own_rank_is_one_feed() -> None:
    feeds = feeds_of({"images": X[0], "size": SIZE[0]}, model_of())
    assert feeds.names == ["feed"]
    (feed,) = feeds
    assert feed["images"].shape == (1, 2, 3)
    assert feed["size"].tolist() == [640, 480]


def test_one_more_leading_axis_is_a_stack() -> None:
    feeds = feeds_of({"images": X, "size": SIZE}, model_of())
    assert (len(feeds), feeds.names) == (4, ["feed[0]", "feed[1]", "feed[2]", "feed[3]"])
    for again in range(2):
        read = list(feeds)
        assert [feed["images"].shape for feed in read] == [(1, 2, 3)] * 4, again
        np.testing.assert_array_equal(np.stack([feed["size"] for feed in read]), SIZE)


def test_a_batch_is_one_feed_and_may_stand_beside_a_stack_of_one() -> None:
    feeds = feeds_of({"images": X[:, 0], "size": SIZE[:1]}, model_of())
    (feed,) = feeds
    assert (feed["images"].shape, feed["size"].shape) == ((4, 2, 3), (2,))


def test_some_of_some_are_these() -> None:
    samples = model_samples({"images": X, "size": SIZE}, model_of())
    some = samples.only([2, 0, 0])
    assert some.names == [samples.names[2], samples.names[0], samples.names[0]]
    for given, position in zip(some, (2, 0, 0), strict=True):
        np.testing.assert_array_equal(given.arrays["images"], samples[position].arrays["images"])
    assert some[1:].only([1])[0].name == samples.names[0]


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
    """The fourth array has two rows, as its axis is free or fixed to two."""
    rows = 2
    arrays = {"images": X[:rows, 0], "n": np.arange(4)[: 4 if "int64[4]" in inputs else rows]}
    given = {name: array for name, array in arrays.items() if f" {name}" in inputs}
    if inputs.endswith("int64 n"):
        given["n"] = np.int64(3)
    samples = model_samples(given, model_of(f"({inputs}) => (float[K,2,3] y) {{ y = Relu(images) }}"))
    assert samples.whole is whole and samples.names == (["feed"] if whole else ["feed[0]", "feed[1]"])
    shape = (rows, 2, 3) if whole else (2, 3)
    assert all(sample.arrays["images"].shape == shape and sample.whole is whole for sample in samples)


def test_scalars_and_empty_arrays() -> None:
    feeds = feeds_of({"x": np.float32(3), "e": np.zeros(0, np.float32)}, scalar_model())
    (feed,) = feeds
    assert (feed["x"].shape, feed["x"].item(), feed["e"].shape) == ((), 3, (0,))
    first, second = feeds_of({"x": np.float32([3, 4]), "e": np.zeros((2, 0), np.float32)}, scalar_model())
    assert isinstance(second["x"], np.ndarray)
    assert (first["x"].shape, second["x"].item(), second["e"].shape) == ((), 4, (0,))


def test_a_rank_that_is_not_known_takes_arrays_as_they_stand() -> None:
    model = model_of()
    model.graph.inputs[0].shape = None
    (feed,) = feeds_of({"images": X, "size": SIZE[0]}, model)
    assert feed["images"].shape == X.shape


def test_inputs_with_a_default_may_be_left_out_and_may_be_given() -> None:
    text = "(float[2] x, float[2] w) => (float[2] y) <float[2] w = {1.0, 2.0}> { y = Add(x, w) }"
    x = np.ones(2, np.float32)
    assert [list(feed) for feed in feeds_of({"x": x}, model_of(text))] == [["x"]]
    assert [list(feed) for feed in feeds_of({"x": x, "w": x}, model_of(text))] == [["x", "w"]]


def test_a_model_without_inputs_has_one_feed() -> None:
    assert list(feeds_of({}, model_of("() => (float[1] y) { y = Constant<value_floats = [1.0]>() }"))) == [{}]


def test_a_list_of_dicts() -> None:
    dicts = [{"images": X[0], "size": SIZE[0]}, {"images": X[1:3], "size": SIZE[1:3]}]
    feeds = feeds_of(dicts, model_of())
    assert feeds.names == ["feed[0]", "feed[1][0]", "feed[1][1]"]
    np.testing.assert_array_equal([feed["size"] for feed in feeds], SIZE[:3])


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_file_and_a_folder_of_files(save: Any, tmp_path: Path) -> None:
    save(tmp_path / "b.npz", images=X[:2], size=SIZE[:2])
    save(tmp_path / "a.npz", images=X[2], size=SIZE[2])
    (tmp_path / "notes.txt").write_text("not data")
    feeds = feeds_of(tmp_path, model_of())
    assert feeds.names == ["a", "b[0]", "b[1]"]
    assert [feed["size"].tolist() for feed in feeds] == [[3, 4], [640, 480], [1, 2]]
    assert feeds_of(str(tmp_path / "b.npz"), model_of()).names == ["b[0]", "b[1]"]


def test_a_folder_is_read_one_file_at_a_time(tmp_path: Path) -> None:
    """The arrays of a file are read when its turn comes: what went missing meanwhile is missed only then."""
    for name in "ab":
        np.savez(tmp_path / f"{name}.npz", images=X[0], size=SIZE[0])
    samples = model_samples(tmp_path, model_of())
    (tmp_path / "b.npz").write_bytes(b"PK")
    assert samples[0].name == "a"
    with raises("file-unreadable", tmp_path / "b.npz"):
        _ = samples[1]


def test_faults_of_files(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with raises("file-missing", empty, ".npz"):
        feeds_of(empty, model_of())
    expect(faults(tmp_path / "absent.npz")[0], "file-missing", tmp_path / "absent.npz", "JSON")
    (tmp_path / "text.npz").write_text("hello")
    expect(faults(tmp_path / "text.npz")[0], "file-unreadable", tmp_path / "text.npz", ".npz", "JSON", "5 bytes")
    np.savez(tmp_path / "pickled.npz", images=np.array([{"a": 1}], dtype=object))
    expect(faults(tmp_path / "pickled.npz")[0], "file-unreadable", tmp_path / "pickled.npz", "'images'", "pickled")
    np.savez(tmp_path / "whole.npz", images=X[0], size=SIZE[0])
    half = (tmp_path / "whole.npz").read_bytes()[:150]
    (tmp_path / "half.npz").write_bytes(half)
    expect(faults(tmp_path / "half.npz")[0], "file-unreadable", tmp_path / "half.npz", "150 bytes")
    (fault,) = faults(3)
    expect(fault, "wrong-type", ".npz", "JSON", "dict", "int")


@pytest.mark.parametrize("rows", [[[1, 2], [3]], [1, [2]], [np.zeros(2), np.zeros(3)], [[[1]], [[1, 2]]]])
@pytest.mark.parametrize("listed", [False, True])
def test_rows_of_several_lengths_are_no_array(rows: Any, listed: bool) -> None:
    feed = {"images": rows}
    with raises("wrong-type", "'images'"):
        feeds_of([feed] if listed else feed, model_of(IMAGES))


class Tensor:
    """As torch's: what has a gradient gives no array before it is detached, and some types give none at all."""

    def __init__(self, array: np.ndarray, *, has_gradient: bool = True, is_bfloat16: bool = False) -> None:
        self._array, self._has_gradient, self._is_bfloat16 = array, has_gradient, is_bfloat16

    def detach(self) -> Tensor:
        return Tensor(self._array, has_gradient=False, is_bfloat16=self._is_bfloat16)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if self._has_gradient:
            raise RuntimeError("Can't call numpy() on Tensor that requires grad")
        if self._is_bfloat16:
            raise TypeError("Got unsupported ScalarType BFloat16")
        return self._array


def test_tensors_are_read_or_refused() -> None:
    (feed,) = feeds_of({"images": Tensor(X[0]), "size": SIZE[0]}, model_of())
    np.testing.assert_array_equal(feed["images"], X[0])
    with raises("wrong-type", "'images'", "BFloat16"):
        feeds_of({"images": Tensor(X[0], is_bfloat16=True), "size": SIZE[0]}, model_of())


# --- faults of arrays -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("in_file", "in_directory", "value", "said"),
    [(6, 8, 1, "encrypted"), (8, 10, 99, "compression")],
    ids=["encrypted", "packed by another method"],
)
def test_archives_that_zipfile_does_not_read(
    tmp_path: Path, in_file: int, in_directory: int, value: int, said: str
) -> None:
    """Flags and method of its one member, in the member's header and in the directory."""
    path = tmp_path / "a.npz"
    np.savez(path, images=X[0])
    archive = bytearray(path.read_bytes())
    archive[in_file] = archive[archive.index(b"PK\x01\x02") + in_directory] = value
    path.write_bytes(bytes(archive))
    expect(faults(path)[0], "file-unreadable", path, ".npz", said)


def test_all_faults_are_reported_together() -> None:
    found = faults({"images": X[0].astype(np.float64), "image": X, "size": SIZE[0].astype(np.int32)})
    assert [codes_in(fault) for fault in found] == [["wrong-dtype"], ["wrong-name"], ["wrong-dtype"]]
    expect(found[0], None, "feed", "'images'", "float32 [N, 2, 3]", "float64 [1, 2, 3]")
    expect(found[1], None, "feed", "'image'", "'images', 'size'")
    expect(found[2], None, "feed", "'size'", "int64 [2]", "int32 [2]")


@pytest.mark.parametrize("shape", [(2, 3), (1, 2, 4), (5, 1, 2, 4), (1, 1, 1, 2, 3), ()])
def test_wrong_shapes(shape: tuple[int, ...]) -> None:
    (fault,) = faults({"images": np.zeros(shape, np.float32), "size": SIZE[0]})
    expect(fault, "wrong-shape", "feed", "'images'", "float32 [N, 2, 3]", f"float32 {list(shape)}")


@pytest.mark.parametrize(
    ("fixed", "rows", "feeds"),
    [
        (1, 3, [[0], [1], [2]]),
        (2, 4, [[0, 1], [2, 3]]),
        (2, 3, [[0, 1], [2, 2]]),
        (4, 1, [[0, 0, 0, 0]]),
        (2, 2, [[0, 1]]),
    ],
)
def test_rows_are_cut_into_the_batch_that_the_model_fixes(fixed: int, rows: int, feeds: list[list[int]]) -> None:
    text = f"(float[{fixed},3] a, int64[{fixed}] b) => (float[{fixed},3] y) {{ y = Relu(a) }}"
    a, b = np.arange(rows * 3, dtype=np.float32).reshape(rows, 3), np.arange(rows, dtype=np.int64)
    read = feeds_of({"a": a, "b": b}, model_of(text))
    assert [feed["b"].tolist() for feed in read] == feeds
    for feed, chosen in zip(read, feeds, strict=True):
        np.testing.assert_array_equal(feed["a"], a[chosen])


def test_rows_are_not_cut_where_inputs_have_different_numbers_of_them() -> None:
    text = "(float[2,3] a, int64[4] b) => (float[2,3] y) { y = Relu(a) }"
    (fault,) = faults({"a": np.zeros((4, 3), np.float32), "b": np.zeros(4, np.int64)}, text)
    expect(fault, "wrong-shape", "'a'", "float32 [2, 3]", "float32 [4, 3]")
    same = "(float[2,3] a, int64[2] b) => (float[2,3] y) { y = Relu(a) }"
    found = faults({"a": np.zeros((4, 3), np.float32), "b": np.zeros(3, np.int64)}, same)
    assert [codes_in(fault) for fault in found] == [["wrong-shape"], ["wrong-shape"]]


def test_missing_inputs_and_unequal_counts() -> None:
    (fault,) = faults({"images": X})
    expect(fault, "missing-key", "feed", "'size'", "int64 [2]")
    (fault,) = faults({"images": X, "size": SIZE[:3]})
    expect(fault, "wrong-shape", "feed", "{'images': 4, 'size': 3}")
    (fault,) = faults({"images": X, "size": SIZE[0]})
    expect(fault, "wrong-shape", "feed", "{'images': 4, 'size': 1}")


def test_no_samples() -> None:
    for nothing in ({"images": X[:0], "size": SIZE[:0]}, []):
        (fault,) = faults(nothing)
        expect(fault, "too-few-samples")


def test_objects_swapped_bytes_and_inputs_that_are_no_tensors() -> None:
    expect(faults({"images": np.array([None]), "size": SIZE[0]})[0], "wrong-dtype", "'images'", "Python")
    expect(faults({"images": X[0].astype(">f4"), "size": SIZE[0]})[0], "wrong-dtype", "'images'", "float32", ">f4")
    text = "(seq(float[N]) s, int64 i) => (float[N] y) { y = SequenceAt(s, i) }"
    expect(faults({"s": X, "i": np.int64(0)}, text)[0], "not-supported", "'s'", "Sequence")


def test_many_faults_are_cut() -> None:
    found = faults([{"images": X[0]}] * 30)
    assert len(found) == 21
    expect(found[-1], None, 10)


def test_every_file_of_a_folder_is_checked(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", images=X[0])
    np.savez(tmp_path / "b.npz", size=SIZE[0])
    (tmp_path / "c.npz").write_text("hello")
    assert [line.split(":")[0].rsplit("/", 1)[-1] for line in faults(tmp_path)] == ["c.npz", "a", "b"]


def test_strings() -> None:
    text = "(string[N] s) => (string[N] y) { y = Identity(s) }"
    for dtype in (str, object):
        feeds = feeds_of({"s": np.array(["a", "bc"], dtype)}, model_of(text))
        assert [feed["s"].tolist() for feed in feeds] == [["a"], ["bc"]]
    expect(faults({"s": np.zeros(2, np.float32)}, text)[0], "wrong-dtype", "'s'", "string [N]", "float32 [2]")


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


def npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def encoded(array: np.ndarray) -> dict[str, str]:
    return {"array": base64.b64encode(npy(array)).decode(), "polygraphy_class": "ndarray"}


def written(path: Path, content: Any) -> Path:
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_polygraphys_own_file(tmp_path: Path) -> None:
    feeds = feeds_of(written(tmp_path / "p.json", POLYGRAPHY), model_of(ONE))
    assert feeds.names == ["p[0]"]
    assert [feed["images"].tolist() for feed in feeds] == [[[[0.0]]]]


def test_every_array_that_polygraphy_writes(tmp_path: Path) -> None:
    half = np.full((1, 1, 1), 0.5, np.float32)
    variants = [
        encoded(half),
        {"values": encoded(half), "polygraphy_class": "LazyArray"},
        [[[0.5]]],
    ]
    path = written(tmp_path / "p.json", [{"images": variant} for variant in variants])
    assert [feed["images"].tolist() for feed in feeds_of(path, model_of(ONE))] == [half.tolist()] * len(variants)
    (feed,) = feeds_of(written(tmp_path / "q.json", {"images": encoded(half)}), model_of(ONE))
    assert feed["images"].dtype == np.float32


def test_numbers_take_the_type_of_their_input_but_never_lose_their_kind(tmp_path: Path) -> None:
    text = "(int64[2] i, bool[1] b, float[E] e) => (int64[2] y) { y = Neg(i) }"
    path = written(tmp_path / "p.json", [{"i": [1, 2], "b": [True], "e": []}])
    (feed,) = feeds_of(path, model_of(text))
    assert [feed[name].dtype.name for name in "ibe"] == ["int64", "bool", "float32"]
    path = written(tmp_path / "p.json", [{"i": [1.5, 2], "b": [1], "e": [True]}])
    types = (("'i'", "int64 [2]", "float64 [2]"), ("'b'", "bool [1]", "int64 [1]"), ("'e'", "float32 [E]", "bool [1]"))
    for fault, facts in zip(faults(path, text), types, strict=True):
        expect(fault, "wrong-dtype", *facts)


@pytest.mark.parametrize(
    ("content", "code", "facts"),
    [
        ("[", "file-unreadable", ["p.json", "JSON"]),
        ("3", "wrong-file", ["p.json"]),
        ({"lst": [], "polygraphy_class": "RunResults"}, "wrong-file", ["p.json", "RunResults"]),
        (
            [{"images": {"tensor": "AA", "polygraphy_class": "Tensor"}}],
            "file-unreadable",
            ["p[0]", "'images'", "Tensor", "numpy"],
        ),
        ([{"images": {"array": "AAAA", "polygraphy_class": "ndarray"}}], "file-unreadable", ["p[0]", "'images'"]),
        ([{"images": {"array": 3, "polygraphy_class": "ndarray"}}], "file-unreadable", ["p[0]", "'images'", "int"]),
        ([{"images": [[[1.0], [1.0, 2.0]]]}], "file-unreadable", ["p[0]", "'images'"]),
        ([{"images": [[1.0]]}], "wrong-shape", ["p[0]", "'images'", "float32 [N, 1, 1]", "float32 [1, 1]"]),
        ([], "too-few-samples", []),
    ],
)
def test_bad_json(content: Any, code: str, facts: list[str], tmp_path: Path) -> None:
    expect(faults(written(tmp_path / "p.json", content), ONE)[0], code, *facts)
