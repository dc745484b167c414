"""Detectors and classifiers of `transformers`, each at its smallest, from folders and a cache, without a network."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.messages import expect, raises
from tests.tiers import first_of
from tests.tracing import half_tracing, trace_config
from tests.truehalf.models.refusing import in_order, refuses
from tests.truehalf.models.sources.hf_families import (
    CLASSIFIERS,
    DETECTORS,
    NAMES,
    configuration,
    saved,
    write_processor,
)
from tests.truehalf.models.sources.hf_opened import choice_of, config, opened, pictures, refused
from truehalf.exporting.export import export
from truehalf.exporting.half import trace_in_fp16
from truehalf.io_spec.spec import OutputSpec
from truehalf.models.model import Model
from truehalf.models.source import open_model, spec_of
from truehalf.models.sources.huggingface import LOGITS, files
from truehalf.runtime.ort import Session

SIGMOID, SOFTMAX = {"activation": "sigmoid"}, {"activation": "softmax", "no_object": True}
SOFTMAX_FAMILIES = {"detr", "table-transformer", "yolos"}
BY_DYNAMO = ["yolos", *(name for name in (*DETECTORS, *CLASSIFIERS) if name != "yolos")]  # the quickest detector first
COMMIT = "0123456789abcdef0123456789abcdef01234567"


# --- every family -----------------------------------------------------------------------------------------------------


def test_every_family_whose_logits_are_known_is_tried() -> None:
    assert set(LOGITS) == set(DETECTORS)


@pytest.mark.parametrize("model_type", [*first_of(DETECTORS), *first_of(CLASSIFIERS)])
def test_a_family_opens_says_what_it_is_and_traces(model_type: str, tmp_path: Path) -> None:
    theirs = saved(tmp_path, model_type)
    model = opened(tmp_path, model=choice_of(model_type))
    images = pictures(2)
    with torch.no_grad():
        expected = theirs(pixel_values=images)
        outputs = model.module(images)
    assert torch.equal(outputs[0], expected.logits)
    spec = spec_of(model, {"images": images.numpy()}, {"images": {0: "batch"}}).to_json()
    assert spec["class_names"] == list(NAMES.values()) and spec["trained"] is True and model.notes == []
    if model_type in CLASSIFIERS:
        assert [(each["name"], each["kind"]) for each in spec["outputs"]] == [("logits", "classes")]
    else:
        assert torch.equal(outputs[1], expected.pred_boxes) and len(outputs) == 2
        meaning = SOFTMAX if model_type in SOFTMAX_FAMILIES else SIGMOID
        assert model.outputs == [
            OutputSpec("logits", "logits", **meaning),
            OutputSpec("boxes", "boxes", format="cxcywh", normalized=True),
        ]
        assert spec["outputs"][0]["shape"] == ["batch", 10, 5 + bool(meaning.get("no_object"))]
        assert spec["outputs"][1]["shape"] == ["batch", 10, 4]
    _same_in_onnx(model, tmp_path, "torchscript", 17)


@pytest.mark.parametrize("model_type", first_of(BY_DYNAMO))
def test_a_family_exports_with_dynamo(model_type: str, tmp_path: Path) -> None:
    saved(tmp_path, model_type)
    _same_in_onnx(opened(tmp_path, model=choice_of(model_type)), tmp_path, "dynamo", 18)


def _same_in_onnx(model: Model, folder: Path, exporter: str, opset: int) -> None:
    """The exported file is the module, on a batch that was traced and on others, once it is no longer prepared."""
    names = [each.name for each in model.outputs]
    axes = {name: {0: "batch"} for name in ("images", *names)}
    keywords: dict[str, Any] = {"input_names": ["images"], "output_names": names}
    with model.prepared():
        export(model.module, [pictures(2)], folder / "model.onnx", trace_config(exporter, opset, axes), **keywords)
    session = Session(folder / "model.onnx")
    for count in (1, 2, 3):
        images = pictures(count)
        with torch.no_grad():
            expected = model.module(images)
        got = session.run({"images": images.numpy()})
        for name, tensor in zip(names, expected, strict=True):
            # float32, other orders of summation, logits up to 5; Deformable DETR by TorchScript is farthest, 5e-5
            np.testing.assert_allclose(got[name], tensor.numpy(), atol=2e-4, rtol=0)


def test_the_module_is_as_it_was_after_it_was_prepared(tmp_path: Path) -> None:
    saved(tmp_path, "rf_detr")
    model = opened(tmp_path)
    (part,) = [part for part in model.module.modules() if hasattr(part, "interpolate_pos_encoding")]
    before = part.interpolate_pos_encoding
    with model.prepared():
        assert part.interpolate_pos_encoding != before
        constant = part.interpolate_pos_encoding(None, 64, 64)
    assert part.interpolate_pos_encoding == before
    assert torch.equal(constant, part.position_embeddings) and not constant.requires_grad
    varies = opened(tmp_path, "trace.dynamic_axes.images={0: batch, 2: height}")
    (part,) = [part for part in varies.module.modules() if hasattr(part, "interpolate_pos_encoding")]
    before = part.interpolate_pos_encoding
    with varies.prepared():
        assert part.interpolate_pos_encoding == before


# --- weights ----------------------------------------------------------------------------------------------------------


def test_random_weights_follow_the_seed_and_need_the_configurations_alone(tmp_path: Path) -> None:
    configuration("rt_detr").save_pretrained(tmp_path)
    write_processor(tmp_path)

    def logits(seed: int) -> torch.Tensor:
        model = opened(tmp_path, "model.options.random=true", f"seed={seed}")
        assert model.trained is False
        expect(model.notes[0], None, tmp_path, "random")
        with torch.no_grad():
            return model.module(pictures(1))[0]

    state = torch.random.get_rng_state()
    assert torch.equal(logits(1), logits(1)) and not torch.equal(logits(1), logits(2))
    assert torch.equal(torch.random.get_rng_state(), state)
    best = logits(1).max(dim=2).values[0].sort().values
    assert (best.diff() > 1e-4).all()  # which queries are taken is not chance
    said = refused(tmp_path, code="file-missing")
    expect(said, None, "model.safetensors", "model.safetensors.index.json", "model.options.random=true")


def test_pickles_are_refused_with_a_conversion_that_works(yolos: Path) -> None:
    from safetensors.torch import load_file

    with torch.no_grad():
        expected = opened(yolos).module(pictures(1))
    torch.save(load_file(yolos / "model.safetensors"), yolos / "pytorch_model.bin")
    (yolos / "model.safetensors").unlink()
    said = refused(yolos, code="code-refused")
    in_order(said, "model.safetensors", "pytorch_model.bin")
    command = said[said.index("python -c") :].removesuffix(" [code-refused]").replace("python", sys.executable, 1)
    subprocess.run(command, shell=True, check=True)
    with torch.no_grad():
        assert torch.equal(opened(yolos).module(pictures(1))[0], expected[0])


def test_weights_in_parts_are_all_needed(tmp_path: Path) -> None:
    theirs = saved(tmp_path, "yolos")
    (tmp_path / "model.safetensors").unlink()
    theirs.save_pretrained(tmp_path, max_shard_size="100KB")
    parts = sorted(tmp_path.glob("model-*.safetensors"))
    assert len(parts) > 1
    listed = ["config.json", "preprocessor_config.json", *(part.name for part in parts), "model.safetensors.index.json"]
    assert [path.name for path in files(config(tmp_path), tmp_path)] == listed
    with torch.no_grad():
        assert torch.equal(opened(tmp_path).module(pictures(1))[0], theirs(pictures(1)).logits)
    parts[0].unlink()
    expect(refused(tmp_path, code="file-missing"), None, "model.safetensors.index.json")
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": []}')
    expect(refused(tmp_path, code="file-missing"), None, "model.safetensors.index.json")


def test_weights_of_another_model_are_refused_by_name(yolos: Path) -> None:
    shape = json.loads((yolos / "config.json").read_text())
    shape["intermediate_size"] = 48
    (yolos / "config.json").write_text(json.dumps(shape))
    said = refused(yolos, code="wrong-file")
    in_order(said, yolos, "config.json", 6, [48], [32])
    assert "missing" not in said


def test_weights_without_a_head_are_refused(tmp_path: Path) -> None:
    saved(tmp_path, "vit").vit.save_pretrained(tmp_path)
    shape = json.loads((tmp_path / "config.json").read_text())
    assert shape["model_type"] == "vit"
    said = refused(tmp_path, code="wrong-file", model="huggingface_classifier")
    in_order(said, 2, "missing", "classifier.bias", "classifier.weight")


def test_tensors_that_are_not_used_are_noted(yolos: Path) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(yolos / "model.safetensors")
    save_file(tensors | {"more": torch.zeros(2)}, yolos / "model.safetensors", {"format": "pt"})
    (note,) = opened(yolos).notes
    in_order(note, yolos, 1, "more")


def test_weights_are_fp32_whatever_the_files_hold(tmp_path: Path) -> None:
    saved(tmp_path, "vit").half().save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["dtype"] == "float16"
    module = opened(tmp_path, model="huggingface_classifier").module
    assert {str(tensor.dtype) for tensor in module.parameters()} == {"torch.float32"}


# --- what a model is --------------------------------------------------------------------------------------------------


def test_the_task_is_the_models(tmp_path: Path) -> None:
    saved(tmp_path, "vit")
    said = refused(tmp_path, code="in-conflict")
    in_order(said, "model.options.task", "detection", "model_type 'vit'", "model.options.task=classification")


def test_code_beside_a_model_is_not_run(yolos: Path) -> None:
    shape = json.loads((yolos / "config.json").read_text())
    (yolos / "mine.py").write_text(f"open({str(yolos / 'ran')!r}, 'w')\nclass MyConfig: pass\nclass Mine: pass\n")
    shape |= {"auto_map": {"AutoConfig": "mine.MyConfig", "AutoModelForObjectDetection": "mine.Mine"}}
    (yolos / "config.json").write_text(json.dumps(shape))
    opened(yolos)  # a type that transformers has itself
    (yolos / "config.json").write_text(json.dumps(shape | {"model_type": "mine"}))
    said = refused(yolos, code="not-supported")
    in_order(said, "model.options.id", yolos / "config.json", "model_type 'mine'", "model=torch")
    assert not (yolos / "ran").exists()


@pytest.mark.skipif(importlib.util.find_spec("timm") is not None, reason="timm is installed: nothing is missing")
def test_a_package_that_is_missing_is_named(tmp_path: Path) -> None:
    import transformers

    transformers.DetrConfig().save_pretrained(tmp_path)
    write_processor(tmp_path)
    said = refused(tmp_path, "model.options.random=true", code="package-missing")
    in_order(said, "model.options.id", tmp_path, "timm", "pip install timm")


def test_logits_that_are_not_known_are_declared(tmp_path: Path) -> None:
    saved(tmp_path, "rt_detr")
    shape = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(shape | {"use_focal_loss": False}))
    said = refused(tmp_path, code="needs-value")
    expect(said, None, "model.outputs", "model_type 'rt_detr'", "focal loss", *LOGITS)
    declared = re.search(r"model\.outputs=\[.*\}\]", said)
    assert declared is not None
    model = opened(tmp_path, declared[0].replace("sigmoid", "softmax"))
    assert model.outputs == [
        OutputSpec("logits", "logits", activation="softmax"),
        OutputSpec("boxes", "boxes", format="cxcywh", normalized=True),
    ]
    assert [list(tensor.shape) for tensor in model.module(pictures(1))] == [[1, 10, 5], [1, 10, 4]]


def test_class_names_can_be_given_as_many_as_there_are(yolos: Path) -> None:
    assert opened(yolos, "model.classes=[a,b,c,d,e]").class_names == ["a", "b", "c", "d", "e"]
    said = refused(yolos, "model.classes=[a,b]", code="wrong-class-count")
    in_order(said, "model.classes", yolos, 5, "'logits'", 2)


def test_a_size_that_the_model_does_not_take(tmp_path: Path) -> None:
    saved(tmp_path, "vit")
    said = refused(tmp_path, "model.image_size=[32,32]", code="module-fails", model="huggingface_classifier")
    in_order(said, "model.image_size", "vit", [32, 32], "ValueError")


# --- the hub ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The hub's cache, empty; and no network."""
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def fill(cache: Path, folder: Path, tag: str) -> Path:
    """As `hf download me/tiny --revision tag` leaves it; returns the snapshot."""
    model = cache / "models--me--tiny"
    snapshot = shutil.copytree(folder, model / "snapshots" / COMMIT)
    (model / "refs").mkdir()
    (model / "refs" / tag).write_text(COMMIT)
    return Path(snapshot)


