"""Modules of the user's own: made by a function that is named, fed and read as declared, and left as they were."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.configurations import composed
from tests.messages import expect, raises
from tests.truehalf.models.refusing import refuses
from truehalf.config.schema import Config
from truehalf.data.preprocessing import declared_by
from truehalf.data.run_samples import run_samples
from truehalf.exporting.configured import export_configured
from truehalf.io_spec.spec import OutputSpec
from truehalf.models.configuration import validated
from truehalf.models.model import Model
from truehalf.models.source import described, open_model
from truehalf.models.sources.torch import files
from truehalf.runtime.ort import Session

DATA = ("data=random", "model.image_size=[32,32]")

NUMBERS = itertools.count()
CODE = """
import collections, dataclasses
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, width=4, form="tensor"):
        super().__init__()
        self.form = form
        self.conv = nn.Conv2d(3, width, 3, stride=4, padding=1)
        self.norm = nn.BatchNorm2d(width)
        self.fc = nn.Linear(width, 5)

    def forward(self, images, sizes=None):
        x = self.norm(self.conv(images)).relu()
        logits = self.fc(x.mean((2, 3)))
        if sizes is not None:
            return {"logits": logits, "scaled": logits * sizes.to(logits.dtype).prod(-1, keepdim=True)}
        if self.form == "tensor":
            return logits
        if self.form == "tuple":
            return logits, x
        if self.form == "nested":
            return logits, (x, x)
        if self.form == "dict":
            return {"logits": logits, "features": x, "aux": [{"logits": logits}]}
        if self.form == "clash":
            return {"images": logits}
        if self.form == "namedtuple":
            return Named(logits, x)
        return Fields(logits, x, None)


Named = collections.namedtuple("Named", ["logits", "features"])


@dataclasses.dataclass
class Fields:
    logits: torch.Tensor
    features: torch.Tensor
    loss: torch.Tensor | None


MADE = []


def build(**kwargs):
    net = Net(**kwargs)
    nn.init.uniform_(net.norm.running_mean)
    MADE.append(net)
    return net


def fuse(net):
    net.fc = nn.Sequential(net.conv.__class__(1, 1, 1), net.fc)[1:]
    torch.nn.utils.fusion.fuse_conv_bn_eval
    net.conv = torch.nn.utils.fusion.fuse_conv_bn_eval(net.conv, net.norm)
    net.norm = nn.Identity()


def break_it(net):
    net.fc.bias.data += 1
    return net


def not_a_module(*_):
    return 3


def failing(*_):
    raise RuntimeError("no weights today\\nsecond line")


def with_extra():
    import extra_of_mine_{number}
    return extra_of_mine_{number}.build()
"""


@pytest.fixture
def mine(tmp_path: Path) -> str:
    """A module of the user's in the workspace, called unlike those of other tests."""
    number = next(NUMBERS)
    name = f"mine_{number}"
    (tmp_path / f"{name}.py").write_text(CODE.replace("{number}", str(number)))
    (tmp_path / f"extra_of_mine_{number}.py").write_text(f"from {name} import build\n")
    return name


def config(mine: str, *overrides: str, factory: str = "build") -> Config:
    return validated(composed("model=torch", *DATA, f"model.options.factory={mine}:{factory}", *overrides))


def called(model: Model, config: Config, root: Path, count: int = 2) -> tuple[torch.Tensor, ...]:
    samples = run_samples("trace", config, root, described(model))[:count]
    feeds = [np.stack([sample.arrays[each.name] for sample in samples]) for each in model.inputs]
    with torch.no_grad():
        return model.module(*(torch.from_numpy(feed) for feed in feeds))


@pytest.mark.parametrize(
    ("form", "names"),
    [
        ("tensor", ["output_0"]),
        ("tuple", ["output_0", "output_1"]),
        ("dataclass", ["logits", "features"]),
        ("namedtuple", ["logits", "features"]),
    ],
)
def test_every_tensor_that_it_returns_is_an_output(form: str, names: list[str], mine: str, tmp_path: Path) -> None:
    configured = config(mine, f"model.options.kwargs.form={form}")
    model = open_model(configured, tmp_path)
    assert [each.name for each in model.inputs] == ["images"]
    assert model.outputs == [OutputSpec(name) for name in names]
    assert [list(tensor.shape) for tensor in called(model, configured, tmp_path)] == [[2, 5], [2, 4, 8, 8]][
        : len(names)
    ]
    assert not any(part.training for part in model.module.modules())
    assert not model.trained and list(model.class_names) == []


