"""lint: what TensorRT will refuse, compute wrongly or run slowly, in an ONNX file and in the torch code behind it.

    python -m stages.lint model.onnx
    python -m stages.lint model.onnx --torch detector:build --format sarif --out lint.sarif

docs/lint.md explains each rule. The stage `trace` runs it, too (`lint` in the configuration).
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shutil
import sys
import traceback
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from truehalf.codes import coded
from truehalf.config.defaults import defaults
from truehalf.errors import StageError
from truehalf.files import explain
from truehalf.io_spec.in_file import SPEC_KEY
from truehalf.ir.model_file import load_model, source_weights
from truehalf.linting import RULES, SEVERITIES, Finding
from truehalf.linting import lint as lint_graph
from truehalf.linting.ignoring import parse_ignores, split_ignored
from truehalf.linting.report import LintReport, sarif, text
from truehalf.linting.support import parse_version
from truehalf.output_files import write_text
from truehalf.output_paths import check_outputs

FORMATS = ("text", "json", "sarif")
FAIL_ON = ("never", "error", "warning")
_BAD_INPUT, _STOPPED = 2, 130
_WIDTH_OF_FILES = 120


def lint(
    path: Path | str | None = None,
    *,
    torch: Any = None,
    tensorrt: str | None = None,
    ignore: Sequence[str] | None = None,
    plugin_ops: Collection[str] = (),
) -> LintReport:
    """Look at an ONNX file, at torch code, or at both.

    Args:
        path: of the ONNX file; it is only read.
        torch: "module:factory", a torch module, or a function that returns one: its source is looked at.
        tensorrt: "10", "11.4", ...: the version that is to build it; by default 10.16 and 11.4.
        ignore: "rule", or "rule@<regular expression on node name or scope>"; by default lint.ignore of
            conf/config.yaml.
        plugin_ops: operator types that plugins bring along, as Op or domain::Op.

    Raises:
        StageError: when the file or the code cannot be read, or an option is none.
    """
    if path is None and torch is None:
        raise StageError(
            "needs-value", "lint: expected an ONNX file, torch code (module:factory), or both; got neither"
        )
    ignores = parse_ignores(defaults("config")["lint"]["ignore"] if ignore is None else ignore, RULES)
    try:
        versions = parse_version(tensorrt)
    except ValueError as error:
        raise StageError("bad-syntax", f"lint: {error}") from error
    findings: list[Finding] = []
    if path is not None:
        findings += _of_file(Path(path), tensorrt, plugin_ops)
    if torch is not None:
        from truehalf.exporting.source_lint import lint_source

        findings += lint_source(_factory(torch) if isinstance(torch, str) else torch)
    findings.sort(key=lambda finding: SEVERITIES.index(finding.severity))
    kept, ignored = split_ignored(findings, ignores)
    named = [str(part) for part in (path, torch if isinstance(torch, str) else None) if part is not None]
    return LintReport(
        target=", ".join(named) or type(torch).__name__,
        model=str(path) if path is not None else None,
        tensorrt=tuple(f"{major}.{minor}" for major, minor in versions) if path is not None else (),
        findings=tuple(kept),
        ignored=ignored,
    )


def _of_file(path: Path, tensorrt: str | None, plugin_ops: Collection[str]) -> list[Finding]:
    from truehalf.ir.facts import all_nodes
    from truehalf.ir.normalize import infer_types, sort_nodes

    model = load_model(path)
    try:
        sort_nodes(model)
    except StageError as error:
        raise StageError(error.code, f"{path}: {error}") from error
    if any(value.type is None for node in all_nodes(model) for value in node.outputs if value.name):
        infer_types(model)
    spec = model.metadata_props.get(SPEC_KEY)
    inputs = [tensor["name"] for tensor in json.loads(spec)["inputs"]] if spec else []
    try:
        return lint_graph(model, tensorrt=tensorrt, plugin_ops=plugin_ops, inputs=inputs)
    except StageError as error:
        raise StageError(error.code, f"{path}: {error}") from error


def _factory(name: str) -> Any:
    """What "module:factory" names; modules of the current folder are found, too.

    Raises:
        StageError: when there is no such thing.
    """
    module_name, separator, attribute = name.partition(":")
    if not separator or not module_name or not attribute:
        raise StageError("bad-syntax", f"--torch: expected module:factory, such as detector:build, got {name!r}")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module_name)
    except ImportError as error:
        raise StageError(
            "function-fails", f"--torch {name}: cannot import {module_name} ({error}); run it where it can be"
        ) from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise StageError(
                "function-fails", f"--torch {name}: {module_name} has no {attribute}; expected a module or a function"
            )
        found = getattr(found, part)
    return found


# --- command line -----------------------------------------------------------------------------------------------------


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line; argparse ends the process with 2 where it cannot."""
    parser = argparse.ArgumentParser(
        prog="python -m stages.lint",
        description=(__doc__ or "").split("\n\n")[0],
        epilog="Exit code: 0 nothing at or above --fail-on, 1 a finding that is, 2 bad input, 130 stopped.",
    )
    add = parser.add_argument
    add("path", nargs="?", metavar="model.onnx", help="the file to look at")
    add("--torch", metavar="MODULE:FACTORY", help="look at the source of this torch module, or of what it returns")
    add("--tensorrt", metavar="VERSION", help="10, 11, 11.4, ...: will build it; by default 10.16 and 11.4")
    add("--format", choices=FORMATS, default="text", help="by default text")
    add(
        "--ignore",
        action="append",
        metavar="RULE[@REGEX]",
        help="leave out findings of a rule, or those whose node or scope the expression is found in; may be repeated",
    )
    add("--plugin-ops", action="append", default=[], metavar="OP", help="an operator of a plugin; may be repeated")
    add("--fail-on", choices=FAIL_ON, default="error", help="exit with 1 from this severity on; by default error")
    add("--out", type=Path, metavar="FILE", help="write there, and not to stdout")
    found = parser.parse_args(argv)
    if found.path is None and found.torch is None:
        parser.error("expected model.onnx, --torch MODULE:FACTORY, or both")
    return found


