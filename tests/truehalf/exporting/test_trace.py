"""A traced file: it says what the spec says and computes what torch computes, or it ends with the reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

from tests.messages import raises
from tests.tiers import first_of
from tests.tracing import trace_json
from tests.truehalf.models import detectors
from tests.truehalf.models.small_modules import (
    FEATURES,
    PICTURES,
    SCALED,
    SPEC,
    Baked,
    Convolved,
    FixedHeight,
    Head,
    Unread,
    feeds,
    sized,
)
from truehalf.exporting.trace import trace
from truehalf.io_spec.in_file import SPEC_KEY
from truehalf.io_spec.spec import IoSpec
from truehalf.ir.model_file import load_model
from truehalf.runtime.ort import Session
from truehalf.slimming.slim import slim


class Branch(Head):
    """Tracing keeps the branch that the example takes."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(x) if x.sum() > 0 else -self.fc(x)


def traced(module: torch.nn.Module, path: Path, spec: dict[str, Any] = SPEC, **options: Any) -> dict[str, Any]:
    checks = options.pop("check_feeds", [feeds(5, 6, 7), feeds(8)])
    return trace_json(module, feeds(1, 2), path, spec=spec, check_feeds=checks, **options)


def test_report_says_what_was_compared(tmp_path: Path) -> None:
    report = traced(Head(), tmp_path / "m.onnx")
    parity = report["parity"]
    assert (report["exporter"], report["opset"]) == ("torchscript", 17)
    assert report["parameters"] == 15
    assert parity["status"] == "verified"
    assert (parity["samples"], parity["batch_sizes"], parity["share"]) == (4, [1, 3], 1.0)
    assert parity["provider"] == "CPUExecutionProvider"
    assert 0 <= parity["max_abs"]["y"] < 1e-5
    assert report["model"]["ops"] == {"Gemm": 1, "Relu": 1}
    assert report["model"]["untyped_nodes"] == 0


def test_file_carries_the_spec_and_all_types(tmp_path: Path) -> None:
    traced(Head(), tmp_path / "m.onnx")
    model = load_model(tmp_path / "m.onnx")
    assert json.loads(model.metadata_props[SPEC_KEY]) == SPEC
    assert (tmp_path / "io_spec.json").read_text().strip() == model.metadata_props[SPEC_KEY]
    assert [str(model.graph.inputs[0].shape), str(model.graph.outputs[0].shape)] == ["[n,4]", "[n,3]"]
    assert all(value.dtype is not None for node in model.graph for value in node.outputs)
    onnx.checker.check_model(str(tmp_path / "m.onnx"), full_check=True)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["io_spec.json", "m.onnx"]


def test_trace_that_lost_a_branch_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"the last good file")
    with raises("outputs-differ", "75.00%", "99.9%"):
        traced(Branch(), tmp_path / "m.onnx", check_feeds=[feeds(5, 6, 7), feeds(-8)])
    assert (tmp_path / "m.onnx").read_bytes() == b"the last good file"
    assert [file.name for file in tmp_path.iterdir()] == ["m.onnx"]


def test_untrained_trace_that_lost_a_branch_is_refused_too(tmp_path: Path) -> None:
    with raises("outputs-differ", "0.00%", "tests/truehalf/exporting/test_trace.py"):
        traced(Branch(), tmp_path / "m.onnx", SPEC | {"trained": False}, check_feeds=[feeds(-8)])


def test_without_samples_nothing_is_verified(tmp_path: Path) -> None:
    parity = traced(Head(), tmp_path / "m.onnx", check_feeds=[])["parity"]
    assert parity["status"] == "not verified" and set(parity) == {"status", "reason"}, "no samples, no numbers"


@pytest.mark.parametrize("as_file", [False, True])
def test_outputs_that_are_not_what_they_are_declared_to_be(as_file: bool, tmp_path: Path) -> None:
    shapes = ((5, 7), (5, 3))

    class Queries(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return tuple(x.mean(1).reshape(-1, *[1] * len(shape)).expand(-1, *shape) for shape in shapes)

    kinds = ({"name": "logits", "kind": "logits"}, {"name": "boxes", "kind": "boxes"})
    outputs = [{"dtype": "float32", "shape": ["n", *shape]} | kind for kind, shape in zip(kinds, shapes, strict=True)]
    if as_file:
        plain = [{key: value for key, value in each.items() if key != "kind"} for each in outputs]
        traced(Queries(), tmp_path / "given.onnx", SPEC | {"outputs": plain})
    with raises("wrong-shape", "'boxes'", "[N, boxes, 4]", ["n", 5, 3]):
        if as_file:
            spec = IoSpec.from_json(SPEC | {"outputs": outputs})
            trace(tmp_path / "given.onnx", {}, tmp_path / "out" / "m.onnx", spec=spec)
        else:
            traced(Queries(), tmp_path / "out" / "m.onnx", SPEC | {"outputs": outputs})
    assert list((tmp_path / "out").iterdir()) == []


def test_outputs_that_the_spec_does_not_know_are_refused(tmp_path: Path) -> None:
    class Two(Head):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x), x  # type: ignore[return-value]

    with raises("wrong-name", "outputs", "y, 5"):
        traced(Two(), tmp_path / "m.onnx")


