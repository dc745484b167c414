"""Detectors and classifiers of torchvision. What needs the package runs where it is: make test-lightly."""

from __future__ import annotations

import importlib.util
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.error import URLError

import pytest
import torch

from tests.configurations import composed
from tests.messages import expect, raises
from tests.tracing import trace_config
from tests.truehalf.models.refusing import in_order, refuses
from truehalf.config.schema import Config
from truehalf.data.preprocessing import Preprocessing
from truehalf.errors import StageError
from truehalf.exporting.export import export
from truehalf.io_spec.outputs import DETECTIONS, check_spec, task_of
from truehalf.models.architectures.candidates import candidates
from truehalf.models.configuration import validated
from truehalf.models.extras import extra
from truehalf.models.model import Model
from truehalf.models.source import open_model, spec_of
from truehalf.models.sources.torchvision import files
from truehalf.runtime.ort.session import Session
from truehalf.verification.metrics.decoded import detections_of
from truehalf.verification.metrics.tensors import compare_runs, query_outputs

installed = pytest.mark.skipif(
    importlib.util.find_spec("torchvision") is None, reason="torchvision is not installed here: make test-lightly"
)
DETECTORS = {  # with the size at which each is tried
    "ssdlite320_mobilenet_v3_large": [320, 320],
    "ssd300_vgg16": [300, 300],
    "retinanet_resnet50_fpn": [64, 96],
    "fcos_resnet50_fpn": [64, 96],
}
SMALL = "squeezenet1_1"  # 1.2 million parameters


def config(*overrides: str, model: str = "torchvision_classifier") -> Config:
    return validated(composed(f"model={model}", "data.folder=pictures", *overrides))


def opened(root: Path, *overrides: str, model: str = "torchvision_classifier") -> Model:
    return open_model(config(*overrides, model=model), root)


def refusal(root: Path, *overrides: str, model: str = "torchvision_classifier") -> str:
    with pytest.raises(StageError) as error:
        opened(root, *overrides, model=model)
    return str(error.value)


# --- without torchvision ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("overrides", "key", "code", "facts"),
    [
        (["decoder=dfine"], "decoder", "in-conflict", ["none", "dfine"]),
        (
            ["model.options.name=null"],
            *("model.options.name", "needs-value", ["model.options.name=ssd300_vgg16"]),
        ),
        (["model.options.candidates=0"], "model.options.candidates", "out-of-range", [1, 3840, 0]),
        (["model.options.candidates=3841"], "model.options.candidates", "out-of-range", [1, 3840, 3841]),
        (["model.preprocessing.mean=[0,0,0]"], "model.preprocessing.mean", "in-conflict", ["RGB", "0..1", "null"]),
        (
            ["trace.dynamic_axes.images={0: batch, 2: height}"],
            *("trace.dynamic_axes.images", "axis-fixed", ["axis 2", "model.image_size", "axis 0"]),
        ),
        (["model.image_size=[320,null]"], "model.image_size", "needs-value", ["[null, null]", "[320, None]"]),
        (["model.preprocessing.layout=NHWC"], "model.preprocessing.layout", "in-conflict", ["NCHW", "NHWC"]),
        (
            ["model.options.key=ema"],
            *("model.options.key, model.options.prefix", "in-conflict", ["model.checkpoint", "null"]),
        ),
        (
            ["model.drop_outputs=[boxes]"],
            *("model.inputs, model.outputs, model.drop_outputs", "in-conflict", ["null", "[]"]),
        ),
        (
            ["model.options.weights=DEFAULT", "model.checkpoint=w.pt"],
            *("model.checkpoint", "in-conflict", ["model.options.weights", "'w.pt'", "'DEFAULT'"]),
        ),
    ],
)
def test_faults(overrides: list[str], key: str, code: str, facts: list[object]) -> None:
    with refuses(key, code, *facts):
        config(*overrides, model="torchvision")


def test_a_classifier_has_no_candidates() -> None:
    with refuses("model.options.candidates", "in-conflict", "null", 9):
        config("model.options.candidates=9")


def test_a_classifier_may_vary_in_height_and_width_and_its_gates_are_a_classifiers() -> None:
    config("trace.dynamic_axes.images={0: batch, 2: height}")
    assert composed("model=torchvision_classifier")["verify"] == composed("verify=classification")["verify"]


