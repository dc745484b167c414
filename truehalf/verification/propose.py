"""Proposed I/O spec of an ONNX file, from a run on some samples."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from truehalf.data.model_samples import model_samples, shown_in
from truehalf.data.preprocessing import Preprocessing
from truehalf.data.samples import Feeds
from truehalf.io_spec.in_file import spec_inside
from truehalf.io_spec.inputs import inputs_of
from truehalf.io_spec.proposal import Proposal, first_samples, proposal_of
from truehalf.io_spec.spec import InputSpec, TensorSpec, input_of
from truehalf.ir.facts import fixed_batch
from truehalf.ir.model_forms import ModelFile
from truehalf.ir.normalize import InferTypes
from truehalf.json_values import JsonObject
from truehalf.runtime.ort import Session
from truehalf.verification.contradictions import class_names_in
from truehalf.verification.empty_tensors import empty_tensors
from truehalf.verification.runs import as_type

_OF_TRAINING = {"range", "mean", "std"}


def propose_spec(
    path: Path | str,
    samples: Any,
    preprocessing: JsonObject | Path | str | None = None,
) -> Proposal:
    """Kinds of inputs and outputs, format of boxes and range of pixels, as a run suggests them.

    Args:
        path: of an FP32 or FP16 file.
        samples: as truehalf.data.model_samples.model_samples takes them; the first eight are run.
        preprocessing: of images; keys that it leaves out: as the I/O spec in the file, or RGB of the input's layout, in
            0..1, and uint8 in 0..255. The proposal says what was applied.

    Raises:
        StageError: a file or samples that cannot be read, or do not fit each other.
    """
    file = ModelFile(Path(path))
    entry = spec_inside(file.model).image_input
    is_told = bool(entry.pixels or isinstance(preprocessing, (str, Path)) or {*(preprocessing or ())} & _OF_TRAINING)
    if not entry.pixels:
        image = shown_in(file.model)
        entry = InputSpec("", "images", layout=image.layout, range=image.range)
    samples = model_samples(samples, file.model, entry, preprocessing)
    feeds = Feeds(samples, fixed_batch(file.model) or 1)
    types = {each.name: each.dtype for each in inputs_of(file.model)}
    session = Session(file.runnable)
    typed = [{name: as_type(feed[name], types[name]) for name in types} for feed in first_samples(feeds)]
    found = proposal_of(file.model, typed, session.run, class_names_in(file.model))
    if samples.preprocessing is not None:
        found = _as_read(found, entry, samples.preprocessing, is_told)
    model = file.model.clone()
    InferTypes()(model)
    return replace(found, notes=[*found.notes, *empty_tensors(model, typed)])


def _as_read(found: Proposal, entry: InputSpec, applied: Preprocessing, is_told: bool) -> Proposal:
    """Add the preprocessing that images have had, of which their pixels say nothing."""
    image = found.spec.image_input
    pixels = {**entry.pixels, **applied.declared()}
    image = input_of(TensorSpec(image.name, None, image.dtype, image.shape), str(image.kind), pixels)
    name, (low, high) = image.name, applied.range
    found.reasons[name] = f"images, read {'as told' if is_told else f'in {low}..{high}'}"
    if not is_told and image.dtype != "uint8":
        taken = f"images were read as {applied.channels} in {low}..{high} without mean and std"
        found.notes.append(f"input {name!r}: {taken}; nothing shows what the training used")
    inputs = tuple(image if each.name == name else each for each in found.spec.inputs)
    return replace(found, spec=replace(found.spec, inputs=inputs))
