"""truehalf beside AutoCast, ONNX Runtime's float16 and onnxconverter-common: time, memory, casts, errors.

    make bench-peers bench-lightly
    python -m benchmarks.models benchmarks/build/models
    .venv-lightly/bin/python -P benchmarks/lightly.py benchmarks/build/models
    python -m benchmarks.converters benchmarks/build/models

One model after the other, the subjects in turn, each in a fresh process, given the same sample and the same types of
inputs and outputs (float16, AutoCast's default; --keep-io-types keeps them float32). "At X's pins" means: exactly the
nodes that X left in FP32 stay FP32, or exactly X's block list, and no other rule.

Writes benchmarks/results/converters.json, one entry per model and subject (others stay), and prints the tables.
This process stays small on purpose: see tests/measuring/process.py.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.measuring.process import Usage, measured

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "converters.json"
_PEER = str(ROOT / "benchmarks" / "peer.py")
PEERS = ROOT / ".venv-peers" / "bin" / "python"
# Of `transformers`, with random weights.
ZOO = (
    *("rt_detr", "rt_detr_v2", "d_fine", "deimv2", "lw_detr"),
    *("detr", "conditional_detr", "yolos", "vit_classifier", "resnet_classifier"),
)
MODELS = (
    *("dfine640", "rtdetrv2640", "nano_dfine", "nano_rtdetrv2", "vitt16_dfine", "vitt16_rtdetrv2", "matmuls"),
    *ZOO,
)
NO_SAMPLE = ("matmuls",)  # converted by truehalf without calibration; AutoCast cannot do without
_TIMEOUT_S = 1800.0

# Of ONNX Runtime 1.31.1 and onnxconverter-common 1.16.0, as far as ONNX's own operators go.
ORT_BLOCKED = (
    "NonMaxSuppression",
    "TopK",
    "RoiAlign",
    "Range",
    "CumSum",
    "Min",
    "Max",
    "Upsample",
    "RandomUniformLike",
)
LIGHTLY_BLOCKED = (*ORT_BLOCKED, "Softmax", "MatMul")
CONVERTER_COMMON_BLOCKED = (*ORT_BLOCKED, "Resize")
_LISTS_ALONE = {"rules": "autocast", "data_max": None, "init_max": None}


@dataclass(frozen=True)
class Subject:
    """A converter with its options.

    Attributes:
        name: as in the tables.
        tool: of peer.py, or truehalf.
        options: keywords of that tool.
        pins_of: the subject whose FP32 nodes become node_block_list.
    """

    name: str
    tool: str
    options: Mapping[str, Any] = field(default_factory=dict)
    pins_of: str | None = None


COPY = Subject("cp of the same files", "cp")  # what a conversion of 3 GB is held against
SUBJECTS = (
    Subject("AutoCast", "autocast"),
    Subject("truehalf, AutoCast's rules", "truehalf", {"rules": "autocast"}),
    Subject("truehalf, AutoCast's pins", "truehalf", _LISTS_ALONE, pins_of="AutoCast"),
    Subject("AutoCast, Softmax pinned", "autocast", {"op_types_to_exclude": ["Softmax"]}),
    Subject(
        "truehalf, AutoCast's rules, Softmax pinned", "truehalf", {"rules": "autocast", "op_block_list": ["Softmax"]}
    ),
    Subject("ONNX Runtime, lightly-train's list, fixed", "onnxruntime", {"more_blocked": ["Softmax", "MatMul"]}),
    Subject("truehalf, that list", "truehalf", _LISTS_ALONE | {"op_block_list": [*LIGHTLY_BLOCKED]}),
    Subject("onnxconverter-common", "onnxconverter"),
    Subject("truehalf, its list", "truehalf", _LISTS_ALONE | {"op_block_list": [*CONVERTER_COMMON_BLOCKED]}),
    Subject("truehalf", "truehalf"),
    Subject("truehalf, eager placement", "truehalf", {"placement": "eager"}),
)
SHORT_MODEL = "nano_dfine"  # of the README's table
SHORT = ("AutoCast", "onnxconverter-common", "ONNX Runtime, lightly-train's list, fixed", "truehalf")
_COLUMNS = (  # on the page; the results have more
    "wall s", "peak MB", "casts", "cast MB", "score error max", "output error max", "p99", "matched", "file MB",
    "Half, compiled", "attention fused",
)  # fmt: skip


def rows_of(model: Path, subjects: Iterable[Subject], *, keep_io_types: bool, rounds: int) -> list[dict[str, Any]]:
    """The entries of one model: every subject in turn, `rounds` times, then what it made is measured."""
    usages: dict[str, list[Usage]] = {}
    digests: dict[str, set[str]] = {}
    figures: dict[str, dict[str, Any]] = {}
    subjects = (*([COPY] if model.stem in NO_SAMPLE else []), *subjects)
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(rounds):
            for subject in subjects:
                target = Path(folder) / f"{subjects.index(subject)}" / "model.onnx"
                target.parent.mkdir(exist_ok=True)
                options = _options(subject, figures, keep_io_types)
                if options is None:
                    continue
                where = ROOT if subject.tool == "truehalf" else target.parent  # peers leave files of their own
                usage = measured(_command(subject, model, target, options), _TIMEOUT_S, where)
                _say(f"{model.stem}: {subject.name}: {usage}")
                usages.setdefault(subject.name, []).append(usage)
                if usage.error is None and subject is not COPY:
                    digests.setdefault(subject.name, set()).add(_digest(target))
                    if subject.name not in figures:
                        figures[subject.name] = _figures(model, target)
                shutil.rmtree(target.parent)
    own = model.with_name(f"{model.stem}.fp16.onnx")  # that the exporter wrote itself
    entries = [_entry(model, s, usages[s.name], digests, figures) for s in subjects if s.name in usages]
    if own.exists():
        entries.append({"model": model.stem, "subject": "its exporter's own FP16 file"} | _figures(model, own))
    return entries


def _options(subject: Subject, figures: Mapping[str, Any], keep_io_types: bool) -> dict[str, Any] | None:
    options = {"keep_io_types": keep_io_types} | dict(subject.options)
    if subject.pins_of is not None:
        if "fp32_nodes" not in figures.get(subject.pins_of, {}):
            return None
        options["node_block_list"] = [f"^{re.escape(name)}$" for name in figures[subject.pins_of]["fp32_nodes"]]
    return options


def _command(subject: Subject, model: Path, target: Path, options: Mapping[str, Any]) -> list[str]:
    content = target.with_name("options.json")
    content.write_text(json.dumps(options))
    if subject is COPY:
        return ["cp", *map(str, model.parent.glob(f"{model.name}*")), str(target.parent)]
    program = {
        "truehalf": [sys.executable, "-m", "benchmarks.ours"],
        "onnxruntime": [sys.executable, "-P", _PEER],
    }.get(subject.tool, [str(PEERS), "-P", _PEER])
    command = [*program, subject.tool, str(model), str(target), "--options", str(content)]
    if subject.tool == "truehalf" and model.stem in NO_SAMPLE:
        return command
    return [*command, "--sample", str(model.with_suffix(".npz"))]


def _figures(model: Path, converted: Path) -> dict[str, Any]:
    files = [model, converted, model.with_name(f"{model.stem}.check.npz")]
    command = [sys.executable, "-m", "benchmarks.measure", *map(str, files)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        return {"valid": None, "invalid": f"not measured: {(done.stderr.strip().splitlines() or ['no message'])[-1]}"}
    figures: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return figures


def _digest(path: Path) -> str:
    done = subprocess.run(["sha256sum", path], capture_output=True, text=True, check=True)
    return done.stdout.split()[0]


def _entry(
    model: Path,
    subject: Subject,
    usages: Sequence[Usage],
    digests: Mapping[str, set[str]],
    figures: Mapping[str, dict[str, Any]],
) -> dict[str, Any]:
    error = next((usage.error for usage in usages if usage.error), None)
    found = {key: value for key, value in figures.get(subject.name, {}).items() if key != "fp32_nodes"}
    return {
        "model": model.stem,
        "subject": subject.name,
        "failed": error,
        "wall_s": statistics.median(usage.wall_s for usage in usages),
        "wall_s_of_each_round": [usage.wall_s for usage in usages],
        "peak_mb": max(usage.peak_mb for usage in usages),
        "anon_mb": max(usage.anon_mb for usage in usages),
        "same_bytes_each_round": len(digests[subject.name]) == 1 if subject.name in digests else None,
    } | found


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# --- tables -----------------------------------------------------------------------------------------------------------


def tables(entries: Sequence[Mapping[str, Any]]) -> str:
    """Markdown, one table for each model."""
    lines = []
    for model in dict.fromkeys(entry["model"] for entry in entries):
        lines += ["", f"### {model}", "", f"| | {' | '.join(_COLUMNS)} |", "|---" * (len(_COLUMNS) + 1) + "|"]
        shown = [entry for entry in entries if entry["model"] == model]
        lines += [*map(_line, shown), "", *(f"- {each['subject']}: {why}" for each in shown if (why := _reason(each)))]
    return "\n".join(lines).strip()


def short_table(entries: Sequence[Mapping[str, Any]]) -> str:
    """Markdown for the README, one model; a dash where nothing was compiled."""
    shown = {entry["subject"]: entry for entry in entries if entry["model"] == SHORT_MODEL}
    columns = ("casts", "Half", "attention fused", "score error", "seconds")
    lines = [f"| | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for name in SHORT:
        entry, rounds = shown[name], shown[name]["wall_s_of_each_round"]
        half, fused = _compiled(entry.get("compiled", {}))
        error, seconds = f"{entry['score_error']['max']:.2g}", f"{min(rounds):.1f} to {max(rounds):.1f}"
        lines.append(f"| {name} | {entry['casts']} | {half} | {fused} | {error} | {seconds} |")
    return "\n".join(lines)


def _line(entry: Mapping[str, Any]) -> str:
    used = [_number(entry.get("wall_s"), ".1f"), _number(entry.get("peak_mb"), ".0f")]
    if "valid" not in entry or _reason(entry):  # a copy, or no file
        return f"| {' | '.join([entry['subject'], *used, *['–'] * (len(_COLUMNS) - len(used))])} |"
    errors = entry["error"] or {}
    score = entry["score_error"] or {}
    cells = [
        *used,
        str(entry["casts"]),
        _number(entry["cast_bytes"] / 1e6, ".2f"),
        _number(score.get("max"), ".2g"),
        _number(max((error["max"] for error in errors.values()), default=None), ".2g"),
        _number(max((error["p99"] for error in errors.values()), default=None), ".2g"),
        entry.get("matched") or "–",
        _number(entry["size_mb"], ".1f"),
        *_compiled(entry.get("compiled", {})),
    ]
    return f"| {entry['subject']} | {' | '.join(cells)} |"


def _reason(entry: Mapping[str, Any]) -> str:
    """Why there is no file, or none that can be measured; "" where there is one."""
    if not (found := entry.get("failed") or ("" if entry.get("valid") else entry.get("invalid", ""))):
        return ""
    said = textwrap.shorten(re.sub(r"/tmp/\S*/", "", found), 240, placeholder=" ...")
    return f"{'failed' if entry.get('failed') else 'invalid file'}: `{said}`"


def _compiled(found: Mapping[str, Any]) -> list[str]:
    if "refused" in found:
        return ["refused", "–"]
    fused, regions = found.get("fused"), found.get("attentions")
    return [
        _number(found.get("half_share"), ".1%"),
        f"{'–' if fused is None else fused} of {regions}" if regions else "–",
    ]


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.converters", description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path, help="with the models of benchmarks.models")
    parser.add_argument(
        "--models", nargs="+", default=None, help=f"default: those of {', '.join(MODELS)} that are there"
    )
    parser.add_argument("--subjects", nargs="+", default=None, help="names, or parts of them; default: all")
    parser.add_argument("--keep-io-types", action="store_true")
    parser.add_argument("--rounds", type=int, default=1, help="wall time is their median")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    names = arguments.models or [name for name in MODELS if (arguments.folder / f"{name}.onnx").exists()]
    chosen = [s for s in SUBJECTS if not arguments.subjects or _is_chosen(s.name, arguments.subjects)]
    if not PEERS.exists():
        _say(f"{PEERS.relative_to(ROOT)} is missing (make bench-peers): AutoCast and onnxconverter-common are left out")
        chosen = [subject for subject in chosen if subject.tool in ("truehalf", "onnxruntime")]
    entries: list[dict[str, Any]] = json.loads(arguments.out.read_text()) if arguments.out.exists() else []
    for name in names:
        model = (arguments.folder / f"{name}.onnx").resolve()
        rows = rows_of(model, chosen, keep_io_types=arguments.keep_io_types, rounds=arguments.rounds)
        entries = _merged(entries, rows)
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(entries, indent=1) + "\n")
    print(tables(entries))


def _is_chosen(name: str, wanted: Sequence[str]) -> bool:
    """By its whole name, or by a part of it that is no other subject's whole name."""
    whole = {subject.name for subject in SUBJECTS}
    return any(part == name or (part not in whole and part in name) for part in wanted)


def _merged(known: Sequence[dict[str, Any]], rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The new rows, and those known of models and subjects that were not measured again; in the order of MODELS."""
    measured_again = {(row["model"], row["subject"]) for row in rows}
    kept = [row for row in known if (row["model"], row["subject"]) not in measured_again]
    order = {name: index for index, name in enumerate(MODELS)}
    return sorted([*kept, *rows], key=lambda row: order.get(row["model"], len(order)))


if __name__ == "__main__":
    main()