def test_auxiliary_outputs_are_dropped(mine: str, tmp_path: Path) -> None:
    form = "model.options.kwargs.form=dict"
    model = open_model(config(mine, form), tmp_path)
    assert [each.name for each in model.outputs] == ["logits", "features"]
    expect(model.notes[0], None, "aux (list)")
    model = open_model(config(mine, form, "model.drop_outputs=[aux,'1']"), tmp_path)
    assert [each.name for each in model.outputs] == ["logits"]
    with raises("no-match", "model.drop_outputs", "extra", "logits, features, aux"):
        open_model(config(mine, form, "model.drop_outputs=[extra]"), tmp_path)


def test_outputs_that_have_the_names_of_inputs_are_refused(mine: str, tmp_path: Path) -> None:
    with raises("given-twice", "model.outputs", "images", "`take`"):
        open_model(config(mine, "model.options.kwargs.form=clash"), tmp_path)


def output(name: str, kind: str = "tensor", **layout: Any) -> dict[str, Any]:
    keys = ("take", "activation", "format", "normalized", "no_object")
    return {"name": name, "kind": kind} | dict.fromkeys(keys) | layout


def declared(mine: str, inputs: Any = None, outputs: Any = None, *overrides: str, **kwargs: Any) -> Config:
    values = composed("model=torch", *DATA, f"model.options.factory={mine}:build", *overrides)
    values["model"]["inputs"], values["model"]["outputs"] = inputs, outputs
    values["model"]["options"]["kwargs"] = kwargs
    return validated(values)


@pytest.mark.parametrize(
    ("form", "take"), [("tuple", None), ("tuple", "0"), ("dict", "logits"), ("dataclass", "logits"), ("tensor", None)]
)
def test_outputs_are_taken_as_declared(form: str, take: str | None, mine: str, tmp_path: Path) -> None:
    configured = declared(mine, None, [output("classes", "classes", take=take)], form=form)
    model = open_model(configured, tmp_path)
    assert [(each.name, each.kind) for each in model.outputs] == [("classes", "classes")]
    assert [list(tensor.shape) for tensor in called(model, configured, tmp_path)] == [[2, 5]]


def test_outputs_are_found_by_their_names_in_any_order(mine: str, tmp_path: Path) -> None:
    configured = declared(mine, None, [output("features"), output("logits", "classes")], form="dict")
    model = open_model(configured, tmp_path)
    assert [list(tensor.shape) for tensor in called(model, configured, tmp_path)] == [[2, 4, 8, 8], [2, 5]]


SIZES = [
    {"name": "images", "kind": "images", "dtype": "float32", "shape": None},
    {"name": "orig_target_sizes", "kind": "picture_size", "dtype": "int64", "shape": None},
]


def test_the_size_of_the_picture_is_an_input_of_its_own(mine: str, tmp_path: Path) -> None:
    configured = declared(mine, SIZES)
    model = open_model(configured, tmp_path)
    assert [each.name for each in model.outputs] == ["logits", "scaled"]
    logits, scaled = called(model, configured, tmp_path)
    assert torch.equal(scaled, logits * 32 * 32)


def test_what_goes_in_is_preprocessed_as_declared(mine: str, tmp_path: Path) -> None:
    keys = ["range=[0,255]", "channels=BGR", "mean=[1,2,3]", "std=[4,5,6]", "resize=letterbox", "resample=bicubic"]
    (entry,) = open_model(config(mine, *(f"model.preprocessing.{key}" for key in keys)), tmp_path).inputs
    preprocessing = declared_by(entry)
    assert preprocessing is not None and preprocessing.as_dict() == {
        **{"size": [32, 32], "range": [0, 255], "channels": "BGR", "mean": [1.0, 2.0, 3.0], "std": [4.0, 5.0, 6.0]},
        **{"resize": "letterbox", "layout": "NCHW", "resample": "bicubic"},
    }