def test_a_file_of_other_outputs_than_the_spec_says_is_not_passed_on(tmp_path: Path) -> None:
    traced(Head(), tmp_path / "given.onnx")
    spec = SPEC | {"outputs": [SPEC["outputs"][0] | {"name": "z"}]}
    with raises("wrong-name", "outputs", "z", "y"):
        trace(tmp_path / "given.onnx", {}, tmp_path / "out" / "m.onnx", spec=IoSpec.from_json(spec))
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("decoder", first_of(["dfine", "rtdetrv2"]))
def test_detector_keeps_scopes_and_dynamic_batch(decoder: str, tmp_path: Path) -> None:
    report = trace_json(
        detectors.detector(decoder),
        detectors.pictures(0, 1),
        tmp_path / "m.onnx",
        spec=detectors.spec(),
        check_feeds=[detectors.pictures(2, 3, 4), detectors.pictures(5)],
    )
    assert report["parity"]["share"] == 1.0
    assert report["model"]["untyped_nodes"] == 0
    assert report["model"]["ops"]["LayerNormalization"] > 10
    names = {node.name for node in load_model(tmp_path / "m.onnx").graph}
    assert any(name.startswith("/network/model/decoder/layers.1/encoder_attn/") for name in names)
    logits = Session(tmp_path / "m.onnx").run(detectors.pictures(6, 7, 8, 9, 10))["logits"]
    assert logits.shape == (5, detectors.QUERIES, 10)


@pytest.mark.slow
@pytest.mark.parametrize("decoder", ["dfine", "rtdetrv2"])
def test_detector_by_dynamo_computes_the_same(decoder: str, tmp_path: Path) -> None:
    module = detectors.detector(decoder)
    report = trace_json(
        module,
        detectors.pictures(0, 1),
        tmp_path / "m.onnx",
        spec=detectors.spec(),
        exporter="dynamo",
        opset=18,
        check_feeds=[detectors.pictures(2, 3, 4), detectors.pictures(5)],
    )
    assert report["parity"]["share"] == 1.0
    assert report["model"]["untyped_nodes"] == 0
    names = {node.name for node in load_model(tmp_path / "m.onnx").graph}
    assert any(name.startswith("/network/model/decoder/layers.1/encoder_attn/") for name in names)
    with torch.no_grad():
        module(torch.from_numpy(detectors.pictures(6)["images"]))  # torch.export left nothing of itself behind


