"""The facts of a machine are read from it, and none is invented."""

import hashlib
from pathlib import Path

import pytest

from stages.machine import probe


def fake_nvidia_smi(folder: Path, body: str) -> None:
    script = folder / "nvidia-smi"
    script.write_text(f"#!/bin/sh\n{body}\n")
    script.chmod(0o755)


def test_gpus_are_read_from_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_nvidia_smi(tmp_path, "echo 'NVIDIA T4, 580.1, 7.5, 15360 MiB'")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert probe()["gpus"] == [
        {"name": "NVIDIA T4", "driver": "580.1", "compute_capability": "7.5", "memory": "15360 MiB"}
    ]


def test_a_driver_that_fails_is_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_nvidia_smi(tmp_path, "echo 'NVIDIA-SMI has failed'; exit 9")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert probe()["gpus"] is None


def test_the_same_machine_gives_the_same_facts() -> None:
    assert probe() == probe()


def test_plugins_are_told_apart_by_their_content(tmp_path: Path) -> None:
    (tmp_path / "libmine.so").write_bytes(b"one")
    first = probe(["libmine.so", "libgone.so"], tmp_path)["plugins"]
    assert first == {"libmine.so": hashlib.sha256(b"one").hexdigest(), "libgone.so": None}
    (tmp_path / "libmine.so").write_bytes(b"two")
    assert probe(["libmine.so"], tmp_path)["plugins"]["libmine.so"] != first["libmine.so"]


def test_operators_of_plugins_are_asked_of_tensorrt_where_it_can_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Path] = []

    def registered(files: list[Path]) -> list[list[str]]:
        asked.extend(files)
        return [["Mine"]]

    fake_nvidia_smi(tmp_path, "echo 'NVIDIA T4, 580.1, 7.5, 15360 MiB'")
    monkeypatch.setattr("stages.trt.build.tensorrt_version", lambda: "11.4.0.106")
    monkeypatch.setattr("stages.trt.build.registered_ops", registered)
    monkeypatch.setattr("stages.ort.session.loadable_providers", list)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert probe(["libmine.so"], tmp_path)["plugin_ops"] == {"libmine.so": ["Mine"]}
    assert asked == [tmp_path / "libmine.so"] and probe()["plugin_ops"] is None
    monkeypatch.setattr("stages.trt.build.registered_ops", lambda files: None)
    assert probe(["libmine.so"], tmp_path)["plugin_ops"] is None


def test_providers_are_tried_where_there_is_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_nvidia_smi(tmp_path, "echo 'NVIDIA T4, 580.1, 7.5, 15360 MiB'")
    monkeypatch.setattr("stages.ort.session.loadable_providers", lambda: ["CUDAExecutionProvider"])
    monkeypatch.setenv("PATH", str(tmp_path))
    assert probe()["onnxruntime_providers"] == ["CUDAExecutionProvider"]
    monkeypatch.setenv("PATH", "/nowhere")
    assert probe()["onnxruntime_providers"] == ["CPUExecutionProvider"]
