"""A comparison in a few lines: what a detector's says, and how a fault is shown."""

from dataclasses import dataclass, replace
from pathlib import Path

from stages.parity.compare import compare
from stages.parity.report_text import report_text
from tests.stages.parity.test_known_bad import SPEC, feeds, nothing, write


@dataclass(frozen=True)
class Said:
    sentence: str


def test_a_detectors_lines(tmp_path: Path) -> None:
    planted = nothing("l")
    planted[1, 0, [0, 3]] = [9, -9]
    files = write(tmp_path / "fp32.onnx"), write(tmp_path / "other.onnx", l=planted)
    report = compare(*files, feeds(), spec=SPEC, locate=False)
    report = replace(report, suspects=[Said("node '/head/Add' is wrong"), *[Said("another")] * 5])
    text = report_text(report, "fp32.onnx", "other.onnx")
    assert text.startswith("failed: other.onnx against fp32.onnx\n3 samples, fp32-cpu, CPUExecutionProvider\n")
    assert "4 in the reference, 3 found again, 1 missed (1 label flips, 0 moved, 0 gone), 1 extra" in text
    assert (
        "one to one; of those above the score threshold, max |d|: logits 9, boxes 0" in text
        and "self AP     0." in text
    )
    assert "where it goes wrong:\n  - node '/head/Add' is wrong\n  - another\n  - another\n\n" in text
    assert "- average precision against true labels" in text
    assert max(len(line) for line in text.splitlines()) <= 120
