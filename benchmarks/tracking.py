"""How many runs an MLflow server takes, on SQLite and on PostgreSQL, from 1, 2, 4 and 8 writers at once.

    python -m benchmarks.sweep             leaves the real runs that are logged
    python -m benchmarks.tracking

Server, database and writers share this machine's cores, so that what 8 writers reach is a lower bound. A run is logged
as the chain logs it: params, metrics, reports and plots through the server's artifact proxy. PostgreSQL runs without
fsync, as in the tests.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import yaml

from benchmarks.sweep import ROOT, RUNS, machine
from tests.pipeline.servers import MlflowServer, postgres, postgres_binaries

RESULTS = ROOT / "benchmarks" / "results" / "tracking.json"
WRITERS = (1, 2, 4, 8)
SETTLED_S = 2
_WRITER = """\
import json, os, sys, time
from pathlib import Path
from pipeline.tracking.record import of_workspace
from pipeline.track import log
import mlflow
place, count = Path(sys.argv[1]), int(sys.argv[2])
record = of_workspace(place)
def logged(each):
    record.params["seed"] = f"{os.getpid()}.{each}"  # another digest: another run
    started = time.perf_counter()
    outcome = log(record, place)
    assert outcome["status"] == "logged", outcome
    return time.perf_counter() - started
logged("first")  # loads what MLflow loads when it is first used
print("ready", flush=True)
sys.stdin.readline()
taken = [logged(each) for each in range(count)]
print(json.dumps(taken), flush=True)
"""


def written(address: str, run: Path, writers: int, each: int) -> dict[str, float]:
    """Seconds of a run logged, and runs a second, of so many writers at once, each with so many runs."""
    environment = os.environ | {"TRACKED": address, "PYTHONPATH": str(ROOT), "MLFLOW_DISABLE_TELEMETRY": "true"}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(run), str(each)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(writers)
    ]
    for process in started:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    time.sleep(SETTLED_S)  # the server has ended what the first runs left it to do
    begun = time.perf_counter()
    for process in started:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    taken = [second for process in started for second in json.loads(process.communicate()[0])]
    wall = time.perf_counter() - begun
    return {
        "seconds_a_run": round(sum(taken) / len(taken), 3),
        "runs_a_second": round(writers * each / wall, 3),
    }


def _add_model(run: Path) -> None:
    """What is kept of a run has no model: a file of the same size."""
    said = json.loads((run / "reports" / "cast_cleanup.json").read_text())
    place = run / "artifacts" / "cast_cleanup" / "model.onnx"
    place.parent.mkdir(parents=True)
    place.write_bytes(os.urandom(round(said["model"]["size_mb"] * 1e6)))


def table(found: dict[str, Any]) -> str:
    """Of docs/reference/benchmarks.md."""
    lines = ["| database | writers | seconds a run | runs a second |", "|---|---|---|---|"]
    for database, rows in found["databases"].items():
        for writers, row in rows.items():
            cells = (database, writers, row["seconds_a_run"], row["runs_a_second"])
            lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join([*lines, "", f"Load average before: {found['load_average_before']}."])


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.tracking", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--runs", type=Path, default=RUNS, help="where a real run is (default: that of benchmarks.sweep)"
    )
    parser.add_argument("--each", type=int, default=6, metavar="N", help="runs that each writer logs")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    originals = sorted(path.parent for path in arguments.runs.glob("*fp16*/params.yaml"))
    if not originals:
        parser.error(f"{arguments.runs} holds no run in FP16; run `python -m benchmarks.sweep` first")
    load = round(os.getloadavg()[0], 2)
    databases: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="truehalf-tracking-") as name:
        folder = Path(name)
        run = folder / "run"
        shutil.copytree(originals[0], run)
        params = yaml.safe_load((run / "params.yaml").read_text())
        params["tracking"] |= {"uri_env": "TRACKED"}
        (run / "params.yaml").write_text(yaml.safe_dump(params, sort_keys=False))
        _add_model(run)
        kinds: dict[str, AbstractContextManager[str]] = {"SQLite": nullcontext(f"sqlite:///{folder}/mlflow.db")}
        if postgres_binaries() is not None:
            kinds["PostgreSQL"] = postgres(folder / "postgres")
        for kind, opened in kinds.items():
            with opened as database:
                server = MlflowServer(database, folder / f"artifacts-{kind}", folder / f"{kind}.log")
                server.start()
                try:
                    written(server.address, run, 1, 1)  # the experiment is made
                    databases[kind] = {str(n): written(server.address, run, n, arguments.each) for n in WRITERS}
                finally:
                    server.stop()
    found = {"databases": databases, "server_workers": 2, "load_average_before": load, "machine": machine()}
    arguments.out.write_text(json.dumps(found, indent=1) + "\n")
    print(table(found))


if __name__ == "__main__":
    main()
