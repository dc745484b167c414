"""Help of the pipeline: nothing in it that conf/ does not have, and no key left out."""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.compose import mistyped
from pipeline.help import EXAMPLES, OWN_MODEL, all_keys, groups, keys_of, page
from pipeline.workspace import CONF

FILES = sorted(CONF.glob("**/*.yaml"))


def flat(values: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from flat(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(CONF).as_posix())
def test_keys_of_a_file_are_those_that_yaml_reads(file: Path) -> None:
    values = yaml.safe_load(file.read_text()) or {}
    read: dict[str, Any] = {}
    for key in keys_of(file):
        read |= flat({key.path: yaml.safe_load(key.value)})
    for of_hydra in ("defaults", "hydra"):
        values.pop(of_hydra, None)
    assert read == dict(flat(values))


def test_all_keys_have_their_default_and_their_comment() -> None:
    text = " ".join(all_keys(80).split())
    for file in FILES:
        group = file.parent.relative_to(CONF).as_posix()
        if group == "." or "/" in group or "@package" in file.read_text():
            continue
        assert f"{group}={file.stem}" in text
        for key in keys_of(file):
            assert f"{group}.{key.path}=" in text and " ".join(key.comment.split()) in text, key
    assert "precision.data_max=512.0 a node that reads or writes |x| above this" in text
    assert "trace.opset=17 17 keeps LayerNormalization one node" in text


def test_a_precision_is_fp16_or_fp32() -> None:
    assert [file.stem for file in FILES if file.parent.name == "precision"] == ["fp16", "fp32"]
    assert "precision" in groups() and "hydra/launcher" in groups()


def test_the_page_names_what_there_is_and_fits_80_columns() -> None:
    assert len(OWN_MODEL) == 6 and len(EXAMPLES) == 5
    told = [[each] for each in OWN_MODEL] + [shlex.split(command)[3:] for command in EXAMPLES]
    assert [mistyped(each) for each in told] == [[]] * 11
    assert max(map(len, page(80).splitlines())) <= 80
