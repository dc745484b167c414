"""Classifiers of timm. What needs the package runs where it is: make test-lightly."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tests.configurations import composed
from tests.messages import expect, raises
from tests.tracing import trace_config
from tests.truehalf.models.refusing import in_order, refuses
from truehalf.config.schema import Config
from truehalf.data.preprocessing import Preprocessing
from truehalf.errors import StageError
from truehalf.exporting.export import export
from truehalf.models.configuration import validated
from truehalf.models.model import Model
from truehalf.models.source import open_model, spec_of
from truehalf.models.sources.timm import files
from truehalf.runtime.ort.session import Session

installed = pytest.mark.skipif(
    importlib.util.find_spec("timm") is None, reason="timm is not installed here: make test-lightly"
)
SMALL, TAG = "test_resnet", "r160_in1k"  # timm's own for tests: 0.5 million parameters, 160 x 160


def config(*overrides: str) -> Config:
    return validated(composed("model=timm", "data.folder=pictures", *overrides))


def opened(root: Path, *overrides: str, name: str = SMALL) -> Model:
    return open_model(config(f"model.options.name={name}", *overrides), root)


def refusal(root: Path, *overrides: str, name: str = SMALL) -> str:
    with pytest.raises(StageError) as error:
        opened(root, *overrides, name=name)
    return str(error.value)


# --- without timm -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("overrides", "key", "code", "facts"),
    [
        (["decoder=dfine"], "decoder", "in-conflict", ["none", "dfine"]),
        (["model.options.name=null"], "model.options.name", "needs-value", ["model.options.name=resnet18"]),
        (
            ["model.options.name=resnet18.a1_in1k"],
            *("model.options.name", "bad-syntax", ["model.options.name=resnet18 model.options.weights=a1_in1k"]),
        ),
        (
            ["model.options.name=hf-hub:timm/resnet18"],
            *("model.options.name", "bad-syntax", ["timm.list_models()", "'hf-hub:timm/resnet18'"]),
        ),
        (
            ["model.options.weights=a1_in1k", "model.checkpoint=w.pt"],
            *("model.checkpoint", "in-conflict", ["model.options.weights", "'w.pt'", "'a1_in1k'"]),
        ),
        (
            ["model.options.prefix=module."],
            *("model.options.key, model.options.prefix", "in-conflict", ["model.checkpoint", "null"]),
        ),
        (["model.image_size=[null,64]"], "model.image_size", "needs-value", ["[null, null]", "[None, 64]"]),
        (["model.preprocessing.layout=NHWC"], "model.preprocessing.layout", "in-conflict", ["NCHW", "NHWC"]),
        (
            ["model.drop_outputs=[logits]"],
            *("model.inputs, model.outputs, model.drop_outputs", "in-conflict", ["null", "[]"]),
        ),
    ],
)
def test_faults(overrides: list[str], key: str, code: str, facts: list[str]) -> None:
    with refuses(key, code, *facts):
        config(*overrides)


def test_its_gates_are_a_classifiers() -> None:
    assert composed("model=timm")["verify"] == composed("verify=classification")["verify"]


def test_the_checkpoint_is_fingerprinted(tmp_path: Path) -> None:
    assert files(config(), tmp_path) == []
    assert files(config("model.checkpoint=w.pt"), tmp_path) == [tmp_path / "w.pt"]


def test_without_the_package_its_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with raises("package-missing", "model.source", "timm", "pip install 'truehalf[timm]'"):
        opened(tmp_path)


# --- with it ----------------------------------------------------------------------------------------------------------


@installed
@pytest.mark.parametrize(("name", "size"), [(SMALL, 160), ("test_vit", 160), ("test_efficientnet", 160)])
def test_a_classifier_says_what_it_is_and_its_file_computes_it(name: str, size: int, tmp_path: Path) -> None:
    model = opened(tmp_path, name=name)
    (declared,) = model.inputs
    assert declared.preprocessing is not None and declared.preprocessing.size == [size, size]
    assert model.trained is False
    expect(model.notes[0], None, name, "random")
    images = torch.rand(2, 3, size, size)
    spec = spec_of(model, {"images": images.numpy()}, {"images": {0: "batch"}}).to_json()
    assert [(each["name"], each["kind"], each["shape"]) for each in spec["outputs"]] == [
        ("logits", "classes", ["batch", 1000])
    ]
    path = tmp_path / "model.onnx"
    export(
        model.module,
        [images],
        path,
        trace_config("torchscript", 17, {"images": {0: "batch"}, "logits": {0: "batch"}}),
        input_names=["images"],
        output_names=["logits"],
    )
    for count in (1, 3):
        shown = torch.rand(count, 3, size, size)
        with torch.no_grad():
            (expected,) = model.module(shown)
        np.testing.assert_allclose(Session(path).run({"images": shown.numpy()})["logits"], expected, atol=1e-4)


@installed
def test_random_weights_follow_the_seed(tmp_path: Path) -> None:
    before = torch.random.get_rng_state()
    first, same, other = (opened(tmp_path, f"seed={seed}") for seed in (1, 1, 2))
    assert torch.equal(before, torch.random.get_rng_state())
    states = [model.module.state_dict() for model in (first, same, other)]
    name = next(name for name, tensor in states[0].items() if tensor.ndim == 4)
    assert torch.equal(states[0][name], states[1][name]) and not torch.equal(states[0][name], states[2][name])


@installed
def test_preprocessing_is_that_of_the_data_configuration(tmp_path: Path) -> None:
    model = opened(tmp_path, name="resnet18")
    (declared,) = model.inputs
    assert declared.preprocessing == Preprocessing(
        size=[224, 224], mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225), resample="bicubic"
    )
    _, whose, cut = model.notes
    in_order(whose, "preprocessing", "resnet18.a1_in1k", "model.preprocessing")
    expect(cut, None, "95.0%")
    (declared,) = opened(tmp_path, "model.preprocessing.resample=nearest", "model.image_size=[64,96]").inputs
    assert declared.preprocessing is not None
    assert (declared.preprocessing.resample, declared.preprocessing.size) == ("nearest", [64, 96])


@installed
def test_a_vit_is_made_for_the_size_that_is_asked_for(tmp_path: Path) -> None:
    model = opened(tmp_path, "model.image_size=[96,128]", name="test_vit")
    with torch.no_grad():
        assert model.module(torch.rand(1, 3, 96, 128))[0].shape == (1, 1000)
    said = refusal(tmp_path, "model.image_size=[4,4]", name="test_vit")
    expect(said, "module-fails", "model.image_size", "test_vit", "[4, 4]")


@installed
def test_weights_from_a_file_and_classes_by_name(tmp_path: Path) -> None:
    classes = 'model.classes=["ape","bee","cat"]'
    first = opened(tmp_path, classes)
    state = {name: tensor.clone() for name, tensor in first.module.get_submodule("network").state_dict().items()}
    save_file(state, tmp_path / "w.safetensors")
    torch.save({"ema": {f"module.{name}": tensor for name, tensor in state.items()}}, tmp_path / "w.pt")
    images = torch.rand(1, 3, 160, 160)
    for keys in (["model.checkpoint=w.safetensors"], ["model.checkpoint=w.pt", "model.options.prefix=module."]):
        model = opened(tmp_path, classes, "seed=5", *keys)
        with torch.no_grad():
            assert torch.equal(first.module(images)[0], model.module(images)[0])
        assert model.trained and model.class_names == ["ape", "bee", "cat"]
    expect(refusal(tmp_path, "model.checkpoint=w.safetensors"), "wrong-file", tmp_path / "w.safetensors")


@installed
@pytest.mark.parametrize(
    ("name", "overrides", "facts"),
    [
        ("resnet19", [], ["model.options.name", "'resnet19'", "resnet18"]),
        (SMALL, ["model.options.weights=a1"], ["model.options.weights", "'a1'", SMALL, TAG, "null"]),
    ],
)
def test_names_that_timm_does_not_have(name: str, overrides: list[str], facts: list[str], tmp_path: Path) -> None:
    said = refusal(tmp_path, *overrides, name=name)
    expect(said, "unknown-choice")
    in_order(said, *facts)


@installed
def test_weights_by_tag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a network: an error that says what to fetch, and to where; from the cache: names of the classes, too."""
    import huggingface_hub.constants
    import timm

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    said = refusal(tmp_path, f"model.options.weights={TAG}")
    expect(said, "download-fails", tmp_path / "hub", f"hf download timm/{SMALL}.{TAG} model.safetensors")
    expect(said, None, "model.checkpoint=./mine/model.safetensors model.options.weights=null")

    created: list[tuple[str, Any]] = []
    create = timm.create_model

    def from_cache(name: str, pretrained: bool, **keywords: Any) -> torch.nn.Module:
        created.append((name, pretrained))
        return create(name, pretrained=False, **keywords)

    monkeypatch.setattr(timm, "create_model", from_cache)
    model = opened(tmp_path, f"model.options.weights={TAG}")
    assert created == [(f"{SMALL}.{TAG}", True)] and model.trained
    assert model.class_names[0] == "tench, Tinca tinca" and len(model.class_names) == 1000
    expect(model.notes[0], None, "weights", f"timm/{SMALL}.{TAG}")
    said = refusal(tmp_path, f"model.options.weights={TAG}", "model.classes=[ape]")
    expect(said, "wrong-class-count")
    in_order(said, "model.classes", SMALL, 1000, "null", 1)