def test_random_weights_follow_the_seed_and_kwargs_go_to_the_factory(mine: str, tmp_path: Path) -> None:
    def weight(*overrides: str) -> torch.Tensor:
        return open_model(config(mine, *overrides), tmp_path).module.get_parameter("network.conv.weight")

    before = torch.random.get_rng_state()
    assert torch.equal(weight("seed=1"), weight("seed=1")) and not torch.equal(weight("seed=1"), weight("seed=2"))
    assert weight("model.options.kwargs.width=7").shape[0] == 7
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize("argument", ["name", "key", "root"])
def test_arguments_of_any_name_go_to_the_factory(argument: str, mine: str, tmp_path: Path) -> None:
    factory = f"def build({argument}):\n    return Net(width={argument})\n"
    (tmp_path / "named.py").write_text(f"from {mine} import Net\n\n{factory}")
    choices = ("model.options.factory=named:build", f"model.options.kwargs.{argument}=7")
    assert open_model(config(mine, *choices), tmp_path).module.get_submodule("network.conv").weight.shape[0] == 7
    del sys.modules["named"]


def test_weights_say_which_key_was_taken(mine: str, tmp_path: Path) -> None:
    state = open_model(config(mine), tmp_path).module.network.state_dict()  # type: ignore[union-attr, operator]
    state = {f"module.{name}": tensor + 1 for name, tensor in state.items()}  # type: ignore[union-attr, operator]
    torch.save({"ema": {"module": state}, "epoch": 1}, tmp_path / "w.ckpt")
    with raises("wrong-file", "w.ckpt", "model.options.prefix=module."):
        open_model(config(mine, "model.checkpoint=w.ckpt"), tmp_path)
    model = open_model(config(mine, "model.checkpoint=w.ckpt", "model.options.prefix=module."), tmp_path)
    (note,) = model.notes
    expect(note, None, "weights", 9, "w.ckpt", "'ema.module'", "'module.'")
    assert model.trained
    assert torch.equal(model.module.get_parameter("network.conv.weight"), state["module.conv.weight"])
    untrusted = config(mine, "model.checkpoint=w.ckpt", "model.options.prefix=module.", "model.options.trained=false")
    assert not open_model(untrusted, tmp_path).trained
    with raises("wrong-name", "w.ckpt", "'model'"):
        open_model(config(mine, "model.checkpoint=w.ckpt", "model.options.key=model"), tmp_path)


@pytest.mark.parametrize(
    ("factory", "code", "facts"),
    [
        ("absent", "function-fails", ["'absent'"]),
        ("MADE", "function-fails", ["MADE", "list"]),
        ("not_a_module", "wrong-return", ["int", "torch.nn.Module"]),
        ("failing", "function-fails", ["RuntimeError: no weights today second line"]),
    ],
)
def test_factories_that_make_no_module(factory: str, code: str, facts: list[str], mine: str, tmp_path: Path) -> None:
    before = list(sys.path)
    with raises(code, f"{mine}:{factory}", *facts) as error:
        open_model(config(mine, factory=factory), tmp_path)
    assert str(error.value).startswith("model.options.factory:") and "\n" not in str(error.value)
    assert sys.path == before


def test_a_module_that_is_not_there_and_one_that_fails_on_its_inputs(mine: str, tmp_path: Path) -> None:
    with raises("function-fails", "model.options.factory", "'absent_package.models'", tmp_path, "ModuleNotFoundError"):
        open_model(config("absent_package.models"), tmp_path)
    with raises("module-fails", "images float32 [2, 32, 32, 3]", "RuntimeError", "model.inputs", "model.image_size"):
        open_model(config(mine, "model.preprocessing.layout=NHWC"), tmp_path)


def made(mine: str) -> Any:
    return sys.modules[mine].MADE[-1]


