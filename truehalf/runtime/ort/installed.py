"""What the installed ONNX Runtime is and can do."""

from __future__ import annotations

import contextlib
import functools
import io

CPU = "CPUExecutionProvider"


def runtime_version() -> str:
    """Version of the installed ONNX Runtime."""
    import onnxruntime as ort

    return str(ort.__version__)


def load_cuda() -> None:
    """Load CUDA's libraries from the packages of this environment (those of torch, too), where ONNX Runtime, which
    looks in the system's folders alone, does not find them.
    """
    import onnxruntime as ort

    with contextlib.redirect_stdout(io.StringIO()):  # what is missing is said once a session is asked for
        ort.preload_dlls()


def loadable_providers() -> list[str]:
    """Execution providers that a session really gets here, each tried with a model of one node."""
    import onnxruntime as ort

    found = []
    ort.set_default_logger_severity(4)  # a provider that does not load is an answer, not an error
    load_cuda()
    try:
        for provider in ort.get_available_providers():
            with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(Exception):
                session = ort.InferenceSession(_one_node(), providers=[provider])
                found += [str(provider)] if session.get_providers()[0] == provider else []
    finally:
        ort.set_default_logger_severity(2)  # as it is at first
    return found


def _one_node(ir_version: int = 8) -> bytes:
    import onnx.parser

    text = f'<ir_version: {ir_version}, opset_import: ["" : 17]> g (float[1] x) => (float[1] y) {{ y = Relu(x) }}'
    return bytes(onnx.parser.parse_model(text).SerializeToString())


def built_providers() -> list[str]:
    """Execution providers that the installed ONNX Runtime was built with; whether one loads, only a session shows."""
    import onnxruntime as ort

    return list(ort.get_available_providers())


@functools.cache
def newest_ir_version() -> int:
    """The latest version of ONNX's file format that ONNX Runtime reads; onnx may write a later one."""
    import onnx

    return next(version for version in range(onnx.IR_VERSION, 0, -1) if _reads(version))


def _reads(ir_version: int) -> bool:
    import onnxruntime as ort

    settings = ort.SessionOptions()
    settings.log_severity_level = 4
    try:
        ort.InferenceSession(_one_node(ir_version), settings, providers=[CPU])
    except Exception:  # the exception types of ONNX Runtime share no base but Exception
        return False
    return True
