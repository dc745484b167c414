"""A comparison in a few lines: what a detector's says, and how a fault is shown."""

import re
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from tests.messages import expect
from tests.truehalf.verification.test_known_bad import SPEC, feeds, metrics, nothing, write
from truehalf.report.text import Screen, comparison_lines, listed
from truehalf.verification.chain.compare import compare
from truehalf.verification.localize.locate import Place


@dataclass(frozen=True)
class Said:
    sentence: str


def test_a_detectors_lines(tmp_path: Path) -> None:
    planted = nothing("l")
    planted[1, 0, [0, 3]] = [9, -9]
    files = write(tmp_path / "fp32.onnx"), write(tmp_path / "other.onnx", l=planted)
    report = compare(*files, feeds(), spec=SPEC, locate=False)
    report = replace(report, place=Place("", "", [], "", [Said("'/head/Add'"), *[Said("another")] * 5]))
    lines = comparison_lines(report, Screen())
    expect(lines[0], None, 3, "CPUExecutionProvider")
    (detections,) = [line for line in lines if line.startswith("detections")]
    assert re.findall(r"\d+", detections) == ["3", "4", "1", "1", "1"], "matched, of, missed, flips, extra"
    first = lines.index("  - '/head/Add'")
    assert lines[first - 1].endswith(":") and lines[first + 3].startswith("  - and 3 more")
    assert not any(line.startswith("output ") for line in lines), "figures by output are for --verbose"
    expect("\n".join(lines), "no-labels")
    lines = comparison_lines(report, Screen(is_verbose=True))
    expect("\n".join(lines), None, f"{metrics(report)['self_ap50_95']:.4f}")
    assert lines.count("  - another") == 5
    assert max(map(len, "\n".join(lines).splitlines())) <= 120


@pytest.mark.parametrize(
    "pasted",
    [
        "--node-block-list",
        "emulated-fp16-pessimistic",
        "'^/neck-1/Mul-2$'",
        "--evaluation",
        *(f"{'a-' * n}b" for n in (3, 30)),
    ],
)
@pytest.mark.parametrize("before", [60, 68, 75, 79])
def test_what_is_pasted_stands_in_one_line(pasted: str, before: int) -> None:
    text = listed(f"{'w' * before} {pasted} [needs-value]", 80)
    assert pasted in text
    assert "[needs-value]" in text


def test_many_inputs_are_one_line_and_many_reasons_are_shown_in_part(tmp_path: Path) -> None:
    numbers = range(12)
    inputs = ", ".join(f"float[N] x{i}" for i in numbers)
    outputs = ", ".join(f"float[N] y{i}, float[1] c{i}" for i in numbers)
    nodes = " ".join(f"y{i} = Neg(x{i}) c{i} = Constant <value = float[1] {{1.0}}> ()" for i in numbers)
    text = f'<ir_version: 8, opset_import: ["" : 17]> g ({inputs}) => ({outputs}) {{ {nodes} }}'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    samples = [{f"x{i}": np.full(1, i + sample, np.float32) for i in numbers} for sample in range(3)]
    report = compare(tmp_path / "m.onnx", tmp_path / "m.onnx", samples)
    assert sum("'x0'" in item for item in report.not_verified) == 1 and not any(
        "'x9'" in i for i in report.not_verified
    )
    assert len(report.reasons) == 12
    for is_verbose, shown in ((False, 3), (True, 12)):
        assert "\n".join(comparison_lines(report, Screen(is_verbose=is_verbose))).count("[input-ignored]") == shown
