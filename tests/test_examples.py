"""The examples run, and do what docs/ say of them."""

from __future__ import annotations

import runpy
import sys
import warnings
from pathlib import Path

import pytest

from tests.conftest import ROOT


def run(monkeypatch: pytest.MonkeyPatch, program: str, *words: str) -> None:
    monkeypatch.setattr(sys, "argv", [program, *words])
    runpy.run_path(str(ROOT / "examples" / program), run_name="__main__")


def test_the_training_writes_weights_of_the_embedded_detector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from safetensors import safe_open

    few = ["--epochs=1", "--steps-per-epoch=1", "--batch=2", "--val-scenes=2", "--threads=1", "--device=cpu"]
    folders = [f"--state={tmp_path / 'state'}", f"--weights={tmp_path / 'weights'}"]
    run(monkeypatch, "digits/train.py", "--decoder=dfine", *few, *folders)

    def shapes(file: Path) -> dict[str, list[int]]:
        with safe_open(file, "numpy") as opened:
            return {name: opened.get_slice(name).get_shape() for name in opened.keys()}  # noqa: SIM118

    assert shapes(tmp_path / "weights/dfine.safetensors") == shapes(ROOT / "examples/digits/weights/dfine.safetensors")
    assert (tmp_path / "weights/dfine.log").read_text().startswith("epoch   1")


def test_the_squares_are_written_without_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.filterwarnings("error", module="__main__")  # those that Python shows of a program
        run(monkeypatch, "squares.py", str(tmp_path))
    written = {path.name for path in tmp_path.iterdir()}
    assert written == {"images", "instances.json", "model.onnx", "weights.pt"}


@pytest.mark.parametrize("words", [[], ["--help"], ["a", "b"]])
def test_the_squares_need_one_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="FOLDER"):
        run(monkeypatch, "squares.py", *words)
    assert list(tmp_path.iterdir()) == []
