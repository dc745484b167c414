"""Entry point of the command `truehalf`: one module a subcommand, imported when it is called."""

from __future__ import annotations

import importlib
from importlib.metadata import version

import click

from truehalf.cli.form import EXIT_CODES, exit_code, write_examples
from truehalf.report.terminal import run_program

# Name and line in `truehalf --help`. The module has the same name, and a click command called `command`.
COMMANDS = {
    "convert": "FP32 file to FP16, verified: the whole way in one command",
    "verify": "compare an FP16 file with its FP32 reference",
    "lint": "find what TensorRT refuses, computes wrongly or runs slowly",
    "inspect": "show I/O spec, casts, FP16 share and FP32 islands of a file",
    "calibrate": "measure ranges once for many conversions",
    "clean-casts": "remove needless Casts from any tool's file",
    "repair": "rewrite TensorRT-hostile patterns",
    "export": "torch module to FP32 ONNX, verified (needs truehalf[torch])",
    "engine": "build the TensorRT engine of a file, or compile it without a GPU",
    "report": "draw the HTML page of a --json result",
}
_OF_THE_LIBRARY = {"compare": "verify"}  # what is called otherwise in Python
_EXAMPLES = (
    "truehalf convert model.onnx --samples images/ --size 640x640",
    "truehalf verify model.onnx model_fp16.onnx --samples images/ --size 640x640",
    "truehalf lint model.onnx",
)


class _Group(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name in COMMANDS:
            module = importlib.import_module(f"truehalf.cli.{name.replace('-', '_')}")
            command: click.Command = module.command
            return command
        if ctx.resilient_parsing:  # words are completed
            return None
        import difflib

        near = [*filter(None, [_OF_THE_LIBRARY.get(name)]), *difflib.get_close_matches(name, COMMANDS, n=1)]
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise click.UsageError(f"No such command {name!r}.{hint}", ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_examples(formatter, _EXAMPLES)
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))
        click.Command.format_options(self, ctx, formatter)
        formatter.write_paragraph()
        formatter.write_text(f"{EXIT_CODES} `truehalf COMMAND --help` shows a command's options.")
        formatter.write_paragraph()
        formatter.write_text("A key in a message is set by the flag of its last part: verify.batch by verify --batch.")
        formatter.write_paragraph()
        formatter.write_text("Completion in bash (zsh_source in zsh, fish_source in fish):")
        formatter.write('  eval "$(_TRUEHALF_COMPLETE=bash_source truehalf)"\n')


@click.group(cls=_Group, no_args_is_help=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version("truehalf"), prog_name="truehalf")
def app() -> None:
    """FP16 ONNX files for TensorRT that compute what their FP32 reference computes, shown without a GPU."""


def run(argv: list[str] | None = None) -> int:
    """Run a command.

    Args:
        argv: its words, without the program's name; None: those of the process.

    Returns:
        the exit code.
    """
    return exit_code("truehalf", lambda: app.main(argv, prog_name="truehalf", standalone_mode=False))


def main() -> None:
    run_program(run)
