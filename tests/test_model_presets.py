"""model=torchvision, torchvision_classifier and timm. Tests that need the packages: make test-lightly."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.configurations import composed
from tests.conftest import ROOT
from tests.messages import raises
from tests.tracing import trace_config
from truehalf.config.schema import Config
from truehalf.exporting.export import export
from truehalf.io_spec.checks import check_spec
from truehalf.io_spec.outputs import DETECTIONS, task_of
from truehalf.models.configuration import validated
from truehalf.models.model import Model
from truehalf.models.source import open_model, spec_of
from truehalf.runtime.ort import Session
from truehalf.verification.metrics.tensors import compare_runs, query_outputs

missing = {name for name in ("torchvision", "timm") if importlib.util.find_spec(name) is None}
installed = pytest.mark.skipif(bool(missing), reason="torchvision or timm is not installed here: make test-lightly")
DETECTORS = {  # with the size at which each is tried
    "ssdlite320_mobilenet_v3_large": [320, 320],
    "ssd300_vgg16": [300, 300],
    "retinanet_resnet50_fpn": [64, 96],
    "fcos_resnet50_fpn": [64, 96],
}
SEEDED = torch.Generator().manual_seed


def config(model: str, *overrides: str) -> Config:
    return validated(composed(f"model={model}", "data=random", *overrides))


@pytest.mark.parametrize("model", ["torchvision", "torchvision_classifier", "timm"])
def test_a_preset_is_a_factory_with_its_arguments(model: str) -> None:
    chosen = config(model, "model.options.kwargs.name=other").model
    assert chosen.source == "torch" and chosen.options.kwargs["name"] == "other"
    same = composed(f"model={model}")["verify"] == composed("verify=classification")["verify"]
    assert same or model == "torchvision"


@pytest.fixture(scope="module", params=DETECTORS)
def detector(request: pytest.FixtureRequest) -> tuple[Any, Model]:
    """A detector of torchvision with random weights, and the model that is made of it."""
    from torchvision.models import get_model

    height, width = DETECTORS[request.param]
    keys = [f"model.options.kwargs.name={request.param}", f"model.image_size=[{height},{width}]"]
    options = ["model.options.kwargs.num_classes=4", "model.options.kwargs.candidates=3840"]
    model = open_model(config("torchvision", *keys, *options), ROOT)
    theirs: Any = get_model(request.param, weights_backbone=None, num_classes=4).eval()
    settled(model.module, shown(model, 2, 0), request.param == "ssd300_vgg16")
    ours = model.module.get_submodule("network")
    theirs.backbone.load_state_dict(ours.get_submodule("backbone").state_dict())
    theirs.head.load_state_dict(ours.get_submodule("head").state_dict())
    return theirs, model


def settled(module: torch.nn.Module, images: torch.Tensor, small: bool) -> None:
    """Give batch norms the statistics of noise, else all anchors score alike; without norms make scores small."""
    norms = [part for part in module.modules() if isinstance(part, torch.nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = 1.0
        norm.train()
    with torch.no_grad():
        module(images)
        for parameter in module.get_submodule("network.head").parameters() if small else ():
            parameter.mul_(0.2)
    for norm in norms:
        norm.eval()


def shown(model: Model, count: int, seed: int) -> torch.Tensor:
    (declared,) = model.inputs
    return torch.rand(count, 3, *declared.size, generator=SEEDED(seed))


@installed
def test_nms_of_the_candidates_gives_the_detections_of_torchvision(detector: tuple[Any, Model]) -> None:
    from torchvision.ops import batched_nms

    network, model = detector
    pictures = shown(model, 2, 1)
    with torch.no_grad():
        scores, boxes = model.module(pictures)
        best = scores.amax(dim=2)
        assert torch.equal(best, best.sort(dim=1, descending=True).values)
        network.score_thresh = float(scores.flatten().sort(descending=True).values[600])
        network.topk_candidates = 10**6
        if network.transform.fixed_size is None:  # as large as the picture is, so that nothing is resized
            height, width = pictures.shape[2:]
            network.transform.min_size, network.transform.max_size = (height,), max(height, width)
        theirs = network(list(pictures))
    background = 4 - scores.shape[2]
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
def test_the_file_of_a_detector_computes_what_it_computes(detector: tuple[Any, Model], tmp_path: Path) -> None:
    _, model = detector
    pictures = shown(model, 2, 2)
    spec = spec_of(model, {"images": pictures.numpy()}, {"images": {0: "batch"}})
    check_spec(spec, ["scores", "boxes"])
    assert task_of(spec) == DETECTIONS and spec.trained is False
    export(
        model.module,
        [pictures],
        tmp_path / "model.onnx",
        trace_config("torchscript", 17, {name: {0: "batch"} for name in ("images", "scores", "boxes")}),
        input_names=["images"],
        output_names=["scores", "boxes"],
    )
    for count in (1, 3):
        images = shown(model, count, count)
        with torch.no_grad():
            expected = dict(zip(("scores", "boxes"), (each.numpy() for each in model.module(images)), strict=True))
        outputs = Session(tmp_path / "model.onnx").run({"images": images.numpy()})
        same = compare_runs([(expected, outputs)], atol=1e-2, rtol=1e-3, queries=query_outputs(spec))
        assert same.share > 0.99, "rounding may choose another anchor for the last row"


@installed
def test_detectors_of_two_stages_are_refused_with_the_reason() -> None:
    with raises("function-fails", "fasterrcnn_resnet50_fpn", "NMS", "FCOS"):
        open_model(config("torchvision", "model.options.kwargs.name=fasterrcnn_resnet50_fpn"), ROOT)


@installed
@pytest.mark.parametrize(("model", "name"), [("torchvision_classifier", "name"), ("timm", "model_name")])
def test_a_classifier_says_its_classes(model: str, name: str) -> None:
    small = {"name": "squeezenet1_1", "model_name": "mobilenetv3_small_050"}[name]
    opened = open_model(config(model, f"model.options.kwargs.{name}={small}"), ROOT)
    spec = spec_of(opened, {"images": shown(opened, 2, 1).numpy()}, {"images": {0: "batch"}})
    assert [(each.name, each.kind, each.shape) for each in spec.outputs] == [("logits", "classes", ("batch", 1000))]
