"""The README's commands do what it says, and it stays short."""

import re
import shutil
from pathlib import Path

from tests.conftest import ROOT, SWEEP, in_workspace
from tests.markdown import code_blocks, command_lines
from tests.test_chain import NO_OVERFLOW, OVERFLOW

README = (ROOT / "README.md").read_text()
LONGEST = 900  # words, tables and what scripts fill in included
NOT_RUN_HERE = {
    "pip install .": "the tests run in an environment that has it",
    "make run": "python -m pipeline, which made the workspace",
    "make setup": "the environment is there already",
} | dict.fromkeys((SWEEP, OVERFLOW, NO_OVERFLOW), "tests/test_chain.py runs it")
OWN_FILES = ("conf/model/mine.yaml", "conf/experiment/mine.yaml")  # that pipeline.init and readers write
OWN_MODEL = ("python -m pipeline.init", "python -m pipeline model=mine")  # which docs/tutorials/torch-detector.md has


def commands() -> list[str]:
    """Of all shell blocks, in order; each part of a && b."""
    lines = [words for language, block in code_blocks(README) if language == "bash" for words in command_lines(block)]
    return [part for words in lines for part in " ".join(words).split(" && ")]


def test_the_first_commands_are_one_file_the_chain_and_a_sweep() -> None:
    one_file, chain, sweep = commands()[1:4]
    assert commands()[0] == "pip install ." and one_file.startswith("truehalf convert model.onnx")
    assert chain == "make run" and sweep == SWEEP


def test_it_is_short() -> None:
    assert len(README.split()) <= LONGEST


def test_what_is_named_here_is_in_the_readme() -> None:
    assert NOT_RUN_HERE.keys() <= set(commands()) | {"make setup"}, "an exemption without its command"
    for beginning in OWN_MODEL:
        assert any(command.startswith(beginning) for command in commands()), beginning


def test_quick_commands_from_top_to_bottom(chain: tuple[Path, object], tmp_path: Path) -> None:
    """With the embedded detector's traced file as `model.onnx`, and images of its size."""
    shutil.copy2(chain[0] / "artifacts/trace/model.onnx", tmp_path / "model.onnx")
    digits = (
        "from PIL import Image; from examples.digits.scenes import scene\n"
        "for i in range(8): Image.fromarray(scene(i, 'val').image).save(f'images/{i}.png')"
    )
    (tmp_path / "images").mkdir()
    assert in_workspace(tmp_path, "python", "-c", digits).returncode == 0
    for command in commands():
        if command not in NOT_RUN_HERE and not command.startswith(OWN_MODEL):
            done = in_workspace(tmp_path, "bash", "-c", command.replace("640x640", "128x128"))
            assert done.returncode == 0, f"{command}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
    assert (tmp_path / "model_fp16.onnx").exists() and (tmp_path / "spec.json").exists()


def test_no_page_speaks_of_what_is_not_there() -> None:
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for name in re.findall(r"`((?:conf|stages|docs|tests|examples|pipeline)/[\w./-]*\w)`", page.read_text()):
            assert (ROOT / name).exists() or name in OWN_FILES, f"{page.name}: {name}"
