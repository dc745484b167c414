"""Timing cache of the builder: a file for each GPU and version, shared between runs."""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from truehalf.files import written_whole
from truehalf.runtime.cuda_driver import gpu_key
from truehalf.runtime.tensorrt.versions import BuilderOptions


def cache_file(trt: Any, options: BuilderOptions) -> Path | None:
    """One file per GPU and TensorRT version; editable caches apart, for their entries are others."""
    if options["timing_cache"] is None:
        return None
    kind = "-editable" if options["editable_timing_cache"] else ""
    return Path(options["timing_cache"]) / f"{gpu_key()}-tensorrt-{trt.__version__}{kind}.cache"


def load_cache(config: Any, file: Path) -> bool:
    """Attach the file's cache, or an empty one where TensorRT refuses it. Returns whether the file's is used."""
    content = b""
    with suppress(OSError):
        content = file.read_bytes()
    for data in [content, b""] if content else [b""]:
        cache = config.create_timing_cache(data)
        if cache is not None and config.set_timing_cache(cache, False):
            return bool(data)
    return False


def save_cache(config: Any, file: Path) -> bool:
    """Write the cache with what other builds have added to the file since; one that cannot be kept is no error."""
    cache = config.get_timing_cache()
    if cache is None:
        return False
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with _locked(file.parent):  # of two builds that end together, neither is lost
            if file.exists() and (other := config.create_timing_cache(file.read_bytes())) is not None:
                cache.combine(other, False)
            serialized = cache.serialize()
            if serialized is None:
                return False
            with written_whole(file) as building:
                building.write_bytes(bytes(serialized))
    except OSError as error:
        print(f"timing cache {file}: not kept: {error}", file=sys.stderr)
        return False
    return True


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold a folder against other processes that ask for it so."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)  # which lets go
