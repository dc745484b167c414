"""GridSample, Resize, Upsample."""

from __future__ import annotations

import pytest

from tests.messages import expect
from tests.truehalf.patterns.linting import found, only


def test_grid_sample_is_known_to_be_wrong() -> None:
    finding = only("(float[N,3,8,8] x, float[N,4,4,2] g) => (float[N,3,4,4] y) { y = GridSample(x, g) }")
    assert (finding.rule, finding.severity) == ("grid-sample", "warning")
    expect(finding.remedy, None, "grid_sample_gather")


def test_a_volume_needs_a_version() -> None:
    text = "(float[N,3,8,8,8] x, float[N,4,4,4,3] g) => (float[N,3,4,4,4] y) { y = GridSample(x, g) }"
    assert found(text, 20, tensorrt="11.1") == [("error", "unsupported-op"), ("warning", "grid-sample")]
    assert found(text, 20, tensorrt="11.2") == [("warning", "grid-sample")]


def resize(attributes: str, opset: int = 19, more: str = ", e, s") -> list[tuple[str, str]]:
    text = f"""
    (float[N,3,8,8] x, int64[N] k) => (float[A,B,C,D] y) <float[4] s = {{1, 1, 2, 2}}, float[0] e = {{}}> {{
        y = Resize<{attributes}>(x{more})
    }}
    """
    return found(text, opset)


@pytest.mark.parametrize(
    "attributes",
    [
        "mode = 'linear'",
        "mode = 'linear', coordinate_transformation_mode = 'align_corners'",
        "mode = 'nearest', coordinate_transformation_mode = 'asymmetric', nearest_mode = 'floor'",
        "mode = 'cubic', coordinate_transformation_mode = 'pytorch_half_pixel'",
        "mode = 'nearest', coordinate_transformation_mode = 'tf_half_pixel_for_nn'",
        "mode = 'linear', axes = [0, 1, 2, 3]",
    ],
)
def test_what_it_takes(attributes: str) -> None:
    opset = 10 if "tf_half" in attributes else 19
    assert resize(attributes.replace("'", '"'), 11 if opset == 10 else opset) == []


@pytest.mark.parametrize(
    ("attributes", "opset"),
    [
        ("mode = 'linear', coordinate_transformation_mode = 'tf_crop_and_resize'", 19),
        ("mode = 'linear', coordinate_transformation_mode = 'half_pixel_symmetric'", 19),
        ("mode = 'nearest', coordinate_transformation_mode = 'tf_half_pixel_for_nn', nearest_mode = 'floor'", 11),
        ("mode = 'linear', antialias = 1", 19),
        ("mode = 'linear', keep_aspect_ratio_policy = 'not_larger'", 19),
        ("mode = 'area'", 19),
        ("mode = 'nearest', nearest_mode = 'closest'", 19),
    ],
)
def test_what_it_refuses(attributes: str, opset: int) -> None:
    assert resize(attributes.replace("'", '"'), opset) == [("error", "resize-mode")]


def test_sizes_may_be_given_for_some_axes() -> None:
    text = """(float[N,3,8,8] x) => (float[A,B,C,D] y) <int64[2] s = {16, 16}> {
        y = Resize<mode = "linear", axes = [2, 3]>(x, , , s)
    }"""
    assert found(text, 19) == []


def test_sizes_from_data() -> None:
    text = """
    (float[N,3,8,8] x, int64[N] k) => (float[A,B,C,D] y) <float[0] e = {}, int64[2] c = {1, 3}> {
        m = ReduceMax<axes = [0]>(k) s = Concat<axis = 0>(c, m, m) y = Resize<mode = "linear">(x, e, e, s)
    }
    """
    assert found(text) == [("error", "resize-mode")]
    assert found(text.replace("m = ReduceMax<axes = [0]>(k)", "h = Shape<start = 2, end = 3>(x) m = Add(h, h)")) == []


@pytest.mark.parametrize(("mode", "expected"), [("linear", []), ("cubic", [("error", "resize-mode")])])
def test_upsample(mode: str, expected: list[tuple[str, str]]) -> None:
    text = f'(float[N,3,8,8] x, float[4] s) => (float[A,B,C,D] y) {{ y = Upsample<mode = "{mode}">(x, c) }}'
    text = text.replace("(float[A,B,C,D] y)", "(float[A,B,C,D] y) <float[4] c = {1, 1, 2, 2}>")
    assert found(text, 9) == expected
