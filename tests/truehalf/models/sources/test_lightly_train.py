"""LT-DETR of lightly-train. What needs the package itself runs in its own environment: make test-lightly."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.configurations import composed
from tests.conftest import ROOT
from tests.messages import expect, raises
from tests.tracing import trace_config
from tests.truehalf.models.refusing import in_order, refuses
from truehalf.config.schema import Config
from truehalf.data.preprocessing import declared_by
from truehalf.exporting.export import export
from truehalf.ir.model_file import load_model
from truehalf.models.configuration import validated
from truehalf.models.model import Model
from truehalf.models.source import open_model, spec_of
from truehalf.models.sources.lightly_train import files
from truehalf.runtime.ort import Session

installed = pytest.mark.skipif(
    importlib.util.find_spec("lightly_train") is None, reason="lightly-train is not installed here: make test-lightly"
)
SMALLEST = "dinov2/_vittest14-ltdetr"  # 27,000 parameters
RANDOM = (f"model.options.name={SMALLEST}", "model.options.random=true", "model.image_size=[224,224]")
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
NAMES = {2: "cat", 5: "dog"}
TRAINED_BY = "lightly_train._task_models.ltdetr_object_detection.task_model.LTDETRObjectDetection"


class Touching:
    """Pickled, it is a call: whoever loads it as a program makes the folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, (str(self.folder),)


def config(*overrides: str) -> Config:
    return validated(composed("model=lightly_train", "data.folder=pictures", *overrides))


def opened(root: Path, *overrides: str) -> Model:
    return open_model(config(*overrides), root)


def refused(root: Path, *overrides: str, code: str) -> str:
    with raises(code) as error:
        opened(root, *overrides)
    return str(error.value)


def pictures(count: int = 1, height: int = 224, width: int = 224) -> torch.Tensor:
    return torch.rand(count, 3, height, width, generator=torch.Generator().manual_seed(count))


def outputs(model: Model, images: torch.Tensor) -> tuple[torch.Tensor, ...]:
    with torch.no_grad():
        return model.module(images)  # type: ignore[no-any-return]


# --- what needs no lightly-train --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("overrides", "key", "code", "facts"),
    [
        (
            [],
            *("model.checkpoint", "needs-value"),
            ["model.checkpoint=exported_best.pt", "model.options.name=dinov3/vitt16-ltdetr model.options.random=true"],
        ),
        (
            ["model.options.name=dinov3/vitt16-ltdetr"],
            *("model.checkpoint", "needs-value", ["cache", "model.options.random=true"]),
        ),
        (["decoder=none", *RANDOM], "decoder", "in-conflict", ["dfine", "rtdetrv2"]),
        (
            [*RANDOM, "model.checkpoint=a.pt"],
            *("model.options.random", "in-conflict", ["false", "model.checkpoint=null", "true"]),
        ),
        ([*RANDOM, "model.image_size=[224,null]"], "model.image_size", "needs-value", ["[null, null]", "[224, None]"]),
        (
            [*RANDOM, "trace.dynamic_axes.images={0: b, 3: w}"],
            *("trace.dynamic_axes.images", "axis-fixed", ["axis 3", "axis 0"]),
        ),
        (
            [*RANDOM, "model.preprocessing.layout=NHWC"],
            *("model.preprocessing.layout", "in-conflict", ["NCHW", "NHWC"]),
        ),
        (
            [*RANDOM, "model.drop_outputs=[aux]"],
            *("model.drop_outputs", "in-conflict", ["[]", "['aux']"]),
        ),
        ([*RANDOM, "model.options.key=ema"], "model.options.key", "unknown-key", ["name, random"]),
    ],
)
def test_what_it_does_not_take(overrides: list[str], key: str, code: str, facts: list[str]) -> None:
    with refuses(key, code, *facts):
        config(*overrides)


def test_the_checkpoint_is_fingerprinted(tmp_path: Path) -> None:
    assert files(config("model.checkpoint=a.pt"), tmp_path) == [tmp_path / "a.pt"]
    assert files(config(*RANDOM), tmp_path) == []


