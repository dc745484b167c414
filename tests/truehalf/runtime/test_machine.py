"""The facts of a machine are read from it, and none is invented."""

import hashlib
import json
import socket
from pathlib import Path

import pytest

from truehalf.runtime.machine import probe


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


def test_the_gpu_is_the_one_that_cuda_shows_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_nvidia_smi(tmp_path, 'echo "${3:-no choice}, 580.1, 7.5, 15360 MiB"')
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    for visible, shown in ((None, "--id=0"), ("2,0", "--id=2"), ("GPU-12ab", "--id=GPU-12ab"), ("MIG-1", "no choice")):
        if visible is None:
            monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        else:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert [gpu["name"] for gpu in probe()["gpus"] or []] == [shown]
    for visible in ("", "-1", "NoDevFiles"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert probe()["gpus"] is None, "nvidia-smi shows what CUDA may not use"


def test_gpus_beside_it_make_no_other_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("truehalf.runtime.ort.loadable_providers", list)
    fake_nvidia_smi(tmp_path, "echo 'NVIDIA T4, 580.1, 7.5, 15360 MiB'")
    one = probe()
    fake_nvidia_smi(tmp_path, "for _ in 1 2 3; do echo 'NVIDIA T4, 580.1, 7.5, 15360 MiB'; done")
    assert probe() == one


def test_it_tells_nothing_that_differs_between_equal_machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "libmine.so").write_bytes(b"one")
    said = json.dumps(probe(["libmine.so"]))
    assert socket.gethostname() not in said and str(tmp_path) not in said


def test_the_same_machine_gives_the_same_facts() -> None:
    assert probe() == probe()


def test_plugins_are_told_apart_by_their_content(tmp_path: Path) -> None:
    (tmp_path / "libmine.so").write_bytes(b"one")
    first = probe(["libmine.so", "libgone.so"], tmp_path)["plugins"]
    assert first == {"libmine.so": hashlib.sha256(b"one").hexdigest(), "libgone.so": None}
    (tmp_path / "libmine.so").write_bytes(b"two")
    assert probe(["libmine.so"], tmp_path)["plugins"]["libmine.so"] != first["libmine.so"]


def test_providers_are_tried_where_there_is_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_nvidia_smi(tmp_path, "echo 'NVIDIA T4, 580.1, 7.5, 15360 MiB'")
    monkeypatch.setattr("truehalf.runtime.ort.loadable_providers", lambda: ["CUDAExecutionProvider"])
    monkeypatch.setenv("PATH", str(tmp_path))
    assert probe()["onnxruntime_providers"] == ["CUDAExecutionProvider"]
    monkeypatch.setenv("PATH", "/nowhere")
    assert probe()["onnxruntime_providers"] == ["CPUExecutionProvider"]
