"""Frame of every stage and nothing else: its configuration, its files, its errors.

A stage's `run` gets a `Stage`, writes into `stage.out()` and returns its report. The files appear under artifacts/ and
reports/ only when `run` has ended well: until then they lie in a temporary folder beside their place.
"""

from __future__ import annotations

import argparse
import atexit
import configparser
import contextlib
import gc
import json
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from stages.lines import line
from truehalf.codes import coded
from truehalf.config.params import params_digest, read_params
from truehalf.config.schema import Config
from truehalf.config.typed import ConfigErrors
from truehalf.errors import StageError
from truehalf.files import MODEL_FILE, PARTIAL, destination, explain, read_yaml, remove, swap_in, write_json
from truehalf.io_spec.in_file import read_spec
from truehalf.io_spec.spec import IoSpec
from truehalf.progress import step

_SUFFIX = ".restored"
_UNTIMED = ("inputs", "probe")  # seconds would change their reports each time, and so re-run what depends on them
PROJECT = Path(__file__).resolve().parents[1]

# --- the frame of a stage ---------------------------------------------------------------------------------------------


class Stage:
    """One run of one stage: the workspace it works in, its configuration, and the out it is building.

    Attributes:
        name: as in dvc.yaml.
        root: the workspace, an absolute path.
        config: the validated content of params.yaml.
    """

    def __init__(self, name: str, root: Path) -> None:
        self.name = name
        self.root = root
        self.digest = params_digest(root)
        self.config: Config = load_params(root)
        self._out: Path | None = None

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

    def out(self) -> Path:
        """The folder to build artifacts/<stage> in, empty at first."""
        if self._out is None:
            self._out = self.root / "artifacts" / f"{self.name}{PARTIAL}"
            remove(self._out)
            self._out.mkdir(parents=True)
        return self._out

    def copy(self, model: Path) -> None:
        """Pass a model on: its files, large weights included, into the stage's out."""
        for file in model.parent.glob(f"{MODEL_FILE}*"):
            shutil.copy2(file, self.out() / file.name)

    def finish(self, report: Mapping[str, object]) -> None:
        """Move outs into place and write reports/<stage>.json."""
        if params_digest(self.root) != self.digest:
            raise StageError(
                "changed-meanwhile",
                "params.yaml changed while this stage ran, so its result belongs to neither version; "
                "run again, one run at a time in a workspace",
            )
        reports, place = self.root / "reports", self.root / "artifacts" / self.name
        reports.mkdir(exist_ok=True)
        report_file = reports / f"{self.name}.json"
        destination(report_file)  # refused before anything is replaced
        if self._out is not None:
            swap_in(self._out, place)
        write_json(report_file, {"stage": self.name, "status": "done"} | dict(report))

    def discard(self) -> None:
        if self._out is not None:
            remove(self._out)


