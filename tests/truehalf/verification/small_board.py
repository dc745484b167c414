"""A switchboard's double whose error is a formula of the nodes in FP32, so that tests know what must be found."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np


class Double:
    """Runs in no time: output "bad" is `formula(names in FP32)`."""

    def __init__(self, nodes: Collection[str], formula: Callable[[frozenset[str]], float]) -> None:
        self.nodes = list(nodes)
        self.scopes = {node: ".".join(part for part in node.split("/")[:-1] if part) for node in nodes}
        self.formula, self.asked = formula, list[frozenset[str]]()

    def effect(self, fp32: Collection[str]) -> bytes:
        return "\n".join(sorted(fp32)).encode()

    def run(self, feeds: Any, fp32: Collection[str]) -> dict[str, np.ndarray]:
        self.asked.append(frozenset(fp32))
        return {"bad": np.array([self.formula(frozenset(fp32))])}


def bad(outputs: dict[str, np.ndarray]) -> float:
    return float(outputs["bad"][0])
