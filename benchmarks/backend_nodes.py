"""Every ONNX backend test with a float32 input or output, through truehalf and its peers.

    make bench-peers
    python -m benchmarks.backend_nodes                 about 15 minutes on two cores
    python -m benchmarks.backend_nodes --subjects truehalf --limit 100

Each converter runs in a process that serves one case after the other, beside a second one for the other half; a case
that takes longer than a minute, or kills the process, counts as failed and the process is started anew. Inputs and
outputs are to stay float32. "Mended": repeated and needless casts dropped, nodes sorted, by us.
Writes benchmarks/results/backend_nodes.json (counts, and for each subject the cases with their faults) and prints the
table.
"""

from __future__ import annotations

import argparse
import json
import select
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from truehalf.data.arrays import write_arrays

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "backend_nodes.json"
PEERS = ROOT / ".venv-peers" / "bin" / "python"
_PEER = str(ROOT / "benchmarks" / "peer.py")
_CASE_TIMEOUT_S = 60.0
_START_TIMEOUT_S = 120.0  # of a process, imports included

# name: command of the server, options
SUBJECTS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "truehalf": ([sys.executable, "-m", "benchmarks.ours", "truehalf"], {"keep_io_types": True}),
    "truehalf, eager placement": (
        [sys.executable, "-m", "benchmarks.ours", "truehalf"],
        {"keep_io_types": True, "placement": "eager"},
    ),
    "AutoCast": ([str(PEERS), "-P", _PEER, "autocast"], {"keep_io_types": True}),
    "ONNX Runtime float16": (
        [sys.executable, "-P", _PEER, "onnxruntime"],
        {"keep_io_types": True, "fix": False, "slim": False},
    ),
    "ONNX Runtime float16, fixed": (
        [sys.executable, "-P", _PEER, "onnxruntime"],
        {"keep_io_types": True, "slim": False},
    ),
    "onnxconverter-common": ([str(PEERS), "-P", _PEER, "onnxconverter"], {"keep_io_types": True}),
}
_JUDGE = [sys.executable, "-m", "benchmarks.judge", "judge"]
_RUN = [sys.executable, "-m", "benchmarks.judge", "run"]


@dataclass(frozen=True)
class Case:
    """A backend test on disk.

    `sample` is None where npz cannot hold an input (a sequence, text, bfloat16), where one has no rows along a free
    axis, and where ONNX Runtime cannot run the model.
    """

    name: str
    model: Path
    sample: Path | None


# --- cases ------------------------------------------------------------------------------------------------------------