def test_without_the_package_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightly_train", None)
    said = refused(tmp_path, *RANDOM, code="package-missing")
    in_order(said, "model.source", "lightly-train", "AGPL-3.0", "pip install 'truehalf[lightly]'")


def test_a_package_that_cannot_be_imported_is_no_missing_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lightly_train.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "lightly_train", raising=False)
    said = refused(tmp_path, *RANDOM, code="package-missing")
    raised = "RuntimeError: operator torchvision::nms does not exist"
    in_order(said, "model.source", "lightly-train", raised, "torch", "torchvision")


def test_it_is_imported_only_when_a_model_is_opened() -> None:
    code = (
        "import sys; from truehalf.models.configuration import validated; from tests.configurations import composed; "
        "validated(composed('model=lightly_train', 'data.folder=a', 'model.checkpoint=a.pt')); "
        "assert not {'lightly_train', 'torch', 'torchvision'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_private_names_of_lightly_train_stand_in_one_file() -> None:
    folders = ("stages", "pipeline", "truehalf", "benchmarks")
    code = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    code = [path for path in code if not path.is_relative_to(ROOT / "benchmarks/build")]
    naming = [path.relative_to(ROOT).as_posix() for path in code if "lightly_train._" in path.read_text()]
    assert naming == ["truehalf/models/sources/lightly_train.py"]


# --- by name ----------------------------------------------------------------------------------------------------------


@installed
@pytest.mark.parametrize("decoder", ["dfine", "rtdetrv2"])
def test_random_weights_follow_the_seed(decoder: str, tmp_path: Path) -> None:
    first, again, other = (
        opened(tmp_path, *RANDOM, f"decoder={decoder}", f"seed={seed}", "model.classes=[cat,dog]") for seed in (3, 3, 4)
    )
    states = [model.module.state_dict() for model in (first, again, other)]
    assert all(torch.equal(tensor, states[1][name]) for name, tensor in states[0].items())
    assert any(not torch.equal(tensor, states[2][name]) for name, tensor in states[0].items())
    assert not first.trained and first.class_names == ["cat", "dog"]
    assert not any(part.training for part in first.module.modules())
    assert {tensor.dtype for tensor in first.module.parameters()} == {torch.float32}
    assert [tuple(each.shape) for each in outputs(first, pictures(2))] == [(2, 20, 2), (2, 20, 4)]


@installed
def test_decoders_differ_and_the_io_spec_says_what_goes_in_and_out(tmp_path: Path) -> None:
    names = [opened(tmp_path, *RANDOM, f"decoder={each}").module.state_dict().keys() for each in ("dfine", "rtdetrv2")]
    assert names[0] != names[1]
    model = opened(tmp_path, *RANDOM)
    spec = spec_of(model, {"images": pictures(2).numpy()}, {"images": {0: "batch"}}).to_json()
    assert [(each["name"], each["shape"], each["kind"]) for each in spec["outputs"]] == [
        ("logits", ["batch", 20, 80], "logits"),
        ("boxes", ["batch", 20, 4], "boxes"),
    ]
    assert spec["outputs"][0]["activation"] == "sigmoid"
    assert spec["outputs"][1]["format"] == "cxcywh" and spec["outputs"][1]["normalized"] is True
    assert spec["inputs"][0]["size"] == [224, 224] and spec["inputs"][0]["channels"] == "RGB"
    assert spec["inputs"][0]["normalization"]["where"] == "before the graph"
    assert len(spec["class_names"]) == 80 and spec["trained"] is False
    assert any("AGPL-3.0" in note for note in model.notes)


@installed
def test_an_unknown_name_lists_the_known_ones(tmp_path: Path) -> None:
    unknown = ("model.options.name=dinov3/vitt17-ltdetr", "model.options.random=true")
    said = refused(tmp_path, *unknown, code="unknown-choice")
    in_order(said, "model.options.name", "lightly-train", "'dinov3/vitt17-ltdetr'")
    expect(said, None, "dinov3/vitt16-ltdetr", "dinov3/convnext-tiny-ltdetr")


@installed
def test_a_name_that_does_not_have_the_decoder(tmp_path: Path) -> None:
    one_decoder = ("model.options.name=ltdetrv2-s", "model.options.random=true", "decoder=rtdetrv2")
    said = refused(tmp_path, *one_decoder, code="module-fails")
    expect(said, None, "lightly-train", "ltdetrv2-s", "{'decoder_name': 'rtdetrv2'}")


@installed
def test_a_size_that_the_network_does_not_take(tmp_path: Path) -> None:
    said = refused(tmp_path, *RANDOM[:2], "model.image_size=[250,224]", code="module-fails")
    in_order(said, "model.image_size", SMALLEST, [250, 224], 32, 28)


@installed
def test_a_rectangle(tmp_path: Path) -> None:
    model = opened(tmp_path, *RANDOM[:2], "model.image_size=[280,224]")
    assert model.inputs[0].size == (280, 224)
    assert outputs(model, pictures(1, 280, 224))[0].shape == (1, 20, 80)


# --- the export -------------------------------------------------------------------------------------------------------


@installed
@pytest.mark.parametrize("decoder", ["dfine", "rtdetrv2"])
def test_the_network_is_prepared_on_a_copy(decoder: str, tmp_path: Path) -> None:
    model = opened(tmp_path, *RANDOM, f"decoder={decoder}")
    network: Any = model.module.network
    network.postprocessor.train()  # a mode of the user's; it takes no part in the forward pass
    seen: list[int] = []
    network.register_forward_hook(lambda *_: seen.append(1))
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    expected = outputs(model, pictures(2))
    with contextlib.suppress(KeyError), model.prepared():
        prepared: Any = model.module.network
        assert prepared is not network and prepared.is_deploy_mode and not network.is_deploy_mode
        assert not any(part.training for part in prepared.modules())
        assert prepared.state_dict().keys() - network.state_dict().keys(), "no fused convolutions"
        got = outputs(model, pictures(2))
        raise KeyError("inside, something goes wrong")
    assert model.module.network is network and not network.is_deploy_mode
    assert network.postprocessor.training and not network.encoder.training
    after = network.state_dict()
    assert after.keys() == before.keys() and all(torch.equal(before[name], after[name]) for name in before)
    for a, b, c in zip(expected, got, outputs(model, pictures(2)), strict=True):
        torch.testing.assert_close(a, b)
        assert torch.equal(a, c)
    assert len(seen) >= 2, "the hook is still there"


@installed
@pytest.mark.parametrize("exporter", ["torchscript", "dynamo"])
@pytest.mark.parametrize("decoder", ["dfine", "rtdetrv2"])
def test_what_is_exported_computes_what_the_network_does(decoder: str, exporter: str, tmp_path: Path) -> None:
    model = opened(tmp_path, *RANDOM, f"decoder={decoder}")
    path = tmp_path / "model.onnx"
    names = [each.name for each in model.outputs]
    with model.prepared():
        export(
            *(model.module, [pictures(2)], path),
            trace_config(exporter, 18, {name: {0: "batch"} for name in ("images", *names)}),
            input_names=["images"],
            output_names=names,
        )
    assert "GridSample" not in {node.op_type for node in load_model(path).graph.all_nodes()}
    session = Session(path)
    for count in (1, 3):
        expected = outputs(model, pictures(count))
        got = session.run({"images": pictures(count).numpy()})
        for name, tensor in zip(names, expected, strict=True):
            # float32, a dozen layers deep: a few units in the last place of values up to 10
            np.testing.assert_allclose(got[name], tensor.numpy(), atol=2e-4)


# --- checkpoints ------------------------------------------------------------------------------------------------------


def trained(folder: Path, **changes: Any) -> dict[str, Any]:
    """What the training of lightly-train writes: of averaged weights (1 more everywhere) and others, both."""
    network: Any = opened(folder, *RANDOM, "model.classes=[cat,dog]").module.network
    plain = network.state_dict()
    averaged = {name: tensor + 1 if tensor.is_floating_point() else tensor for name, tensor in plain.items()}
    arguments = {
        **{"model_name": SMALLEST, "classes": NAMES, "image_size": (224, 224), "patch_size": 14},
        **{"image_normalize": {"mean": MEAN, "std": STD}, "backbone_freeze": False, "backbone_weights": None},
        **{"backbone_args": None, "decoder_name": "dfine"},
    }
    state = {f"model.{name}": tensor for name, tensor in plain.items()}
    state |= {"ema_model.updates": torch.tensor(7)}
    state |= {f"ema_model.model.{name}": tensor for name, tensor in averaged.items()}
    content = {"model_class_path": TRAINED_BY, "model_init_args": arguments, "train_model": state, "license_info": "x"}
    content["model_init_args"] = arguments | changes.pop("arguments", {})
    return content | changes


def saved(folder: Path, content: Any, name: str = "exported_best.pt") -> str:
    torch.save(content, folder / name)
    return f"model.checkpoint={name}"


@installed
def test_a_checkpoint_says_all_by_itself(tmp_path: Path) -> None:
    content = trained(tmp_path)
    model = opened(tmp_path, saved(tmp_path, content))
    assert model.trained and model.class_names == ["cat", "dog"]
    known = declared_by(model.inputs[0])
    assert known is not None and (known.mean, known.std, known.size) == (MEAN, STD, [224, 224])
    averaged = {name.removeprefix("ema_model.model."): each for name, each in content["train_model"].items()}
    state = model.module.network.state_dict()  # type: ignore[union-attr]
    assert all(torch.equal(tensor, averaged[name]) for name, tensor in state.items()), "not the averaged weights"
    assert any("2, 5" in note for note in model.notes)
    (weights,) = [note for note in model.notes if note.startswith("weights:")]
    in_order(weights, "weights", len(state), "exported_best.pt")


@installed
def test_weights_that_were_not_averaged(tmp_path: Path) -> None:
    content = trained(tmp_path)
    plain = {n: each for n, each in content["train_model"].items() if n.startswith("model.")}
    by = "lightly_train._task_models.dinov2_ltdetr_object_detection.task_model.DINOv2LTDETRObjectDetection"
    checkpoint = saved(tmp_path, content | {"train_model": plain, "model_class_path": by})
    state = opened(tmp_path, checkpoint).module.network.state_dict()  # type: ignore[union-attr]
    assert all(torch.equal(tensor, plain[f"model.{name}"]) for name, tensor in state.items())


@installed
def test_classes_and_size_of_the_configuration_go_before_the_checkpoints(tmp_path: Path) -> None:
    checkpoint = saved(tmp_path, trained(tmp_path))
    model = opened(tmp_path, checkpoint, "model.classes=[Katze,Hund]", "model.image_size=[280,224]")
    assert model.class_names == ["Katze", "Hund"]
    assert model.inputs[0].size == (280, 224)
    said = refused(tmp_path, checkpoint, "model.classes=[a,b,c]", code="wrong-class-count")
    in_order(said, "model.classes", tmp_path / "exported_best.pt", 2, "null", 3)


@installed
@pytest.mark.parametrize(
    ("override", "key", "facts"),
    [
        ("decoder=rtdetrv2", "decoder", ["dfine", "decoder=dfine", "rtdetrv2"]),
        (
            "model.options.name=dinov3/vitt16-ltdetr",
            *("model.options.name", [f"'{SMALLEST}'", "null", "'dinov3/vitt16-ltdetr'"]),
        ),
    ],
)
def test_what_the_configuration_must_not_say_otherwise(
    override: str, key: str, facts: list[str], tmp_path: Path
) -> None:
    checkpoint = saved(tmp_path, trained(tmp_path))
    said = refused(tmp_path, checkpoint, override, code="in-conflict")
    assert said.startswith(f"{key}:")
    in_order(said, tmp_path / "exported_best.pt", *facts)


@installed
@pytest.mark.parametrize(
    ("changes", "code", "facts"),
    [
        ({"model_class_path": "os.path.Something"}, "wrong-file", ["LT-DETR", "os.path.Something", "model=torch"]),
        ({"model_init_args": {"model_name": SMALLEST}}, "file-unreadable", ["model_init_args", "KeyError: 'classes'"]),
        ({"train_model": 3}, "file-unreadable", ["train_model", "TypeError"]),
        ({"arguments": {"model_name": "dinov9/x-ltdetr"}}, "unknown-choice", ["'dinov9/x-ltdetr'", SMALLEST]),
        ({"arguments": {"depth": 3}}, "module-fails", [SMALLEST, "'depth': 3", [224, 224]]),
        (
            {"arguments": {"classes": {0: "a", 1: "b", 2: "c"}}},
            *("wrong-file", ["decoder.enc_score_head.weight", "float32[3, 8]", "float32[2, 8]"]),
        ),
        ({"arguments": {"decoder_name": "rtdetrv2"}}, "in-conflict", ["rtdetrv2", "decoder=rtdetrv2", "dfine"]),
        ({"arguments": {"image_normalize": {"mean": (0.5,), "std": (0.2,)}}}, "not-supported", ["1 channels", 3]),
    ],
)
def test_a_checkpoint_that_is_not_what_training_writes(
    changes: dict[str, Any], code: str, facts: list[object], tmp_path: Path
) -> None:
    said = refused(tmp_path, saved(tmp_path, trained(tmp_path, **changes)), code=code)
    in_order(said, tmp_path / "exported_best.pt", *facts)


@installed
def test_tensors_that_do_not_fit_are_listed(tmp_path: Path) -> None:
    content = trained(tmp_path)
    state = {name: each for name, each in content["train_model"].items() if name.startswith("ema_model.model.")}
    state["ema_model.model.decoder.spare"] = torch.ones(1)
    del state["ema_model.model.backbone._model_wrapper._model.cls_token"]
    said = refused(tmp_path, saved(tmp_path, content | {"train_model": state}), code="wrong-file")
    in_order(said, 1, "missing", "backbone._model_wrapper._model.cls_token", 1, "unexpected", "decoder.spare")


@installed
def test_a_checkpoint_with_objects_is_refused_and_its_conversion_is_opened(tmp_path: Path) -> None:
    content = trained(tmp_path)
    checkpoint = saved(tmp_path, content | {"train_dataloader": Touching(tmp_path / "called")}, "best.ckpt")
    said = refused(tmp_path, checkpoint, code="code-refused")
    expect(said, None, tmp_path / "best.ckpt", f"{os.name}.mkdir", "exported_models/exported_best.pt")
    assert not (tmp_path / "called").exists()
    recipe = said.partition("save only the tensors: ")[2].partition(", paths in")[0]
    subprocess.run([sys.executable, "-c", f"import torch; {recipe}"], cwd=tmp_path, check=True)
    assert (tmp_path / "called").exists(), "it is as dangerous as it is said to be"
    assert opened(tmp_path, "model.checkpoint=weights.pt").class_names == ["cat", "dog"]


@installed
def test_no_other_pickle_is_loaded_because_a_checkpoint_names_it(tmp_path: Path) -> None:
    torch.save(Touching(tmp_path / "called"), tmp_path / "backbone.pt")
    arguments = {
        "backbone_weights": str(tmp_path / "backbone.pt"),
        "backbone_args": {"weights": str(tmp_path / "backbone.pt"), "pretrained": True},
    }
    assert opened(tmp_path, saved(tmp_path, trained(tmp_path, arguments=arguments))).trained
    assert not (tmp_path / "called").exists()


def test_a_checkpoint_that_is_missing(tmp_path: Path) -> None:
    pytest.importorskip("lightly_train", reason="lightly-train is not installed here: make test-lightly")
    expect(refused(tmp_path, "model.checkpoint=none.pt", code="file-missing"), None, tmp_path / "none.pt")
