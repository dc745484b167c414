"""Weights: loaded whole into the right architecture, or refused with the difference named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from tests.messages import expect, raises
from tests.truehalf.models.detectors import built, detector, pictures
from tests.truehalf.models.refusing import in_order
from truehalf.models.weights import load_weights


def stored_once(module: Any) -> dict[str, torch.Tensor]:
    """The state dict as safetensors takes it: each storage under its first name."""
    seen: dict[int, str] = {}
    state = {name: tensor.detach().contiguous() for name, tensor in module.state_dict().items()}
    return {name: tensor for name, tensor in state.items() if seen.setdefault(tensor.data_ptr(), name) == name}


@pytest.mark.parametrize("decoder", ["dfine", "rtdetrv2"])
def test_weights_make_another_module_the_same_one(decoder: str, tmp_path: Path) -> None:
    trained, fresh = detector(decoder, seed=1), detector(decoder, seed=2)
    tensors = stored_once(trained.network)
    assert len(tensors) < len(trained.network.state_dict()), "this model ties tensors, else the test says little"
    save_file(tensors, tmp_path / "w.safetensors")
    load_weights(fresh.network, tmp_path / "w.safetensors")
    images = torch.from_numpy(pictures(0)["images"])
    with torch.no_grad():
        assert all(torch.equal(a, b) for a, b in zip(trained(images), fresh(images), strict=True))
    state = fresh.network.state_dict()
    assert all(torch.equal(tensor, state[name]) for name, tensor in trained.network.state_dict().items())
    assert stored_once(fresh.network).keys() == tensors.keys(), "tied tensors are still one"


class Tied(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(2, 2, bias=False)
        self.second = torch.nn.Linear(2, 2, bias=False)
        self.second.weight = self.first.weight
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))


def refusal(
    module: torch.nn.Module, path: Path, tensors: dict[str, torch.Tensor], code: str = "wrong-file", *facts: object
) -> str:
    """The error, after checking that the module is as it was."""
    save_file(tensors, path)
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    with raises(code, path, *facts) as error:
        load_weights(module, path)
    assert all(torch.equal(before[name], tensor) for name, tensor in module.state_dict().items())
    return str(error.value)


@pytest.mark.parametrize("names", [["first.weight"], ["second.weight"], ["first.weight", "second.weight"]])
def test_tied_tensors_may_stand_under_any_name(names: list[str], tmp_path: Path) -> None:
    module = Tied()
    tensors = {name: torch.full((2, 2), 7.0) for name in names} | {"steps": torch.tensor(3)}
    save_file(tensors, tmp_path / "w.safetensors")
    load_weights(module, tmp_path / "w.safetensors")
    assert module.first.weight is module.second.weight
    assert (module.second.weight == 7).all()
    assert module.steps == 3


def test_half_weights_fill_a_float_module(tmp_path: Path) -> None:
    module = Tied()
    save_file(
        {"first.weight": torch.full((2, 2), 0.5, dtype=torch.float16), "steps": torch.tensor(0)},
        tmp_path / "w.safetensors",
    )
    load_weights(module, tmp_path / "w.safetensors")
    assert module.first.weight.dtype == torch.float32
    assert (module.first.weight == 0.5).all()


def test_truncated_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    save_file({"first.weight": torch.ones(2, 2), "steps": torch.tensor(3)}, path)
    path.write_bytes(path.read_bytes()[:-4])
    with raises("file-unreadable", path, f"{path.stat().st_size} bytes"):
        load_weights(Tied(), path)


def test_every_kind_of_mismatch_is_named(tmp_path: Path) -> None:
    tensors = {"first.weight": torch.ones(2, 3), "steps": torch.tensor(1.0), "third.weight": torch.ones(1)}
    message = refusal(Tied(), tmp_path / "w.safetensors", tensors)
    in_order(message, 2, "first.weight", "float32[2, 2]", "float32[2, 3]")
    in_order(message, 2, "steps", "int64[]", "float32[]", 1, "unexpected", "third.weight")
    assert "missing" not in message
    message = refusal(Tied(), tmp_path / "w.safetensors", {"steps": torch.tensor(1)})
    in_order(message, 1, "missing", "first.weight", "second.weight")
    assert "unexpected" not in message


def test_weights_of_another_width_name_the_first_tensor_with_both_shapes(tmp_path: Path) -> None:
    narrow = detector("dfine").network
    wide = built("dfine", ffn_dim=64).network
    message = refusal(wide, tmp_path / "w.safetensors", stored_once(narrow))
    (first, *_) = message.partition("\n")[2].split(";")
    in_order(first, "model.encoder.aifi.0.layers.0.mlp.layers.0.weight", "float32[64, 32]", "float32[48, 32]")


def test_weights_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    tensors = {"first.weight": torch.tensor([[1.0, float("nan")], [0.0, 0.0]]), "steps": torch.tensor(3)}
    refusal(Tied(), tmp_path / "w.safetensors", tensors, "not-finite", "first.weight")


@pytest.mark.parametrize(
    ("weight", "code", "facts"),
    [
        (torch.full((2, 2), 1e300, dtype=torch.float64), "not-finite", ["FP32", "first.weight"]),
        (torch.eye(2).to_sparse(), "not-supported", ["first.weight", "tensor.to_dense()"]),
    ],
)
def test_weights_that_the_module_cannot_hold_are_refused(
    weight: torch.Tensor, code: str, facts: list[object], tmp_path: Path
) -> None:
    torch.save({"first.weight": weight, "steps": torch.tensor(3)}, tmp_path / "w.pt")
    with raises(code, tmp_path / "w.pt", *facts):
        load_weights(Tied(), tmp_path / "w.pt")


def test_weights_of_torch_say_which_key_was_taken(tmp_path: Path) -> None:
    state = {"first.weight": torch.full((2, 2), 7.0), "second.weight": torch.full((2, 2), 7.0)}
    content = {"model": {}, "ema": {"module": state | {"steps": torch.tensor(3)}}, "epoch": 1}
    torch.save(content, tmp_path / "w.ckpt")
    module = Tied()
    expect(load_weights(module, tmp_path / "w.ckpt"), None, "weights", 3, "w.ckpt", "'ema.module'")
    assert (module.second.weight == 7).all()
    torch.save({"model": {"first.weight": torch.ones(1)}}, tmp_path / "w.ckpt")
    with raises("wrong-file", tmp_path / "w.ckpt", "'model'"):
        load_weights(module, tmp_path / "w.ckpt")


def test_a_prefix_is_taken_off_where_it_is_asked_for(tmp_path: Path) -> None:
    tensors = {"module.first.weight": torch.full((2, 2), 7.0), "module.steps": torch.tensor(3)}
    refusal(Tied(), tmp_path / "w.safetensors", tensors, "wrong-file", "'module.'", "model.options.prefix=module.")
    module = Tied()
    said = load_weights(module, tmp_path / "w.safetensors", prefix="module.")
    expect(said, None, "weights", 2, "w.safetensors", "'module.'")
    assert (module.first.weight == 7).all() and module.steps == 3
