"""What every stage shares and nothing else: its configuration, its files, its errors.

A stage's body gets a `Stage`, writes into `stage.out()` and returns its report. The files appear under artifacts/ and
reports/ only when the body has ended well: until then they lie in a temporary folder beside their place.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import hashlib
import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from stages.restore import restore_outs
from truehalf.codes import coded
from truehalf.config.schema import CONF, Config
from truehalf.config.validate import ConfigErrors
from truehalf.errors import StageError
from truehalf.files import MODEL_FILE, explain, refuse_no_folder, remove, swap_in, write_json
from truehalf.output_files import PARTIAL, destination, is_protected

# --- the frame of a stage ---------------------------------------------------------------------------------------------


class Stage:
    """One run of one stage: the workspace it works in, its configuration, and the outs it is building.

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
        self._outs: dict[str, Path] = {}
        self._pages: list[Path] = []

    def artifact(self, stage: str, file: str = MODEL_FILE) -> Path:
        """A file that an earlier stage wrote.

        Raises:
            StageError: when it is not there.
        """
        path = self.root / "artifacts" / stage / file
        if not path.exists():
            raise StageError("file-missing", f"artifacts/{stage}/{file} is missing; run `dvc repro {stage}` first")
        return path

    def out(self, name: str | None = None) -> Path:
        """The folder to build artifacts/<name> in (default: the stage's own), empty at first."""
        name = name or self.name
        if name not in self._outs:
            folder = self.root / "artifacts" / f"{name}{PARTIAL}"
            remove(folder)
            folder.mkdir(parents=True)
            self._outs[name] = folder
        return self._outs[name]

    def publish(self, file: Path) -> None:
        """Move a file of an out to reports/ when the stage has ended well."""
        self._pages.append(file)

    def finish(self, report: Mapping[str, Any]) -> None:
        """Move pages and outs into place and write reports/<stage>.json."""
        if params_digest(self.root) != self.digest:
            raise StageError(
                "changed-meanwhile",
                "params.yaml changed while this stage ran, so its result belongs to neither version; "
                "run again, one run at a time in a workspace",
            )
        reports, outs = self.root / "reports", {name: self.root / "artifacts" / name for name in self._outs}
        reports.mkdir(exist_ok=True)
        written = _own(reports / f"{self.name}.json")
        pages = {page: _own(reports / page.name) for page in self._pages}
        for place in outs.values():
            refuse_no_folder(place)
        for page, place in pages.items():
            page.replace(place)
        for name, place in outs.items():
            swap_in(self._outs[name], place)
        write_json(written, {"stage": self.name, "status": "done"} | dict(report))

    def discard(self) -> None:
        for folder in self._outs.values():
            remove(folder)


def stage_main(name: str, body: Callable[[Stage], Mapping[str, Any]], timed: bool = True) -> None:
    """`python -m stages.<name>`: answer --help, refuse other arguments, run the stage."""
    description = sys.modules[body.__module__].__doc__
    argparse.ArgumentParser(
        prog=f"python -m stages.{name}",
        description=description,
        epilog="Reads params.yaml and artifacts/ of the workspace; takes no arguments.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    ).parse_args()
    run_stage(name, body, timed)


def run_stage(name: str, body: Callable[[Stage], Mapping[str, Any]], timed: bool = True) -> None:
    """Run a stage's body in the workspace and end the process: 0 when it ended well, 1 on a fault, 130 on Ctrl-C.

    The body returns the content of reports/<name>.json; `stage`, `seconds` (unless `timed` is off) and, unless given,
    `status: done` are added. A fault goes to stderr and, for `python -m pipeline`, to reports/error.json.
    """
    root, stage = workspace(), None
    collect_garbage_less()
    try:
        stage = Stage(name, root)
        started = time.perf_counter()
        report = dict(body(stage))
        stage.finish(report | {"seconds": round(time.perf_counter() - started, 3)} if timed else report)
    except (StageError, ConfigErrors) as error:
        _end(stage, root, name, str(error), 1)
    except KeyboardInterrupt:
        _end(stage, root, name, "stopped; earlier artifacts are untouched", 130)
    except OSError as error:
        _end(stage, root, name, coded("file-unwritable", explain(error)), 1)
    except BaseException as error:  # a fault of ours: with its traceback
        _tidy(stage, root, name, f"{type(error).__name__}: {error}")
        raise


def collect_garbage_less() -> None:
    """For processes that build large graphs: what was imported lives as long as they do, and so do most nodes. Python's
    collector would look at all of them again and again, which takes a sixth of a stage's time.
    """
    gc.freeze()
    gc.set_threshold(100_000, 50, 50)


def run_door(name: str, door: Callable[..., Mapping[str, Any]], options: Mapping[str, Any]) -> None:
    """Call a library door with keywords from a command line and print its report as JSON.

    Ends the process with 1 on a fault and with 130 on Ctrl-C, with one line on stderr.
    """
    try:
        print(json.dumps(door(**options), indent=2))
    except StageError as error:
        sys.exit(f"{name}: {error}")
    except OSError as error:
        sys.exit(f"{name}: {coded('file-unwritable', explain(error))}")
    except KeyboardInterrupt:
        print(f"{name}: stopped; no file was left half written", file=sys.stderr)
        sys.exit(130)


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
    return here if (here / "params.yaml").exists() else CONF.parent


def load_params(root: Path) -> Config:
    """The validated params.yaml of a workspace.

    Raises:
        StageError: when it is missing or no YAML.
        ConfigErrors: listing everything that is wrong in it.
    """
    from truehalf.models.configuration import validated

    return validated(_read_params(root))


def params_digest(root: Path) -> str:
    """SHA-256 of what params.yaml says (not of how it is written)."""
    text = json.dumps(_read_params(root), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _read_params(root: Path) -> dict[str, Any]:
    path = root / "params.yaml"
    try:
        values = yaml.safe_load(path.read_text())
    except FileNotFoundError as error:
        raise StageError("file-missing", f"{path} is missing; `python -m pipeline` writes it") from error
    except yaml.YAMLError as error:
        raise StageError(
            "file-unreadable", f"{path} is no valid YAML: {error}; `python -m pipeline` writes it anew"
        ) from error
    if not isinstance(values, dict):
        raise StageError(
            "file-unreadable",
            f"{path}: expected a mapping, got {type(values).__name__}; `python -m pipeline` writes it anew",
        )
    return values


def _own(report: Path) -> Path:
    """Where a stage writes a report of its own. A link of DVC's, into its cache, goes first: so DVC does itself before
    it runs a stage.
    """
    if report.is_symlink() and report.exists() and is_protected(report):
        report.unlink()
    return destination(report)
