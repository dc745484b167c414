"""What repair changes: nodes, outputs, FP32 latency on the CPU, and FP16 on the embedded detectors.

    python -m benchmarks.repair benchmarks/build/models/{nano_dfine,nano_rtdetrv2,dfine640,rtdetrv2640}.onnx

All passes of conf/repair/tensorrt.yaml run over each file, which onnxslim alone has slimmed. Both files run in ONNX
Runtime (CPU provider) on the two samples of <name>.check.npz. "output" is the largest |d| / max |FP32| of the outputs,
"sampled" the same of what each GridSample gives, which the repaired file has under the same names: no top-k stands
before the first of them. Latencies are the least of runs that take turns, as other work only adds to them.

FP16 (trained models only): converted with the defaults from the file before and after, on pictures of the validation
split, emulated, against the FP32 file before repair (truehalf.compare).
Writes benchmarks/results/repair.json and prints the table.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).resolve().parent / "results" / "repair.json"
ROUNDS = 10
PICTURES, CALIBRATION = 100, 16
_COLUMNS = (
    "model", "nodes before", "nodes after", "GridSample", "repair s", "sampled", "output", "ms before", "ms after",
    "cost",
)  # fmt: skip
_HALF_COLUMNS = ("model", "file", "found again", "box error px p99", "score error p99", "fp16 nodes", "casts")
Arrays = dict[str, np.ndarray]


def row_of(path: Path) -> dict[str, Any]:
    """The figures of one model."""
    from tests.measuring.shipped import shipped
    from truehalf.ir.facts import model_facts
    from truehalf.ir.model_file import load_model, save_model
    from truehalf.repairs import repair

    before = load_model(path)
    sampled = [node.outputs[0].name or "" for node in before.graph if node.op_type == "GridSample"]
    model = load_model(path)
    started = time.perf_counter()
    report = repair(model, shipped("repair/tensorrt")["passes"])
    seconds = time.perf_counter() - started
    with np.load(path.with_suffix(".check.npz")) as arrays:
        samples = [{key: arrays[key][i : i + 1] for key in arrays.files} for i in range(2)]
    with tempfile.TemporaryDirectory() as folder:
        after = Path(folder) / "repaired.onnx"
        save_model(model, after)
        output = _largest_difference(path, after, samples, None)
        inside = _largest_difference(path, after, samples, sampled) if sampled else None
        ms_before, ms_after = _latencies(path, after, samples[0])
        half = _half(path, after, Path(folder)) if _is_trained(before) else []
    return {
        "model": path.stem,
        "nodes before": model_facts(before)["nodes"],
        "nodes after": model_facts(model)["nodes"],
        "GridSample": len(sampled),
        "repair s": seconds,
        "sampled": inside,
        "output": output,
        "ms before": ms_before,
        "ms after": ms_after,
        "cost": ms_after / ms_before - 1,
        "counts": report.counts,
        "refused": report.refused,
        "half": half,
        "cores": len(os.sched_getaffinity(0)),
        "load average": os.getloadavg()[0],
    }


def _is_trained(model: Any) -> bool:
    return bool(json.loads(model.metadata_props.get("truehalf.io_spec", "{}")).get("trained", False))


def _largest_difference(before: Path, after: Path, samples: Sequence[Arrays], tensors: list[str] | None) -> float:
    """Largest |d| / max |before| over the outputs, or over these tensors, of all samples."""
    largest = 0.0
    for path_runs in zip(*(_runs(path, samples, tensors) for path in (before, after)), strict=True):
        expected, got = path_runs
        for name, value in expected.items():
            largest = max(largest, float(np.abs(got[name] - value).max() / np.abs(value).max()))
    return largest


def _runs(path: Path, samples: Sequence[Arrays], tensors: list[str] | None) -> list[Mapping[str, np.ndarray]]:
    import onnx

    from truehalf.runtime.ort.session import Session

    if tensors is None:
        session = Session(path)
    else:
        proto = onnx.load(path)
        proto.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in tensors)
        session = Session(proto.SerializeToString())
    runs = [session.run(sample) for sample in samples]
    return [{name: run[name] for name in tensors or run} for run in runs]


def _latencies(before: Path, after: Path, sample: Arrays) -> tuple[float, float]:
    """Least milliseconds of a run of each, taking turns."""
    from truehalf.runtime.ort.session import Session

    sessions = [Session(before), Session(after)]
    times: list[list[float]] = [[], []]
    for turn in range(ROUNDS + 2):
        for session, found in zip(sessions, times, strict=True):
            started = time.perf_counter()
            session.run(sample)
            if turn > 1:  # the first warm up
                found.append(1e3 * (time.perf_counter() - started))
    return min(times[0]), min(times[1])


def _half(before: Path, after: Path, folder: Path) -> list[dict[str, Any]]:
    from tests.measuring.converted import to_fp16
    from truehalf.conversion.casts_of_file import clean_casts
    from truehalf.data.digits import scene
    from truehalf.verification.chain.compare import compare

    def pictures(split: str, count: int) -> np.ndarray:
        stack = np.stack([scene(i, split).image for i in range(count)])
        return (stack.transpose(0, 3, 1, 2) / 255).astype(np.float32)

    rows = []
    calibration, seen = {"images": pictures("train", CALIBRATION)[:, None]}, {"images": pictures("val", PICTURES)}
    for name, path in (("before repair", before), ("repaired", after)):
        to_fp16(path, folder / "half.onnx", calibration=calibration)
        facts = clean_casts(folder / "half.onnx", folder / "clean.onnx").model
        report = compare(before, folder / "clean.onnx", seen, locate=False)
        found = report.detections
        assert found is not None, "the embedded detectors declare theirs"
        box, score = found["box_error_px"], found["score_error"]
        rows.append(
            {
                "file": name,
                "verdict": report.verdict,
                "found again": found["matched_fraction"],
                "box error px p99": box and box["p99"],
                "score error p99": score and score["p99"],
                "fp16 nodes": facts["fp16_fraction"],
                "casts": facts["casts"],
                "pictures": PICTURES,
            }
        )
    return rows


# --- the tables -------------------------------------------------------------------------------------------------------


def tables(found: Sequence[Mapping[str, Any]]) -> str:
    """Markdown."""
    lines = [_line(_COLUMNS), _rule(_COLUMNS)]
    lines += [_line([_text(column, row[column]) for column in _COLUMNS]) for row in found]
    lines += ["", _line(_HALF_COLUMNS), _rule(_HALF_COLUMNS)]
    for row in found:
        for half in row["half"]:
            lines.append(_line([_text(column, (row | half)[column]) for column in _HALF_COLUMNS]))
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _rule(columns: Sequence[str]) -> str:
    return "|" + "---|" * len(columns)


def _text(column: str, value: Any) -> str:
    if value is None:
        return "-"
    if column in ("cost", "found again", "fp16 nodes"):
        return f"{value:.1%}"
    if column in ("sampled", "output"):
        return f"{value:.1e}" if value else "0"
    if column.startswith("ms") or column == "repair s":
        return f"{value:.1f}"
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.repair", description=__doc__.split("\n")[0])
    parser.add_argument("models", nargs="+", type=Path, help="of benchmarks.models")
    found = []
    for path in parser.parse_args().models:
        found.append(row_of(path))
        print(f"{path.stem}: {found[-1]['ms before']:.1f} ms, repaired {found[-1]['ms after']:.1f} ms", flush=True)
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    print(tables(found))


if __name__ == "__main__":
    main()
