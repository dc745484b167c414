"""Which operators which version builds."""

from __future__ import annotations

import onnx
import pytest

from tests.messages import raises
from truehalf.patterns import support
from truehalf.patterns.support import CHECKED, builds, named, opset_max, parse_version, since


@pytest.mark.parametrize(
    ("text", "versions"),
    [
        (None, CHECKED),
        ("10", ((10, 16),)),
        ("11", ((11, 4),)),
        ("10.3", ((10, 3),)),
        ("11.5", ((11, 5),)),
        ("10.16.1.11", ((10, 16),)),
    ],
)
def test_versions(text: str | None, versions: object) -> None:
    assert parse_version(text) == versions


@pytest.mark.parametrize("text", ["8.6", "12", "eleven", "", "11.x"])
def test_other_versions_are_refused(text: str) -> None:
    with raises("bad-syntax", 10, 11, 11.4, repr(text)):
        parse_version(text)


@pytest.mark.parametrize(
    ("op_type", "version", "built"),
    [
        ("Conv", (10, 0), True),
        ("Attention", (10, 13), False),
        ("Attention", (10, 14), True),
        ("Swish", (10, 16), False),
        ("Swish", (11, 0), True),
        ("DFT", (11, 1), False),
        ("DFT", (11, 2), True),
        ("Det", (11, 5), False),
        ("Unique", (11, 5), False),
    ],
)
def test_builds(op_type: str, version: tuple[int, int], built: bool) -> None:
    assert builds(op_type, version) is built


def test_every_name_is_an_operator_of_onnx_or_an_old_one() -> None:
    known = {schema.name for schema in onnx.defs.get_all_schemas_with_history() if schema.domain == ""}
    old = {"ImageScaler", "ParametricSoftplus", "ScaledTanh"}
    assert (support._BUILT | set(support._SINCE)) - known == old


def test_no_operator_is_listed_twice() -> None:
    assert not support._BUILT & set(support._SINCE)


def test_names_and_opsets() -> None:
    assert named((11, 4)) == "TensorRT 11.4"
    assert (since("Conv"), since("DFT")) == (None, (11, 2))
    assert [opset_max(version) for version in ((10, 3), (10, 15), (11, 4), (11, 5))] == [20, 24, 24, 25]