def test_the_checkpoint_is_fingerprinted(tmp_path: Path) -> None:
    assert files(config(), tmp_path) == []
    assert files(config("model.checkpoint=w.pt"), tmp_path) == [tmp_path / "w.pt"]


def test_without_the_package_its_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with raises("package-missing", "model.source", "torchvision", "pip install 'truehalf[torchvision]'"):
        opened(tmp_path)


@pytest.mark.parametrize("package", ["torchvision", "timm"])
def test_a_torchvision_of_another_build_is_told_from_none(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a torchvision that was compiled against torch with CUDA fails beside torch for the CPU; timm imports it."""
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision/__init__.py").write_text(
        "raise RuntimeError('operator torchvision::nms does not exist')\n"
    )
    (tmp_path / "timm").mkdir()
    (tmp_path / "timm/__init__.py").write_text("import torchvision\n")
    for name in [name for name in sys.modules if name.partition(".")[0] in ("torchvision", "timm")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    with raises("package-broken", f"torch {torch.__version__.partition('+')[0]}") as error:
        extra(package)
    raised = "RuntimeError: operator torchvision::nms does not exist"
    in_order(str(error.value), "model.source", package, raised, "pip install --force-reinstall torch torchvision")


# --- detectors --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=DETECTORS)
def detector(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    """With random weights, and all its anchors as candidates, as far as there are 3840."""
    height, width = DETECTORS[request.param]
    keys = [f"model.options.name={request.param}", f"model.image_size=[{height},{width}]"]
    classes = 'model.classes=["ape","bee","cat"]'
    root = tmp_path_factory.mktemp("detector")
    model = opened(root, *keys, classes, "model.options.candidates=3840", model="torchvision")
    if request.param == "ssd300_vgg16":  # without batch norms its scores are 1, nearly all
        with torch.no_grad():
            for parameter in model.module.get_submodule("network.head.classification_head").parameters():
                parameter.mul_(0.05)
    return model


@installed
def test_candidates_are_what_torchvision_has_before_nms(detector: Model) -> None:
    """NMS done on them gives torchvision's own detections."""
    from torchvision.ops import batched_nms

    network: Any = detector.module.get_submodule("network")
    (declared,) = detector.inputs
    assert declared.preprocessing is not None and declared.preprocessing.size is not None
    height, width = declared.preprocessing.size
    pictures = torch.rand(2, 3, height, width, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        scores, boxes = detector.module(pictures)
        best = scores.amax(dim=2)
        assert torch.equal(best, best.sort(dim=1, descending=True).values)
        network.score_thresh = float(scores.flatten().sort(descending=True).values[600])
        network.topk_candidates = 10**6
        if network.transform.fixed_size is None:  # as large as the picture is, so that nothing is resized
            network.transform.min_size, network.transform.max_size = (height,), max(height, width)
        theirs = network(list(pictures))
    background = len(detector.class_names) - scores.shape[2] + ("ssd" in type(network).__name__.lower())
    found = 0
    for number, expected in enumerate(theirs):
        rows, labels = torch.nonzero(scores[number] > network.score_thresh, as_tuple=True)
        values, places = scores[number][rows, labels], boxes[number][rows]
        kept = batched_nms(places, values, labels, network.nms_thresh)[: network.detections_per_img]
        torch.testing.assert_close(values[kept], expected["scores"], rtol=0, atol=1e-5)
        # each box by its place: of equal scores either may come first
        apart = (places[kept][:, None] - expected["boxes"][None]).abs().amax(dim=2)  # pixels
        same = (apart < 1e-2) & (labels[kept][:, None] + background == expected["labels"][None])
        assert same.any(dim=0).all() and same.any(dim=1).all()
        found += len(kept)
    assert found > 20, "of two pictures"


@installed
def test_a_detector_says_what_it_is_and_its_file_computes_it(detector: Model, tmp_path: Path) -> None:
    (declared,) = detector.inputs
    assert declared.preprocessing is not None and declared.preprocessing.size is not None
    size = declared.preprocessing.size
    module = candidates(detector.module.get_submodule("network"), size, 100)
    pictures = torch.rand(2, 3, *size, generator=torch.Generator().manual_seed(2))
    spec = spec_of(replace(detector, module=module), {"images": pictures.numpy()}, {"images": {0: "batch"}})
    check_spec(spec, ["scores", "boxes"])
    assert task_of(spec) == DETECTIONS and spec.trained is False and spec.class_names == ("ape", "bee", "cat")
    assert spec.image_input.normalization.inside
    assert [each.shape for each in spec.outputs] == [("batch", 100, 3), ("batch", 100, 4)]
    path = tmp_path / "model.onnx"
    export(
        module,
        [pictures],
        path,
        trace_config("torchscript", 17, {"images": {0: "batch"}, "scores": {0: "batch"}, "boxes": {0: "batch"}}),
        input_names=["images"],
        output_names=["scores", "boxes"],
    )
    for count in (1, 3):
        shown = torch.rand(count, 3, *size, generator=torch.Generator().manual_seed(count))
        with torch.no_grad():
            scores, boxes = module(shown)
        expected = {"scores": scores.numpy(), "boxes": boxes.numpy()}
        outputs = Session(path).run({"images": shown.numpy()})
        same = compare_runs([(expected, outputs)], atol=1e-2, rtol=1e-3, queries=query_outputs(spec))
        assert same["share"] > 0.99, "rounding may choose another anchor for the last row"
        assert len(detections_of(outputs, spec)) == count


@installed
def test_two_stages_are_refused_with_the_reason(tmp_path: Path) -> None:
    for name in ("fasterrcnn_mobilenet_v3_large_320_fpn", "maskrcnn_resnet50_fpn", "keypointrcnn_resnet50_fpn"):
        said = refusal(tmp_path, f"model.options.name={name}", model="torchvision")
        expect(said, "not-supported", "model.options.name", name, "NMS", "ssd300_vgg16", "model=onnx")


@installed
@pytest.mark.parametrize(
    ("model", "override", "code", "facts"),
    [
        (
            *("torchvision", "model.options.name=ssd300_vgg", "unknown-choice"),
            ["model.options.name", "'ssd300_vgg'", "detection", "ssd300_vgg16"],
        ),
        (
            *("torchvision", "model.options.name=resnet18", "in-conflict"),
            ["model.options.task", "resnet18", "classification", "model=torchvision_classifier"],
        ),
        (
            *("torchvision_classifier", "model.options.name=ssd300_vgg16", "in-conflict"),
            ["model.options.task", "ssd300_vgg16", "detection", "model=torchvision"],
        ),
        (
            *("torchvision_classifier", "model.options.weights=IMAGENET1K_V9", "unknown-choice"),
            ["model.options.weights", "'IMAGENET1K_V9'", "IMAGENET1K_V1", "null"],
        ),
    ],
)
def test_names_that_torchvision_does_not_have(
    model: str, override: str, code: str, facts: list[str], tmp_path: Path
) -> None:
    said = refusal(tmp_path, override, model=model)
    expect(said, code)
    in_order(said, *facts)


@installed
def test_detectors_without_a_size_of_their_own_ask_for_one(tmp_path: Path) -> None:
    said = refusal(tmp_path, "model.options.name=fcos_resnet50_fpn", model="torchvision")
    expect(said, "needs-value", "model.image_size=[height, width]", "fcos_resnet50_fpn", 800, 1333, 32)
    said = refusal(tmp_path, "model.options.name=fcos_resnet50_fpn", "model.image_size=[60,64]", model="torchvision")
    expect(said, "out-of-range", "model.image_size", "fcos_resnet50_fpn", 32, "[60, 64]")


# --- classifiers, and weights -----------------------------------------------------------------------------------------


@installed
def test_a_classifier_with_random_weights_follows_the_seed(tmp_path: Path) -> None:
    name = f"model.options.name={SMALL}"
    before = torch.random.get_rng_state()
    first, same, other = (opened(tmp_path, name, f"seed={seed}") for seed in (1, 1, 2))
    assert torch.equal(before, torch.random.get_rng_state())
    images = torch.rand(2, 3, 224, 224)
    with torch.no_grad():
        assert torch.equal(first.module(images)[0], same.module(images)[0])
        assert not torch.equal(first.module(images)[0], other.module(images)[0])
    assert first.trained is False and first.class_names[:2] == ["0", "1"] and len(first.class_names) == 1000
    (declared,) = first.inputs
    assert declared.preprocessing == Preprocessing(
        size=[224, 224], mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)
    )
    spec = spec_of(first, {"images": images.numpy()}, {"images": {0: "batch"}}).to_json()
    assert [(each["name"], each["kind"], each["shape"]) for each in spec["outputs"]] == [
        ("logits", "classes", ["batch", 1000])
    ]
    (resized,) = [note for note in first.notes if "224 x 224" in note]
    in_order(resized, "preprocessing", 256, "224 x 224", "224 x 224")
    (declared,) = opened(tmp_path, "model.options.name=efficientnet_b0").inputs
    assert declared.preprocessing is not None and declared.preprocessing.resample == "bicubic"


@installed
def test_weights_from_a_file(tmp_path: Path) -> None:
    keys = [f"model.options.name={SMALL}", 'model.classes=["ape","bee"]']
    first = opened(tmp_path, *keys, "seed=1")
    torch.save({"model": first.module.get_submodule("network").state_dict()}, tmp_path / "w.pt")
    second = opened(tmp_path, *keys, "model.checkpoint=w.pt")
    images = torch.rand(2, 3, 224, 224)
    with torch.no_grad():
        assert torch.equal(first.module(images)[0], second.module(images)[0])
    assert second.trained and second.class_names == ["ape", "bee"]
    expect(second.notes[0], None, "weights", "w.pt", "'model'")
    expect(refusal(tmp_path, keys[0], "model.checkpoint=w.pt"), "wrong-file", tmp_path / "w.pt")


@installed
def test_weights_of_a_detector_whose_batch_norms_were_frozen(tmp_path: Path) -> None:
    """Frozen batch norms count no batches; ones that were trained do. Both are read."""
    keys = ["model.options.name=ssdlite320_mobilenet_v3_large", 'model.classes=["ape"]']
    state = opened(tmp_path, *keys, model="torchvision").module.get_submodule("network").state_dict()
    assert any(name.endswith("num_batches_tracked") for name in state)
    torch.save(state, tmp_path / "trained.pt")
    torch.save({n: t for n, t in state.items() if not n.endswith("num_batches_tracked")}, tmp_path / "frozen.pt")
    for name in ("trained.pt", "frozen.pt"):
        assert opened(tmp_path, *keys, f"model.checkpoint={name}", model="torchvision").trained


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """torch's cache of weights, empty; and no network."""

    def no_network(*arguments: Any, **keywords: Any) -> None:
        raise URLError("no network")

    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    monkeypatch.setattr(torch.hub, "_hub_dir", None)
    monkeypatch.setattr(torch.hub, "urlopen", no_network)
    folder = tmp_path / "torch/hub/checkpoints"
    folder.mkdir(parents=True)
    return folder


@installed
def test_weights_by_name_come_from_the_cache_with_names_and_transforms(cache: Path, tmp_path: Path) -> None:
    import torchvision

    weights = torchvision.models.get_model_weights(SMALL).IMAGENET1K_V1
    name = weights.url.rpartition("/")[2]
    keys = [f"model.options.name={SMALL}", "model.options.weights=DEFAULT"]
    facts = ("model.options.weights", "no network", weights.url, cache / name, "TORCH_HOME")
    expect(refusal(tmp_path, *keys), "download-fails", *facts)

    random = opened(tmp_path, keys[0])
    torch.save(random.module.get_submodule("network").state_dict(), cache / name)
    model = opened(tmp_path, *keys)
    images = torch.rand(1, 3, 224, 224)
    with torch.no_grad():
        assert torch.equal(random.module(images)[0], model.module(images)[0])
    assert model.trained and model.class_names[0] == "tench" and len(model.class_names) == 1000
    expect(model.notes[0], None, "weights", "SqueezeNet1_1_Weights.IMAGENET1K_V1", torchvision.__version__)
    in_order(said := refusal(tmp_path, *keys, "model.classes=[ape]"), "model.classes", 1000, "null", 1)
    expect(said, "wrong-class-count")

    (cache / name).write_bytes((cache / name).read_bytes()[:1000])
    expect(refusal(tmp_path, *keys), "file-unreadable", cache / name, "SqueezeNet1_1_Weights.IMAGENET1K_V1")


class Touching:
    """Pickled, it is a call: whoever loads it as a program makes the folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, (str(self.folder),)


@installed
def test_weights_in_the_cache_are_data(cache: Path, tmp_path: Path) -> None:
    import torchvision

    url = torchvision.models.get_model_weights(SMALL).DEFAULT.url
    path = cache / url.rpartition("/")[2]
    torch.save(Touching(tmp_path / "called"), path)
    said = refusal(tmp_path, f"model.options.name={SMALL}", "model.options.weights=DEFAULT")
    expect(said, "file-unreadable", path)
    assert not (tmp_path / "called").exists()
