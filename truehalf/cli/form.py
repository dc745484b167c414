"""Form of the subcommands: help with examples first, options in groups, exit codes, output."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import Field, dataclass, fields
from enum import Enum
from functools import partial, reduce
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar, cast, get_args, get_type_hints

import click

from truehalf.codes import coded
from truehalf.config.options import Options, default_of
from truehalf.config.typed import ConfigErrors
from truehalf.errors import StageError, typed_line
from truehalf.files import explain, is_of_file, plain, write_json
from truehalf.json_values import JsonObject
from truehalf.report.terminal import has_colour, show, terminal_width
from truehalf.report.text import Screen

PASSED, FAILED, BAD_INPUT, NOT_VERIFIED, DEFECT, STOPPED = 0, 1, 2, 3, 70, 130
VERDICTS = {"passed": PASSED, "failed": FAILED, "not verified": NOT_VERIFIED}
EXIT_CODES = "Exit codes: 0 passed, 1 failed, 2 bad input, 3 not verified, 70 defect of truehalf, 130 stopped."
EXITS_OF_WORK = "Exit codes: 0 done, 2 bad input, 70 defect of truehalf, 130 stopped."
# Packages that are in no plain installation, and the extra that brings each.
_EXTRAS = {"torch": "torch", "onnxscript": "torch", "safetensors": "torch", "tensorrt": "tensorrt"}


# --- commands and options ---------------------------------------------------------------------------------------------


def write_examples(formatter: click.HelpFormatter, examples: Sequence[str]) -> None:
    with formatter.section("Examples"):
        formatter.write("".join(f"  {line}\n" for line in examples))


class Option(click.Option):
    """An option of a group of its command's help; is_output: it names a file that the command writes."""

    def __init__(self, *args: Any, group: str = "", is_output: bool = False, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self.group, self.is_output = group, is_output


Given = MutableMapping[str, object]  # keywords that click gives a command, of the types that its options say
FILE = click.Path(path_type=Path)
MODEL = click.Path(path_type=Path)  # an ONNX file, with its weights
SOURCE = click.Path()  # of samples: completed like a file, kept as text
STDOUT = Path("-")
FILE_OF_JSON = "write the whole result, for machines; -: to stdout"
QUIET, VERBOSE = "print one line: the verdict", "print all that was found"


class Command(click.Command):
    """A command of the group: its help begins with examples and shows options by group, its function gets what --json,
    --quiet and --verbose say as `output`, and what goes wrong is one line and an exit code.
    """

    def __init__(self, *args: Any, examples: Sequence[str] = (), exits: str = EXIT_CODES, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self.examples, self.exits = examples, exits
        self.no_args_is_help = any(isinstance(each, click.Argument) and each.required for each in self.params)
        self.params += [
            Option(["--json", "json_path"], type=FILE, metavar="FILE", is_output=True, help=FILE_OF_JSON),
            Option(["--quiet"], is_flag=True, help=QUIET),
            Option(["--verbose"], is_flag=True, help=VERBOSE),
        ]

    def invoke(self, ctx: click.Context) -> int:
        return exit_code(ctx.command_path, partial(self._work, ctx))

    def _work(self, ctx: click.Context) -> object:
        _check_places(self.params, ctx.params)
        ctx.params["output"] = Output(*(ctx.params.pop(name) for name in ("json_path", "quiet", "verbose")))
        return super().invoke(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_examples(formatter, self.examples)
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            if (record := parameter.get_help_record(ctx)) is not None:  # None of arguments: the usage line has them
                groups.setdefault(getattr(parameter, "group", ""), []).append(record)
        for name, records in groups.items():
            with formatter.section(name or "Options"):
                formatter.write_dl(records, col_max=26)
        formatter.write_paragraph()
        formatter.write_text(self.exits)


def command(**keywords: Any) -> Callable[[Callable[..., int | None]], Command]:
    """Decorator of a function that returns the exit code; None: 0."""
    return click.command(cls=Command, **keywords)


def option(*names: str, **keywords: Any) -> Callable[[Any], Any]:
    return click.option(*names, cls=Option, **keywords)


def file_option(*names: str, **keywords: Any) -> Callable[[Any], Any]:
    return option(*names, **{"type": FILE, "metavar": "FILE"} | keywords)


def samples_option(required: bool, what: str = "") -> Callable[[Any], Any]:
    kinds = f"{what}folder of images, .npz or a folder of them, Polygraphy's JSON"
    return option("--samples", type=SOURCE, required=required, metavar="SOURCE", help=kinds)


def decorated(command: Any, options: Sequence[Callable[[Any], Any]]) -> Any:
    """A command with further options, in this order in its help."""
    return reduce(lambda made, decorate: decorate(made), reversed(options), command)


# --- errors -----------------------------------------------------------------------------------------------------------


def exit_code(program: str, work: Callable[[], object]) -> int:
    """Run a command and return its exit code; an error is one line on stderr, that of a defect below its traceback.

    Args:
        program: begins the line: "truehalf", or "truehalf <command>".
    """
    try:
        code = work()
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return BAD_INPUT
    except click.ClickException as error:
        program = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else program
        return _ended(program, f"{error.format_message().rstrip('.')}; see `{program} --help`", BAD_INPUT)
    except (click.Abort, KeyboardInterrupt):
        return _ended(program, "stopped; no file was left half written", STOPPED)
    except Exception as error:
        if message := _bad_input(error):
            return _ended(program, message, BAD_INPUT)
        traceback.print_exception(error)
        ours = f"this is a defect of truehalf {version('truehalf')}, not an error in your input"
        message = coded("internal-error", f"{typed_line(error)}; {ours}")
        return _ended(program, f"{message}\nPlease report it, with the lines above.", DEFECT)
    return code if isinstance(code, int) else PASSED


def _bad_input(error: Exception) -> str:
    """The message of an error that the user can fix; "" of any other, which is a defect."""
    if isinstance(error, (StageError, ConfigErrors)):
        return str(error)
    if isinstance(error, ModuleNotFoundError) and error.name in _EXTRAS:
        extra = f"pip install 'truehalf[{_EXTRAS[error.name]}]'"
        return coded("package-missing", f"the package {error.name} is missing: {extra}")
    if isinstance(error, OSError) and is_of_file(error):
        return coded("file-unwritable", explain(error))
    return ""


def _ended(program: str, message: str, code: int) -> int:
    start = click.style(f"{program}:", fg="red", bold=True) if has_colour(sys.stderr) else f"{program}:"
    print(f"{start} {message.removeprefix(f'{program.split()[-1]}: ')}", file=sys.stderr)
    return code


# --- what a command writes --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Output:
    """What a command prints and writes of its result, as --json, --quiet and --verbose say."""

    json_path: Path | None
    is_quiet: bool
    is_verbose: bool

    @property
    def screen(self) -> Screen:
        return Screen(terminal_width(), self.is_verbose)

    def give(self, lines: Sequence[str], content: Mapping[str, object], further: Iterable[str] = ()) -> None:
        """Print the result, and write the JSON; with --json - only the JSON goes to stdout.

        Args:
            lines: the first is the verdict, all that --quiet leaves.
            content: for JSON; numbers that JSON does not have become "nan", "inf", "-inf".
            further: lines that --verbose adds.
        """
        shown = lines[:1] if self.is_quiet else [*lines, *(further if self.is_verbose else ())]
        show("\n".join(shown), sys.stderr if self.json_path == STDOUT else sys.stdout)
        if self.json_path == STDOUT:
            show(json.dumps(plain(content), indent=2))
        elif self.json_path is not None:
            write_json(self.json_path, content)


def _check_places(parameters: Iterable[click.Parameter], given: Mapping[str, Any]) -> None:
    """Refuse outputs, before the work, that cannot be written or lie where an input does, a model's weights included.

    Args:
        parameters: of a command: an Option with is_output is written, every other one of a path is read.
        given: values by parameter; None is neither.

    Raises:
        StageError: file-unwritable, would-overwrite, or a model that cannot be read.
    """
    from truehalf.files import check_outputs
    from truehalf.ir.model_file import source_weights
    from truehalf.ir.model_forms import as_file

    outputs: dict[str, Path] = {}
    inputs: dict[str, Path | str] = {}
    models: list[Path] = []
    for parameter in parameters:
        path = given[str(parameter.name)]
        if path is not None and isinstance(parameter.type, click.Path):
            label = parameter.opts[-1] if isinstance(parameter, Option) else str(parameter.metavar)
            (outputs if getattr(parameter, "is_output", False) else inputs)[label] = path
            models += [path] if parameter.type is MODEL else []
    if outputs.get("--json") == STDOUT:
        del outputs["--json"]
    exists = any(path.exists() for path in outputs.values())  # else it is no file of weights
    weights = [weight for model in models for weight in source_weights(as_file(model, Path()).model)] if exists else []
    check_outputs(outputs, inputs, weights)


# --- options that several commands have -------------------------------------------------------------------------------

_NULL = object()  # of a flag that is given as null; None: it is not given
Section = TypeVar("Section", bound=Options)
_IMAGES = "Images (default: the preprocessing of the model's I/O spec)"
_RANGES = {"0..1": [0, 1], "0..255": [0, 255]}
_PARTS = ("size", "range", "mean", "std", "layout", "resize", "channels")  # of a preprocessing
_EXTRA_NAMES = {"tensor_rms_max": ("--tolerance",)}  # short forms of flags
_ALL_OR_NONE = {("all",): True, ("none",): False}
_MEANINGS = {"keep_io_types": "inputs and outputs that stay float32: all (default), none, or a name"}


def image_options(command: Any) -> Any:
    """--preprocessing and its parts, as keywords of a command."""
    of = partial(option, group=_IMAGES)
    options = (
        of("--size", metavar="HxW", help="height and width in pixels [the model's]"),
        of("--range", type=click.Choice([*_RANGES]), help="of pixels [as graphs show, else 0..1]"),
        of("--mean", metavar="R,G,B", help="subtracted from pixels in --range [0,0,0]"),
        of("--std", metavar="R,G,B", help="divides pixels after --mean [1,1,1]"),
        of("--layout", type=click.Choice(("NCHW", "NHWC")), help="axes of the input [as its shape shows]"),
        of("--resize", type=click.Choice(("stretch", "letterbox")), help="letterbox keeps the aspect ratio [stretch]"),
        of("--channels", type=click.Choice(("RGB", "BGR")), help="their order [RGB]"),
        of("--preprocessing", type=FILE, metavar="FILE", help="all of these, in YAML or JSON"),
    )
    return decorated(command, options)


def preprocessing_of(given: Given) -> JsonObject | Path | None:
    """Takes the options of images out of a command's keywords.

    Raises:
        StageError: a file and parts at once, numbers that cannot be read.
    """
    file = cast("Path | None", given.pop("preprocessing"))
    stated: dict[str, Any] = {name: value for name in _PARTS if (value := given.pop(name)) is not None}
    if file is not None and stated:
        listed = ", ".join(f"--{name}" for name in stated)
        raise StageError("in-conflict", f"--preprocessing: expected a file or {listed}, got both")
    numbers: dict[str, Callable[[str], list[Any]]] = {
        "size": partial(_numbers, "--size", "640x640", "x", int),
        "range": _RANGES.__getitem__,
        "mean": partial(_numbers, "--mean", "0.485,0.456,0.406", ",", float),
        "std": partial(_numbers, "--std", "0.229,0.224,0.225", ",", float),
    }
    return {name: numbers[name](value) if name in numbers else value for name, value in stated.items()} or file


def _numbers(flag: str, example: str, separator: str, kind: type, text: str) -> list[Any]:
    """As many numbers as the example has."""
    count = len(example.split(separator))
    try:
        numbers = [kind(part) for part in text.lower().split(separator)]
    except ValueError:
        numbers = []
    if len(numbers) != count:
        raise StageError("bad-syntax", f"{flag}: expected {count} numbers such as {example}, got {text!r}")
    return numbers


def flags(section: type[Options], group: Callable[[str], str | None]) -> Callable[[Any], Any]:
    """Decorator of a command: a flag for each field of an option dataclass, named as the field.

    Args:
        group: the group of the help that a field's flag is in; None: it has none.
    """
    types = get_type_hints(section)
    keys: Sequence[Field[Any]] = fields(section)  # type: ignore[arg-type]  # every one is a dataclass
    shown = [_flag(each, types[each.name], heading) for each in keys if (heading := group(each.name)) is not None]
    return lambda command: decorated(command, shown)


def _flag(key: Field[Any], type_: Any, group: str) -> Callable[[Any], Any]:
    """The flag of a field, in the form that the field's type asks for."""
    flag, default, kinds = f"--{key.name.replace('_', '-')}", default_of(key), set(get_args(type_)) or {type_}
    words = default if isinstance(default, list) else [] if isinstance(default, bool | None) else [str(default)]
    names: tuple[str, ...] = (flag,)
    form: dict[str, Any] = {"metavar": "TEXT"}
    further = ""
    if kinds == {bool}:
        no = f"--no-{flag[2:]}"
        names, form, words = (f"{flag}/{no}",), {"default": None}, [flag if default else no]
    elif isinstance(default, list) or tuple[str, ...] in kinds:
        form, further = {"multiple": True, "metavar": "ENTRY"}, "; may be repeated"
    elif isinstance(type_, type) and issubclass(type_, Enum):
        form = {"type": click.Choice([each.value for each in type_])}
    elif kinds & {int, float}:
        names = (*_EXTRA_NAMES.get(key.name, ()), flag, key.name)
        form = {"type": _number_or_null(int if int in kinds else float), "metavar": "NUMBER"}
    meaning = _MEANINGS.get(key.name, key.metadata["meaning"])
    if form.get("multiple"):
        meaning = meaning.partition(". null: ")[0]  # a command line holds neither null nor an empty list
    shown = f" [{', '.join(words)}]" if words else ""
    return option(*names, group=group, help=f"{meaning}{shown}{further}", **form)


def _number_or_null(kind: type) -> Callable[[str], Any]:
    def number(value: str) -> Any:
        if value.lower() in ("none", "null", "off"):
            return _NULL
        try:
            return kind(value)
        except ValueError as error:
            raise click.BadParameter(f"expected a number or null, got {value!r}") from error

    return number


def options_of(section: type[Section], given: Given, **further: object) -> Section:
    """An option dataclass of the flags that were given, which are taken out of a command's keywords, and of others."""
    options: dict[str, Any] = dict(further)
    for each in fields(section):  # type: ignore[arg-type]  # every one is a dataclass
        value = cast(Any, given.pop(each.name, None))
        if value not in (None, ()):
            value = _ALL_OR_NONE.get(value, value) if each.name == "keep_io_types" else value
            options[each.name] = None if value is _NULL else value
    return section(**options)
