"""Records and their JSON form: keys, what is left out, files of another version."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from truehalf.records import Record, absent


@dataclass(frozen=True)
class Side(Record):
    length: int


@dataclass(frozen=True)
class Named(Record):
    name: str


@dataclass(frozen=True)
class Whole(Record):
    side: Side | None
    sides: list[Side]
    by_name: Mapping[str, Side] = field(default_factory=dict)
    either: Sequence[Side | Named] = ()
    pairs: tuple[str, ...] = ()
    said: str | None = absent()


def test_what_is_written_is_read_again() -> None:
    whole = Whole(Side(1), [Side(2)], {"a": Side(3)}, [Side(4), Named("b")], ("c",))
    content = json.loads(json.dumps(whole.to_json()))
    assert content["side"] == {"length": 1} and content["either"] == [{"length": 4}, {"name": "b"}]
    assert list(content) == ["side", "sides", "by_name", "either", "pairs"], "said is None"
    assert Whole.from_json(content) == whole
    assert Whole.from_json(content | {"said": "so"}).to_json()["said"] == "so"


def test_of_another_version_keys_are_passed_over_and_defaults_kept() -> None:
    assert Whole.from_json({"side": None, "sides": [], "later": 1}) == Whole(None, [])
    with pytest.raises(KeyError, match="sides"):
        Whole.from_json({"side": None})
