"""Arrays from .npz: rows as samples, read one at a time, never in two purposes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.configurations import composed
from tests.messages import expect, raises
from truehalf.config.schema import Config
from truehalf.config.validate import validate
from truehalf.data.run_samples import TRACE_SAMPLES, run_samples
from truehalf.io_spec.spec import IoSpec
from truehalf.provenance.fingerprints import fingerprint_data

ROWS = TRACE_SAMPLES + 8
SPEC = IoSpec.from_json(
    {
        "inputs": [
            {"name": "x", "dtype": "float32", "shape": ["batch", 2, "width"], "kind": "tensor"},
            {"name": "n", "dtype": "int64", "shape": ["batch"], "kind": "tensor"},
        ],
        "class_names": [],
    }
)


def config_of(file: Path | str, calibration: int = 3, verification: int = 5) -> Config:
    counts = [f"data.calibration_samples={calibration}", f"data.verification_samples={verification}"]
    return validate(composed("data=npz", f"data.file={file}", *counts))


def arrays(rows: int = ROWS, first: int = 0) -> dict[str, np.ndarray]:
    numbers = np.arange(first, first + rows)
    return {"x": np.float32(numbers)[:, None, None] + np.zeros((2, 3), np.float32), "n": numbers}


def all_samples(config: Config, root: Path) -> list[Any]:
    groups = [run_samples("trace", config, root, SPEC)]
    groups += [run_samples("calibration", config, root, SPEC), run_samples("verification", config, root, SPEC)]
    return [sample for group in groups for sample in group]


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_each_row_of_a_file_is_a_sample_of_one_purpose(save: Any, tmp_path: Path) -> None:
    save(tmp_path / "all.npz", **arrays())
    samples = all_samples(config_of("all.npz"), tmp_path)
    assert sorted(int(sample.arrays["n"]) for sample in samples) == list(range(ROWS))
    for sample in samples:
        number = int(sample.arrays["n"])
        assert sample.name == f"all[{number}]" and sample.arrays["x"].shape == (2, 3)
        assert (sample.arrays["x"] == number).all() and sample.boxes is None


def test_a_folder_is_its_files_and_the_same_file_twice_is_one(tmp_path: Path) -> None:
    folder = tmp_path / "samples"
    folder.mkdir()
    for first in range(0, ROWS, 8):
        np.savez(folder / f"from{first:02}.npz", **arrays(8, first))
    (folder / "again.npz").write_bytes((folder / "from08.npz").read_bytes())
    samples = all_samples(config_of("samples"), tmp_path)
    assert sorted(int(sample.arrays["n"]) for sample in samples) == list(range(ROWS))
    found, left_out = fingerprint_data(config_of("samples"), tmp_path)
    assert list(left_out.values()) == [["from08.npz (as again.npz)"]]
    files = {entry["file"] for each in found.values() for entry in each["files"]}
    assert files == {"again.npz", "from00.npz", "from16.npz"}
    assert all(len(each["files"]) <= 3 for each in found.values()), "each file once, however many rows it has"


def test_the_same_row_in_two_purposes_is_refused(tmp_path: Path) -> None:
    repeated = {name: np.concatenate([array, array]) for name, array in arrays().items()}
    np.savez(tmp_path / "all.npz", **repeated)
    with raises("given-twice") as caught:
        fingerprint_data(config_of("all.npz", 12, 20), tmp_path)
    first, second = re.findall(r"all\[\d+\] \((\w+)\)", str(caught.value))[:2]
    assert first != second, "both, each with its purpose"


def faults(tmp_path: Path, file: str = "all.npz") -> str:
    with raises(None) as error:
        all_samples(config_of(file), tmp_path)
    return str(error.value).replace(f"{tmp_path}/", "")


def test_faults_are_named(tmp_path: Path) -> None:
    path = tmp_path / "all.npz"
    expect(faults(tmp_path), "file-missing", path.name)
    (tmp_path / "empty").mkdir()
    expect(faults(tmp_path, "empty"), "file-missing", "empty", ".npz")
    np.savez(path, **arrays(6))
    counts = [6, ROWS, f"{TRACE_SAMPLES} trace", "3 calibration", "5 verification"]
    expect(faults(tmp_path), "too-few-samples", path.name, *counts)
    np.savez(path, x=arrays()["x"], n=arrays(3)["n"])
    expect(faults(tmp_path), "wrong-shape", path.name, "axis 0", "'x'", "'n': [3]")
    np.savez(path, x=np.float32(1))
    expect(faults(tmp_path), "wrong-shape", path.name, "{'x': []}")
    np.savez(path, x=np.array([{}] * ROWS, object))
    expect(faults(tmp_path), "file-unreadable", path.name, "'x'", "pickled")
    path.write_bytes(b"no archive")
    expect(faults(tmp_path), "file-unreadable", path.name)