def test_prepare_is_for_the_export_alone(mine: str, tmp_path: Path) -> None:
    model = open_model(config(mine, f"model.options.prepare={mine}:fuse"), tmp_path)
    network, state = made(mine), {name: tensor.clone() for name, tensor in made(mine).state_dict().items()}
    parts = [type(part) for part in network.modules()]
    with model.prepared():
        assert model.module.network is not network
        assert isinstance(model.module.network.norm, torch.nn.Identity)  # type: ignore[union-attr]
        assert not any(part.training for part in model.module.modules())
    assert model.module.network is network
    assert [type(part) for part in network.modules()] == parts
    assert all(torch.equal(tensor, state[name]) for name, tensor in network.state_dict().items())
    (note,) = model.notes
    expect(note, None, "prepare", f"{mine}:fuse")


@pytest.mark.parametrize(
    ("prepare", "code", "facts"),
    [
        ("not_a_module", "wrong-return", ["int", "torch.nn.Module"]),
        ("failing", "function-fails", ["RuntimeError: no weights today second line"]),
        ("absent", "function-fails", ["'absent'"]),
    ],
)
def test_prepare_that_fails_leaves_the_module(
    prepare: str, code: str, facts: list[str], mine: str, tmp_path: Path
) -> None:
    model = open_model(config(mine, f"model.options.prepare={mine}:{prepare}"), tmp_path)
    with raises(code, f"{mine}:{prepare}", *facts) as error, model.prepared():
        pass
    assert str(error.value).startswith("model.options.prepare:")
    assert model.module.network is made(mine)


def traced(mine: str, folder: Path, *overrides: str) -> dict[str, Any]:
    return export_configured(config(mine, *overrides), folder, folder / "out" / "m.onnx").to_json()


def test_trace_holds_the_prepared_file_against_the_module_as_it_is(mine: str, tmp_path: Path) -> None:
    report = traced(mine, tmp_path, f"model.options.prepare={mine}:fuse", "model.options.trained=true")
    assert report["parity"]["status"] == "verified"
    assert "BatchNormalization" not in report["model"]["ops"]
    (note,) = report["notes"]
    expect(note, None, "prepare", f"{mine}:fuse")
    outputs = Session(tmp_path / "out/m.onnx").run({"images": np.zeros((3, 3, 32, 32), np.float32)})
    assert outputs["output_0"].shape == (3, 5)
    with raises("outputs-differ", "torch", "ONNX Runtime", "0.00%"):
        traced(mine, tmp_path, f"model.options.prepare={mine}:break_it", "model.options.trained=true")


def test_files_are_the_weights_and_the_code(mine: str, tmp_path: Path) -> None:
    configured = config(mine, "model.checkpoint=w.pt", f"model.options.prepare={mine}:fuse")
    extra = mine.replace("mine", "extra_of_mine")
    assert files(configured, tmp_path) == [tmp_path / name for name in ("w.pt", f"{extra}.py", f"{mine}.py")]
    assert files(config("absent_package.models"), tmp_path) == []


@pytest.mark.parametrize(
    ("override", "key", "code", "facts"),
    [
        (
            "model.options.factory=null",
            *("model.options.factory", "needs-value", ["model.options.factory=my_package.my_module:build"]),
        ),
        (
            "model.options.factory=mine.build",
            *("model.options.factory", "bad-syntax", ["module:function", "'mine.build'"]),
        ),
        ("model.options.prepare='3:'", "model.options.prepare", "bad-syntax", ["module:function", "'3:'"]),
        ("decoder=dfine", "decoder", "in-conflict", ["none", "dfine"]),
        ("model.image_size=[null,null]", "model.image_size", "needs-value", ["[height, width]", "[None, None]"]),
        (
            "model.options.prefix=module.",
            *("model.options.key, model.options.prefix", "in-conflict", ["model.checkpoint", "null"]),
        ),
        ("model.options.depth=3", "model.options.depth", "unknown-key", ["factory, kwargs"]),
    ],
)
def test_what_it_does_not_take(override: str, key: str, code: str, facts: list[str]) -> None:
    with refuses(key, code, *facts):
        config("mine", override)