def cases(folder: Path) -> Iterator[Case]:
    """The tests of the installed onnx whose model is valid, written to `folder`."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tests = load_model_tests(kind="node") + load_model_tests(kind="simple")
    runner = Server(_RUN, ROOT)
    for test in tests:
        model = test.model or onnx.load(f"{test.model_dir}/model.onnx")
        ends = [value.type.tensor_type.elem_type for value in (*model.graph.input, *model.graph.output)]
        if onnx.TensorProto.FLOAT not in ends or not _is_valid(model):
            continue
        place = folder / test.name
        place.mkdir(parents=True)
        onnx.save(model, place / "fp32.onnx")
        sample = _write_sample(place, model, test)
        if sample is not None:
            task = {"source": str(place / "fp32.onnx"), "target": "", "sample": str(sample), "options": {}}
            sample = sample if runner.ask(task) is None else None
        yield Case(test.name, place / "fp32.onnx", sample)
    runner.close()


def _is_valid(model: onnx.ModelProto) -> bool:
    try:
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError):
        return False
    return True


def _write_sample(place: Path, model: onnx.ModelProto, test: Any) -> Path | None:
    if not all(value.type.HasField("tensor_type") for value in model.graph.input):
        return None
    inputs = _inputs(test, model)
    arrays = [onnx.numpy_helper.to_array(x) if isinstance(x, onnx.TensorProto) else x for x in inputs]
    if len(arrays) > len(model.graph.input) or not all(isinstance(x, np.ndarray) for x in arrays):
        return None
    if any(array.dtype.isbuiltin != 1 for array in arrays):  # npz has no bfloat16, float8 or int4
        return None
    named = dict(zip([value.name for value in model.graph.input], arrays, strict=False))
    if any(0 in named[value.name].shape and not _states_zero(value) for value in model.graph.input[: len(arrays)]):
        return None
    write_arrays(place / "sample.npz", named)
    return place / "sample.npz"


def _states_zero(value: onnx.ValueInfoProto) -> bool:
    """Whether a model says of an input that it is empty."""
    return any(axis.HasField("dim_value") and not axis.dim_value for axis in value.type.tensor_type.shape.dim)


def _inputs(test: Any, model: onnx.ModelProto) -> Sequence[Any]:
    if test.data_sets:
        return list(test.data_sets[0][0])
    found = []
    for number in range(len(model.graph.input)):
        path = Path(test.model_dir) / "test_data_set_0" / f"input_{number}.pb"
        if not path.exists():
            return [None]
        found.append(onnx.load_tensor(path))
    return found


# --- servers ----------------------------------------------------------------------------------------------------------


class Server:
    """A process that answers one task at a time, started when needed and anew after it died or was too slow."""

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        self._command = [*command, "--serve"]
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None

    def ask(self, task: Mapping[str, Any]) -> str | None:
        """None when the task went well, else what went wrong."""
        limit = _CASE_TIMEOUT_S
        if self._process is None:
            limit += _START_TIMEOUT_S
            self._process = subprocess.Popen(
                self._command,
                cwd=self._folder,
                text=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps(task) + "\n")
            process.stdin.flush()
            ready, _, _ = select.select([process.stdout], [], [], limit)
            line = process.stdout.readline() if ready else None
        except BrokenPipeError:
            line = ""
        if line:
            error: str | None = json.loads(line)["error"]
            return error
        self.close()
        return (
            f"no answer within {limit:.0f} s" if line is None else f"the process died, exit code {process.returncode}"
        )

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def results(subject: str, chosen: Sequence[Case]) -> dict[str, dict[str, Any]]:
    """For each case: error of the conversion, or the verdict on the file. Two processes share the cases."""
    found: dict[str, dict[str, Any]] = {}

    def work(part: Sequence[Case]) -> None:
        command, options = SUBJECTS[subject]
        # peers leave files of their own where they run
        converter = Server(command, ROOT if subject.startswith("truehalf") else chosen[0].model.parent)
        judge = Server(_JUDGE, ROOT)
        try:
            for case in part:
                found[case.name] = _result(converter, judge, subject, case, options)
        finally:
            converter.close()
            judge.close()

    threads = [threading.Thread(target=work, args=(chosen[start::2],)) for start in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {case.name: found[case.name] for case in chosen}


def _result(converter: Server, judge: Server, subject: str, case: Case, options: Mapping[str, Any]) -> dict[str, Any]:
    place = case.model.parent / subject.replace(" ", "_")
    place.mkdir()
    target, verdict = place / "fp16.onnx", place / "verdict.json"
    sample = None if case.sample is None else str(case.sample)
    task = {"source": str(case.model), "target": str(target), "sample": sample, "options": dict(options)}
    error = converter.ask(task)
    if error is None and not target.exists():
        error = "no file was written"
    if error is not None:
        return {"error": error}
    options = {"converted": str(target)}
    error = judge.ask({"source": str(case.model), "target": str(verdict), "sample": sample, "options": options})
    if error is not None:  # ONNX Runtime may die of a file
        return {"error": None, "checker": None, "loads": False, "io": None, "close": None, "reason": error}
    judged: dict[str, Any] = json.loads(verdict.read_text())
    return {"error": None} | judged


# --- the table --------------------------------------------------------------------------------------------------------

_ROWS: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "a file was made": lambda r: r["error"] is None,
    "the checker accepts it, full check": lambda r: r.get("checker"),
    "ONNX Runtime loads it, where it loads the original": lambda r: r.get("loads"),
    "inputs and outputs kept": lambda r: r.get("io"),
    "all of these: valid": lambda r: r["error"] is None and r["checker"] and r["io"] and r["loads"] is not False,
    "within tolerance under honest rounding, where that can be run": lambda r: r.get("close"),
    "valid and not out of tolerance": lambda r: (
        r["error"] is None and r["checker"] and r["io"] and r["loads"] is not False and r["close"] is not False
    ),
    "some of it in FP16": lambda r: bool(r.get("fp16")),
}


def counts(found: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    """How many cases each statement holds for."""
    return {text: sum(bool(holds(result)) for result in found.values()) for text, holds in _ROWS.items()}


def table(report: Mapping[str, Any]) -> str:
    """Markdown."""
    counted = report["counts"]
    lines = [f"| of {report['cases']} cases | {' | '.join(counted)} |", "|---" * (len(counted) + 1) + "|"]
    lines += [f"| {text} | {' | '.join(str(counted[subject][text]) for subject in counted)} |" for text in _ROWS]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.backend_nodes", description=__doc__.split("\n")[0])
    parser.add_argument("--subjects", nargs="+", choices=[*SUBJECTS], default=[*SUBJECTS])
    parser.add_argument("--limit", type=int, help="only the first cases")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    report: dict[str, Any] = {"onnx": onnx.__version__, "counts": {}, "seconds": {}, "faults": {}}
    with tempfile.TemporaryDirectory() as folder:
        chosen = list(cases(Path(folder)))[: arguments.limit]
        for subject in arguments.subjects:
            if SUBJECTS[subject][0][0] == str(PEERS) and not PEERS.exists():
                print(f"{subject}: no .venv-peers (make bench-peers)", file=sys.stderr)
                continue
            started = time.perf_counter()
            found = results(subject, chosen)
            report["counts"][subject] = counts(found)
            report["seconds"][subject] = round(time.perf_counter() - started, 1)
            valid = _ROWS["valid and not out of tolerance"]
            report["faults"][subject] = {name: result for name, result in found.items() if not valid(result)}
            print(f"{subject}: {report['seconds'][subject]} s", file=sys.stderr, flush=True)
    report["cases"] = len(chosen)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(report, indent=1) + "\n")
    print(table(report))


if __name__ == "__main__":
    main()
