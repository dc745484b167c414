"""verify by its two names: without arguments the stage, with two files the comparison."""

from pathlib import Path

import numpy as np
import onnx
import onnx.parser

from tests.conftest import in_workspace
from tests.messages import expect
from truehalf.verification.compare.compare import compare


def test_the_door_is_importable_from_the_stage() -> None:
    from stages import verify

    assert verify.compare is compare


def test_two_files_from_any_folder(tmp_path: Path) -> None:
    for name, op in (("a", "Relu"), ("b", "Neg")):
        text = f'<ir_version: 8, opset_import: ["" : 17]> g (float[N,3] x) => (float[N,3] y) {{ y = {op} (x) }}'
        onnx.save(onnx.parser.parse_model(text), tmp_path / f"{name}.onnx")
    np.savez(tmp_path / "samples.npz", x=np.ones((2, 3), np.float32))
    command = ("python", "-m", "stages.verify", "a.onnx")
    options = ("--inputs", "samples.npz", "--locate", "never")
    for candidate, code, word in (("a", 0, "passed"), ("b", 1, "failed")):
        done = in_workspace(tmp_path, *command, f"{candidate}.onnx", *options)
        assert done.returncode == code and done.stdout.startswith(f"{word}: {candidate}.onnx ")
        expect(done.stdout.splitlines()[0], None, "a.onnx")
    done = in_workspace(tmp_path, *command, "absent.onnx", *options)
    assert done.returncode == 2 and done.stderr.startswith("verify: absent.onnx: ")
    expect(done.stderr, "file-missing")


def test_without_arguments_it_is_the_stage(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text("- no mapping")
    done = in_workspace(tmp_path, "python", "-m", "stages.verify")
    assert done.returncode == 1
    expect(done.stderr, "file-unreadable", "params.yaml", "list")
