"""Near ties inside a model: decisions that differ between two files because rounding moves what they are made of.

The reference decides once more, on the candidate's operands of all decisions (which element is the largest, on which
side of a threshold a value is) in place of its own, and runs with these decisions. If the operands are near its own,
and the candidate's outputs are then those of the reference, the candidate has decided as the reference does, among
values that are nearly equal. Only decisions are taken over: of h - floor(h) floor is, and h stays the reference's.

An operand is traced back through functions that keep the order, as far as both files have a tensor of that name: a
Sigmoid makes a step between logits as small as it likes. With error the difference beyond what two roundings do:

    near    max error <= OFF * spread,  and  rms error <= FLOOR * spread  or  <= SLACK * response
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial

import numpy as np
import onnx_ir as ir

from truehalf.config.verification import VerifyConfig
from truehalf.errors import StageError
from truehalf.io_spec.spec import IoSpec
from truehalf.ir.facts import is_op
from truehalf.ir.ops import Trait, has, row_of
from truehalf.verification.comparison import Comparison, ReferenceFacts, compare_outputs
from truehalf.verification.graft import Graft
from truehalf.verification.metrics.half_steps import DRAWS, Response, moved, unit
from truehalf.verification.metrics.yardstick import FLOOR, MASK, SLACK, compared_places, spread_of
from truehalf.verification.open_file import OpenFile, is_pessimistic
from truehalf.verification.runs import Arrays, Part, Run, as_read

OFF = 0.04  # of the spread
ROUNDED = 2.0**-10  # of a value: two roundings to float16, which are no error
MOST_ROUNDED = 2.0**-6  # ... up to this share of the spread: beside an offset it is one, and among whole numbers
_DRAWN = range(DRAWS)
_SELECT = ("TopK", "MaxPool")  # decisions whose values are decided on again


@dataclass(frozen=True)
class Rerun:
    """Both files of a comparison, to be run once more on its inputs.

    Attributes:
        spec: whose inputs may declare the range of pixels.
        reference: opens the FP32 file, once.
        candidate: the file that is compared, opened; None: it shows nothing.
        kept: the reference's outputs on moved inputs by names of samples, for further comparisons of the same samples.
    """

    spec: IoSpec
    reference: Callable[[], OpenFile]
    candidate: OpenFile | None
    kept: dict[object, list[Arrays]] = field(default_factory=dict)

    def response(self, runs: Sequence[Run]) -> Response:
        """Return the response of the reference to half a step of the inputs of these runs."""

        def step() -> str:
            return next(filter(None, map(unit, runs[0].part.again().feed.values())), "")

        def outputs() -> list[list[tuple[Arrays, Arrays]]]:
            if not step():
                return []
            try:
                made = [self._on_moved_inputs(run) for run in runs]
            except StageError:  # it does not run so
                return []
            return [[(run.reference, found[draw]) for run, found in zip(runs, made, strict=True)] for draw in _DRAWN]

        return Response(step, outputs)

    def _on_moved_inputs(self, run: Run) -> list[Arrays]:
        """Run the reference on moved inputs: outputs by draw."""
        key = (run.part.place, *run.names)
        if key not in self.kept:
            self.kept[key] = [_read(self.reference().run(self.moved(run.part, draw))) for draw in _DRAWN]
        return self.kept[key]

    def moved(self, part: Part, draw: int) -> Part:
        """Move the inputs of a part by half a step."""
        return replace(part, load=lambda: {**(feed := part.load()), **moved(feed, self.spec, (draw, *part.place))})

    def shown(
        self,
        runs: Sequence[Run],
        file: OpenFile,
        names: Sequence[str],
        given: Sequence[Arrays] = (),
        draw: int | None = None,
    ) -> list[Arrays]:
        """Compute inner tensors of a file by run.

        Args:
            given: by run, arrays in place of the file's own tensors.
            draw: of half a step that the inputs are moved by; None: they are not.
        """
        cut = list(given[0]) if given else ()
        graft = Graft(file.file.model, names, cut, pessimistic=is_pessimistic(file.evaluation))
        grafted, found = OpenFile(file.file, file.evaluation, graft), list[Arrays]()
        for run, more in zip(runs, given or [{}] * len(runs), strict=True):
            part = run.part if draw is None else self.moved(run.part, draw)
            feed = {**part.again().feed, **more}
            found.append(_read(grafted.run(replace(part, load=partial(dict, feed)))))
        return found


def _read(outputs: Arrays) -> dict[str, np.ndarray]:
    return {name: as_read(value) for name, value in outputs.items()}


def compare_without_ties(
    runs: Sequence[Run],
    rerun: Rerun | None,
    spec: IoSpec,
    options: VerifyConfig,
    facts: ReferenceFacts,
    outputs_only: bool = False,
) -> Comparison:
    """Compare outputs; where one or a gate fails, with those of a reference that has decided on the candidate's
    operands.

    Args:
        rerun: both files; None: no near tie is looked for.
        runs, spec, options, facts, outputs_only: see truehalf.verification.comparison.compare_outputs; the response is
            that of `rerun`.
    """
    if rerun is None:
        return compare_outputs(runs, spec, options, facts, outputs_only)
    facts = replace(facts, response=rerun.response(runs))
    plain = compare_outputs(runs, spec, options, facts, outputs_only)
    if rerun.candidate is None or not plain.may_be_ties:
        return plain
    shared = {str(value.name) for node in rerun.candidate.file.model.graph for value in node.outputs if value.name}
    names, choices = operands(rerun.reference().file.model, shared)
    try:
        decided = _decided_alike(runs, rerun, rerun.candidate, names, choices) if names else None
    except StageError:  # a file does not run with these as outputs
        decided = None
    if decided is None:
        return plain
    facts = replace(facts, decided_on=len(names), count=plain.measures["reference"])
    return compare_outputs(decided, spec, options, facts, outputs_only)


def _decided_alike(
    runs: Sequence[Run], rerun: Rerun, candidate: OpenFile, names: Sequence[str], choices: Sequence[str]
) -> list[Run] | None:
    """Run the reference with the decisions that it makes of the candidate's operands; None if these are not near its
    own.
    """
    reference = rerun.reference()
    theirs = rerun.shown(runs, candidate, names)
    decided = rerun.shown(runs, reference, [*names, *choices], theirs)

    @cache
    def on_moved_inputs() -> list[tuple[Arrays, Arrays]]:
        own = rerun.shown(runs, reference, names)
        draws = [rerun.shown(runs, reference, names, draw=draw) for draw in _DRAWN]
        return [pair for draw in draws for pair in zip(own, draw, strict=True)]

    def response(name: str) -> float:
        moves = np.concatenate([np.ravel(other[name] - own[name]) for own, other in on_moved_inputs()])
        return _rms(moves[np.isfinite(moves)])

    for name in names:
        pairs = [(part[name], other[name]) for part, other in zip(decided, theirs, strict=True)]
        if not _are_near(pairs, partial(response, name)):
            return None
    outputs = list(runs[0].reference)
    made: list[Arrays] = [{name: part[name] for name in choices} for part in decided]
    if rest := [name for name in outputs if name not in choices]:
        others = rerun.shown(runs, reference, rest, made)
        made = [{**part, **other} for part, other in zip(made, others, strict=True)]
    return [
        replace(run, reference={name: part[name] for name in outputs}) for run, part in zip(runs, made, strict=True)
    ]


def _are_near(pairs: Sequence[tuple[np.ndarray, np.ndarray]], response: Callable[[], float]) -> bool:
    """True if an operand of the candidate is what the reference computes, see the top of this module.

    Args:
        pairs: the operand of both by part, the reference's first.
        response: how far half a step of the input moves it, rms.
    """
    if any(ours.shape != theirs.shape for ours, theirs in pairs):
        return False
    ours, theirs = (np.concatenate([np.ravel(pair[side]) for pair in pairs]).astype(np.float64) for side in (0, 1))
    kept = compared_places(ours, theirs)
    same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs)) | ((ours <= MASK) & (theirs <= MASK))
    if not (same | kept).all():
        return False
    ours, theirs = ours[kept], theirs[kept]
    spread = spread_of(ours)
    most = np.inf if ours.size == 1 else 0.0 if (np.rint(ours) == ours).all() else spread * MOST_ROUNDED
    error = np.maximum(np.abs(theirs - ours) - np.minimum(ROUNDED * np.abs(ours), most), 0)
    if (error > OFF * spread).any():
        return False
    return _rms(error) <= FLOOR * spread or _rms(error) <= SLACK * response()


def _rms(values: np.ndarray) -> float:
    return math.sqrt(np.square(values, dtype=np.float64).mean()) if values.size else 0.0


def operands(model: ir.Model, known: Collection[str]) -> tuple[list[str], list[str]]:
    """List the float tensors that decisions of the main graph are made of, each as far back as its order is kept; and
    the tensors that hold these decisions.

    Args:
        known: names of the tensors that the other file has.
    """
    names: dict[str, None] = {}
    choices: dict[str, None] = {}
    for node in model.graph:
        for origin in (_origin(value, known) for value in node.inputs) if _decides(node) else ():
            producer = None if origin is None else origin.producer()
            if origin is not None and producer is not None and (not _decides(producer) or is_op(producer, *_SELECT)):
                names.setdefault(str(origin.name))
                choices |= dict.fromkeys(str(each.name) for each in _choices(node) if each.name)
    return list(names), list(choices)


def _choices(decision: ir.Node) -> Sequence[ir.Value]:
    """List outputs of a decision that say what was decided; of a TopK no values."""
    place = row_of(decision).choice
    return decision.outputs[:1] if place is None else decision.outputs[place : place + 1]


def _decides(node: ir.Node) -> bool:
    if node.op_type == "Cast":
        to = ir.DataType(node.attributes.get_int("to", 0))
        return to.is_integer() or to == ir.DataType.BOOL
    chooses = row_of(node).choice is not None or is_op(node, "Hardmax", "QuantizeLinear")
    return chooses or has(node, Trait.STEPS)


def _origin(value: ir.Value | None, known: Collection[str]) -> ir.Value | None:
    """Return the first float tensor of both files that functions which keep the order make an operand of; None if the
    operand is none itself.
    """
    origin = None
    while value is not None and value.const_value is None and (node := value.producer()) is not None:
        if value.name in known and (value.dtype is None or value.dtype.is_floating_point()):
            origin = value
        keeps_order = has(node, Trait.VIEW) or has(node, Trait.RISES)
        keeps_order |= is_op(node, "Cast", "Identity", "Softmax", "LogSoftmax")
        if origin is None or not keeps_order or not node.inputs:
            break
        value = node.inputs[0]
    return origin
