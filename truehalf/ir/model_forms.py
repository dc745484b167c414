"""Models as callers hold them: a file, an onnx.ModelProto, an onnx_ir.Model."""

from __future__ import annotations

import contextlib
import hashlib
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

import onnx
import onnx_ir as ir

from truehalf.errors import StageError
from truehalf.ir.facts import cloned, fixed_batches
from truehalf.ir.model_file import adopt_proto, is_restated, load_model, read_proto, save_model
from truehalf.ir.normalize import TYPED, sort_nodes
from truehalf.ir.proto.data_files import data_file, external_files
from truehalf.ir.proto.forms import WEIGHTS_APART_FROM
from truehalf.ir.proto.plugins import as_in_file


@dataclass(frozen=True)
class ModelFile:
    """An ONNX file, read once, when its content is first asked for.

    Attributes:
        path: of the file.

    Raises:
        StageError: as truehalf.ir.model_file.load_model, where the file is read.
    """

    path: Path

    @cached_property
    def _read(self) -> tuple[ir.Model, list[str]]:
        proto = read_proto(self.path)
        external = external_files(proto)
        return adopt_proto(proto, self.path), external

    @cached_property
    def model(self) -> ir.Model:
        """The content, external data left on disk; who changes it changes a clone, or is its last reader."""
        return self._read[0]

    @cached_property
    def written(self) -> ir.Model:
        """The content as the file holds it, plugins and all: what engines are built of. Not to be changed either."""
        return as_in_file(self.model)

    @cached_property
    def typed(self) -> ir.Model:
        """As `written`, with the types of all values, as far as they can be inferred; files of other tools may state
        none.
        """
        model = cloned(self.written)
        TYPED(model)
        return model

    @cached_property
    def runnable(self) -> Path | ir.Model:
        """What ONNX Runtime runs: the file, or the model in memory where it does not take the file's form."""
        return self.model if is_restated(self.model) else self.path

    @property
    def external(self) -> list[str]:
        """Names of its files of external data, as the file has them."""
        return self._read[1]

    @property
    def data(self) -> list[Path]:
        """Its files of external data."""
        return [data_file(self.path, name) for name in self.external]

    @property
    def size_mb(self) -> float:
        """Size with its files of external data, in 10^6 bytes."""
        return sum(file.stat().st_size for file in (self.path, *self.data) if file.is_file()) / 1e6

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the contents of the file and of its external data, one after the other."""
        found = hashlib.sha256()
        for path in (self.path, *self.data):
            with path.open("rb") as file:
                hashlib.file_digest(file, lambda: found)
        return found.hexdigest()

    @cached_property
    def fixed_batch(self) -> int | None:
        """The number of samples that the inputs are fixed to; None where their first axis is free.

        Raises:
            StageError: when inputs are fixed to different numbers.
        """
        fixed = fixed_batches(self.model)
        if len(set(fixed.values())) > 1:
            found = ", ".join(f"{name}: {size}" for name, size in fixed.items())
            raise StageError(
                "wrong-shape",
                f"{self.path}: the first axes of its inputs differ ({found}); expected one number of samples. Export "
                "the model with the batch as the first axis of each input",
            )
        return next(iter(fixed.values()), None)


Model: TypeAlias = Path | str | ModelFile | onnx.ModelProto | ir.Model


def as_ir(model: Model) -> ir.Model:
    """A model in memory; one that is there already is copied, so that the caller's stays as it is but for the order of
    nodes that stood in front of what they read.
    """
    if isinstance(model, (str, Path)):
        return as_in_file(load_model(model))
    if isinstance(model, ModelFile):
        model = model.model
    if isinstance(model, ir.Model):
        model = cloned(sort_nodes(as_in_file(model)))
        if not model.functions and (model.ir_version or WEIGHTS_APART_FROM) >= WEIGHTS_APART_FROM:
            return model
        model = ir.to_proto(ir.external_data.load_to_model(model))
    if not isinstance(model, onnx.ModelProto):
        expected = "a path, an onnx.ModelProto or an onnx_ir.Model"
        raise StageError("wrong-type", f"model: expected {expected}, got {type(model).__name__}")
    proto = onnx.ModelProto()
    proto.CopyFrom(model)
    return as_in_file(adopt_proto(proto, "model"))


def file_of(model: Path | str | ModelFile) -> ModelFile:
    """A file that may have been opened."""
    return model if isinstance(model, ModelFile) else ModelFile(Path(model))


@contextlib.contextmanager
def folder_for_models() -> Iterator[Path]:
    """A folder for the files of models in memory, which goes; errors name the model where they named its file."""
    with tempfile.TemporaryDirectory(prefix="truehalf-") as name:
        try:
            yield Path(name)
        except StageError as error:
            text = re.sub(re.escape(name) + r"[/\\](\w+)\.onnx(?!\w)(?: \(the \1\))?", _called, error.text)
            if text == error.text:
                raise
            raise StageError(error.code, text) from error


def _called(file: re.Match[str]) -> str:
    return f"the {file[1]}" if file[1] in ("reference", "candidate") else "the model"


def as_file(model: Model, folder: Path, name: str = "model") -> ModelFile:
    """A file of a model: the one it is in, or one that is written to a folder."""
    if isinstance(model, (str, Path, ModelFile)):
        return file_of(model)
    path = folder / f"{name}.onnx"
    save_model(as_ir(model), path, checked=False)  # what is made of it is, as of a file
    return ModelFile(path)
