"""The page: whole, self-contained, and readable whatever of a verification is there."""

import copy
import math
import re
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from tests.messages import expect
from truehalf.report.fp32_nodes import kept_in_fp32
from truehalf.report.images import side_by_side
from truehalf.report.page import page, used_up, verification_sections

PICTURED = side_by_side(np.zeros((3, 8, 8), np.float32), {}, "digits/val/7")
STATE = {"state": "verified", "reason": "", "sizes": {"1": "verified", "8": "failed"}}
STAGE = {"evaluation": "emulated-fp16", "provider": "CPU", "samples": 60, "ap50_95": 0.8, "ap50_95_fp32": 0.801}
STAGE |= {"matched_fraction": 0.995, "nonfinite": 0, "max_abs_error": {"logits": 0.05}, "batches": STATE}
STAGE |= {"adversarial": {"state": "not verified", "reason": "random"}}
ENGINE = {"name": "engine", "state": "not verified", "reason": "no <GPU> here"}
STAGES = [{"name": "slim"} | STAGE, {"name": "cast_cleanup"} | STAGE, ENGINE]
GATE = {"gate": "matched_fraction_min", "measures": "x", "threshold": 0.99, "value": 0.5, "state": "failed"}
GATE |= {"reason": "matched_fraction is 0.5", "worst": [{"sample": "s/7", "error": "absent"}]}
SUSPECT = {"sentence": "/a overflows"}
PINS = "precision.node_block_list=['^/a$']"
VERDICT = {
    "verdict": "failed",
    "reasons": ["matched_fraction is 0.5"],
    "not_verified": ["the TensorRT engine"],
    "findings": [{"check": "batch", "state": "failed", "reason": "batch 8: 1 of 9"}, GATE],
    "place": {"suspects": [SUSPECT], "selectors": PINS},
}
PICTURE = {"file": "sample_1.svg", "sample": "digits/val/7", "reference": 3, "matched": 2, "missed": 1, "extra": 0}
PICTURE |= {"label_flips": 0, "nonfinite": 0, "box_error_px_max": 0.1, "score_error_max": 0.01}
DETAILS = {"images": [PICTURE]}
DECISIONS = [
    {"node": "/s", "op": "Softmax", "precision": "fp32", "rule": "data_max", "reason": "reads <9e4>"},
    {"node": "/a", "op": "MatMul", "precision": "fp16", "rule": "none", "reason": "no rule keeps it FP32"},
]


