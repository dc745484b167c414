"""Data section of the report: number of samples, files with their hashes, how images become inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from pipeline.forms import Inputs, Source
from truehalf.errors import some_of

if TYPE_CHECKING:
    from truehalf.provenance.fingerprints import SamplesPrint

_PURPOSES = {"trace": "to trace on", "calibration": "to calibrate with", "verification": "to verify with"}
_FIRST = 3
_LISTED = 2000  # files of a purpose on the page; all of them stand in reports/inputs.json
_RESIZED = {"stretch": "stretched", "letterbox": "letterboxed"}


def data_of(inputs: Inputs | None, spec: Mapping[str, Any] | None) -> dict[str, object] | None:
    """{source, rows, files, left_out, preprocessing} for the page; None where the stage inputs has not run.

    Args:
        inputs: reports/inputs.json.
        spec: the model's I/O spec, where trace has run.
    """
    found = {purpose: cast("SamplesPrint | None", inputs.get(purpose)) for purpose in _PURPOSES} if inputs else {}
    used = {purpose: each for purpose, each in found.items() if isinstance(each, dict)}
    if not inputs or not used:
        return None
    source: Source = inputs.get("data", {})
    return {
        "source": source.get("source", ""),
        "rows": [_row(purpose, each) for purpose, each in used.items()],
        "files": [(_PURPOSES[purpose], each["files"]) for purpose, each in used.items() if each.get("files")],
        "listed": _LISTED,
        "left_out": [
            {"reason": reason, "count": len(names), "names": some_of(names, _FIRST)}
            for reason, names in source.get("left_out", {}).items()
        ],
        "preprocessing": [
            {"input": entry["name"], "steps": _preprocessing(entry)}
            for entry in (spec["inputs"] if spec else [])
            if entry.get("kind") == "images"
        ],
    }


def _row(purpose: str, used: SamplesPrint) -> dict[str, Any]:
    files, labels, code = used.get("files", []), used.get("annotations"), used.get("code")
    names = some_of((entry["file"] for entry in files), _FIRST) or ("" if code else "made, not read")
    if labels:
        names += f"; labels from {labels['file']} ({labels['sha256'][:12]})"
    if code:
        names = f"made by {code['function']} ({code['sha256'][:12]}); the digest is of all samples"
    known = files or code
    return {
        "purpose": _PURPOSES[purpose],
        "samples": used.get("samples"),
        "files": len(files) if files else None,
        "sha256": str(used.get("sha256", ""))[:12] if known else "–",
        "names": names,
    }


def _preprocessing(entry: Mapping[str, Any]) -> str:
    """Of an input of kind images in an I/O spec."""
    height, width = entry.get("size") or entry["shape"][2:4]
    low, high = entry.get("range") or (0, 1)
    words = [f"{height} × {width} pixels", _RESIZED.get(str(entry.get("resize")), str(entry.get("resize")))]
    words += [str(entry["resample"])] if entry.get("resample") else []
    words += [str(entry.get("channels")), f"{low} to {high}", str(entry.get("layout"))]
    normalization = entry.get("normalization")
    if normalization:
        mean, std = (", ".join(f"{value:g}" for value in normalization[key]) for key in ("mean", "std"))
        words.append(f"mean {mean}, std {std} {normalization.get('where', '')}".rstrip())
    return "; ".join(words)
