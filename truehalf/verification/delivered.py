"""Judge an ONNX file as it lies on disk, before anything is made of it: ONNX Runtime, onnx's checker.

Everything else runs a copy that was typed anew and that rounds by itself; it runs where the file does not.

    ONNX Runtime finds the graph invalid, and the reference's not   failed: float16 meets float32 in a node, for example
    onnx's checker refuses what ONNX Runtime loads                  named, no verdict: stated shapes may be false
    ONNX Runtime lacks a kernel, an operator or a plugin            named, no verdict
"""

from __future__ import annotations

import re
from pathlib import Path

from truehalf.codes import coded
from truehalf.errors import StageError
from truehalf.ir.facts import holds_fp16
from truehalf.ir.model_forms import ModelFile
from truehalf.ir.proto.plugins import plugins_of
from truehalf.ir.proto.refusals import checker_refusal, refused
from truehalf.runtime.ort import Session, custom_operators
from truehalf.verification.findings import FAILED, VERIFIED, Finding, not_checked

CHECK = "file"
_INVALID = re.compile(r"INVALID_GRAPH|Type Error|type inference failed", re.IGNORECASE)
_MIXED = re.compile(r"bound to different types \(tensor\(float\w*\) and tensor\(float\w*\)", re.IGNORECASE)
_NODE = re.compile(r"node \(([^)]+)\)", re.IGNORECASE)


def judge_file(file: ModelFile, reference: ModelFile) -> list[Finding]:
    """Judge a file that holds FP16, by its path; other files are run as they are, and refused there.

    Args:
        reference: the FP32 file; what ONNX Runtime refuses in it as well is not held against the other.
    """
    if not holds_fp16(file.model):
        return []
    error = None if plugins_of(file.model) or custom_operators(file.model) else _refusal(file.path)
    if error is not None and _INVALID.search(str(error)) and _refusal(reference.path) is None:
        return [Finding(CHECK, FAILED, _reason(file.path, error), no_node=True, facts=_node(error))]
    found = [] if error is None else [not_checked(f"whether a runtime loads the file as it is: {error}")]
    if (said := checker_refusal(file.path)) is not None:
        found.append(not_checked(str(refused(said, file.path, None))))
    return found or [Finding(CHECK, VERIFIED)]


def _refusal(path: Path) -> StageError | None:
    """What ONNX Runtime says of a file that it does not load."""
    try:
        Session(path, optimize=False).close()
    except StageError as error:
        return error
    return None


def _reason(path: Path, error: StageError) -> str:
    if not _MIXED.search(str(error)):
        return str(error)
    text = f"{path}: a node reads float16 and float32, and its operator takes one type: no runtime loads the file"
    return coded("types-mixed", f"{text}. Cast one of them. ONNX Runtime says: {error.text}")


def _node(error: StageError) -> dict[str, str]:
    """The node that ONNX Runtime names."""
    named = _NODE.search(str(error))
    return {"node": named[1]} if named else {}
