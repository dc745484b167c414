"""Help of `python -m pipeline`: a page of one's own model and examples, and a list of every choice and key with the
comments of conf/.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.workspace import CONF

# Options of one's own model, by what is typed.
OWN_MODEL = {
    "model=onnx": "where it comes from: onnx, torch, huggingface, torchvision, timm, lightly_train, ltdetr",
    "model.checkpoint=model.onnx": "the weights, or the ONNX file",
    "model.options.factory=mine:build": "of model=torch: the function that makes the module",
    "model.image_size=[640,640]": "height and width; left out: as the model has it",
    "data.folder=images": "images to calibrate and to verify with, some 100 that the model has not seen",
    "data.annotations=instances.json": "with data=coco: labels, for average precision against the true boxes",
}
EXAMPLES = {
    "python -m pipeline": "the embedded detector, in FP16",
    "python -m pipeline model=onnx model.checkpoint=model.onnx data.folder=images": "an ONNX file of yours",
    "python -m pipeline precision.op_block_list=[Softmax]": "keep some operators FP32",
    "python -m pipeline -m precision=fp32,fp16 decoder=dfine,rtdetrv2": "a sweep: four runs",
    "python -m pipeline experiment=overflow_naive": "a run that fails, and says where and what to try",
}


def page(width: int) -> str:
    """What the command does, options of one's own model, examples, and where the rest is."""
    first = "truehalf: from a trained detector to a verified FP16 ONNX file and, on an NVIDIA GPU, a TensorRT engine."
    parts = [textwrap.fill(first, width), "Usage: python -m pipeline [group=choice ...] [key=value ...] [--verbose]"]
    examples = [f"  {command}\n      {meaning}" for command, meaning in EXAMPLES.items()]
    rest = {
        "--help-all": "every choice and every key, with its default and meaning",
        "--cfg job": "show the configuration that the rest of the command line gives; run nothing",
        "--verbose": "print what DVC says, too",
        "docs/": "how-to guides, reference, explanation; a single file: truehalf --help",
    }
    own, more = ([line for pair in rows.items() for line in _row(*pair, width)] for rows in (OWN_MODEL, rest))
    titled = (("Your own model:", own), ("Examples:", examples), ("More:", more))
    return "\n\n".join([*parts, *("\n".join([title, *lines]) for title, lines in titled)])


def all_keys(width: int) -> str:
    """Every group with its choices, and every key with the default and the comment of its YAML file."""
    parts = ["Keys outside of groups (key=value):\n" + "\n".join(_keys(CONF / "config.yaml", "", width, set()))]
    for group in groups():
        files = sorted((CONF / group).glob("*.yaml"), key=lambda file: (file.stem != _default(group), file.stem))
        lines = [f"{group}=..."]
        for file in files:
            stem = f"{group}={file.stem}" + (" (default)" if file.stem == _default(group) else "")
            lines += _row(stem, " ".join(_head(file)), width)
        shown: set[tuple[str, str]] = set()
        prefix = "" if "@package _global_" in files[0].read_text() else f"{group}."
        for file in files:
            keys = list(_keys(file, prefix, width, shown))
            lines += [f"  keys of {group}={file.stem}:", *keys] if keys and prefix and "/" not in group else []
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def groups() -> list[str]:
    """Folders of conf/ that hold choices."""
    return sorted({file.parent.relative_to(CONF).as_posix() for file in CONF.glob("*/**/*.yaml")})


@dataclass(frozen=True)
class Key:
    """A line of a YAML file: dotted path, value as written, comment."""

    path: str
    value: str
    comment: str


def keys_of(file: Path) -> Iterator[Key]:
    """Keys of a file of conf/ that have a value, in order; a comment stands behind the key or above it. Hydra's own,
    `defaults` and `hydra`, are left out.
    """
    import yaml

    text = file.read_text()
    lines = text.splitlines()
    header = next(i for i, line in enumerate(lines) if not line.startswith("#"))  # what the file is

    def comment_of(key: yaml.Node, value: yaml.Node) -> str:
        above = key.start_mark.line
        while above > header and lines[above - 1].lstrip().startswith("#"):
            above -= 1
        found = [line.strip("# ") for line in lines[above : key.start_mark.line]]
        end = key.end_mark if _is_block(value) else value.end_mark
        return " ".join([*found, *lines[end.line][end.column :].lstrip(":").partition("# ")[2:]]).strip()

    def walk(section: yaml.MappingNode, path: str, said: str) -> Iterator[Key]:
        for key, value in section.value:
            if not path and key.value in ("defaults", "hydra"):
                continue
            said = "; ".join(filter(None, (said, comment_of(key, value))))
            if isinstance(value, yaml.MappingNode) and _is_block(value):
                yield from walk(value, f"{path}{key.value}.", said)
            elif _is_block(value):
                yield Key(path + key.value, f"[{', '.join(str(each.value) for each in value.value)}]", said)
            else:
                yield Key(path + key.value, text[value.start_mark.index : value.end_mark.index], said)
            said = ""  # of a section: with its first key

    content = yaml.compose(text)
    if isinstance(content, yaml.MappingNode):
        yield from walk(content, "", "")


def _is_block(value: Any) -> bool:
    """Whether a value stands in lines of its own, below its key."""
    return value.value != [] and getattr(value, "flow_style", True) is False


def _keys(file: Path, prefix: str, width: int, shown: set[tuple[str, str]]) -> Iterator[str]:
    for key in keys_of(file):
        if (key.path, key.comment) in shown:
            continue
        if not key.comment and any(path == key.path for path, _ in shown):
            continue
        shown.add((key.path, key.comment))
        yield from _row(f"{prefix}{key.path}={key.value}", key.comment, width)


def _head(file: Path) -> list[str]:
    """The first words of a file: what it is."""
    lines = [line.strip("# ") for line in file.read_text().splitlines() if line.startswith("#")]
    lines = [line for line in lines if not line.startswith("@package")]
    return lines[: next(i for i, line in enumerate(lines) if line.startswith("When:"))]


def _default(group: str) -> str:
    found = re.search(rf"^  - {group}: (\w+)", (CONF / "config.yaml").read_text(), re.MULTILINE)
    return found[1] if found else ""


def _row(left: str, right: str, width: int) -> list[str]:
    """A key and its meaning beside it, or below where the key is long."""
    whole: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}
    lines = textwrap.wrap(right, max(30, width - 36), **whole)
    if len(left) > 30 or not lines:
        return [f"  {left}", *(f"      {line}" for line in textwrap.wrap(right, width - 6, **whole))]
    return [f"  {left:<32}  {lines[0]}", *(f"{'':<36}{line}" for line in lines[1:])]
