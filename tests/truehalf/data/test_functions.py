"""data.function: what it returns is a sample; what it raises is said with the sample and the line."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from tests.configurations import composed
from tests.conftest import SPEC
from tests.messages import raises
from truehalf.config.schema import Config
from truehalf.config.validate import validate
from truehalf.data.run_samples import run_samples
from truehalf.provenance.fingerprints import fingerprint_data

HEAD = "import numpy as np\nPURPOSES = ('trace', 'calibration', 'verification')\n"
OWN = "np.full((20, 10, 3), 50 * PURPOSES.index(purpose) + number, np.uint8)"


def config_of(folder: Path, body: str, monkeypatch: pytest.MonkeyPatch, module: str = "my_data") -> Config:
    (folder / f"{module}.py").write_text(f"{HEAD}def sample(purpose, number, seed):\n    {body}\n")
    monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # a changed file of the same second is read anew
    counts = ["data.calibration_samples=3", "data.verification_samples=4", "data.seed=5"]
    return validate(composed("data=function", f"data.function={module}:sample", *counts))


def test_a_picture_with_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_of(tmp_path, f"return {OWN}, [[0, 0, 5, 10]], [7]", monkeypatch)
    samples = run_samples("verification", config, tmp_path, SPEC)
    assert [sample.name for sample in samples] == [f"my_data:sample/verification/{n}" for n in range(4)]
    sample = samples[1]
    assert sample.arrays["images"].shape == (3, 128, 128)
    np.testing.assert_allclose(sample.arrays["images"], 101 / 255, rtol=1e-6)
    assert sample.boxes is not None and sample.boxes.tolist() == [[0, 0, 64, 64]]
    assert sample.labels is not None and sample.labels.tolist() == [7]


def test_a_picture_alone_and_one_on_which_nothing_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = run_samples("calibration", config_of(tmp_path, f"return {OWN}", monkeypatch), tmp_path, SPEC)[0]
    assert alone.boxes is None and alone.labels is None
    empty = run_samples("calibration", config_of(tmp_path, f"return {OWN}, [], []", monkeypatch), tmp_path, SPEC)[0]
    assert empty.boxes is not None and empty.boxes.shape == (0, 4)


def test_arrays_and_the_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = "return {'images': np.full((3, 128, 128), seed + number, np.float32)}"
    sample = run_samples("calibration", config_of(tmp_path, body, monkeypatch), tmp_path, SPEC)[2]
    assert (sample.arrays["images"] == 7).all()


@pytest.mark.parametrize(
    ("body", "code", "facts"),
    [
        ("return 1 / 0", "function-fails", ["ZeroDivisionError", "my_data.py", "line 4"]),
        (
            "return np.zeros((3, 9, 9), np.uint8)",
            "wrong-return",
            ["uint8 [height, width, 3]", "ndarray uint8 [3, 9, 9]"],
        ),
        ("return np.zeros((9, 9, 3))", "wrong-return", ["uint8 [height, width, 3]", "ndarray float64 [9, 9, 3]"]),
        ("return None", "wrong-return", ["uint8 [height, width, 3]", "NoneType"]),
        (f"return {OWN}, [[0, 0, 5, 5]], None", "wrong-return", ["boxes", "labels"]),
        (
            f"return {OWN}, [[0, 0, 5, 5]], [1, 2]",
            "wrong-return",
            ["boxes [n, 4]", "labels [n]", "boxes int64 [1, 4]", "labels int64 [2]"],
        ),
        (f"return {OWN}, [[0, 0, 5, 5]], [1.5]", "wrong-return", ["labels [n]", "labels float64 [1]"]),
        (f"return {OWN}, [[5, 0, 5, 5]], [1]", "wrong-return", ["x0 < x1", "y0 < y1"]),
        (f"return {OWN}, [[0, 0, 5, 5]], [10]", "out-of-range", [0, 9, 10]),
        ("return {'pixels': np.zeros(3)}", "wrong-feeds", ["[wrong-name]", "images", "pixels"]),
    ],
)
def test_faults_name_the_sample(
    body: str, code: str, facts: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = run_samples("verification", config_of(tmp_path, body, monkeypatch), tmp_path, SPEC)
    with raises(code, "my_data:sample/verification/3", *facts):
        samples[3]


def test_a_module_that_cannot_be_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_of(tmp_path, "pass", monkeypatch)
    (tmp_path / "my_data.py").write_text("x = 1\nraise KeyError('path')\n")
    facts = ["data.function", "'my_data:sample'", "KeyError: 'path'", tmp_path / "my_data.py", "line 2"]
    with raises("function-fails", *facts):
        run_samples("verification", config, tmp_path, SPEC)


def test_the_function_may_import_from_the_workspace_when_it_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "read_late.py").write_text("import numpy as np\nPIXELS = np.full((9, 9, 3), 7, np.uint8)\n")
    config = config_of(tmp_path, "import read_late; return read_late.PIXELS", monkeypatch)
    np.testing.assert_allclose(
        run_samples("verification", config, tmp_path, SPEC)[0].arrays["images"], 7 / 255, rtol=1e-6
    )
    assert str(tmp_path) not in sys.path


def test_a_function_that_ignores_the_purpose_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_of(tmp_path, "return np.full((9, 9, 3), number, np.uint8)", monkeypatch)
    facts = ["my_data:sample/calibration/0 (calibration)", "my_data:sample/trace/0 (trace)"]
    with raises("given-twice", *facts):
        fingerprint_data(config, tmp_path)


def test_fingerprints_follow_the_code_and_what_it_makes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = f"return {OWN} + len(open({str(tmp_path / 'data.txt')!r}).read())"
    (tmp_path / "data.txt").write_text("a")
    before, _ = fingerprint_data(config_of(tmp_path, reads, monkeypatch), tmp_path)
    assert before["verification"]["code"]["function"] == "my_data:sample"
    (tmp_path / "data.txt").write_text("ab")
    other, _ = fingerprint_data(config_of(tmp_path, reads, monkeypatch), tmp_path)
    assert other["verification"]["code"] == before["verification"]["code"]
    assert other["verification"]["sha256"] != before["verification"]["sha256"]
    longer, _ = fingerprint_data(config_of(tmp_path, f"{reads}  # longer", monkeypatch), tmp_path)
    assert longer["verification"]["code"]["sha256"] != before["verification"]["code"]["sha256"]


def test_a_function_that_reads_no_files_is_known_by_its_code_and_not_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(tmp_path, "raise RuntimeError", monkeypatch)
    with (tmp_path / "my_data.py").open("a") as file:
        file.write("sample.reads_files = False\n")
    found, _ = fingerprint_data(config, tmp_path)
    assert [each["samples"] for each in found.values()] == [16, 3, 4]
