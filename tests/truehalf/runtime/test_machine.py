"""The facts of a machine are read from it, and none is invented."""

import hashlib
import json
import socket
import uuid
from pathlib import Path
from typing import Any

import pytest

from truehalf.runtime.cuda_driver import gpu_name, gpu_uuid
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


ORIN = uuid.UUID("00000000-0000-0000-0000-000000000002")


class Driver:
    """libcuda of an Orin, which comes without nvidia-smi."""

    def __init__(self, name: str) -> None:
        assert "cuda" in name

    def cuInit(self, flags: int) -> int:
        return 0

    def cuDeviceGetUuid(self, value: Any, device: Any) -> int:
        value.raw = ORIN.bytes
        return 0

    def cuDeviceGetCount(self, count: Any) -> int:
        count._obj.value = 1
        return 0

    def cuDriverGetVersion(self, version: Any) -> int:
        version._obj.value = 12060
        return 0

    def cuDeviceGet(self, device: Any, number: int) -> int:
        return 0

    def cuDeviceGetName(self, name: Any, length: int, device: Any) -> int:
        name.value = b"Orin"
        return 0

    def cuDeviceTotalMem_v2(self, size: Any, device: Any) -> int:
        size._obj.value = 30 * 2**30
        return 0

    def cuDeviceGetAttribute(self, value: Any, attribute: int, device: Any) -> int:
        value._obj.value = {75: 8, 76: 7}[attribute]
        return 0


def without_gpu_libraries(monkeypatch: pytest.MonkeyPatch, driver: Any = Driver) -> None:
    monkeypatch.setattr("truehalf.runtime.cuda_driver.ctypes.CDLL", driver)
    monkeypatch.setattr("truehalf.runtime.ort.installed.loadable_providers", list)
    monkeypatch.setattr("truehalf.runtime.tensorrt.versions.tensorrt_version", lambda module: None)


@pytest.mark.parametrize("broken", [False, True])
def test_a_gpu_without_nvidia_smi_is_a_gpu(broken: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if broken:
        fake_nvidia_smi(tmp_path, "exit 9")
    monkeypatch.setenv("PATH", str(tmp_path))
    without_gpu_libraries(monkeypatch)
    assert probe()["gpus"] == [
        {"name": "Orin", "driver": "CUDA 12.6", "compute_capability": "8.7", "memory": "30720 MiB"}
    ]


class Hiding(Driver):
    """The same, with CUDA_VISIBLE_DEVICES empty."""

    def cuInit(self, flags: int) -> int:
        return 100

    def cuDeviceGetCount(self, count: Any) -> int:
        return 3  # CUDA_ERROR_NOT_INITIALIZED


def test_the_gpu_is_the_one_that_cuda_shows_first_and_the_driver_has_its_own_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_nvidia_smi(tmp_path, "echo 'NVIDIA T4, 580.1, 7.5, 15360 MiB'")
    monkeypatch.setenv("PATH", str(tmp_path))
    without_gpu_libraries(monkeypatch)
    assert [(gpu["name"], gpu["driver"]) for gpu in probe()["gpus"]] == [("Orin", "580.1")]
    without_gpu_libraries(monkeypatch, Hiding)
    assert probe()["gpus"] is None, "nvidia-smi shows what CUDA may not use"


def test_the_gpu_that_engines_are_built_on_has_a_uuid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("truehalf.runtime.cuda_driver.ctypes.CDLL", Driver)
    assert gpu_uuid() == f"GPU-{ORIN}" and gpu_name() == "Orin"
    monkeypatch.setattr("truehalf.runtime.cuda_driver.ctypes.CDLL", Hiding)
    assert gpu_uuid() is None and gpu_name() is None


def test_gpus_beside_it_make_no_other_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("truehalf.runtime.ort.installed.loadable_providers", list)
    fake_nvidia_smi(tmp_path, "echo 'NVIDIA T4, 580.1, 7.5, 15360 MiB'")
    one = probe()
    fake_nvidia_smi(tmp_path, "for _ in 1 2 3; do echo 'NVIDIA T4, 580.1, 7.5, 15360 MiB'; done")
    assert probe() == one


def test_the_processor_is_a_fact_only_of_what_is_optimised_for_it() -> None:
    assert probe()["processor"] is None and probe(processor=True)["processor"]


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
    monkeypatch.setattr("truehalf.runtime.ort.installed.loadable_providers", lambda: ["CUDAExecutionProvider"])
    monkeypatch.setenv("PATH", str(tmp_path))
    assert probe()["onnxruntime_providers"] == ["CUDAExecutionProvider"]
    monkeypatch.setenv("PATH", "/nowhere")
    assert probe()["onnxruntime_providers"] == ["CPUExecutionProvider"]