@pytest.mark.parametrize("revision", [COMMIT, "v1"])
def test_a_cached_model_opens_without_a_network(revision: str, cache: Path, yolos: Path, tmp_path: Path) -> None:
    fill(cache, yolos, "v1")
    mine = config("me/tiny", f"model.options.revision={revision}")
    assert files(mine, tmp_path) == []
    with torch.no_grad():
        got = open_model(mine, tmp_path).module(pictures(1))
        assert torch.equal(got[0], opened(yolos).module(pictures(1))[0])


def test_without_network_and_cache_it_is_said_what_to_download_and_where_to(cache: Path, tmp_path: Path) -> None:
    download = f"hf download me/tiny --revision {COMMIT} --include 'config.json'"
    for random, wanted in (("false", "--include 'model.safetensors'"), ("true", "'preprocessor_config.json';")):
        mine = config("me/tiny", f"model.options.revision={COMMIT}", f"model.options.random={random}")
        with raises("download-fails") as error:
            open_model(mine, tmp_path)
        said = str(error.value)
        in_order(said, "model.options.id", "me/tiny", COMMIT, cache, "HF_HOME", download, wanted)
        expect(said, None, "model.options.id=./mine model.options.revision=null")
        assert ("safetensors" in said) == (random == "false")


def test_a_cache_that_is_not_complete(cache: Path, yolos: Path, tmp_path: Path) -> None:
    snapshot = fill(cache, yolos, "v1")
    (snapshot / "model.safetensors").unlink()
    mine = config("me/tiny", "model.options.revision=v1")
    with raises("file-missing", "me/tiny", "v1", snapshot, "model.safetensors", "model.safetensors.index.json"):
        open_model(mine, tmp_path)
    random = config("me/tiny", "model.options.revision=v1", "model.options.random=true")
    assert open_model(random, tmp_path).trained is False
    (snapshot / "config.json").unlink()
    with raises("download-fails", snapshot, "config.json", "hf download me/tiny --revision v1"):
        open_model(random, tmp_path)


