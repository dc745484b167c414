"""Place of a failure: the samples that differ most, and the node at fault there, in words."""

from __future__ import annotations

from collections.abc import Sequence

from truehalf.ir.model_forms import ModelFile
from truehalf.verification.comparison import Comparison
from truehalf.verification.localize.both_files import BothFiles
from truehalf.verification.localize.locate import Place, located
from truehalf.verification.metrics.tensors import query_outputs
from truehalf.verification.open_file import BACKENDS, is_pessimistic
from truehalf.verification.samples import worst_samples

LOOKED_FOR = "where it goes wrong"


def place_of(
    reference: ModelFile,
    candidate: ModelFile,
    comparison: Comparison,
    evaluation: str,
    pinned: Sequence[str] = (),
    most: int = 1,
) -> Place:
    """Locate the node at fault by the emulation that failed, by the plain one where another machine ran it.

    Args:
        pinned: entries of precision.node_block_list in force, which the selectors repeat.
        most: how many samples are looked at, the worst first.

    Raises:
        StageError: as truehalf.verification.localize.locate.locate.
    """
    copies = candidate.fixed_batch or reference.fixed_batch or 1
    places = [(run, row) for run in comparison.runs for row in range(len(run.places))]
    worst = [places[number] for number in worst_samples(comparison.samples, most)]
    batches = [run.part.again().sample(row, copies) for run, row in worst]
    first_run, first_row = worst[0]
    first = first_run.names[first_row]
    looked_at = f"the worst {len(worst)} of {len(places)} samples" if len(worst) > 1 else f"sample {first}"
    if copies > 1 and first_run.rows:
        looked_at += f" (repeated {copies} times: the batch is fixed)"
    if evaluation in BACKENDS:
        looked_at += f", in emulated FP16 (the file failed on {evaluation})"
    pessimistic = is_pessimistic(evaluation)
    files = BothFiles(reference.model, candidate.model, pessimistic=pessimistic)
    queries = query_outputs(comparison.spec) if comparison.spec.outputs else None
    return located(files, batches, queries, first, looked_at, pinned)
