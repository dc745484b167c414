"""The configured model, and what its I/O spec says of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.configurations import composed
from tests.messages import raises
from truehalf.config.schema import Config
from truehalf.io_spec.spec import InputSpec, OutputSpec
from truehalf.models.configuration import validated
from truehalf.models.model import Model
from truehalf.models.source import dynamic_axes_of, io_spec, open_model, spec_of

EXAMPLE = {"images": np.zeros((2, 3, 128, 128), np.float32)}
BATCH = {"images": {0: "batch"}}


def config(*overrides: str) -> Config:
    return validated(composed(*overrides))


@pytest.mark.parametrize("decoder", ["dfine", "rtdetrv2"])
def test_module_has_the_shapes_that_the_spec_says(decoder: str, tmp_path: Path) -> None:
    model = open_model(config(f"decoder={decoder}", "model.checkpoint=null"), tmp_path)
    spec = spec_of(model, EXAMPLE, BATCH).to_json()
    assert not any(part.training for part in model.module.modules())
    with torch.no_grad():
        outputs = model.module(torch.rand(2, *spec["inputs"][0]["shape"][1:]))
    assert [["batch", *output.shape[1:]] for output in outputs] == [output["shape"] for output in spec["outputs"]]
    assert [str(output.dtype) for output in outputs] == ["torch.float32", "torch.float32"]


def test_spec_says_how_to_feed_and_read_the_model(tmp_path: Path) -> None:
    model = open_model(config("model.checkpoint=null"), tmp_path)
    declared = spec_of(model, EXAMPLE, BATCH)
    assert list(declared.inputs) == list(model.inputs)
    spec = declared.to_json()
    assert spec["inputs"] == [
        {
            "name": "images",
            "dtype": "float32",
            "shape": ["batch", 3, 128, 128],
            "kind": "images",
            "size": [128, 128],
            "layout": "NCHW",
            "channels": "RGB",
            "range": [0, 1],
            "resize": "stretch",
            "resample": "bilinear",
            "normalization": {
                "mean": [0.0, 0.0, 0.0],
                "std": [1.0, 1.0, 1.0],
                "where": "before the graph",
            },
        }
    ]
    logits, boxes = spec["outputs"]
    assert logits["name"] == logits["kind"] == "logits"
    assert logits["activation"] == "sigmoid"
    assert boxes["name"] == boxes["kind"] == "boxes"
    assert (boxes["format"], boxes["normalized"]) == ("cxcywh", True)
    assert spec["class_names"] == [str(digit) for digit in range(10)]
    assert spec["trained"] is False


INPUTS = [InputSpec("x", "tensor"), InputSpec("n", "tensor")]


def described(axes: dict[str, dict[int, str]]) -> dict:
    model = Model(torch.nn.Identity(), INPUTS, [OutputSpec("y"), OutputSpec("z")], [], True)
    tensors = [torch.zeros(2, 3, 4), torch.zeros(2)]
    return io_spec(model, tensors, [torch.zeros(2, 5), torch.zeros(7, dtype=torch.int64)], axes).to_json()


def test_an_output_varies_with_the_first_input_unless_it_is_named_itself() -> None:
    spec = described({"x": {0: "n", 2: "width"}, "z": {0: "found"}})
    assert [entry["shape"] for entry in spec["inputs"]] == [["n", 3, "width"], [2]]
    assert [entry["shape"] for entry in spec["outputs"]] == [["n", 5], ["found"]]
    assert [entry["dtype"] for entry in spec["outputs"]] == ["float32", "int64"]
    assert [entry["shape"] for entry in described({})["outputs"]] == [[2, 5], [7]]


@pytest.mark.parametrize(
    ("axes", "code", "facts"),
    [
        ({"w": {0: "n"}}, "wrong-name", ["trace.dynamic_axes", "w", "x, n, y, z"]),
        ({"x": {3: "n"}}, "out-of-range", ["trace.dynamic_axes.x", "axis 3", "rank is 3"]),
    ],
)
def test_axes_that_there_are_not(axes: dict[str, dict[int, str]], code: str, facts: list[str]) -> None:
    with raises(code, *facts):
        described(axes)


def test_seed_fixes_random_weights(tmp_path: Path) -> None:
    def weights(seed: int) -> torch.Tensor:
        return next(open_model(config("model.checkpoint=null", f"seed={seed}"), tmp_path).module.parameters())

    assert torch.equal(weights(1), weights(1))
    assert not torch.equal(weights(1), weights(2))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"images": {0: "batch"}}, {"x": {0: "batch"}, "n": {0: "batch"}}),  # the default, of no input of this model
        ({"images": {0: "batch"}, "x": {0: "n", 1: "t"}}, {"x": {0: "n", 1: "t"}, "n": {0: "n"}}),
        ({"images": {0: "rows"}}, {"images": {0: "rows"}}),  # somebody's own, which io_spec refuses
        ({}, {}),
    ],
)
def test_axes_that_nobody_names_are_those_of_the_models_own_inputs(given: Any, expected: Any) -> None:
    plain = config()
    traced = replace(plain, trace=replace(plain.trace, dynamic_axes=given))
    for output in ("y", "images"):  # an output of that name is no input, and takes its first axis from the inputs
        model = Model(torch.nn.Identity(), INPUTS, [OutputSpec(output)], [], True)
        assert dynamic_axes_of(traced, model) == expected
