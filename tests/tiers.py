"""Which of a test's cases `make test` runs, and how many examples; `make test-all` runs all of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings

from truehalf.runtime.machine import package_version
from truehalf.runtime.tensorrt import RTX

_IS_THERE = all(package_version(module) for module in (RTX, "polygraphy"))
compiled = pytest.mark.skipif(not _IS_THERE, reason="TensorRT for RTX has no wheel for this machine")

# Of the Hypothesis profiles "sample" and "all" (tests/conftest.py).
ALL_EXAMPLES = 200


def first_of(cases: Iterable[Any]) -> list[Any]:
    """Cases for one class of defect, each of some seconds: the first in `make test`, the others in `make test-all`."""
    first, *others = cases
    return [first, *(pytest.param(case, marks=pytest.mark.slow) for case in others)]


def third_of(cases: Iterable[Any]) -> list[Any]:
    """Cases that are many, each of a tenth of a second: every third in `make test`, all in `make test-all`."""
    return [each if i % 3 == 0 else pytest.param(each, marks=pytest.mark.slow) for i, each in enumerate(cases)]


def examples(whole: int) -> int:
    """How many examples a property is tried with that needs another number than the profile's: half in `make test`,
    as the profiles of tests/conftest.py.
    """
    return whole if settings.default is not None and settings.default.max_examples == ALL_EXAMPLES else whole // 2
