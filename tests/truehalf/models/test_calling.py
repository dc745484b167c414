"""What modules return: named, taken, dropped, or refused."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, namedtuple
from typing import Any

import pytest
import torch

from tests.messages import raises
from tests.truehalf.models.refusing import in_order
from truehalf.models.calling import all_taken, calling, named_tensors, taken

A, B, C = torch.ones(2, 1), torch.zeros(2, 2), torch.full((2, 3), 3.0)
Pair = namedtuple("Pair", ["logits", "boxes"])


@dataclasses.dataclass
class Fields:
    logits: torch.Tensor
    boxes: torch.Tensor | None = None
    aux: Any = None


@pytest.mark.parametrize(
    ("returned", "found"),
    [
        (A, {"output_0": "0"}),
        ((A, B), {"output_0": "0", "output_1": "1"}),
        ([A, None, B], {"output_0": "0", "output_2": "2"}),
        ({"logits": A, "count": 3, "boxes": B}, {"logits": "logits", "boxes": "boxes"}),
        (OrderedDict([(0, A), ("pool", B)]), {"0": "0", "pool": "pool"}),
        (Fields(A, B), {"logits": "logits", "boxes": "boxes"}),
        (Fields(A), {"logits": "logits"}),
        (Pair(A, B), {"logits": "logits", "boxes": "boxes"}),
        ({"logits": A, "aux": [{"logits": A}]}, {"logits": "logits"}),
    ],
)
def test_every_tensor_is_an_output(returned: Any, found: dict[str, str]) -> None:
    assert all_taken(returned) == found
    assert list(taken(returned, list(found.values()))) == list(named_tensors(returned).values())


@pytest.mark.parametrize(
    ("returned", "dropped", "left"),
    [
        ((A, B, C), ["1"], ["output_0", "output_2"]),
        ((A, B, C), ["output_0", "2"], ["output_1"]),
        ({"logits": A, "boxes": B, "aux": C}, ["aux"], ["logits", "boxes"]),
        ({"logits": A, "boxes": B, "aux": C}, ["0"], ["boxes", "aux"]),
        ({"logits": A, "aux": [{"logits": A}]}, ["aux"], ["logits"]),
        (Fields(A, B, (A, B)), ["aux"], ["logits", "boxes"]),
        ((A, (B, C)), ["1"], ["output_0"]),
        ({"1": A, "0": B}, ["0"], ["1"]),  # a name goes before a position
    ],
)
def test_auxiliary_outputs_are_dropped_by_name_or_position(returned: Any, dropped: list[str], left: list[str]) -> None:
    assert list(all_taken(returned, dropped)) == left


@pytest.mark.parametrize(
    ("returned", "dropped", "code", "facts"),
    [
        ((A, B), ["2"], "no-match", ["model.drop_outputs", 2, "output_0, output_1", 0, 1]),
        ({"a": A}, ["b"], "no-match", ["model.drop_outputs", "b", "a", 0, 0]),
        ({"a": A}, ["a"], "wrong-return", ["model.outputs", "a", "model.drop_outputs", "a"]),
        (3, [], "wrong-return", ["model.outputs", "int"]),
        ("text", [], "wrong-return", ["model.outputs", "str"]),
    ],
)
def test_what_cannot_be_outputs(returned: Any, dropped: list[str], code: str, facts: list[object]) -> None:
    with raises(code) as error:
        all_taken(returned, dropped)
    in_order(str(error.value), *facts)


def test_an_output_that_is_not_there_is_named_with_those_that_are() -> None:
    with raises("wrong-name") as error:
        taken({"logits": A, "aux": [A]}, ["logits", "aux", "boxes"])
    in_order(str(error.value), "model.outputs", "logits", "aux (list)", "aux, boxes", "`take`")


class Network(torch.nn.Module):
    def forward(self, pixels: torch.Tensor, sizes: torch.Tensor) -> dict[str, Any]:
        return {"sum": pixels * 3 + sizes, "sizes": sizes, "aux": [pixels]}


def test_a_network_takes_tensors_by_position_and_returns_a_tuple() -> None:
    one, two = torch.tensor([1.0]), torch.tensor([2.0])
    called = calling(Network().train(), ["sizes", "sum"])
    assert not any(part.training for part in called.modules())
    assert [name for name, _ in called.named_children()] == ["network"]
    assert [tensor.item() for tensor in called(one, two)] == [2.0, 5.0]
