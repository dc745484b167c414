"""Comparison of params.yaml with the files of conf/ that it was composed from.

`python -m pipeline` writes their digests into the section `composed`; a plain `dvc repro` composes nothing, and would
run the configuration from before an edit of conf/.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from truehalf.config.params import read_composed
from truehalf.errors import StageError, some_of
from truehalf.files import file_sha256

DIGITS = 12  # of a file's SHA-256


def refuse_stale(root: Path) -> None:
    """Compare the files that params.yaml was composed from with their digests in it.

    A params.yaml without digests, such as `dvc exp run -S` writes, is taken as it is.

    Raises:
        StageError: a file has changed or is gone.
    """
    composed = read_composed(root)
    if composed is None:
        return
    changed = [name for name, digest in composed["files"].items() if digest_of_file(root / name) != digest]
    if changed:
        command = shlex.join(["python", "-m", "pipeline", *composed["overrides"]])
        message = f"{some_of(changed)} changed since params.yaml was written: run `{command}`"
        raise StageError("stale-configuration", message)


def digest_of_file(path: Path) -> str | None:
    """The first 12 digits of a file's SHA-256; None where there is no file."""
    return file_sha256(path)[:DIGITS] if path.is_file() else None