class Page(HTMLParser):
    """Text, addresses that a browser would load, and tags left open."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.text, self.loads, self.open, self.tags = "", [], [], set()
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        self.loads += [value for name, value in attributes if name in ("src", "href", "data", "srcset")]
        if tag not in ("meta", "link", "img", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += "" if self.open[-1:] == ["style"] else data


@pytest.fixture
def shown(tmp_path: Path):
    (tmp_path / "sample_1.svg").write_text(PICTURED)

    def shown(verdict=VERDICT, details=DETAILS, stages=STAGES, decisions=DECISIONS) -> str:
        state = {"passed": "passed", "failed": "failed"}.get(verdict["verdict"], "unknown")
        headline = {"state": state, "word": verdict["verdict"], "sentence": "", "reasons": verdict["reasons"]}
        return page(
            {"title": "t", "headline": headline, "not_verified": verdict["not_verified"], "stage_rows": stages}
            | {"outputs": ["logits"], "classifies": False}
            | verification_sections(verdict, details, tmp_path)
            | {"decisions": kept_in_fp32(decisions) if decisions else None}
        )

    return shown


def words(html: str) -> str:
    return re.sub(r"\s+", " ", Page(html.replace("</td>", " </td>")).text)


def sections(html: str) -> list[str]:
    """The text below each heading, the heading included."""
    return [re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", part))) for part in re.split("<h2[^>]*>", html)[1:]]


def test_a_whole_verification_is_shown(shown) -> None:
    html = shown()
    text = words(html)
    assert not Page(html).open
    expect(text, None, "✕ failed", *VERDICT["reasons"], *VERDICT["not_verified"])
    _, islands, suspects, pictures, gates = sections(html)
    expect(text, None, "99.50 %", ENGINE["reason"])
    expect(gates, None, "s/7", "absent", VERDICT["findings"][0]["reason"])
    expect(suspects, None, *SUSPECT.values(), PINS)
    expect(pictures, None, PICTURE["sample"], "2 of 3")
    expect(islands, None, "1 of 2", "data_max", DECISIONS[0]["node"], DECISIONS[0]["reason"])


def test_it_loads_nothing_and_runs_nothing(shown) -> None:
    html = shown()
    found = Page(html)
    assert all(address.startswith(("data:", "#")) for address in found.loads)
    assert "script" not in found.tags and "url(" not in html and "@import" not in html and "http" not in html


def test_every_stage_has_its_line_the_engine_too(shown) -> None:
    rows = re.findall(r"<tr[^>]*>\s*<th>([a-z_]+)", shown())
    assert [row for row in rows if row not in ("file", "node")] == ["slim", "cast_cleanup", "engine"]


@pytest.mark.parametrize("verdict", ["passed", "not verified"])
def test_other_verdicts(shown, verdict: str) -> None:
    html = shown(verdict=VERDICT | {"verdict": verdict, "reasons": [], "place": None})
    assert f"{verdict}" in words(html) and PINS not in words(html)
    assert len(sections(html)) == len(sections(shown())) - 1


def test_a_file_without_fp16_has_no_islands(shown) -> None:
    without = shown(decisions=None)
    assert len(sections(without)) == len(sections(shown())) - 1 and "data_max" not in without
    islands = sections(shown(decisions=[DECISIONS[1]] * 2))[1]
    expect(islands, None, 2, "FP16")
    assert "/a" not in islands, "none is listed"


def test_what_was_not_measured_is_a_dash_and_never_passed(shown) -> None:
    nothing = dict.fromkeys(STAGE, None) | {"evaluation": "emulated-fp16", "samples": 4, "max_abs_error": {}}
    nothing |= {"batches": {"state": "not verified", "reason": "x", "sizes": {}}}
    nothing |= {"adversarial": {"state": "not verified", "reason": "x"}, "nonfinite": 0}
    details = {"images": []}
    open_gate = GATE | {"value": None, "state": "not verified", "reason": "it was not verified: random weights"}
    verdict = VERDICT | {"verdict": "not verified", "findings": [open_gate], "place": None}
    html = shown(stages=[{"name": "cast_cleanup"} | nothing], verdict=verdict, details=details)
    assert "✓" not in words(html) and words(html).count("not verified") >= 4 and "–" in words(html)


@pytest.mark.parametrize(
    ("gate", "value", "limit", "expected"),
    [
        *[("x_max", 0.0, 0.0, 0.0), ("x_max", 3.0, 0.0, math.inf), ("x_max", 0.3, 0.6, 0.5), ("x_max", -1.0, 2.0, 0.0)],
        *[("x_min", 1.0, 0.99, 0.0), ("x_min", 0.98, 0.99, 2.0), ("x_max", None, 1.0, None), ("x_min", 1.0, 1.5, None)],
    ],
)
def test_how_much_of_a_limit_is_used_up(gate: str, value: float | None, limit: float, expected: float | None) -> None:
    assert used_up({"gate": gate, "value": value, "threshold": limit}) == pytest.approx(expected)


def test_equal_facts_give_an_equal_page(shown) -> None:
    assert shown() == shown(copy.deepcopy(VERDICT), copy.deepcopy(DETAILS))


def test_a_classifier_is_shown_by_its_best_classes_alone(shown) -> None:
    classes = STAGE | {"top1_agreement": 1, "matched_fraction": None}
    verdict = VERDICT | {"findings": [GATE | {"gate": "label_flips_max"}]}
    html = shown(verdict=verdict, stages=[{"name": "cast_cleanup"} | classes])
    assert "AP50-95" not in html


def test_a_page_of_nothing_but_a_headline() -> None:
    headline = {"state": "unknown", "word": "not verified", "sentence": "Nothing was compared.", "reasons": []}
    html = page({"title": "out.onnx", "headline": headline})
    assert not Page(html).open and "<h2" not in html and headline["sentence"] in words(html)