def stage_main(name: str, run: Callable[[Stage], Mapping[str, object]]) -> None:
    """`python -m stages.<name>`: answer --help, refuse other arguments, run the stage."""
    argparse.ArgumentParser(
        prog=f"python -m stages.{name}",
        description=sys.modules[run.__module__].__doc__,
        epilog="Reads params.yaml and artifacts/ of the workspace; takes no arguments. For a file: truehalf --help.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    ).parse_args()
    run_stage(name, run)


def run_stage(name: str, run: Callable[[Stage], Mapping[str, object]]) -> None:
    """Call a stage's `run` in the workspace and end the process: 0 when it ended well, 1 on an error, 130 on Ctrl-C.

    `run` returns the content of reports/<name>.json; `stage`, `seconds` (but of _UNTIMED) and, unless given,
    `status: done` are added. A line says what it found; an error goes to reports/error.json and to stderr.
    """
    root, stage = workspace(), None
    collect_garbage_less()
    try:
        stage = Stage(name, root)
        started = time.perf_counter()
        with step(name):
            report = dict(run(stage))
        seconds = time.perf_counter() - started
        stage.finish(report if name in _UNTIMED else report | {"seconds": round(seconds, 3)})
        print(line(name, report, seconds), flush=True)
    except (StageError, ConfigErrors) as error:
        _end(stage, root, name, str(error), 1)
    except KeyboardInterrupt:
        _end(stage, root, name, "stopped; earlier artifacts are untouched", 130)
    except OSError as error:
        _end(stage, root, name, coded("file-unwritable", explain(error)), 1)
    except BaseException as error:  # a defect of truehalf: with its traceback
        _tidy(stage, root, name, f"{type(error).__name__}: {error}")
        raise


def collect_garbage_less() -> None:
    """For processes that build large graphs: what was imported lives as long as they do, and so do most nodes. Python's
    collector would look at all of them again and again, which takes a sixth of a stage's time; and a last time as the
    process ends, whose memory goes with it.
    """
    gc.freeze()
    gc.set_threshold(100_000, 50, 50)
    atexit.register(gc.freeze)


def _end(stage: Stage | None, root: Path, name: str, message: str, code: int) -> None:
    _tidy(stage, root, name, message)
    print(f"{name}: {message}", file=sys.stderr)
    sys.exit(code)


def _tidy(stage: Stage | None, root: Path, name: str, message: str) -> None:
    with contextlib.suppress(OSError):  # the message matters more than tidying up on a full disk
        if stage:
            stage.discard()
        restore_outs(root, name)
        write_json(root / "reports" / "error.json", {"stage": name, "message": message})


# --- configuration ----------------------------------------------------------------------------------------------------


def workspace() -> Path:
    """The current folder when it holds a params.yaml, else the project that this code belongs to."""
    here = Path.cwd()
    return here if (here / "params.yaml").exists() else PROJECT


def load_params(root: Path) -> Config:
    """The validated params.yaml of a workspace.

    Raises:
        StageError: when it is missing or no YAML.
        ConfigErrors: listing everything that is wrong in it.
    """
    from truehalf.models.configuration import validated

    return validated(read_params(root))


# --- after a failed stage: its last good files ------------------------------------------------------------------------
#
# DVC deletes a stage's outs before it runs the command. (`persist: true` would keep them, but takes the stage out of
# DVC's run-cache, and every change of decoder or precision would compute again what was computed before.) When the
# command then fails, dvc.lock still says what the outs were, and the cache still has them; so a failed stage puts them
# back.


def restore_outs(root: Path, stage: str) -> list[str]:
    """Put back the missing outs of a stage that dvc.lock describes and the cache holds; return their paths.

    What exists is not changed. Without a dvc.lock, or where the cache lacks a file, nothing happens.
    """
    restored = []
    for out in _locked_outs(root, stage):
        place = root / out["path"]
        if not place.exists() and "md5" in out and _copy(_cache(root), out["md5"], place):
            restored.append(out["path"])
    return restored


def _locked_outs(root: Path, stage: str) -> list[dict[str, str]]:
    lock = root / "dvc.lock"
    if not lock.exists():
        return []
    stages = (read_yaml(lock) or {}).get("stages", {})
    outs: list[dict[str, str]] = stages.get(stage, {}).get("outs", [])
    return outs


def _cache(root: Path) -> Path:
    """Folder of DVC's content-addressed files (layout of DVC 3)."""
    parser = configparser.ConfigParser()
    parser.read([root / ".dvc" / "config", root / ".dvc" / "config.local"])
    return root / ".dvc" / parser.get("cache", "dir", fallback="cache") / "files" / "md5"


def _copy(cache: Path, md5: str, place: Path) -> bool:
    """A file, or a folder (its md5 ends in .dir and names a list of files), built beside its place and moved there."""
    building, files = place.with_name(place.name + _SUFFIX), {"": _object(cache, md5)}
    if md5.endswith(".dir") and files[""].exists():
        files = {entry["relpath"]: _object(cache, entry["md5"]) for entry in json.loads(files[""].read_text())}
    if not all(file.exists() for file in files.values()):
        return False
    remove(building)
    for relative, file in files.items():
        target = building / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)
    building.rename(place)
    return True


def _object(cache: Path, md5: str) -> Path:
    return cache / md5[:2] / md5[2:]