def lint_from_shell(argv: Sequence[str] | None = None) -> int:
    """Look as the arguments say; findings on stdout or in a file, faults on stderr, and the exit code."""
    options = arguments(argv)
    try:
        if options.out is not None:
            _check_out(options.out, options.path)
        report = lint(
            options.path,
            torch=options.torch,
            tensorrt=options.tensorrt,
            ignore=options.ignore,
            plugin_ops=options.plugin_ops,
        )
        written = _formatted(report, options.format, options.out)
        if options.out is not None:
            write_text(options.out, written + "\n")
    except StageError as error:
        return _end(str(error), _BAD_INPUT)
    except OSError as error:
        return _end(coded("file-unwritable", explain(error)), _BAD_INPUT)
    except KeyboardInterrupt:
        return _end("stopped; no file was left half written", _STOPPED)
    except Exception as error:  # a fault of ours, or of the factory: 1 would say that there are findings
        traceback.print_exc()
        return _end(f"{type(error).__name__}: {error}", _BAD_INPUT)
    if options.out is None:
        try:
            print(written, flush=True)
        except BrokenPipeError:  # whoever read it wants no more of it
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return int(report.reaches(options.fail_on))


def _formatted(report: LintReport, form: str, out: Path | None) -> str:
    if form == "text":
        return text(report, shutil.get_terminal_size().columns if out is None else _WIDTH_OF_FILES)
    if form == "sarif":
        from truehalf.exporting.source_lint import RULES as SOURCE_RULES

        return json.dumps(sarif(report, RULES | SOURCE_RULES), indent=2)
    return json.dumps(report.as_dict(), indent=2)


def _check_out(out: Path, model: str | None) -> None:
    weights = source_weights(load_model(model)) if model is not None and out.exists() else ()
    check_outputs({"--out": out}, {"the model": model}, weights)


def _end(message: str, code: int) -> int:
    print(f"lint: {message.removeprefix('lint: ')}", file=sys.stderr)
    return code


def main() -> None:
    sys.exit(lint_from_shell())


if __name__ == "__main__":
    main()
