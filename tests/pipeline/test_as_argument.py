"""What is printed for the command line arrives as it was meant, through a shell and the configuration."""

from __future__ import annotations

import re
import shlex
import subprocess

import pytest
from hydra import compose, initialize_config_dir

from tests.conftest import ROOT
from truehalf.verification.pinning.as_argument import pins_argument, pins_flags


def arrived(argument: str) -> list[str]:
    words = subprocess.run(["bash", "-c", f"printf '%s\\0' {argument}"], capture_output=True, check=True, text=True)
    arguments = words.stdout.split("\0")[:-1]
    assert len(arguments) == 1
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        config = compose("config", overrides=arguments)
    return list(config.precision.node_block_list)


@pytest.mark.parametrize(
    "name",
    [
        "/decoder/layers.0/MatMul_3",
        "a[1] (x), {y}",
        "it's",
        'say "so"',
        "$HOME",
        "${precision.masks}",
        "a\\",
        '\\"',
        "`!`",
    ],
)
def test_a_name_arrives(name: str) -> None:
    pattern = f"^{re.escape(name)}$"
    assert arrived(pins_argument("node_block_list", [pattern])) == [pattern]
    assert arrived(pins_argument("node_block_list", [name])) == [name]
    both = [pattern, name]
    expected = ["--node-block-list", pattern, "--node-block-list", name]
    assert shlex.split(pins_flags(both)) == expected


def test_what_is_in_force_stays() -> None:
    assert pins_argument("node_block_list", ["b", "c"], ["a", "b"]) == """'precision.node_block_list=["a","b","c"]'"""
    assert arrived(pins_argument("node_block_list", ["^b$"], ["^a$"])) == ["^a$", "^b$"]
