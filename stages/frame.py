"""Frame of every stage and nothing else: its configuration, its files, its errors.

A stage's `run` gets a `Stage`, writes into `stage.out()` and returns its report. The files appear under artifacts/ and
reports/ only when `run` has ended well: until then they lie in a temporary folder beside their place. DVC deletes a
stage's outs before it runs the command; after one that fails, `dvc checkout` brings back the last good ones.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from stages.lines import line
from truehalf.codes import NOT_AVAILABLE, coded
from truehalf.config.params import params_digest, read_params
from truehalf.config.typed import ConfigErrors
from truehalf.errors import StageError, typed_text
from truehalf.files import MODEL_FILE, PARTIAL, destination, explain, is_of_file, remove, swap_in, write_json
from truehalf.io_spec.in_file import read_spec
from truehalf.io_spec.spec import IoSpec
from truehalf.progress import step

Report: TypeAlias = Mapping[str, Any]  # of a stage, the content of reports/<stage>.json
INPUTS, TRACE = "inputs", "trace"  # the stages before there is a file
FAILED, BAD_INPUT, STOPPED = 1, 2, 130  # exit codes


class Stage:
    """One run of one stage: the workspace it works in, its configuration, and the out it is building.

    Attributes:
        name: as in dvc.yaml.
        root: the workspace, an absolute path.
        config: the validated content of params.yaml.
        out: the folder to build artifacts/<name> in, empty at first.

    Raises:
        StageError: params.yaml is missing or no YAML.
        ConfigErrors: listing everything that is wrong in it.
    """

    def __init__(self, name: str, root: Path) -> None:
        from truehalf.models.configuration import validated

        self.name = name
        self.root = root
        self.digest = params_digest(root)
        self.config = validated(read_params(root))
        self.out = root / "artifacts" / f"{name}{PARTIAL}"
        remove(self.out)
        self.out.mkdir(parents=True)

    def artifact(self, stage: str, file: str = MODEL_FILE) -> Path:
        """A file that an earlier stage wrote.

        Raises:
            StageError: when it is not there.
        """
        path = self.root / "artifacts" / stage / file
        if not path.exists():
            raise StageError("file-missing", f"artifacts/{stage}/{file} is missing; run `dvc repro {stage}` first")
        return path

    def io_spec(self) -> IoSpec:
        """What trace has written of the model's inputs and outputs."""
        return read_spec(self.artifact("trace", "io_spec.json"))

    def copy(self, model: Path) -> None:
        """Pass a model on: its files, large weights included, into the stage's out."""
        for file in model.parent.glob(f"{MODEL_FILE}*"):
            shutil.copy2(file, self.out / file.name)

    def pass_on(self, model: Path, reason: str) -> dict[str, Any]:
        """Pass a model on, and return the report of a stage that was skipped."""
        from truehalf.ir.facts import model_facts
        from truehalf.ir.model_file import load_model
        from truehalf.ir.normalize import InferTypes

        self.copy(model)
        loaded = load_model(model)
        InferTypes()(loaded)
        return {"status": "skipped", "reason": reason, "model": model_facts(loaded, model)}

    def finish(self, report: Report) -> None:
        """Move outs into place and write reports/<stage>.json."""
        if params_digest(self.root) != self.digest:
            raise StageError(
                "changed-meanwhile",
                "params.yaml changed while this stage ran, so its result belongs to neither version; "
                "run again, one run at a time in a workspace",
            )
        report_file = self.root / "reports" / f"{self.name}.json"
        report_file.parent.mkdir(exist_ok=True)
        destination(report_file)  # refused before anything is replaced
        swap_in(self.out, self.root / "artifacts" / self.name)
        write_json(report_file, {"stage": self.name, "status": "done"} | dict(report))


def run_stage(name: str, run: Callable[[Stage], Report]) -> None:
    """Call a stage's `run` in the workspace, the current folder, and end the process: 0 when it ended well, 1 on an
    error, 2 on bad input, 130 on Ctrl-C.

    `run` returns the content of reports/<name>.json; `stage`, `seconds` and, unless given, `status: done` are added; no
    seconds to that of `inputs`, which runs every time, and whose report stays the same while nothing changes. A line
    sums up the report; an error goes to reports/error.json, with the exit code, and to stderr.
    """
    root, stage = Path.cwd(), None
    collect_garbage_less()
    try:
        if name == INPUTS:  # a run begins: how an earlier one ended says nothing of it
            (root / "reports" / "error.json").unlink(missing_ok=True)
        stage = Stage(name, root)
        started = time.perf_counter()
        with step(name):
            report = dict(run(stage))
        seconds = time.perf_counter() - started
        stage.finish(report if name == INPUTS else report | {"seconds": round(seconds, 3)})
        print(line(name, report, seconds), flush=True)
    except BaseException as error:
        code, message = _ending(name, error)
        with contextlib.suppress(OSError):  # the message matters more than tidying up on a full disk
            if stage:
                remove(stage.out)
            write_json(root / "reports" / "error.json", {"stage": name, "message": message, "exit_code": code})
        if not isinstance(error, (StageError, ConfigErrors, KeyboardInterrupt, OSError)):
            raise  # a defect of truehalf: with its traceback
        print(f"{name}: {message}", file=sys.stderr)
        sys.exit(code)


def _ending(name: str, error: BaseException) -> tuple[int, str]:
    """Exit code and message of a stage that raised an error.

    The code is BAD_INPUT where a run has not begun: an error of `inputs` or of the configuration, a package or download
    that is not available, or, before the first file is made, any bad input.
    """
    if isinstance(error, KeyboardInterrupt):
        return STOPPED, "stopped; earlier artifacts are untouched"
    if isinstance(error, ConfigErrors):
        return BAD_INPUT, str(error)
    if isinstance(error, StageError):
        has_not_begun = name == INPUTS or (name == TRACE and error.is_bad_input)
        return BAD_INPUT if has_not_begun or error.code in NOT_AVAILABLE else FAILED, str(error)
    if isinstance(error, OSError) and is_of_file(error):
        return FAILED, coded("file-unwritable", explain(error))
    return FAILED, typed_text(error)


def collect_garbage_less() -> None:
    """For processes that build large graphs: what was imported lives as long as they do, and so do most nodes. Python's
    collector would look at all of them again and again, which takes a sixth of a stage's time; and a last time as the
    process ends, whose memory goes with it.
    """
    gc.freeze()
    gc.set_threshold(100_000, 50, 50)
    atexit.register(gc.freeze)
