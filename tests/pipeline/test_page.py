"""The page renders from whatever of a run is there, loads nothing, and says in words what was and was not verified."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from pipeline.page import content as content_of
from pipeline.page import headline as headline_of
from pipeline.page import tiles as tiles_of
from pipeline.run_record import Crash, Run
from tests.configurations import write_params
from tests.messages import expect
from tests.truehalf.report.test_engine import BUILT
from truehalf.codes import codes_in
from truehalf.report.images import side_by_side
from truehalf.report.page import page as page_of
from truehalf.report.result import WORDS

PICTURE = side_by_side(np.zeros((3, 8, 8), np.float32), {}, "digits/val/7")
STAGE = {"evaluation": "emulated-fp16", "provider": "CPUExecutionProvider", "samples": 60, "ap50": 0.95, "ap50_95": 0.8}
STAGE |= {"ap50_95_fp32": 0.801, "matched_fraction": 0.995, "nonfinite": 0, "max_abs_error": {"logits": 0.05}}
VERIFY = {
    **{"stage": "verify", "status": "done", "verdict": "passed", "reasons": [], "seconds": 40.0},
    **{"evaluation": "emulated-fp16", "provider": "CPUExecutionProvider", "samples": 60},
    **{"ap50": 0.95, "ap50_fp32": 0.951, "ap50_95": 0.8, "ap50_95_fp32": 0.801, "ap50_95_drop": 0.001},
    **{"matched_fraction": 0.995, "reference": 200, "matched": 199, "missed": 1, "extra": 0, "label_flips": 0},
    **{"box_error_px_p99": 0.1, "box_error_px_max": 0.2, "score_error_p99": 0.01, "score_error_max": 0.02},
    **{"max_abs_error": {"logits": 0.05}, "nan": 0, "inf": 0, "stages": {"slim": STAGE, "cast_cleanup": STAGE}},
    "not_verified": ["the TensorRT engine: this stage judges the ONNX file"],
}
MODEL = {"nodes": 1000, "casts": 3, "float_nodes": 900, "fp16_nodes": 890, "fp16_fraction": 890 / 900, "size_mb": 5.85}
GATES = [
    {"gate": "matched_fraction_min", "measures": "x", "threshold": 0.99, "value": 0.5, "state": "failed"}
    | {"reason": "matched_fraction is 0.5", "worst": [{"sample": "s/7", "error": "missed 1"}]},
    {
        "gate": "nonfinite_max",
        "measures": "y",
        "threshold": 0,
        "value": None,
        "state": "not verified",
        "reason": "not measured",
    },
]
REPORTS = {
    "trace": {"status": "done", "seconds": 10.0, "model": MODEL},
    "slim": {"status": "done", "seconds": 10.0, "model": MODEL | {"size_mb": 11.3}},
    "calibrate": {"status": "done", "seconds": 5.0},
    "fp16": {"status": "done", "seconds": 1.0, "model": MODEL},
    "cast_cleanup": {"status": "done", "seconds": 1.0, "model": MODEL},
    "verify": VERIFY,
    "engine": {
        **{"status": "planned", "reason": "no NVIDIA GPU"},
        "plan": {"trtexec": "trtexec --onnx=m", "trtexec_10": "trtexec --onnx=m --stronglyTyped"},
    },
    "inputs": {"machine": {"gpus": None, "tensorrt": None, "onnxruntime": "1.31.1"}},
}
DECISIONS = [
    {"node": "/head/Softmax", "op": "Softmax", "precision": "fp32", "rule": "data_max", "reason": "reads <9e4>"},
    {"node": "/head/MatMul", "op": "MatMul", "precision": "fp16", "rule": "none", "reason": "no rule keeps it FP32"},
]


def content(folder: Path, previous: Path | None = None):
    return content_of(Run.read(folder), Run.read(previous) if previous else None)


def render(folder: Path, previous: Path | None = None) -> str:
    return page_of(content(folder, previous))


def headline(*, crash: Crash | None = None, engine=None, params=None, **verify):
    """The headline of a run whose verify and engine reported this."""
    reports = {"verify": VERIFY | verify, "engine": engine or REPORTS["engine"]}
    return headline_of(Run(Path("nowhere"), params or {"precision": {"dtype": "fp16"}}, reports, crash))


def write(path: Path, value) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(value) if isinstance(value, bytes) else path.write_text(
        value if isinstance(value, str) else json.dumps(value)
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_params(tmp_path)
    for stage, report in REPORTS.items():
        write(tmp_path / "reports" / f"{stage}.json", {"stage": stage} | report)
    write(tmp_path / "artifacts/fp16/decisions.json", DECISIONS)
    verify = tmp_path / "artifacts/verify"
    picture = {"file": "plots/sample_1.svg", "sample": "digits/val/7", "reference": 3, "matched": 2, "missed": 1}
    picture |= {"extra": 0, "label_flips": 0, "nonfinite": 0, "box_error_px_max": 0.1, "score_error_max": 0.01}
    write(verify / "details.json", {"images": [picture]})
    write(verify / "verdict.json", {"verdict": "passed", "findings": GATES})
    write(verify / "plots/sample_1.svg", PICTURE)
    return tmp_path


class Page(HTMLParser):
    """Text, addresses that a browser would load, and tags left open."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.text, self.loads, self.open = "", [], []
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.loads += [value for name, value in attributes if name in ("src", "href", "data", "srcset")]
        if tag not in ("meta", "link", "img", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def test_a_whole_run_is_shown(folder):
    page = Page(render(folder))
    text = re.sub(r"\s+", " ", page.text)
    assert not page.open
    shown = content(folder)
    said, engine = shown["headline"]["sentence"], shown["engine"]["sentence"]
    expect(said, None, 199, 200, 60, "AP50-95", "0.8000", "0.8010")
    expect(engine, None, "no NVIDIA GPU")
    for expected in (
        *(WORDS["passed"], said, engine, "--stronglyTyped", "/head/Softmax", "digits/val/7", "99.50 %", "params.yaml"),
        *(
            "matched_fraction is 0.5",
            "ltdetr_nano · dfine · fp16",
            "share of FP32's detections that are found again",
        ),
    ):
        assert expected in text, expected
    assert re.search(r"s/7\W+missed 1", text)
    html = render(folder)
    assert 'class="card verdict passed"' in html
    assert re.search(r"\b1 of 2 nodes\b.*? FP32", text)
    assert re.search(r"<b>digits/val/7</b>\s+2\D+3\b", html), "detections of a picture"
    assert "reads <9e4>" in text, "text is escaped"


def test_the_page_loads_nothing(folder):
    html = render(folder)
    assert all(address.startswith(("data:", "#")) for address in Page(html).loads)
    assert "url(" not in html.replace("url(#", "") and "@import" not in html


@pytest.mark.parametrize("missing", list(REPORTS))
def test_it_renders_without_each_report(folder, missing):
    (folder / "reports" / f"{missing}.json").unlink()
    assert not Page(render(folder)).open


@pytest.mark.parametrize("missing", ["verdict.json", "details.json"])
def test_it_renders_without_each_artifact(folder, missing):
    (folder / "artifacts" / "verify" / missing).unlink()
    assert not Page(render(folder)).open


def test_it_renders_from_nothing(tmp_path):
    html, shown = render(tmp_path), content(tmp_path)
    assert not Page(html).open and 'class="card verdict unknown"' in html
    expect(shown["headline"]["sentence"], None, "verify")
    assert shown["engine"]["facts"] == [] and "engine" in shown["engine"]["sentence"]
    for said in (WORDS["unknown"], shown["headline"]["sentence"], shown["engine"]["sentence"]):
        assert said in Page(html).text


def test_a_broken_report_is_left_out(folder):
    write(folder / "reports" / "verify.json", '{"verdict": "pas')
    assert content(folder)["headline"]["state"] == "unknown"


def test_a_crash_is_said_and_older_reports_are_not_shown(folder):
    write(folder / "reports" / "error.json", {"stage": "fp16", "message": "no space left"})
    shown = content(folder)
    assert shown["headline"]["state"] == "failed" and shown["headline"]["word"] == WORDS["stopped"]
    assert shown["headline"]["reasons"] == ["no space left"] and "fp16" in shown["headline"]["sentence"]
    status = {row["stage"]: row["status"] for row in shown["stages"]}
    assert status["slim"] == "done" and status["fp16"] == "failed" and status["verify"] == "not run"
    assert not shown["stage_rows"] and not shown["findings"] and not shown["images"]
    assert "no space left" in render(folder)


def test_a_crash_after_verify_does_not_hide_its_verdict():
    said = headline(crash=Crash("engine", "no memory"), verdict="failed")
    assert said["word"] == WORDS["stopped"]
    expect(said["sentence"], None, "engine", "verify", "failed")


@pytest.mark.parametrize(
    ("verdict", "state"), [("passed", "passed"), ("failed", "failed"), ("not verified", "unknown")]
)
def test_the_headline_follows_the_verdict(verdict, state):
    said = headline(verdict=verdict, reasons=["because"], status="failed" if verdict == "failed" else "done")
    assert (said["state"], said["word"]) == (state, WORDS[state])
    assert said["reasons"] == {"passed": [], "failed": ["verify: because"], "unknown": ["because"]}[state]


def test_the_words_of_headlines_differ():
    assert len(set(WORDS.values())) == len(WORDS) == 4


def test_an_unverified_run_with_none_for_numbers_renders(folder):
    empty = dict.fromkeys([*STAGE], None) | {
        "samples": 4,
        "nonfinite": 0,
        "evaluation": "emulated-fp16",
        "max_abs_error": {},
    }
    unknown = {k: None for k, v in VERIFY.items() if isinstance(v, (int, float)) and k != "samples"}
    report = VERIFY | unknown | {"verdict": "not verified", "nan": 0, "inf": 0}
    write(folder / "reports" / "verify.json", report | {"stages": {"slim": empty, "cast_cleanup": empty}})
    assert 'class="card verdict unknown"' in render(folder)


def test_infinite_errors_render(folder):
    broken = STAGE | {"max_abs_error": {"logits": "inf"}, "nonfinite": 33600}
    write(folder / "reports" / "verify.json", VERIFY | {"verdict": "failed", "stages": {"cast_cleanup": broken}})
    assert "∞" in Page(render(folder)).text


def test_equal_results_give_an_equal_page(folder):
    assert render(folder) == render(folder)


def test_casts_that_were_placed_stand_beside_those_of_a_naive_placement():
    costs = {"placed": {"casts": 15}, "naive": {"casts": 21}}
    reports = {
        "cast_cleanup": {"model": MODEL | {"nodes": 900, "casts": 33}},
        "fp16": {"fp16_arithmetic": 0.9996, "costs": costs},
    }
    run = Run(Path("nowhere"), {}, reports | {"slim": {"model": {"casts": 18}}})
    (note,) = (tile["note"] for tile in tiles_of(run) if tile["value"] == "99.9 %")
    assert re.findall(r"\d+", note)[-2:] == ["15", "21"] and re.search(r"without.*\b21\b", note)


def test_the_engine_is_a_stage_that_nobody_verified(folder):
    text = re.sub(r"\s+", " ", Page(render(folder)).text)
    assert re.search(r"engine not verified [^:]*: no NVIDIA GPU \[no-engine\]", text)


def test_an_engine_that_was_measured_is_a_stage_with_its_numbers_and_latency(folder):
    write(folder / "reports/engine.json", {"stage": "engine", "seconds": 3.0} | BUILT)
    page = Page(render(folder).replace("</td>", " </td>").replace("</th>", " </th>"))
    text = re.sub(r"\s+", " ", page.text)
    assert not page.open
    for expected in (
        content(folder)["engine"]["sentence"],
        f"{content(folder)['engine']['latency'][0]['where']} 1.5 1.7 1.8 7.0 % 600",
        "engine verified tensorrt 60 100 % 0.8000 0.8000 0.1 0",
        "dynamic-topk /head/TopK k varies. Fix k.",
    ):
        assert expected in text, expected
    expect(content(folder)["engine"]["sentence"], None, "TensorRT 11.4.0.106", "12.35 MB", "95.0 %")
    assert text.count("dynamic-topk") == 4 and re.search(r"<summary>[^<]*\b4\b", render(folder)), "findings of lint"
    assert "this stage judges the ONNX file" not in text and "no-engine" not in codes_in(text)


def test_an_engine_that_failed_fails_the_headline_and_says_why_in_its_row(folder):
    reasons = ["fp16 was declared and none of the engine's 200 layers has a Half output"]
    engine = BUILT | {"status": "failed", "reason": reasons[0], "reasons": reasons}
    said = headline(engine=engine)
    assert (said["state"], said["reasons"]) == ("failed", [f"engine: {reason}" for reason in reasons])
    expect(said["sentence"], None, "engine")
    write(folder / "reports/engine.json", {"stage": "engine", "seconds": 3.0} | engine)
    text = re.sub(r"\s+", " ", Page(render(folder)).text)
    assert text.count(reasons[0]) >= 3 and "artifacts/engine" in text


def test_a_plan_for_tensorrt_is_shown_for_each_trtexec(folder):
    """11's line has no flag that makes a network strongly typed: TensorRT 10 would build another engine from it."""
    text = re.sub(r"\s+", " ", Page(render(folder)).text)
    eleven, ten = (rf"TensorRT {version}\b[^-]*trtexec \\ --onnx=m" for version in (11, 10))
    assert re.search(rf"{eleven} [^-]*{ten} \\ --stronglyTyped", text)


CLOCKS = {"sm_mhz": 1590.0, "sm_max_mhz": 1980.0, "memory_mhz": 2619.0, "temperature_c": 61.0}
CLOCKS |= {"power_w": 310.25, "performance_state": "P0"}


FACTS = {
    **{"compiler": "TensorRT 11.4", "targets": [], "layers": 2, "fused_attention": 0, "attention_regions": 0},
    **{"attention_not_fused": [], "computed_in_fp32": [], "file_half_arithmetic": 1.0, "half_arithmetic": 0.5},
}
LAYERS = [
    {"name": "a", "type": "x", "types": ["Half"], "onnx_nodes": ["/head/act/Relu"]},
    {"name": "b", "type": "x", "types": ["Half", "Float"], "onnx_nodes": []},
]


def test_the_proof_of_an_engine_is_shown(folder):
    timed = {"profile": 0, "points": ["min", "opt"], "shapes": {"x": [1, 1]}, "p50_ms": 1.5, "p95_ms": 1.7}
    timed |= {"p99_ms": 1.8, "rounds": [1.5, 1.6], "spread": 0.07, "samples": 1, "throughput_per_s": 600.0}
    report = {"status": "built", "provider": "tensorrt", "engine_mb": 1.25, "build_seconds": 2.0}
    report |= {"layer_table": LAYERS, "device_memory_mb": 3.0, "compiled": FACTS}
    report |= {"precision": {"declared": "fp16", "float_nodes": 1, "fp16_nodes": 1, "fp16_fraction": 1.0}}
    report |= {"parity": {"state": "verified", "reason": ""}, "latency": [timed | {"clocks": CLOCKS}]}
    report |= {"warnings": ["Detected <subnormal> FP16 values."], "plan": {"trtexec": "trtexec"}}
    write(folder / "reports/engine.json", {"stage": "engine", "seconds": 3.0} | report)
    html = render(folder)
    page = Page(html.replace("</td>", " </td>").replace("</th>", " </th>").replace("</dt>", " </dt>"))
    text = re.sub(r"\s+", " ", page.text.replace("</dd>", " "))
    assert not page.open
    engine = content(folder)["engine"]
    facts, clocks = dict(engine["facts"]), engine["latency"][0]["clocks"]
    expect(facts["precision"], None, "fp16")
    assert re.search(r"\b1\D+1\b", facts["precision"]), "nodes in the file"
    expect(facts["in Half"], None, "50.0 %", "100 %")
    assert re.findall(r"[\d.]+", clocks) == ["1590", "1980", "2619", "61", "310.25", "0"]
    expect(clocks, None, "1980 MHz", "2619 MHz", "61 °C", "310.25 W", "P0")
    for expected in (
        *(clocks, facts["precision"], facts["in Half"]),
        "2 layer type inputs and outputs ONNX nodes in it",
        "b x Half, Float",
        "1 Detected <subnormal> FP16 values.",
    ):
        assert expected in text, expected
    for name in ("build", "memory"):
        assert re.search(rf"<dt>{name}</dt><dd>[\d.e−]+ (s|MB)", html), name
    assert "trtexec" not in text, "there is an engine"


def test_an_engine_that_tells_nothing_is_said_to_tell_nothing(folder):
    report = {"status": "failed", "reason": "it does not load", "parity": {"state": "failed", "reason": "not loaded"}}
    report |= {"compiled": FACTS | {"layers": None, "fused_attention": None, "half_arithmetic": None}}
    write(folder / "reports/engine.json", {"stage": "engine", "seconds": 3.0} | report)
    html = render(folder)
    for name in ("in Half", "layers"):
        assert re.search(rf"<dt>{name}</dt><dd>[^\d<]+</dd>", html), name
    assert '<table class="layers">' not in html


def test_an_open_requirement_fails_the_headline():
    said = headline(params={"precision": {"dtype": "fp16"}, "verify": {"require": ["engine"]}})
    assert (said["state"], said["word"]) == ("failed", WORDS["failed"])
    (reason,) = said["reasons"]
    expect(reason, "no-engine", "verify.require", "engine")


# --- the run before ---------------------------------------------------------------------------------------------------


def test_options_and_figures_that_differ_from_the_run_before_are_shown(folder, tmp_path_factory):
    earlier = tmp_path_factory.mktemp("earlier")
    write_params(earlier, "precision.data_max=128")
    for stage in ("inputs", "engine"):
        write(earlier / f"reports/{stage}.json", REPORTS[stage])
    write(earlier / "reports/verify.json", VERIFY | {"ap50_95": 0.79, "matched_fraction": 0.5})
    shown = content(folder, earlier)["previous"]
    assert [row["name"] for row in shown["options"]] == ["precision.data_max"]
    assert (shown["options"][0]["before"], shown["options"][0]["now"]) == ("128", "null")
    figures = {row["name"]: (row["before"], row["now"]) for row in shown["figures"]}
    assert figures["AP50-95"] == ("0.7900", "0.8000") and figures["detections matched"] == ("50.00 %", "99.50 %")
    assert "verdict" not in figures
    assert 'id="previous"' in render(folder, earlier) and "precision.data_max" in render(folder, earlier)
    assert content(folder)["previous"] is None
    write(folder / "reports/error.json", {"stage": "engine", "message": "no"})
    assert content(folder, earlier)["previous"] is None, "a run that crashed compares nothing"


# --- the data ---------------------------------------------------------------------------------------------------------

HASH = "0123456789abcdef" * 4
SPEC = {
    "inputs": [
        {
            **{"name": "pixels", "kind": "images", "shape": ["batch", 3, 480, 640], "size": [480, 640]},
            **{"resize": "letterbox", "resample": "bicubic", "channels": "BGR", "range": [0, 255], "layout": "NCHW"},
            "normalization": {"mean": [1, 2.5, 3], "std": [4, 5, 6], "where": "before the graph"},
        },
        {"name": "size", "kind": "picture_size", "shape": ["batch", 2]},
    ]
}


def used(count, **more):
    files = [{"file": f"deep/{number}.png", "sha256": HASH} for number in range(count)]
    return {"samples": count, "sha256": HASH, "files": files} | more


def write_inputs(folder: Path, count: int = 5) -> None:
    labels = {"annotations": {"file": "boxes.json", "bytes": 9, "sha256": HASH}}
    left_out = {"boxes without an area": ["annotations[1] of 1.png"]}
    purposes = {"trace": used(2), "calibration": used(3), "verification": used(count, **labels)}
    data = {"source": "coco", "left_out": left_out}
    write(folder / "reports/inputs.json", {"stage": "inputs", "status": "done", **purposes, "data": data})
    write(folder / "reports/trace.json", {"stage": "trace", "status": "done"})
    write(folder / "artifacts/trace/io_spec.json", SPEC)


def test_files_counts_and_preprocessing(tmp_path):
    write_inputs(tmp_path)
    data = content(tmp_path)["data"]
    assert data["source"] == "coco"
    assert [(row["samples"], row["files"]) for row in data["rows"]] == [(2, 2), (3, 3), (5, 5)]
    names = data["rows"][2]["names"]
    expect(names, None, "deep/0.png", "deep/1.png", "deep/2.png", "boxes.json", "0123456789ab")
    assert "deep/3.png" not in names and re.findall(r" (\d+) ", names) == ["2"], "so many more"
    assert data["rows"][2]["sha256"] == HASH[:12]
    (pixels,) = data["preprocessing"]
    assert pixels["input"] == "pixels"
    expect(pixels["steps"], None, "480", "640", "letterboxed", "bicubic", "BGR", "0", "255", "NCHW")
    expect(pixels["steps"], None, "mean 1, 2.5, 3", "std 4, 5, 6", "before the graph")
    assert data["left_out"] == [{"reason": "boxes without an area", "count": 1, "names": "annotations[1] of 1.png"}]


def test_made_samples_have_no_files_and_functions_their_code(tmp_path):
    made = {"samples": 4, "sha256": HASH, "files": []}
    code = made | {"code": {"function": "mine:sample", "sha256": HASH}}
    report = {"trace": made, "verification": code, "data": {"source": "function", "left_out": {}}}
    write(tmp_path / "reports/inputs.json", report)
    data = content(tmp_path)["data"]
    assert data["preprocessing"] == []
    assert (data["rows"][0]["sha256"], data["rows"][0]["files"]) == ("–", None) and data["rows"][0]["names"]
    assert data["rows"][1]["sha256"] == HASH[:12]
    expect(data["rows"][1]["names"], None, "mine:sample", "0123456789ab")


def test_the_page_counts_files_and_says_where_all_are_listed(tmp_path):
    write_inputs(tmp_path, 2003)
    html = render(tmp_path)
    assert re.search(r"2\u202f003", html) and "reports/inputs.json" in html and "deep/1999.png" not in html
    assert re.search(r"boxes without an area\W+1\b", html)
