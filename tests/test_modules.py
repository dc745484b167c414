"""Forty modules as users write them: each gets the verdict that it deserves (tests/modules)."""

from __future__ import annotations

import inspect
from types import ModuleType
from typing import Any

import pytest
import torch

from tests.modules import after_repositories, of_users
from tests.tiers import first_of
from truehalf.api import export
from truehalf.errors import StageError


def modules_of(source: ModuleType) -> dict[str, Any]:
    classes = inspect.getmembers(source, lambda each: inspect.isclass(each) and hasattr(each, "VERDICT"))
    return {name: each for name, each in classes if each.__module__ == source.__name__}


MODULES = modules_of(after_repositories) | modules_of(of_users)


@pytest.mark.parametrize("name", first_of(MODULES))
def test_the_verdict_is_the_right_one(name: str) -> None:
    module = MODULES[name]
    torch.manual_seed(0)
    network, verdict = module().eval(), ""
    feeds = [{key: each.numpy() for key, each in module.samples(2, seed).items()} for seed in (1, 2, 3)]
    try:
        parity = export(network, samples=feeds).report.parity
        verdict = "passed" if parity["status"] == "verified" else "open"
    except StageError as error:
        verdict, parity = "failed", str(error)
    assert verdict == module.VERDICT, parity


def test_there_are_forty() -> None:
    assert len(modules_of(after_repositories)) >= 20 and len(MODULES) >= 40