class Sampled(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        grid = x[:, None, :2, None].expand(-1, 2, 2, 2)
        picture = x[:, None, None, :].expand(-1, 1, 3, 4)
        sampled = torch.nn.functional.grid_sample(picture, grid * 0.1, align_corners=False)
        return sampled.flatten(1)[:, :3]


def test_report_says_what_lint_found(tmp_path: Path) -> None:
    assert traced(Head(), tmp_path / "m.onnx")["lint"]["counts"] == {"error": 0, "warning": 0, "info": 0}
    found = traced(Sampled(), tmp_path / "m.onnx", lint_ignore=["float64"])["lint"]
    assert found["rules"] == {"grid-sample": 1} and found["first"][0]["node"] == "/GridSample"
    assert found["ignored"] == {"float64": 0}


def test_lint_ends_it_where_it_is_told_to(tmp_path: Path) -> None:
    with raises("lint-fails", "lint.fail_on", "warning grid-sample (1):", "/GridSample"):
        traced(Sampled(), tmp_path / "m.onnx", lint_fail_on="warning")
    assert list(tmp_path.iterdir()) == []
    traced(Sampled(), tmp_path / "m.onnx", lint_fail_on="warning", lint_ignore=["grid-sample"])
    traced(Sampled(), tmp_path / "m.onnx", lint_fail_on="error")


def test_what_repair_is_there_to_mend_is_reported_and_ends_nothing(tmp_path: Path) -> None:
    report = traced(Sampled(), tmp_path / "m.onnx", lint_fail_on="warning", repair=["grid_sample_gather"])
    assert report["lint"]["rules"] == {"grid-sample": 1}
    with raises("lint-fails", "lint.fail_on", "warning grid-sample (1):"):
        traced(Sampled(), tmp_path / "m.onnx", lint_fail_on="warning", repair=["allowzero"])


def test_an_input_that_python_read_is_explained(tmp_path: Path) -> None:
    example = feeds(1, 2) | {"scale": np.ones(1, np.int64)}
    with raises("input-unread", "'scale'", "lint --explain baked-item"):
        trace_json(Baked(), example, tmp_path / "m.onnx", spec=SCALED)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("exporter", ["torchscript", "dynamo"])
def test_an_input_that_no_output_depends_on_stays_an_input(exporter: str, tmp_path: Path) -> None:
    example = feeds(1, 2) | {"scale": np.full(1, 8)}
    checks = [feeds(5, 6, 7) | {"scale": np.full(1, 3)}]
    options: dict[str, Any] = {"exporter": exporter, "opset": 18, "check_feeds": checks}
    report = trace_json(Unread(), example, tmp_path / "m.onnx", spec=SCALED, **options)
    assert report["unread_inputs"] == ["scale"] and report["parity"]["status"] == "verified"
    inputs = load_model(tmp_path / "m.onnx").graph.inputs
    assert [(str(value.name), str(value.dtype), str(value.shape)) for value in inputs] == [
        ("scale", "INT64", "[1]"),
        ("x", "FLOAT", "[n,4]"),
    ]
    slim(tmp_path / "m.onnx", tmp_path / "slim" / "m.onnx", check_feeds=checks)
    assert [value.name for value in load_model(tmp_path / "slim" / "m.onnx").graph.inputs] == ["scale", "x"]


class BakedWidth(Convolved):
    """torch itself takes any size; int() writes the traced width into the graph."""

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, ...]:
        features, _ = super().forward(images)
        return features / int(images.shape[3]), features.mean((2, 3)) * 3


class BakedReshape(Convolved):
    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, ...]:
        features, _ = super().forward(images)
        return features.reshape(-1, 4, int(features.shape[2]), int(features.shape[3])), features.mean((2, 3))


DYNAMO = {"exporter": "dynamo", "opset": 18}


def traced_at_sizes(module: torch.nn.Module, path: Path, **options: Any) -> dict[str, Any]:
    feeds = sized((64, 64), (32, 96), (96, 32))
    return trace_json(
        module.eval(), sized((64, 64))[0], path, spec=options.pop("spec", FEATURES), check_feeds=feeds, **options
    )


@pytest.mark.parametrize("exporter", [{}, DYNAMO], ids=["torchscript", "dynamo"])
def test_height_and_width_may_vary(exporter: dict[str, Any], tmp_path: Path) -> None:
    report = traced_at_sizes(Convolved(), tmp_path / "m.onnx", **exporter)
    assert report["parity"]["status"] == "verified"
    assert [entry["inputs"] for entry in report["parity"]["sizes"]] == [
        {"images": [2, 3, 32, 96]},
        {"images": [2, 3, 96, 32]},
    ]
    assert all(entry["share"] == 1.0 and entry["max_abs"]["features"] < 1e-5 for entry in report["parity"]["sizes"])
    spec = json.loads((tmp_path / "io_spec.json").read_text())
    features, mean = (entry["shape"] for entry in spec["outputs"])
    assert features[:2] == ["batch", 4] and mean == ["batch", 4]
    assert all(isinstance(side, str) and side for side in features[2:])
    model = load_model(tmp_path / "m.onnx")
    assert [str(side) for side in model.graph.outputs[0].shape or ()] == [str(side) for side in features]
    found = Session(tmp_path / "m.onnx").run(sized((128, 40), batch=1)[0])["features"]
    assert found.shape == (1, 4, 32, 10)


def test_declared_names_of_output_axes_go_before_the_exporters(tmp_path: Path) -> None:
    shape = ["batch", 4, "rows", "columns"]
    spec = FEATURES | {"outputs": [FEATURES["outputs"][0] | {"shape": shape}, FEATURES["outputs"][1]]}
    traced_at_sizes(Convolved(), tmp_path / "m.onnx", spec=spec)
    assert json.loads((tmp_path / "io_spec.json").read_text())["outputs"][0]["shape"] == shape


