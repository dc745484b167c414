"""The digest of a workspace's params.yaml."""

from __future__ import annotations

from pathlib import Path

from tests.configurations import write_params
from truehalf.config.params import params_digest


def test_the_digest_is_of_content_not_of_layout(tmp_path: Path) -> None:
    write_params(tmp_path)
    before = params_digest(tmp_path)
    (tmp_path / "params.yaml").write_text("# a comment\n" + (tmp_path / "params.yaml").read_text())
    assert params_digest(tmp_path) == before
    write_params(tmp_path, "seed=7")
    assert params_digest(tmp_path) != before
