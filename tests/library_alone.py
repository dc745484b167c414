"""Plugin of pytest that blocks what the library does without: pytest -p tests.library_alone tests/truehalf."""

from __future__ import annotations

import sys

import pytest

BLOCKED = ("stages", "pipeline", "hydra", "dvc", "mlflow")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    """Before tests/conftest.py; Hydra's own plugin of pytest has been loaded then."""
    _block()


def pytest_configure() -> None:
    """In workers of pytest-xdist, which load plugins late."""
    _block()


def _block() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] in BLOCKED]:
        del sys.modules[name]
    sys.modules.update(dict.fromkeys(BLOCKED))  # type: ignore[arg-type]  # None: import raises ModuleNotFoundError