@pytest.mark.parametrize(
    ("module", "facts"),
    [
        (BakedWidth(), ["axis 3", "'images' (width)", [2, 3, 32, 96], [2, 3, 64, 64], "99.9%"]),
        (BakedReshape(), ["axis 2", "'features'", 16]),
    ],
)
def test_an_axis_that_cannot_vary_is_named(module: torch.nn.Module, facts: list[object], tmp_path: Path) -> None:
    with raises("axis-fixed", *facts, "trace.dynamic_axes"):
        traced_at_sizes(module, tmp_path / "m.onnx")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("module", "facts"),
    [
        pytest.param(FixedHeight(), ["axis 2", "'images' (height)", [2, 3, 32, 96]], marks=pytest.mark.slow),
        (BakedWidth(), ["export: axis 3", "'images' (width)", 64]),
        pytest.param(BakedReshape(), ["axis 2", "'features'", 16], marks=pytest.mark.slow),
    ],
)
def test_an_axis_that_cannot_vary_is_named_under_dynamo(
    module: torch.nn.Module, facts: list[object], tmp_path: Path
) -> None:
    with raises("axis-fixed", *facts, "trace.dynamic_axes"):
        traced_at_sizes(module, tmp_path / "m.onnx", **DYNAMO)
    assert list(tmp_path.iterdir()) == []


class Counting(Convolved):
    """With all that an export may not touch: modes, a type of its own, hooks, frozen parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.drop = torch.nn.Dropout()
        self.calls = 0
        self.register_buffer("scale", torch.ones((), dtype=torch.float64))
        self.conv.weight.requires_grad_(False)
        self.conv.register_forward_hook(self.count)

    def count(self, *_: Any) -> None:
        self.calls += 1


@pytest.mark.parametrize("exporter", ["torchscript", "dynamo"])
def test_the_module_is_left_as_it_was(exporter: str, tmp_path: Path) -> None:
    module = Counting().train()
    module.drop.eval()

    def state() -> Any:
        tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        return (
            {name: (id(part), type(part), part.training) for name, part in module.named_modules()},
            {name: (id(part), part._forward_hooks.copy()) for name, part in module.named_modules()},
            {name: (id(t), t.dtype, t.device, t.requires_grad, t.clone().tolist()) for name, t in tensors.items()},
            sorted(vars(module)),
            torch.is_grad_enabled(),
            module.forward,
        )

    before = state()
    options: dict[str, Any] = {"check_feeds": sized((64, 64), (32, 96)), "spec": FEATURES}
    if exporter == "dynamo":
        fixed = FEATURES | {"inputs": [PICTURES | {"shape": ["batch", 3, 64, 64]}]}
        options = {"check_feeds": sized((64, 64)), "spec": fixed, "exporter": "dynamo", "opset": 18}
    trace_json(module, sized((64, 64))[0], tmp_path / "m.onnx", **options)
    assert state() == before
    assert module.calls, "its hooks ran"


def test_prepared_is_entered_for_the_export_alone(tmp_path: Path) -> None:
    module, log = Head(), []

    class Prepared:
        def __enter__(self) -> None:
            module.fc.bias.data += 1
            log.append("in")

        def __exit__(self, *_: object) -> None:
            module.fc.bias.data -= 1
            log.append("out")

    with raises("outputs-differ", "99.9%"):
        traced(module, tmp_path / "m.onnx", prepared=Prepared)
    assert log == ["in", "out"]


@pytest.mark.parametrize(
    "exporter", [pytest.param({}, id="torchscript"), pytest.param(DYNAMO, id="dynamo", marks=pytest.mark.slow)]
)
@pytest.mark.slow
@pytest.mark.parametrize("decoder", ["rtdetrv2", "dfine"])
def test_a_detector_makes_its_anchors_for_the_size_that_comes(
    decoder: str, exporter: dict[str, Any], tmp_path: Path
) -> None:
    spec = detectors.spec()
    spec["inputs"][0]["shape"] = ["batch", 3, "height", "width"]
    feeds = [detectors.pictures(2), *sized((96, 64), (32, 160))]
    detector = detectors.detector(decoder)
    options: dict[str, Any] = {"spec": spec, "check_feeds": feeds} | exporter
    parity = trace_json(detector, detectors.pictures(0, 1), tmp_path / "m.onnx", **options)["parity"]
    assert parity["status"] == "verified"
    assert [entry["share"] for entry in parity["sizes"]] == [1.0, 1.0]
    described = json.loads((tmp_path / "io_spec.json").read_text())["outputs"]
    assert [entry["shape"] for entry in described] == [
        ["batch", detectors.QUERIES, 10],
        ["batch", detectors.QUERIES, 4],
    ]
