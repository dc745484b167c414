"""An ONNX file with what its outputs are declared to be."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from truehalf.errors import StageError
from truehalf.io_spec.columns import has_parts, runs_by_image
from truehalf.io_spec.spec import IoSpec
from truehalf.ir.facts import fixed_batches
from truehalf.ir.model_forms import ModelFile


@dataclass(frozen=True)
class DeclaredFile(ModelFile):
    """A file whose outputs are taken apart when it has run (truehalf.io_spec.columns).

    Attributes:
        spec: that was taken apart.
    """

    spec: IoSpec

    @cached_property
    def fixed_batch(self) -> int | None:
        """Samples in each run that the file fixes, None for any number; 1 where its outputs are those of one image.

        Raises:
            StageError: the inputs are fixed to more then.
        """
        if not runs_by_image(self.spec):
            return super().fixed_batch
        if (fixed := {*fixed_batches(self.model).values()}) - {1}:
            raise StageError(
                "in-conflict",
                f"{self.path}: its inputs take {max(fixed)} images, and the I/O spec says that its outputs are of one",
            )
        return 1


def declared_file(file: ModelFile, spec: IoSpec) -> ModelFile:
    """The file with its I/O spec; itself where no output is a part of another.

    Args:
        spec: that was taken apart (truehalf.io_spec.columns.apart).
    """
    if not has_parts(spec) or isinstance(file, DeclaredFile):
        return file
    declared = DeclaredFile(file.path, spec)
    known = {name: value for name, value in vars(file).items() if name not in ("path", "fixed_batch")}
    vars(declared).update(known)  # read already
    return declared
