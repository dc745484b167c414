"""A profile and a parser of graphs; what the library does without is blocked from import."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator

import onnx
import onnx.parser
import pytest

PROFILE = {"images": {"min": [1, 3, 8, 8], "opt": [2, 3, 8, 8], "max": [4, 3, 8, 8]}}
MODEL = "g (float[N,3,8,8] images) => (float[N,3,8,8] scores) { scores = Relu(images) }"


def parsed(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')


BLOCKED = ("stages", "pipeline", "hydra", "dvc", "mlflow")


@pytest.fixture(autouse=True)
def _library_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Imports made while a test runs; tests/test_imports.py reads those at the top of modules."""
    loaded = [name for name in sys.modules if name.partition(".")[0] in BLOCKED]
    for name in {*BLOCKED, *loaded}:
        monkeypatch.setitem(sys.modules, name, None)  # import raises ModuleNotFoundError


@pytest.fixture(autouse=True)
def _in_the_foreground() -> Iterator[None]:
    """Ctrl-C as in a terminal: of a job in the background a shell lets it be ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
