"""The command line of the conversion: every keyword of the door is a flag."""

from __future__ import annotations

import argparse
import re
from enum import Enum
from typing import Any, get_args, get_type_hints

from truehalf.config.schema import CONF, PrecisionConfig
from truehalf.conversion.options import DEFAULTS

_KEEP_IO_TYPES = (
    "inputs and outputs that stay float32 while the others become float16; without names, and by default, all"
)
_SHAPES = "shapes at which costs of casts are compared; by default those of the first calibration sample"


def arguments(argv: list[str]) -> dict[str, Any]:
    """Keywords for stages.fp16.to_fp16; what is not given is not there.

    A key of the YAML takes its type from the schema and its meaning from there.
    """
    parser = argparse.ArgumentParser(
        prog="python -m stages.fp16",
        usage="%(prog)s in.onnx out.onnx [options]",
        description="Convert an FP32 ONNX file to FP16.",
        epilog="The two files stand first: a flag that takes a list takes all words up to the next flag. Given again, "
        "it adds to the list.",
        argument_default=argparse.SUPPRESS,  # what is not given is the door's default
    )
    parser.add_argument("model_path", metavar="in.onnx")
    parser.add_argument("out_path", metavar="out.onnx")
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--calibration", metavar="SAMPLES", help="an .npz file, a folder of them, or Polygraphy's JSON")
    source.add_argument("--ranges", metavar="ranges.json", help="as stages.calibrate writes it")
    types = get_type_hints(PrecisionConfig)
    for key, meaning in meanings().items():
        _add_flag(parser, key, types[key], meaning)
    parser.add_argument("--input-shapes", nargs="+", action="extend", metavar="NAME:1x3x640x640", help=_SHAPES)
    parser.add_argument("--decisions-path", metavar="decisions.json", help="write the decision for each node")
    found = vars(parser.parse_args(argv))
    try:
        if "input_shapes" in found:
            found["input_shapes"] = dict(_shape(text) for text in found["input_shapes"])
    except ValueError as error:
        parser.error(str(error))
    if found.get("keep_io_types") == []:  # the flag without names
        found["keep_io_types"] = True
    return found


def meanings() -> dict[str, str]:
    """What each key means: the comment beside it in the YAML that also holds its default."""
    lines = (CONF / "precision/fp16.yaml").read_text().splitlines()
    found = (re.match(r"(\w+):[^#]*(?:# (.*))?$", line) for line in lines)
    return {match[1]: (match[2] or "").replace("%", "%%") for match in found if match and match[1] in DEFAULTS}


def _add_flag(parser: argparse.ArgumentParser, key: str, type_: Any, meaning: str) -> None:
    """A flag of a key; one that takes a list may be repeated, and its entries then add up."""
    flag = f"--{key.replace('_', '-')}"
    kinds = set(get_args(type_)) or {type_}
    if kinds == {bool}:
        parser.add_argument(flag, action=argparse.BooleanOptionalAction, help=meaning)
    elif key == "keep_io_types":
        parser.add_argument(flag, nargs="*", action="extend", metavar="NAME", help=_KEEP_IO_TYPES)
        parser.add_argument("--no-keep-io-types", dest=key, action="store_false", help="float16 inputs and outputs")
    elif isinstance(DEFAULTS[key], list):
        parser.add_argument(flag, nargs="+", action="extend", metavar="ENTRY", help=meaning)
    elif isinstance(type_, type) and issubclass(type_, Enum):
        parser.add_argument(flag, choices=[member.value for member in type_], help=meaning)
    elif kinds & {int, float}:
        number = int if int in kinds else float
        parser.add_argument(flag, type=_or_none(number), metavar="NUMBER", help=meaning)
    else:
        parser.add_argument(flag, metavar="TEXT", help=meaning)


def _or_none(number: type) -> Any:
    def parse(text: str) -> Any:
        return None if text.lower() in ("none", "null", "off") else number(text)

    parse.__name__ = number.__name__  # argparse names it when a value is wrong
    return parse


def _shape(text: str) -> tuple[str, list[int]]:
    name, separator, sides = text.rpartition(":")
    if not separator or not re.fullmatch(r"\d+(x\d+)*", sides):
        raise ValueError(f"--input-shapes: expected NAME:1x3x640x640, got {text!r}")
    return name, [int(side) for side in sides.split("x")]
