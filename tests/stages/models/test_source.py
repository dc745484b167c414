"""The configured module, and what its I/O spec says of it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from conf.schema import Config
from conf.validate import validate
from stages.io import StageError
from stages.models.source import io_spec, open_model
from tests.conftest import composed


def config(*overrides: str) -> Config:
    return validate(composed(*overrides))


@pytest.mark.parametrize("decoder", ["dfine", "rtdetrv2"])
def test_module_has_the_shapes_that_the_spec_says(decoder: str, tmp_path: Path) -> None:
    nano = config(f"decoder={decoder}", "model.weights=null")
    module, spec = open_model(nano, tmp_path), io_spec(nano)
    assert not any(part.training for part in module.modules())
    with torch.no_grad():
        outputs = module(torch.rand(2, *spec["inputs"][0]["shape"][1:]))
    assert [["batch", *output.shape[1:]] for output in outputs] == [output["shape"] for output in spec["outputs"]]
    assert [str(output.dtype) for output in outputs] == ["torch.float32", "torch.float32"]


def test_spec_says_how_to_feed_and_read_the_model() -> None:
    spec = io_spec(config("model.weights=null"))
    assert spec["inputs"] == [
        {
            "name": "images",
            "dtype": "float32",
            "shape": ["batch", 3, 128, 128],
            "layout": "NCHW",
            "channels": "RGB",
            "range": [0, 1],
            "normalization": {
                "mean": [0.485, 0.456, 0.406],
                "std": [0.229, 0.224, 0.225],
                "where": "inside the graph",
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


def test_spec_of_given_weights_is_trained_and_static_axes_are_numbers() -> None:
    values = composed("trace.input_shape=[1,3,128,128]")
    values["trace"]["dynamic_axes"] = {}
    values["engine"]["profiles"][0]["images"]["max"][0] = 1
    spec = io_spec(validate(values))
    assert spec["trained"] is True
    assert spec["inputs"][0]["shape"] == [1, 3, 128, 128]
    assert [output["shape"][0] for output in spec["outputs"]] == [1, 1]


def test_seed_fixes_random_weights(tmp_path: Path) -> None:
    def weights(seed: int) -> torch.Tensor:
        return next(open_model(config("model.weights=null", f"seed={seed}"), tmp_path).parameters())

    assert torch.equal(weights(1), weights(1))
    assert not torch.equal(weights(1), weights(2))


def test_weights_are_sought_in_the_workspace(tmp_path: Path) -> None:
    with pytest.raises(StageError) as error:
        open_model(config("model.weights=mine.safetensors"), tmp_path)
    assert f"{tmp_path}/mine.safetensors: no such file" in str(error.value)


def test_attention_gain_reaches_the_module(tmp_path: Path) -> None:
    plain = open_model(config("model.weights=null"), tmp_path).state_dict()
    scaled = open_model(config("model.weights=null", "experiment=overflow"), tmp_path).state_dict()
    changed = {name for name, tensor in plain.items() if not torch.equal(tensor, scaled[name])}
    assert changed
    name = "network.model.decoder.layers.0.self_attn.v_proj.weight"
    assert torch.equal(scaled[name], plain[name] * 2.0**17)
    assert torch.equal(scaled[name.replace("v_proj", "o_proj")], plain[name.replace("v_proj", "o_proj")] * 2.0**-17)
