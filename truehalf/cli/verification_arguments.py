"""The command line of the comparison: every keyword of the door is a flag, and the verdict is the exit code."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from truehalf.codes import coded
from truehalf.config.schema import Evaluation
from truehalf.errors import StageError
from truehalf.files import explain, write_json
from truehalf.ir.model_file import load_model, source_weights
from truehalf.output_paths import check_outputs
from truehalf.verification.compare.compare import DEFAULTS, compare
from truehalf.verification.gates import FAILED, NOT_VERIFIED, PASSED
from truehalf.verification.page.text import report_text

EXIT_CODES = {PASSED: 0, FAILED: 1, NOT_VERIFIED: 3}
BAD_INPUT = 2  # argparse's, too
STOPPED = 130
_LOCATE: dict[str, bool | str] = {"when-off": True, "always": "always", "never": False}


def arguments(argv: list[str]) -> tuple[dict[str, Any], Path | None]:
    """Keywords for stages.verify.compare, where what is not given is not there; and where to write the report."""
    parser = argparse.ArgumentParser(
        prog="python -m stages.verify",
        usage="%(prog)s fp32.onnx fp16.onnx --inputs SAMPLES [options]",
        description="Hold an FP16 file against its FP32 reference, on the same inputs.",
        epilog="Exit code: 0 passed, 1 failed, 2 bad input, 3 not verified (nothing failed, but something that the "
        "verdict needs could not be measured). Without arguments it is the stage `verify`: it reads params.yaml and "
        "artifacts/ of the workspace.",
        argument_default=argparse.SUPPRESS,  # what is not given is the door's default
    )
    add = parser.add_argument
    add("reference", metavar="fp32.onnx")
    add("candidate", metavar="fp16.onnx")
    add("--inputs", metavar="SAMPLES", required=True, help=".npz, a folder of them, Polygraphy's JSON, pictures")
    add("--spec", metavar="FILE", help="I/O spec, YAML or JSON; by default the one in the metadata of fp32.onnx")
    add("--preprocessing", metavar="FILE", help="of pictures, YAML or JSON; by default what the I/O spec says")
    add("--evaluation", choices=[each.value for each in Evaluation], help="of a file that holds FP16")
    add("--tolerance", type=float, metavar="NUMBER", help="max |d| <= tolerance * max |reference|; by default 0.01")
    add("--batch", type=int, metavar="NUMBER", help=f"samples a run at most; by default {DEFAULTS['batch']}")
    for name, meaning in (
        ("score_threshold", "detections of the reference above this must be found again"),
        ("iou_threshold", "... with the same class and at least this overlap"),
    ):
        add(_flag(name), type=float, metavar="NUMBER", help=f"{meaning}; by default {DEFAULTS[name]}")
    add(
        "--locate",
        choices=list(_LOCATE),
        help="look for the node where it goes wrong; by default when-off: unless it passed, or no node is to blame",
    )
    add("--skip-corrupt", action="store_true", help="leave out pictures that cannot be read, and name them")
    add("--json", metavar="report.json", type=Path, help="write the whole report")
    found = vars(parser.parse_args(argv))
    if "locate" in found:
        found["locate"] = _LOCATE[found["locate"]]
    return found, found.pop("json", None)


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def compare_from_shell(argv: list[str]) -> int:
    """Compare as the arguments say: a table on stdout, faults on stderr, and the exit code."""
    options, json_path = arguments(argv)
    try:
        if json_path is not None:
            _check_report_path(json_path, options)
        report = compare(**options)
        if json_path is not None:
            write_json(json_path, report.as_dict())
    except StageError as error:
        return _end(str(error), BAD_INPUT)
    except OSError as error:
        return _end(coded("file-unwritable", explain(error)), BAD_INPUT)
    except KeyboardInterrupt:
        return _end("stopped; nothing was compared to the end", STOPPED)
    except Exception as error:  # a fault of ours; 1 would say that the candidate failed
        traceback.print_exc()
        return _end(f"{type(error).__name__}: {error}", BAD_INPUT)
    try:
        print(report_text(report, options["reference"], options["candidate"]), flush=True)
    except BrokenPipeError:  # whoever read the table wants no more of it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return EXIT_CODES[report.verdict]


def _check_report_path(path: Path, options: Mapping[str, Any]) -> None:
    """Refuse a report that would replace what is compared, or what is no file.

    Raises:
        StageError: when it would, or when it cannot be written.
    """
    models = [options[name] for name in ("reference", "candidate")]
    weights = [file for model in models for file in source_weights(load_model(model))] if path.exists() else []
    read = {name: options.get(name) for name in ("reference", "candidate", "inputs", "spec", "preprocessing")}
    check_outputs({"--json": path}, {f"the {name}": given for name, given in read.items()}, weights)


def _end(message: str, code: int) -> int:
    print(f"verify: {message}", file=sys.stderr)
    return code
