"""Arguments of the public functions: types by the annotations, names that the system refuses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx.parser
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.messages import expect, raises
from truehalf import Precision, calibrate, clean_casts, compare, convert, export, lint, repair
from truehalf.config.arguments import checked
from truehalf.config.schema import TraceConfig
from truehalf.config.verification import VerifyConfig

if TYPE_CHECKING:
    from collections import OrderedDict

MODEL = onnx.parser.parse_model(
    '<ir_version: 8, opset_import: ["" : 17]> g (float[n,4] x) => (float[n,4] y) { ["r"] y = Relu(x) }'
)
SAMPLE = {"x": np.ones((2, 4), np.float32)}
LONG = "n" * 300
ANYTHING: st.SearchStrategy[Any] = st.one_of(
    st.integers(), st.floats(), st.text(max_size=5), st.lists(st.integers(), max_size=2), st.just({}), st.just(b"x")
)


@checked
def taking(
    flag: bool | None = None,
    count: int | None = None,
    place: Path | str | None = None,
    names: Sequence[str] = (),
    axes: Mapping[str, Mapping[int, str]] | None = None,
    options: Precision | None = None,
    unknown: OrderedDict[str, int] | None = None,
) -> str:
    """Of every kind of annotation."""
    return "taken"


@pytest.mark.parametrize(
    "fitting",
    [
        {"flag": True, "count": 3, "place": "a", "names": ["a"], "axes": {"x": {0: "n"}}, "options": Precision()},
        {"flag": np.True_, "count": np.int64(3), "place": Path("a"), "names": {"a"}, "axes": {}},
        {"flag": None, "names": ()},
        {"unknown": 7},  # of a type that is there for type checkers alone
    ],
)
def test_what_fits_is_taken(fitting: Any) -> None:
    assert taking(**fitting) == "taken" and taking.__doc__ == "Of every kind of annotation."


@given(name=st.sampled_from(["flag", "count", "place", "names", "axes", "options"]), value=ANYTHING)
def test_what_does_not_fit_is_refused_by_name(name: Any, value: Any) -> None:
    fits = {
        "flag": isinstance(value, bool),
        "count": type(value) is int,
        "place": isinstance(value, str),
        "names": value == [],
        "axes": value == {},
        "options": False,
    }
    if fits[name]:
        assert taking(**{name: value}) == "taken"
    else:
        with raises("wrong-type", name):
            taking(**{name: value})


@pytest.mark.parametrize(
    ("function", "wrong"),
    [
        (convert, {"precision": {}}),
        (convert, {"precision": 0}),
        (convert, {"skip": "slim"}),
        (convert, {"skip": 1}),
        (convert, {"skip": [5]}),
        (convert, {"out": 5}),
        (convert, {"out": b"out.onnx"}),
        (clean_casts, {"strict": "yes"}),
        (clean_casts, {"fold_max_bytes": 2.5}),
        (clean_casts, {"out": 0}),
        (repair, {"passes": "allowzero"}),
        (repair, {"passes": [5]}),
        (repair, {"passes": None}),
        (lint, {"tensorrt": 10}),
        (lint, {"ignore": [None]}),
        (lint, {"plugin_ops": "Deform"}),
    ],
)
def test_wrong_types_are_named(function: Any, wrong: dict[str, Any]) -> None:
    with raises("wrong-type", function.__name__, *wrong):
        function(MODEL, **wrong)


@pytest.mark.parametrize("wrong", [{}, 5, "strict", VerifyConfig, Precision()], ids=str)
def test_compare_takes_its_own_options_alone(wrong: Any) -> None:
    with raises("wrong-type", "compare", "options"):
        compare(MODEL, MODEL, SAMPLE, options=wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"samples": 5},
        {"samples": [5]},
        {"samples": {"x": 5}},
        {"outputs": True},
        {"dynamic_axes": {"x": 5}},
        {"dynamic_axes": {"x": {"batch": 0}}},
        {"options": {}},
        {"module": 5},
    ],
    ids=str,
)
def test_export_names_them_too(wrong: dict[str, Any]) -> None:
    with raises("wrong-type", *wrong):
        export(**{"module": torch.nn.ReLU(), "samples": SAMPLE} | wrong)


@pytest.mark.parametrize(
    ("wrong", "fact"),
    [({"opset": -1}, "opset"), ({"atol": -1e-3}, "atol"), ({"dynamic_axes": {"x": {-1: "n"}}}, "dynamic_axes.x")],
)
def test_numbers_below_a_bound(wrong: dict[str, Any], fact: str) -> None:
    with raises("out-of-range", fact, "-1" if "atol" not in wrong else -0.001):
        TraceConfig(**wrong)


@pytest.mark.parametrize("limit", [-5, -1, 0])
def test_a_limit_of_bytes_below_one(limit: int) -> None:
    with raises("out-of-range", "fold_max_bytes", limit):
        clean_casts(MODEL, fold_max_bytes=limit)


def test_an_axis_below_zero_of_an_export_is_refused() -> None:
    with raises("out-of-range", "dynamic_axes.x", -1):
        export(torch.nn.ReLU(), samples=SAMPLE, dynamic_axes={"x": {-1: "n"}})


@pytest.mark.parametrize(
    "call",
    [
        lambda: convert(LONG),
        lambda: convert(MODEL, f"{LONG}.onnx"),
        lambda: convert(MODEL, f"folder/{LONG}.onnx"),
        lambda: convert(MODEL, samples=LONG),
        lambda: convert(MODEL, ranges=f"{LONG}.json"),
        lambda: calibrate(MODEL, Path(LONG)),
        lambda: clean_casts(LONG),
        lambda: compare(MODEL, LONG, SAMPLE),
        lambda: lint("ä" * 200),
        lambda: repair(f"{LONG}/model.onnx"),
    ],
)
def test_a_name_that_is_too_long_is_one_sentence(call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with raises("file-unwritable") as caught:
        call()
    expect(str(caught.value), None, "shorter name")
    assert "\n" not in str(caught.value)


def test_errors_of_the_callers_code_stay_their_own() -> None:
    @checked
    def failing(code: int | None = None) -> None:
        raise OSError("the camera is off")

    with pytest.raises(OSError, match="camera"):
        failing()