# --- in half precision ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exporter", first_of(["torchscript", "dynamo"]))
def test_positions_that_are_fixed_follow_the_module_into_half_precision(exporter: str, tmp_path: Path) -> None:
    saved(tmp_path / "rf_detr", "rf_detr")
    model = opened(tmp_path / "rf_detr")
    example = {"images": pictures(2).numpy()}
    axes = {name: {0: "batch"} for name in ("images", "logits", "boxes")}
    how = half_tracing("half", axes, exporter, 17 if exporter == "torchscript" else 18)
    report, _ = trace_in_fp16(model, example, tmp_path / "half.onnx", how, spec=spec_of(model, example, axes))
    assert report.fp16_fraction > 0.75  # sines of positions are float32 in the module itself
    assert report.norms.keys() == {"folded", "widened"}
    assert all(part.dtype == torch.float32 for part in model.module.parameters())


# --- the configuration ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("identity", "overrides", "key", "code", "facts"),
    [
        (
            *("null", [], "model.options.id", "needs-value"),
            ["model.options.id=owner/name model.options.revision=<commit>", "model.options.id=./mine"],
        ),
        ("me/tiny", [], "model.options.revision", "needs-value", ["'me/tiny'", 40, "./me/tiny"]),
        (
            *("me/tiny", ["model.options.revision=main"]),
            *("model.options.revision", "revision-moves", ["'main'", 40]),
        ),
        (
            *("me/tiny", ["model.options.revision=refs/pr/3"]),
            *("model.options.revision", "revision-moves", ["'refs/pr/3'", 40]),
        ),
        (
            *("./mine", ["model.options.revision=v1"]),
            *("model.options.revision", "in-conflict", ["null", "'v1'"]),
        ),
        (
            *("./mine", ["model.checkpoint=w.safetensors"]),
            *("model.checkpoint", "in-conflict", ["null", "w.safetensors"]),
        ),
        (
            *("./mine", ["model.image_size=[64,null]"]),
            *("model.image_size", "needs-value", ["[null, null]", "[64, None]"]),
        ),
        (
            *("./mine", ["model.preprocessing.layout=NHWC"]),
            *("model.preprocessing.layout", "in-conflict", ["NCHW", "NHWC"]),
        ),
        (
            *("./mine", ["model.drop_outputs=[boxes]"]),
            *("model.drop_outputs", "in-conflict", ["[]", "['boxes']"]),
        ),
        ("./mine", ["decoder=dfine"], "decoder", "in-conflict", ["none", "dfine"]),
        (
            *("./mine", ["model.inputs=[{name: x, kind: images, dtype: float32, shape: null}]"]),
            *("model.inputs", "in-conflict", ["null"]),
        ),
        (
            *("./mine", ["model.options.task=segmentation"]),
            *("model.options.task", "unknown-choice", ["detection", "classification", "'segmentation'"]),
        ),
        (
            *("./mine", ["model.options.trust_remote_code=true"]),
            *("model.options.trust_remote_code", "unknown-key", ["task", "id", "revision", "random"]),
        ),
    ],
)
def test_what_it_does_not_take(identity: str, overrides: list[str], key: str, code: str, facts: list[object]) -> None:
    with refuses(key, code, *facts):
        config(identity, *overrides)


def test_a_folder_is_sought_in_the_workspace(yolos: Path, tmp_path: Path) -> None:
    mine = config("./yolos")
    listed = ["config.json", "preprocessor_config.json", "model.safetensors"]
    assert files(mine, tmp_path) == [tmp_path / "yolos" / name for name in listed]
    assert files(config("./yolos", "model.options.random=true"), tmp_path) == [yolos / name for name in listed[:2]]
    assert open_model(mine, tmp_path).trained is True
    for sought in (open_model, files):
        with raises("file-missing", "model.options.id", tmp_path / "other", "config.json"):
            sought(config("./other"), tmp_path)


def test_a_kernel_from_elsewhere_is_refused(yolos: Path) -> None:
    content = json.loads((yolos / "config.json").read_text())
    (yolos / "config.json").write_text(json.dumps(content | {"attn_implementation": "someone/kernel"}))
    said = refused(yolos, code="code-refused")
    expect(said, None, yolos / "config.json", "attn_implementation", "'someone/kernel'", "eager", "sdpa")
