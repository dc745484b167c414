"""Plug-ins of TensorRT and its log: libraries loaded once a process, messages kept."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from truehalf.runtime.tensorrt.layer_log import START
from truehalf.runtime.tensorrt.versions import BuildError, quoted

_LOGS: dict[Any, Any] = {}  # of a module, the logger: it keeps the first that a process gives it, and no other
_LOADED_PLUGINS: set[str] = set()  # a library registers its plugins once in a process


def message_log(trt: Any) -> Any:
    """The process's logger, emptied: prints warnings and errors to stderr and keeps each once: .warnings, .errors; and
    the message that lists the layers of an engine: .layers.
    """
    if trt.ILogger not in _LOGS:
        _LOGS[trt.ILogger] = _message_log(trt)
    log = _LOGS[trt.ILogger]
    log.errors, log.warnings, log.layers = [], [], ""
    return log


def _message_log(trt: Any) -> Any:
    class MessageLog(trt.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.errors: list[str] = []
            self.warnings: list[str] = []
            self.layers = ""

        def log(self, severity: Any, msg: str) -> None:
            if int(severity) > int(trt.ILogger.Severity.WARNING):
                self.layers = msg if msg.startswith(START) else self.layers
                return
            kept = self.warnings if int(severity) == int(trt.ILogger.Severity.WARNING) else self.errors
            if msg not in kept:
                kept.append(msg)
                print(f"tensorrt: {msg}", file=sys.stderr)

    return MessageLog()


def load_plugins(trt: Any, logger: Any, files: Iterable[Path | str]) -> None:
    """Register TensorRT's plugins and those of the libraries given, before a parser or an engine needs them.

    A library that has no entry point for the registry registers itself when it is loaded.

    Raises:
        BuildError: when a library cannot be loaded, or registers no plugin.
    """
    trt.init_libnvinfer_plugins(logger, "")
    registry = trt.get_plugin_registry()
    for path in (str(Path(file).resolve()) for file in files):
        if path in _LOADED_PLUGINS:
            continue
        before = _creators(trt)
        if registry.load_library(path) is None:
            try:
                ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
            except OSError as error:
                raise BuildError("file-unreadable", f"plugin {path}: cannot be loaded: {error}") from error
            if _creators(trt) == before:
                raise BuildError(
                    "wrong-file",
                    f"plugin {path}: the library registers no plugin{quoted(logger.errors)}\n"
                    "expected one that exports getCreators() or registers its creators when it is loaded",
                )
        _LOADED_PLUGINS.add(path)


def _creators(trt: Any) -> set[tuple[str, str, str]]:
    """Name, version and namespace of every plugin that is registered; TensorRT promises no order of them."""
    keys = ("name", "plugin_version", "plugin_namespace")
    return {
        (name, version, space)
        for creator in trt.get_plugin_registry().all_creators
        for name, version, space in [tuple(str(getattr(creator, key, "")) for key in keys)]
    }
