"""FP16 ONNX files that compute what their FP32 reference computes: the library and the command.

    from truehalf import Precision, calibrate, clean_casts, compare, convert, export, lint, repair

The functions are documented in truehalf.api, which is imported when one of them is asked for.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from truehalf.api import Precision, calibrate, clean_casts, compare, convert, export, lint, repair

__all__ = ["Precision", "calibrate", "clean_casts", "compare", "convert", "export", "lint", "repair"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        import importlib

        return getattr(importlib.import_module("truehalf.api"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
