"""Tests with lightly-train itself, in its own environment: make test-lightly."""

from __future__ import annotations

import importlib.util

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if importlib.util.find_spec("lightly_train") is not None:
        return
    for item in items:
        if item.path.is_relative_to(__file__.removesuffix("conftest.py")):
            item.add_marker(pytest.mark.skip(reason="lightly-train is not installed here: make test-lightly"))
