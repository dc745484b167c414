"""FP16 ONNX files that compute what their FP32 reference computes: the library and the command.

    from truehalf import Precision, calibrate, clean_casts, compare, convert, export, lint, repair

The functions are documented in truehalf.api. Importing this package loads no runtime.
"""

from truehalf.api import Precision, calibrate, clean_casts, compare, convert, export, lint, repair

__all__ = ["Precision", "calibrate", "clean_casts", "compare", "convert", "export", "lint", "repair"]
