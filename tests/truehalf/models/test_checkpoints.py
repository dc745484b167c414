"""Checkpoints are data: tensors are found in what training scripts write, and nothing in a file is ever called."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from tests.messages import raises
from tests.truehalf.models.refusing import in_order
from truehalf.models.checkpoints import KEYS, PICKLED, read_checkpoint, without_prefix

STATE = {"a.weight": torch.ones(2), "b.weight": torch.zeros(3)}


class Touching:
    """Pickled, it is a call: whoever loads it as a program makes the folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, (str(self.folder),)


def saved(path: Path, content: Any, **options: Any) -> Path:
    torch.save(content, path, **options)
    return path


def refused(path: Path, code: str, *facts: object, key: str | None = None) -> str:
    with raises(code, *facts) as error:
        read_checkpoint(path, key)
    assert str(error.value).startswith(f"weights: {path}")
    return str(error.value)


@pytest.mark.parametrize(
    ("content", "key"),
    [
        (STATE, None),
        ({"state_dict": STATE, "epoch": 3}, "state_dict"),
        ({"model": STATE, "optimizer": {"state": {}}}, "model"),
        ({"model": {"a.weight": torch.zeros(2)}, "ema": {"module": STATE, "updates": 7}}, "ema.module"),
        ({"model": {"state_dict": STATE, "name": "mine"}}, "model.state_dict"),
    ],
)
@pytest.mark.parametrize("zipped", [True, False])
def test_state_dicts_are_found_where_training_scripts_put_them(
    content: Any, key: str | None, zipped: bool, tmp_path: Path
) -> None:
    path = saved(tmp_path / "w.pt", content, _use_new_zipfile_serialization=zipped)
    checkpoint = read_checkpoint(path)
    assert checkpoint.key == key
    assert checkpoint.tensors.keys() == STATE.keys()
    assert all(torch.equal(checkpoint.tensors[name], tensor) for name, tensor in STATE.items())


def test_safetensors(tmp_path: Path) -> None:
    save_file(STATE, tmp_path / "w.safetensors")
    assert read_checkpoint(tmp_path / "w.safetensors").tensors.keys() == STATE.keys()
    refused(tmp_path / "w.safetensors", "in-conflict", "'model'", key="model")


def test_a_key_that_is_asked_for(tmp_path: Path) -> None:
    content = {"ema": {"module": {"a.weight": torch.zeros(2)}}, "best": {"weights": STATE}, "epoch": 3}
    path = saved(tmp_path / "w.pt", content)
    checkpoint = read_checkpoint(path, "best.weights")
    assert checkpoint.key == "best.weights" and torch.equal(checkpoint.tensors["a.weight"], torch.ones(2))
    in_order(refused(path, "wrong-name", key="best.net"), "'best.net'", "NoneType", "best (dict)")
    in_order(refused(path, "wrong-name", key="epoch"), "'epoch'", "int")


@pytest.mark.parametrize("zipped", [True, False])
def test_a_file_that_would_run_something_is_refused_and_runs_nothing(zipped: bool, tmp_path: Path) -> None:
    content = {"model": STATE, "hook": Touching(tmp_path / "made")}
    path = saved(tmp_path / "w.pt", content, _use_new_zipfile_serialization=zipped)
    conversion = "torch.load('w.pt', weights_only=False); torch.save(state, 'weights.pt')"
    refused(path, "code-refused", f"{os.name}.mkdir", conversion)
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("content", "name"),
    [
        ({"model": STATE, "args": argparse.Namespace(lr=1)}, "argparse.Namespace"),
        ({"model": torch.nn.Linear(2, 2)}, "torch.nn.modules.linear.Linear"),
    ],
)
def test_objects_are_refused_by_name(content: Any, name: str, tmp_path: Path) -> None:
    refused(saved(tmp_path / "w.pt", content), "code-refused", name)


def test_a_torchscript_archive_is_a_program(tmp_path: Path) -> None:
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), str(tmp_path / "w.pt"))
    with raises("file-unreadable", "TorchScript"):
        read_checkpoint(tmp_path / "w.pt")


@pytest.mark.parametrize("content", [b"", b"neither pickle nor zip", b"PK\x03\x04"])
def test_broken_files(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "w.pt").write_bytes(content)
    refused(tmp_path / "w.pt", "file-unreadable", f"{len(content)} bytes")


def test_a_truncated_file(tmp_path: Path) -> None:
    path = saved(tmp_path / "w.pt", STATE)
    path.write_bytes(path.read_bytes()[:-40])
    refused(path, "file-unreadable", f"{path.stat().st_size} bytes")


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        ({"epoch": 3, "name": "mine"}, ["mapping", "epoch (int)", "name (str)"]),
        ({}, ["mapping"]),
        ([torch.ones(1)], ["list"]),
        (torch.ones(1), ["Tensor"]),
        ({str(number): number for number in range(7)}, ["0 (int)", "4 (int)", 2]),
    ],
)
def test_files_without_a_state_dict_say_what_they_hold(content: Any, shown: list[object], tmp_path: Path) -> None:
    said = refused(saved(tmp_path / "w.pt", content), "wrong-file")
    in_order(said, *KEYS, *shown)
    assert "5 (int)" not in said


def test_other_files(tmp_path: Path) -> None:
    (tmp_path / "w.onnx").write_bytes(b"")
    in_order(refused(tmp_path / "w.onnx", "wrong-file"), ".safetensors", *PICKLED, "'.onnx'")
    refused(tmp_path / "none.pt", "file-missing", "model.checkpoint")
    assert "model=huggingface" not in refused(tmp_path, "wrong-file")
    (tmp_path / "config.json").write_text("{}")
    refused(tmp_path, "wrong-file", f"model=huggingface model.options.id={tmp_path}")
    (tmp_path / "config.json").unlink()


def test_a_prefix_is_taken_off_all_names_or_none() -> None:
    tensors = {"module.a": torch.ones(1), "module.b": torch.ones(1)}
    assert list(without_prefix(tensors, "module.", "w.pt")) == ["a", "b"]
    with raises("wrong-name", "w.pt", "'module.'", "steps"):
        without_prefix(tensors | {"steps": torch.ones(1)}, "module.", "w.pt")
