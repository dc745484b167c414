"""truehalf convert: slim, calibrate, convert, clean the casts, verify."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from truehalf.cli.form import (
    FAILED,
    NOT_VERIFIED,
    PASSED,
    Command,
    guarded,
    image_options,
    option,
    precision_of,
    precision_options,
    preprocessing_of,
    save_json,
    show,
    terminal_width,
)
from truehalf.codes import coded
from truehalf.config.precision import Precision

if TYPE_CHECKING:
    from truehalf.api import Result
    from truehalf.data.given import Split
    from truehalf.verification.compare.compare import Report

_EXAMPLES = (
    "truehalf convert model.onnx --samples images/ -o model_fp16.onnx",
    "truehalf convert model.onnx --samples feeds.npz -o out.onnx --op-block-list Softmax",
    "truehalf convert model.onnx -o out.onnx            (no samples: not verified, exit 3)",
)
_NO_SAMPLES = coded(
    "needs-value",
    "no samples were given: converted by the rules that need none (weights, lists, graph), and nothing was compared",
)
_SHARED = coded(
    "too-few-samples",
    "there is one sample alone, and the conversion was calibrated on it: that it passes proves nothing of others",
)
_NOTHING = coded(
    "wrong-file",
    "none of its float nodes is FP16: what passed is the FP32 model; --verbose names the rule of each node",
)
_VERDICTS = {"passed": PASSED, "failed": FAILED, "not verified": NOT_VERIFIED}


@click.command(cls=Command, examples=_EXAMPLES)
@click.argument("model", type=click.Path(path_type=Path), metavar="model.onnx")
@option("-o", "--out", type=click.Path(path_type=Path), required=True, metavar="FILE", help="FP16 file to write")
@option(
    "--samples", metavar="SOURCE", help="real inputs: folder of images, .npz or a folder of them, Polygraphy's JSON"
)
@option("--no-verify", is_flag=True, help="convert alone")
@option("--json", "json_path", type=click.Path(path_type=Path), metavar="FILE", help="the whole result, for machines")
@option("--quiet", is_flag=True, help="the verdict alone")
@option("--verbose", is_flag=True, help="every node that stays FP32, with its reason")
@option("--ranges", type=click.Path(path_type=Path), metavar="FILE", group="Samples", help="of `truehalf calibrate`")
@option("--calibration-samples", type=click.IntRange(1), default=32, show_default=True, group="Samples", help="at most")
@option(
    "--verification-samples", type=click.IntRange(1), default=32, show_default=True, group="Samples", help="at most"
)
@option("--no-slim", is_flag=True, group="Conversion", help="the file is slim already")
@image_options
@precision_options
def command(**given: Any) -> int:
    """Convert an FP32 ONNX file to FP16, and verify it on samples that calibration did not see."""
    return guarded("convert", lambda: _convert(given))


def _convert(given: dict[str, Any]) -> int:
    from truehalf.api import compare, convert
    from truehalf.output_paths import check_outputs

    precision, preprocessing = precision_of(given), preprocessing_of(given)
    model, out, samples, ranges = (given[name] for name in ("model", "out", "samples", "ranges"))
    check_outputs({"--out": out, "--json": given["json_path"]}, {"model.onnx": model, "--samples": samples})
    shared = None if samples is None else _shared_out(given, preprocessing)
    share = None if shared is None else shared[1]
    seen = None if shared is None or ranges is not None else shared[0].only(shared[1].calibration)
    with tempfile.TemporaryDirectory(prefix="truehalf-") as folder:
        slimmed = _slimmed(model, Path(folder)) if not given["no_slim"] and ranges is None else model
        result = convert(slimmed, out, samples=seen, ranges=ranges, slim=False, precision=precision)
    report = None
    if shared is not None and not given["no_verify"]:
        report = compare(model, out, shared[0].only(shared[1].verification))
    verdict, reasons = _verdict(report, share, given["no_verify"], ranges is not None)
    if verdict == "passed" and not result.report["cast_cleanup"]["model"]["fp16_nodes"]:
        verdict, reasons = "not verified", [_NOTHING]
    save_json(given["json_path"], _content(model, out, result, report, share, precision) | {"verdict": verdict})
    lines = [f"{verdict}: {out}" + (f": {reasons[0]}" if reasons and report is None else "")]
    if not given["quiet"]:
        lines += ["", *_table(model, out, result, share)]
        lines += ["", *_fp32_nodes(result.decisions, given["verbose"])]
        lines += _verification(report, model, out, reasons)
    show("\n".join(lines))
    return _VERDICTS[verdict]


def _slimmed(model: Path, folder: Path) -> Path:
    from truehalf.slimming.slim import slim

    slim(model, folder / "slim.onnx")
    return folder / "slim.onnx"


def _shared_out(given: Mapping[str, Any], preprocessing: Any) -> tuple[Any, Split]:
    from truehalf.data.given import of_file, split

    feeds = of_file(given["samples"], given["model"], preprocessing)
    return feeds, split(len(feeds.names), given["calibration_samples"], given["verification_samples"])


def _verdict(report: Report | None, share: Split | None, skipped: bool, ranges: bool) -> tuple[str, list[str]]:
    """The verdict, and why it is not "passed" where the comparison does not say it."""
    if report is None:
        return "not verified", [coded("needs-value", "--no-verify: nothing was compared") if skipped else _NO_SAMPLES]
    if report.passed and share is not None and share.is_shared and not ranges:
        return "not verified", [_SHARED]
    return report.verdict, []


def _content(
    model: Path, out: Path, result: Result, report: Report | None, share: Split | None, precision: Precision
) -> dict[str, Any]:
    from truehalf.config.typed import plain

    return {
        "model": str(model),
        "out": str(out),
        "samples": None if share is None else vars(share),
        "precision": plain(precision),
        "conversion": dict(result.report),
        "decisions": list(result.decisions),
        "comparison": None if report is None else report.as_dict(),
    }


def _table(model: Path, out: Path, result: Result, share: Split | None) -> list[str]:
    from truehalf.ir.facts import model_facts
    from truehalf.ir.model_file import load_model, model_size_mb

    before, fp16 = model_facts(load_model(model)), result.report["fp16"]
    after, casts = result.report["cast_cleanup"]["model"], result.report["cast_cleanup"]["casts_after"]
    arithmetic = fp16.get("fp16_arithmetic")
    rows = [
        ("size", f"{model_size_mb(model):.1f} MB", f"{model_size_mb(out):.1f} MB"),
        ("nodes", str(before["nodes"]), str(after["nodes"])),
        ("casts", str(before["casts"]), str(casts)),
        ("FP16 share of arithmetic", "", "-" if arithmetic is None else f"{100 * arithmetic:.1f} %"),
    ]
    width = max(len(row[0]) for row in rows)
    lines = [f"{'':{width}}  {'FP32':>10}  {'FP16':>10}"]
    lines += [f"{name:{width}}  {a:>10}  {b:>10}".rstrip() for name, a, b in rows]
    if share is not None:
        used = f"{len(share.calibration)} calibrated, {len(share.verification)} verified, of {share.total}"
        lines.append(f"{'samples':{width}}  {used}{'; the same one' if share.is_shared else '; none in both'}")
    return lines


def _fp32_nodes(decisions: Sequence[Mapping[str, Any]], verbose: bool) -> list[str]:
    kept = [row for row in decisions if row["precision"] == "fp32"]
    rules = Counter(row["rule"] for row in kept)
    lines = [
        f"FP32 nodes: {len(kept)}" + (f" ({', '.join(f'{r} {n}' for r, n in rules.most_common())})" if kept else "")
    ]
    return lines + (
        [f"  {row['node']} ({row['op']}): {row['rule']}: {row['reason']}" for row in kept] if verbose else []
    )


def _verification(report: Report | None, model: Path, out: Path, reasons: Sequence[str]) -> list[str]:
    if report is None:
        return []
    from truehalf.report.text import report_text

    return ["", *(f"why: {reason}" for reason in reasons), report_text(report, model, out, terminal_width())]
