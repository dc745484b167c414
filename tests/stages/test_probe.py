"""The probe reads the machine and invents nothing."""

from pathlib import Path

import pytest

from stages.probe import probe


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
