"""Programs whose reader has gone: they go on without a word, and end as they would have."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
OF_PROJECT = os.environ | {"PYTHONPATH": str(ROOT)}
_PROGRAM = """
import os, sys
from truehalf.report.terminal import run_program, show
def main():
    for number in range({lines}):
        {print}
    open("done", "w").close()
    return {code}
run_program(main)
"""


def ended(folder: Path, *arguments: str, both: bool = False) -> tuple[int, str]:
    """Exit code and standard error of a program whose output nobody reads; with `both`, neither its errors."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=folder,
            env=OF_PROJECT,
            stdout=writer,
            stderr=writer if both else subprocess.PIPE,
        )
    finally:
        os.close(writer)
    return done.returncode, "" if both else done.stderr.decode()


@pytest.mark.parametrize("code", [0, 3])
@pytest.mark.parametrize(
    ("lines", "print_"),
    [
        (1, "print(number)"),
        (1, "print(number, flush=True)"),
        (100_000, "print(number)"),
        (3, "show('passed: x')"),
        (3, "sys.stdout.write('x'); sys.stdout.flush()"),
        (2, "sys.stdout.buffer.write(bytes(100_000))"),
    ],
)
def test_a_program_goes_on_without_its_reader(tmp_path: Path, lines: int, print_: str, code: int) -> None:
    program = _PROGRAM.format(lines=lines, print=print_, code=code)
    assert ended(tmp_path, "-c", program) == (code, "")
    assert (tmp_path / "done").exists()


def test_so_it_does_without_a_reader_of_its_errors(tmp_path: Path) -> None:
    program = _PROGRAM.format(lines=3, print="print(number, file=sys.stderr)", code=1)
    assert ended(tmp_path, "-c", program, both=True) == (1, "")
    assert (tmp_path / "done").exists()


@pytest.mark.parametrize("module", ["truehalf", "pipeline", "pipeline.diff", "pipeline.gate"])
def test_help_without_a_reader(tmp_path: Path, module: str) -> None:
    assert ended(tmp_path, "-m", module, "--help") == (0, "")


def test_every_program_of_the_chain_is_called_so() -> None:
    texts = [path.read_text() for path in (ROOT / "pipeline").rglob("*.py")]
    programs = [text for text in texts if "\nif __name__ == " in text]
    assert len(programs) > 5 and all(text.endswith("    run_program(main)\n") for text in programs)


def test_what_the_encoding_lacks_is_written_out(tmp_path: Path) -> None:
    program = _PROGRAM.format(lines=1, print=r"show('passed: \xfc \udcff')", code=0)
    environment = OF_PROJECT | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True)
    assert (done.returncode, done.stdout) == (0, b"passed: \\xfc \\udcff\n")
