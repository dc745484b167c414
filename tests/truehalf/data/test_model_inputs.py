"""Folders of images that come with a file: whole, or refused with everything that is wrong."""

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from PIL import Image

from tests.messages import raises
from truehalf.data.model_samples import model_samples, shown_in
from truehalf.data.preprocessing import Preprocessing
from truehalf.data.samples import Feeds, Samples


def model_of(inputs: str = "float[N,3,8,16] images") -> ir.Model:
    text = (
        f'<ir_version: 8, opset_import: ["": 17]> g ({inputs}) => (float[K] y) {{ y = Constant<value_floats=[1.0]>() }}'
    )
    return ir.from_onnx_text(text)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for i, name in enumerate(("b.png", "a.jpg", "deep/c.png", "d.png", "e.png")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.new("RGB", (20, 10), (i * 40, 0, 0)).save(tmp_path / name)
    return tmp_path


def load(folder: Path, model: ir.Model, keys: dict | None = None) -> Samples:
    return model_samples(folder, model, None, keys or {})


def test_images_come_in_the_order_of_their_names_in_batches(folder: Path) -> None:
    samples = load(folder, model_of())
    assert samples.names == ["a.jpg", "b.png", "d.png", "deep/c.png", "e.png"]
    for fixed, last in ((False, 1), (True, 2)):
        feeds = Feeds(samples, 2, fixed=fixed)
        assert [feed["images"].shape for feed in feeds] == [(2, 3, 8, 16), (2, 3, 8, 16), (last, 3, 8, 16)]
        assert feeds.names == ["a.jpg", "d.png", "e.png"] and len(feeds) == 3
    assert samples.preprocessing == Preprocessing(size=[8, 16])


def test_folders_behind_links_are_read_and_circles_end(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    linked = tmp_path_factory.mktemp("linked")
    (linked / "train").symlink_to(folder)
    (folder / "deep" / "back").symlink_to(folder)
    (linked / "again.png").symlink_to(folder / "b.png")
    samples = load(linked, model_of())
    assert samples.names == ["again.png", *(f"train/{name}" for name in load(folder, model_of()).names)]


def test_the_inputs_type_is_served(folder: Path) -> None:
    sample = load(folder, model_of("float16[N,3,8,16] images"))[0]
    assert sample.arrays["images"].dtype == np.float16
    sample = load(folder, model_of("uint8[N,8,16,3] x"), {"range": [0, 255], "layout": "NHWC"})[0]
    assert sample.arrays["x"].dtype == np.uint8 and sample.arrays["x"].shape == (8, 16, 3)


def test_a_corrupt_image_is_named(folder: Path) -> None:
    (folder / "b.png").write_bytes((folder / "b.png").read_bytes()[:40])
    with raises("file-unreadable", folder / "b.png"):
        list(load(folder, model_of()))


def test_the_size_of_the_images_that_go_in_is_fed_where_it_is_asked_for(folder: Path) -> None:
    paddle = "float[N,2] im_shape, float[N,2] scale_factor"
    model = model_of(f"int64[N,2] orig_target_sizes, float[N,3,8,16] images, int32[N,2] size, {paddle}")
    first, *_, last = Feeds(load(folder, model), 2, fixed=False)
    assert {name: (array.shape, array.dtype.name) for name, array in first.items()} == {
        "images": ((2, 3, 8, 16), "float32"),
        "orig_target_sizes": ((2, 2), "int64"),
        "size": ((2, 2), "int32"),
        "im_shape": ((2, 2), "float32"),
        "scale_factor": ((2, 2), "float32"),
    }
    assert (first["im_shape"] == [8, 16]).all() and (first["scale_factor"] == 1).all()
    assert (first["orig_target_sizes"] == [16, 8]).all(), "width and height, as RT-DETR and D-FINE take them"
    assert last["size"].tolist() == [[8, 16]]


@pytest.mark.parametrize(("sides", "dtype", "fed"), [("N,5,6", "int64", (5, 6)), ("N,h,w", "bool", (8, 16))])
def test_no_pixel_is_padding(folder: Path, sides: str, dtype: str, fed: tuple[int, int]) -> None:
    model = model_of(f"{dtype}[{sides}] pixel_mask, float[N,3,8,16] pixel_values")
    mask = Feeds(load(folder, model), 2)[0]["pixel_mask"]
    assert mask.shape == (2, *fed) and mask.dtype == dtype and mask.all()


def test_nothing_to_read(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with raises("file-missing", tmp_path / "empty", ".npz"):
        load(tmp_path / "empty", model_of())


@pytest.mark.parametrize(
    ("inputs", "keys", "code", "facts"),
    [
        ("float[N,3,8,16] a, int64[N,3] size", {}, "not-supported", ["'a'", "'size'", ".npz"]),
        ("float[N,3,8,16] a, float[N,2] size", {}, "not-supported", ["'a'", "'size'", ".npz"]),
        ("float[N,3,8,16] a, int64[N,2] points", {}, "not-supported", ["'a'", "'points'", ".npz"]),
        ("float[N,3,8,16] a, int64[N,8,16] mask", {}, "not-supported", ["'a'", "'mask'", "pixel_mask", ".npz"]),
        ("float[N,3,8,16] a, int64[N,8] pixel_mask", {}, "not-supported", ["'a'", "'pixel_mask'", ".npz"]),
        ("int64[N,2] size", {}, "not-supported", ["'size'", ".npz"]),
        ("int64[N,3,8,16] a", {}, "not-supported", ["'a'", "float32", "float16", "float64", "uint8", "int64"]),
        ("float[3,8,16] a", {}, "not-supported", ["'a'", "4 axes", "[3, 8, 16]"]),
        ("float[N,3,h,w] a", {}, "needs-value", ["'a'", "size: [height, width]"]),
        ("float[N,3,8,16] a", {"size": [16, 8]}, "wrong-preprocessing", ["NCHW", "'a'", "[N, 3, 8, 16]", 16]),
        ("float[N,1,8,16] a", {}, "wrong-preprocessing", ["NCHW", "'a'", "[N, 1, 8, 16]", 3]),
        ("float[N,3,8,16] a", {"layout": "NHWC", "size": [3, 8]}, "wrong-preprocessing", ["NHWC", "'a'", 3]),
        ("uint8[N,3,8,16] a", {"range": [0, 1]}, "in-conflict", ["'a'", "uint8", "range [0, 255]", "mean", "std"]),
    ],
)
def test_what_does_not_fit_the_input(folder: Path, inputs: str, keys: dict, code: str, facts: list[object]) -> None:
    with raises(code, *facts):
        load(folder, model_of(inputs), keys)


PLANES, LAST = "float[N,3,8,16] x", "float[N,8,16,3] x"
GRAPHS = {
    "divided by 255": (PLANES, "y = Div(x, c)", 255.0, ("NCHW", (0, 255))),
    "multiplied by 1/255, channels last": (LAST, "t = Transpose<perm = [0,3,1,2]>(x)  y = Mul(c, t)", 0.00392, None),
    "means of bytes": (PLANES, "y = Sub(x, c)", 116.3, ("NCHW", (0, 255))),
    "deviations of bytes": (PLANES, "y = Div(x, c)", 57.4, ("NCHW", (0, 255))),
    "bytes": ("uint8[N,8,16,3] x", "y = Cast<to = 1>(x)", 0.0, ("NHWC", (0, 255))),
    "means of shares": (PLANES, "y = Sub(x, c)", 0.485, ("NCHW", (0, 1))),
    "deviations of shares": (PLANES, "y = Div(x, c)", 0.229, ("NCHW", (0, 1))),
    "from -1": (PLANES, "d = Mul(x, c)  y = Sub(d, one)", 2.0, ("NCHW", (0, 1))),
    "deeper": (PLANES, "r = Relu(x)  y = Div(r, c)", 255.0, ("NCHW", (0, 1))),
    "divides": (PLANES, "y = Div(c, x)", 255.0, ("NCHW", (0, 1))),
}


@pytest.mark.parametrize("graph", GRAPHS)
def test_layout_and_range_are_seen_in_the_graph(graph: str) -> None:
    value, nodes, number, expected = GRAPHS[graph]
    weights = f"float c = {{{number}}}, float one = {{1.0}}"
    text = f'<ir_version: 8, opset_import: ["": 17]> g ({value}) => (float[A,B,C,D] y) <{weights}> {{ {nodes} }}'
    found = shown_in(ir.from_onnx_text(text))
    assert (found.layout, found.range) == (expected or ("NHWC", (0, 255)))


def test_a_model_without_inputs_shows_the_defaults() -> None:
    assert shown_in(model_of("")) == Preprocessing()
