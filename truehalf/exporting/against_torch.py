"""Comparison of torch's outputs with those that ONNX Runtime computes from the traced file.

truehalf/verification/metrics/tensors.py has the rule that outputs are compared by.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from truehalf.config.schema import TraceConfig
from truehalf.errors import RAISED, StageError, typed_text
from truehalf.exporting.export import evaluation_mode
from truehalf.io_spec.in_file import named_axes, names_of
from truehalf.io_spec.spec import IoSpec
from truehalf.models.calling import as_tensors
from truehalf.models.sizes import other_axes, refusal
from truehalf.runtime.ort import Session
from truehalf.verification.findings import NOT_VERIFIED
from truehalf.verification.metrics.tensors import Parity, check_runs

if TYPE_CHECKING:
    import onnx_ir as ir
    import torch

Arrays = Mapping[str, np.ndarray]

_EXPORTERS = (
    "try the other exporter, simplify the module's code, or set trace.atol and trace.rtol to the accuracy that you need"
)


def torch_outputs(module: torch.nn.Module, spec: IoSpec, feed: Arrays, example: Arrays) -> dict[str, np.ndarray]:
    """What torch computes: arrays by the names of the spec's outputs.

    Args:
        example: the feed that was traced on.

    Raises:
        StageError: when it cannot, naming the axes where the size is not the example's; for a feed of other names.
    """
    import torch

    tensors = tensors_of(spec, feed)
    try:
        with evaluation_mode(module), torch.no_grad():
            outputs: Any = module(*tensors)
    except StageError:
        raise
    except RAISED as error:  # whatever the module raises
        fails = f"the module itself fails in torch: {typed_text(error)}"
        if not other_axes(feed, example):
            raise StageError("module-fails", f"{fails} on {shapes_of(feed)}") from error
        raise refusal(feed, example, named_axes(spec), fails) from error
    values = [outputs] if isinstance(outputs, torch.Tensor) else list(outputs)
    named = zip(names_of(spec.outputs), values, strict=True)
    return {name: (value.float() if value.dtype == torch.bfloat16 else value).detach().numpy() for name, value in named}


def tensors_of(spec: IoSpec, feeds: Arrays) -> tuple[torch.Tensor, ...]:
    """A copy of a feed, which a module may change in place, in the order in which the module takes it; StageError where
    it has other names than the spec.
    """
    names = names_of(spec.inputs)
    if sorted(names) != sorted(feeds):
        raise StageError("wrong-feeds", f"the spec has inputs {', '.join(names)}, the samples have {', '.join(feeds)}")
    return as_tensors(feeds, names)


def shapes_of(feed: Arrays) -> str:
    """Of each array, to be read."""
    return ", ".join(f"{name} {list(array.shape)}" for name, array in feed.items())


def unread_in(model: ir.Model) -> list[str]:
    """List the inputs that nothing in a file reads, because no output that is kept depends on them."""
    return [str(value.name) for value in model.graph.inputs if not value.uses() and not value.is_graph_output()]


def check_unread(model: ir.Model, module: torch.nn.Module, spec: IoSpec, example: Arrays) -> None:
    """Refuse a file that does not read an input on which torch's outputs depend: Python read it.

    Raises:
        StageError: input-unread.
    """
    for name in unread_in(model):
        values, before = example[name], torch_outputs(module, spec, example, example)
        smaller = ~values if values.dtype == bool else values // 2 if values.dtype.kind in "iu" else values * 0.5
        after = []
        for other in (smaller, values if values.dtype == bool else values + 1):
            with contextlib.suppress(StageError):  # not every value is one that the module takes
                after.append(torch_outputs(module, spec, {**example, name: other.astype(values.dtype)}, example))
        pairs = [(before[each], outputs[each]) for outputs in after for each in before]
        if not all(a.shape == b.shape and np.allclose(a, b, rtol=1e-5, atol=1e-6, equal_nan=True) for a, b in pairs):
            raise StageError(
                "input-unread",
                f"nothing in the exported file reads input {name!r}, and outputs depend on it in torch: Python reads "
                "it (.item(), int()), so its value on the samples of trace would hold for all; see `truehalf lint "
                "--explain baked-item`",
            )


def compared_with_torch(
    path: Path,
    spec: IoSpec,
    pairs: Sequence[tuple[Arrays, Arrays]],
    example: Arrays,
    options: TraceConfig,
) -> Parity:
    """Compare a file's outputs with torch's: feeds like the example all together, those of another size one by one.

    Args:
        path: of the ONNX file.
        pairs: (feed, what torch computes from it).
        example: the feed that was traced on.
        options: atol and rtol, as in truehalf.verification.metrics.tensors.

    Returns:
        what a report holds of it.

    Raises:
        StageError: where outputs differ, or are not finite; where they do at another size only, naming the axes.
    """
    if not pairs:
        return {"status": NOT_VERIFIED, "reason": "no samples were given to compare on"}
    session = Session(path)
    result: Parity = {"status": NOT_VERIFIED, "reason": "no samples of the traced size were given"}
    at_sizes: list[Parity] = []
    alike = [pair for pair in pairs if not other_axes(pair[0], example)]
    resized = [pair for pair in pairs if other_axes(pair[0], example)]
    for group in ([alike] if alike else []) + [[pair] for pair in resized]:
        feed = group[0][0]
        runs = ((outputs, session.run(each)) for each, outputs in group)
        try:
            found = check_runs(list(runs), spec, atol=options.atol, rtol=options.rtol, sides=("torch", "ONNX Runtime"))
        except StageError as error:
            if group is alike:
                remedy = "" if error.code == "not-finite" else f"; {_EXPORTERS}"
                raise StageError(error.code, f"{error.text}{remedy}") from error
            message = f"the exported file does not hold: {error.text}"
            raise refusal(feed, example, named_axes(spec), message) from error
        if group is alike:
            result = found
            continue
        shapes = {name: list(array.shape) for name, array in feed.items()}
        at_sizes.append({"inputs": shapes, **found})
        if found["status"] == NOT_VERIFIED and result["status"] != NOT_VERIFIED:
            result |= {"status": NOT_VERIFIED, "reason": f"at {shapes}: {found['reason']}"}
    result = {**counted([feed for feed, _ in pairs]), "provider": session.provider, **result}
    return {**result, "sizes": at_sizes} if at_sizes else result


def counted(feeds: Sequence[Arrays]) -> Parity:
    """How many samples feeds hold, and in what batches."""
    sizes = [len(next(iter(feed.values()))) for feed in feeds]
    return {"samples": sum(sizes), "batch_sizes": sorted(set(sizes))}
