"""Where a candidate goes wrong: the nodes at fault, the likeliest first.

    1  NaN and Inf    nodes whose output is not finite although all that they read is, and that spoil an output; in
                      graph order
    2  errors         nodes by the effect of their own error: how far the reference's outputs move when this node alone
                      is computed as the candidate computes it
    3  symptoms       NaN and Inf of nodes that are finite on the reference's tensors: what they read was wrong already

Only the nodes with the largest error of their own (growth) are asked for their effect. Growth alone would put a dead
signal that rounds to nothing before a wrong weight: what nobody reads at that scale has no effect. A network may hold
hundreds of such signals, so many nodes are asked in parts, and a part is parted again where it has an effect. Rows of
queries are compared in order of size, because detectors put them out in an order that rounding may change; rows of
anything else are compared as they stand, because there another order is a fault.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from conf.schema import FP16_MAX
from stages.data.samples import stacked
from stages.io import StageError
from stages.models.source import SPEC_KEY
from stages.onnx_files import load_model
from stages.ort.emulated import EVALUATION, PESSIMISTIC
from stages.ort.first_nonfinite import Nonfinite, first_nonfinite
from stages.ort.side_by_side import Comparer, Switched
from stages.parity.align import align, source_node
from stages.parity.hops import FP32_CPU, Hop, fixed_batch, sample_facts
from stages.parity.pinning import pins_argument
from stages.parity.reference import Reference
from stages.parity.tensors import query_outputs
from stages.parity.worst import worst_samples

if TYPE_CHECKING:
    import onnx_ir as ir


_SUSPECTS = 10
_SAMPLES = 4  # the worst, looked at
_ASKED = 12  # nodes, at least, for their effect
_MOST_ASKED = 400
_PARTS = 8  # that they are asked in at first, where they are many
_PASSED_OVER = 0.1  # of the effect of all: a part that has less has no fault in it
_WRONG = 0.05  # relative error that rounding does not explain
_FELT = 0.005  # effect, likewise
_SINGLE = 1e-6  # effect: FP32 makes as much of another order of operations
_NEXT_TO = 0.1  # of the largest effect of rounding: a wrong node that has less moved nothing

Feeds = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Suspect:
    """A node that may be at fault.

    Attributes:
        node: its name in the candidate, or "OpType -> <first output>" where it has none.
        op_type, tensor, scope: its operator, its output, the module that it was exported from.
        cause: "nonfinite" or "error".
        growth: relative error of its output when it reads the reference's tensors (stages.ort.side_by_side); None where
            that is not finite or unknown.
        error: the same in the candidate's own run.
        effect: relative RMS error of the outputs (the worst one) when this node alone is as the candidate has it; None
            where that is not finite, or was not asked for.
        inputs_absmax, output_absmax: largest |x| of what it reads and writes; for "nonfinite" in the candidate's own
            run, before rounding; for "error" in the reference.
        rule: the rule that let it into FP16 (or kept it out), where decisions are given.
        selector: what keeps it FP32, beside the entries in force, quoted for the command line.
        sentence: all that in words.
    """

    node: str
    op_type: str
    tensor: str
    scope: str
    cause: str
    growth: float | None
    error: float | None
    effect: float | None
    inputs_absmax: float | None
    output_absmax: float | None
    rule: str | None
    selector: str
    sentence: str


@dataclass(frozen=True)
class NodeError:
    """A node of the candidate and the errors of its output; None: not finite.

    Attributes:
        precision: "fp16" or "fp32", of its output.
    """

    node: str
    op_type: str
    tensor: str
    precision: str
    error: float | None
    growth: float | None


def find_suspects(
    reference: Path | ir.Model,
    candidate: Path | ir.Model,
    feeds: Feeds | Sequence[Feeds],
    *,
    decisions: Iterable[Mapping[str, Any]] | None = None,
    limit: int = _SUSPECTS,
    queries: Collection[str] | None = None,
    pinned: Sequence[str] = (),
    pessimistic: bool = False,
) -> list[Suspect]:
    """The nodes of the candidate that may be at fault, the likeliest first.

    Args:
        reference: FP32.
        candidate: the file made from it, FP16 or mixed, by whatever tool.
        feeds: one batch, or several; errors are the largest of all.
        decisions: rows of decisions.json.
        limit: suspects at most.
        queries: outputs [N, queries, values], whose rows may come in any order; None: those that the I/O spec in the
            reference's metadata declares as such, and where there is no spec, those of three axes that depend on a
            TopK.
        pinned: entries of precision.node_block_list in force, which a selector repeats.
        pessimistic: round the sums inside FP16 nodes, too, as the evaluation that failed did.

    Raises:
        StageError: when a model cannot be loaded, emulated or run, or their inputs differ.
    """
    batches = [feeds] if isinstance(feeds, Mapping) else list(feeds)
    models = _Models(_loaded(reference), _loaded(candidate), decisions, pinned, pessimistic)
    return _search(models, batches, limit, queries)[0]


def _search(
    models: _Models, batches: Sequence[Feeds], limit: int, queries: Collection[str] | None
) -> tuple[list[Suspect], list[Nonfinite]]:
    """The suspects, and what is not finite although it is in the reference."""
    growths = _Growths(models, batches, _query_outputs(models.reference) if queries is None else queries)
    found: list[Nonfinite] = []
    if not np.isfinite(growths.error).all() or not growths.covers_outputs():
        found = first_nonfinite(models.candidate, batches, reference=models.reference, pessimistic=models.pessimistic)
        found = [item for item in found if item.reference_finite is not False]  # masks are not finite in FP32 either
    origins = [item for item in found if item.reaches_output]
    symptoms = [item for item in origins if growths.inherited(item)]
    first = [_of_nonfinite(item, models, growths) for item in origins if item not in symptoms]
    errors = growths.by_effect()
    wrong = [each for each in errors if _is_wrong(each)]
    later = [_of_nonfinite(item, models, growths) for item in symptoms]
    rest = _wrong_ones_first([each for each in errors if each not in wrong])
    suspects: dict[str, Suspect] = {}
    for each in [*first, *wrong, *later, *rest]:
        suspects.setdefault(each.node, each)
    return list(suspects.values())[:limit], found


def _is_wrong(suspect: Suspect) -> bool:
    """Beyond what rounding explains, in its own output and in those of the graph."""
    return _or_inf(suspect.growth) >= _WRONG and _or_inf(suspect.effect) >= _FELT


def _wrong_ones_first(suspects: list[Suspect]) -> list[Suspect]:
    """Those whose error rounding does not explain first, where their effect is no smaller than that of rounding."""
    rounded = [_or_inf(each.effect) for each in suspects if _or_inf(each.growth) < _WRONG]
    least = max(_NEXT_TO * max(rounded, default=0.0), _SINGLE)

    def comes_later(each: Suspect) -> bool:
        return _or_inf(each.growth) < _WRONG or _or_inf(each.effect) < least

    return sorted(suspects, key=comes_later)


def first_bad_node(suspects: Sequence[Suspect], *, failed: bool = True) -> str | None:
    """The first suspect's node.

    Args:
        failed: whether the file is known to be wrong; else None where rounding explains the first suspect.
    """
    if not suspects or not (failed or suspects[0].cause == "nonfinite" or _is_wrong(suspects[0])):
        return None
    return suspects[0].node


def error_profile(
    reference: Path | ir.Model,
    candidate: Path | ir.Model,
    feeds: Feeds | Sequence[Feeds],
    *,
    pessimistic: bool = False,
) -> list[NodeError]:
    """Errors of every node with a floating-point output, in graph order.

    Args:
        pessimistic: as find_suspects.

    Raises:
        StageError: as find_suspects.
    """
    models = _Models(_loaded(reference), _loaded(candidate), None, (), pessimistic)
    return _Growths(models, [feeds] if isinstance(feeds, Mapping) else list(feeds), ()).profile()


def locate(
    path: Path,
    fp32_path: Path,
    reference: Reference,
    final: Hop,
    decisions: Iterable[Mapping[str, Any]] | None = None,
    *,
    pinned: Sequence[str] = (),
) -> dict[str, Any] | None:
    """Where a failed FP16 file goes wrong: {sample, sentence, nonfinite, suspects}, the last two the worst first.

    Looks at the worst samples (a file with a fixed batch gets each as often as it asks for), by the emulation that
    failed, and by the plain one where another machine ran the file. None for a file without FP16.

    Args:
        final: `path`, measured.
        decisions, pinned: as find_suspects.
    """
    evaluation = final.facts["evaluation"]
    if evaluation == FP32_CPU:
        return None
    rows = sample_facts(reference, final)
    samples = [reference.samples[i] for i in worst_samples(rows, _SAMPLES)]
    copies = fixed_batch(load_model(path), path) or fixed_batch(load_model(fp32_path), fp32_path) or 1
    batches = [stacked([sample] * copies) for sample in samples]
    models = _Models(load_model(fp32_path), load_model(path), decisions, pinned, evaluation == PESSIMISTIC)
    suspects, found = _search(models, batches, _SUSPECTS, query_outputs(reference.spec))
    found.sort(key=lambda item: not item.reaches_output)
    looked_at = f"the worst {len(samples)} of {len(rows)} samples" if len(samples) > 1 else f"sample {samples[0].name}"
    if copies > 1:
        looked_at += f" (repeated {copies} times: the batch is fixed)"
    if evaluation not in (EVALUATION, PESSIMISTIC):
        looked_at += f", in emulated FP16 (the file failed on {evaluation})"
    return {
        "sample": samples[0].name,
        "sentence": _sentence(suspects, [_blamed(item, models) for item in found], looked_at),
        "nonfinite": [asdict(item) for item in found[:5]],
        "suspects": [asdict(each) for each in suspects],
    }


# --- both files -------------------------------------------------------------------------------------------------------


class _Models:
    """Reference and candidate, which nodes of theirs are the same, and what was decided about them."""

    def __init__(
        self,
        reference: ir.Model,
        candidate: ir.Model,
        decisions: Iterable[Mapping[str, Any]] | None,
        pinned: Sequence[str],
        pessimistic: bool,
    ) -> None:
        from stages.graph.normalize import infer_types
        from stages.ort.instrument import main_values

        self.reference, self.candidate = reference, candidate.clone()
        infer_types(self.candidate)
        self.aligned = align(reference, self.candidate)
        self.values = main_values(self.candidate)
        self._in_reference = {mine: ours for ours, mine in self.aligned.items()}
        self._reference_values = main_values(reference)
        self.pessimistic, self._pinned = pessimistic, pinned
        self._decisions = {row["node"]: row for row in decisions or ()}

    def blamed(self, tensor: str) -> ir.Node | None:
        """The node that a tensor's fault lies with: what writes it, without Casts; for a Cast to float16 of an FP32
        tensor, and for a constant, the first that reads it.
        """
        import onnx_ir as ir

        value = self.values[tensor]
        node = value.producer()
        if node is not None and node.op_type not in ("Cast", "Identity", "Constant"):
            return node
        if node is not None and node.op_type != "Constant" and value.dtype != ir.DataType.FLOAT16:
            return source_node(value)
        waiting = [value]
        for value in waiting:
            for reader in value.consumers():
                if reader.op_type not in ("Cast", "Identity"):
                    return reader
                waiting += reader.outputs
        return source_node(value)

    def original(self, node: ir.Node) -> ir.Node | None:
        """The node of the reference that writes what this one writes."""
        for output in node.outputs:
            names = [str(output.name), *(str(out.name) for each in output.consumers() for out in each.outputs)]
            for name in names:
                value = self._reference_values.get(self._in_reference.get(name, ""))
                if value is not None and value.producer() is not None:
                    return source_node(value)
        return None

    def candidate_as_run(self) -> ir.Model:
        """The candidate, with explicit sums where they are rounded; values keep their names."""
        from stages.graph.pessimistic import split_sums

        return split_sums(self.candidate) if self.pessimistic else self.candidate

    def decision(self, node: ir.Node) -> Mapping[str, Any] | None:
        original = self.original(node)
        return self._decisions.get(_name(original or node)) or self._decisions.get(node.name or "")

    def selector(self, node: ir.Node) -> str:
        name = _name(self.original(node) or node)
        return pins_argument("node_block_list", [f"^{re.escape(name)}$"], self._pinned)


def _loaded(model: Path | str | ir.Model) -> ir.Model:
    return load_model(model) if isinstance(model, (str, Path)) else model


def _name(node: ir.Node) -> str:
    """As the conversion names nodes (stages.graph.normalize.name_nodes)."""
    return node.name or "_".join([node.op_type, *[value.name for value in node.outputs[:1] if value.name]])


def _label(node: ir.Node) -> str:
    return node.name or f"{node.op_type} -> {node.outputs[0].name}"


# --- errors -----------------------------------------------------------------------------------------------------------


class _Growths:
    """Errors of all nodes: the largest of all batches."""

    def __init__(self, models: _Models, batches: Sequence[Feeds], queries: Collection[str]) -> None:
        from stages.graph.side_by_side import side_by_side

        self._models, self._queries = models, queries
        self._side = side_by_side(models.reference, models.candidate_as_run(), models.aligned)
        comparer = Comparer(self._side)
        runs = [comparer.run(feeds) for feeds in batches]
        self.pairs = comparer.pairs
        self.growth, self.error, self.absmax = (
            np.max([getattr(run, name) for run in runs], axis=0) for name in ("growth", "error", "absmax")
        )
        worst = max(range(len(runs)), key=lambda i: self._apart(runs[i].reference, runs[i].own))
        self._feeds, self._worst = batches[worst], runs[worst]
        self._by_tensor = {pair.candidate: i for i, pair in enumerate(self.pairs)}

    def _apart(self, reference: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> float:
        return outputs_apart(reference, other, self._queries)

    def of(self, tensor: str) -> int | None:
        """Position of the pair of a candidate's tensor, or of what it was cast from."""
        value = self._models.values[tensor]
        while str(value.name) not in self._by_tensor:
            node = value.producer()
            if node is None or node.op_type not in ("Cast", "Identity") or node.inputs[0] is None:
                return None
            value = node.inputs[0]
        return self._by_tensor[str(value.name)]

    def covers_outputs(self) -> bool:
        """Whether every output of the candidate is compared, so that nothing that spoils one is overlooked."""
        outputs = self._models.candidate.graph.outputs
        return all(str(value.name) in self._by_tensor for value in outputs)

    def inherited(self, item: Nonfinite) -> bool:
        """Whether a node is finite on the reference's tensors, and reads others that are wrong."""
        position, node = self.of(item.tensor), self._models.values[item.tensor].producer()
        if position is None or node is None or not np.isfinite(self.growth[position]):
            return False
        read = [
            self.of(str(value.name)) for value in node.inputs if value is not None and value.name in self._models.values
        ]
        return any(self.error[i] >= _WRONG for i in read if i is not None)

    def by_effect(self) -> list[Suspect]:
        """The nodes with the largest errors of their own, by effect."""
        groups: dict[ir.Node, list[int]] = defaultdict(list)
        for i, pair in enumerate(self.pairs):
            node = source_node(self._models.values[pair.candidate])
            if node is not None and self.growth[i] > 0:
                groups[node].append(i)
        largest = {node: max(self.growth[i] for i in positions) for node, positions in groups.items()}
        asked = sorted(groups, key=lambda node: -largest[node])[:_MOST_ASKED]
        asked = [node for i, node in enumerate(asked) if i < _ASKED or largest[node] >= _WRONG]
        if not asked:
            return []
        effects = self._effects([groups[node] for node in asked])
        whole = self._apart(self._worst.reference, self._worst.own)
        order = sorted(effects, key=lambda i: (-effects[i], i))
        return [self._suspect(asked[i], groups[asked[i]], effects[i], whole) for i in order]

    def _effects(self, groups: list[list[int]]) -> dict[int, float]:
        """Effect by position in `groups`; those in parts without an effect are left out."""
        switched = Switched(self._side, [[self.pairs[i] for i in positions] for positions in groups])

        def effect(part: Sequence[int]) -> float:
            return self._apart(self._worst.reference, switched.run(self._feeds, part))

        in_order = sorted(range(len(groups)), key=lambda i: groups[i][0])
        if len(groups) <= _ASKED:
            return {i: effect([i]) for i in in_order}
        least = _PASSED_OVER * min(effect(in_order), 1.0)
        size = -(-len(in_order) // _PARTS)
        waiting = [in_order[start : start + size] for start in range(0, len(in_order), size)]
        found: dict[int, float] = {}
        for part in waiting:
            moved = effect(part)
            if len(part) == 1:
                found[part[0]] = moved
            elif moved >= least:
                waiting += [part[: len(part) // 2], part[len(part) // 2 :]]
        return found

    def _suspect(self, node: ir.Node, positions: list[int], effect: float, whole: float) -> Suspect:
        i = max(positions, key=lambda each: self.growth[each])
        pair, models = self.pairs[i], self._models
        read = [str(value.name) for value in node.inputs if value is not None and value.name]
        inputs = [self.absmax[j] for name in read if name in models.values and (j := self.of(name)) is not None]
        growth, error = _finite(self.growth[i]), _finite(self.error[i])
        alone = "is not finite" if growth is None else f"is off by {_share(growth)}"
        moved = "makes the outputs NaN or Inf" if not np.isfinite(effect) else f"moves the outputs by {_share(effect)}"
        of = f" (all nodes together: {_share(whole)})" if np.isfinite(whole) else ""
        sentence = f"{node.op_type} {_label(node)!r}, fed with the reference's tensors, {alone} and {moved}{of}"
        return _with_decision(
            Suspect(
                node=_label(node),
                op_type=node.op_type,
                tensor=pair.candidate,
                scope=_scope(node, models),
                cause="nonfinite" if growth is None else "error",
                growth=growth,
                error=error,
                effect=_finite(effect),
                inputs_absmax=max(map(float, inputs), default=None),
                output_absmax=float(self.absmax[i]),
                rule=None,
                selector=models.selector(node),
                sentence=sentence,
            ),
            models.decision(node),
        )

    def profile(self) -> list[NodeError]:
        import onnx_ir as ir

        worst: dict[ir.Node, int] = {}
        for i, pair in enumerate(self.pairs):
            value = self._models.values[pair.candidate]
            node = source_node(value)
            if node is None or value.dtype not in (ir.DataType.FLOAT, ir.DataType.FLOAT16):
                continue
            if node not in worst or self.growth[i] > self.growth[worst[node]]:
                worst[node] = i
        order = {node: number for number, node in enumerate(self._models.candidate.graph)}
        rows = []
        for node, i in sorted(worst.items(), key=lambda item: order[item[0]]):
            half = any(output.dtype == ir.DataType.FLOAT16 for output in node.outputs)
            row = (_finite(self.error[i]), _finite(self.growth[i]))
            rows.append(
                NodeError(_label(node), node.op_type, self.pairs[i].candidate, "fp16" if half else "fp32", *row)
            )
        return rows


def outputs_apart(
    reference: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray], queries: Collection[str] | None = None
) -> float:
    """Relative RMS difference of the worst output; Inf where something ceases to be finite.

    Args:
        queries: outputs [N, queries, values] whose rows are put in order of size first, number by number; None: all of
            three axes.
    """
    worst = 0.0
    for name, ours in reference.items():
        if name not in other or ours.dtype.kind != "f" or ours.shape != other[name].shape:
            continue
        a, b = (each.astype(np.float64) for each in (ours, other[name]))
        if ours.ndim == 3 and (queries is None or name in queries):
            a, b = np.sort(a, axis=1), np.sort(b, axis=1)
        counts = np.isfinite(a)
        if not np.isfinite(b[counts]).all():
            return float("inf")
        size = float(np.linalg.norm(a[counts]))
        worst = max(worst, float(np.linalg.norm(b[counts] - a[counts])) / (size or 1.0))
    return worst


def _query_outputs(reference: ir.Model) -> list[str]:
    """Outputs whose rows are queries: those that the I/O spec declares, or else those of three axes behind a TopK."""
    text = reference.metadata_props.get(SPEC_KEY)
    if text is not None:
        try:
            return query_outputs(json.loads(text))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StageError(
                f"{SPEC_KEY} in the reference's metadata: expected an I/O spec, got {text[:80]!r}"
            ) from error
    ranked = _behind_top_k(reference)
    outputs = [value for value in reference.graph.outputs if value.shape is not None and len(value.shape) == 3]
    return [str(value.name) for value in outputs if value in ranked]


def _behind_top_k(model: ir.Model) -> set[ir.Value]:
    """The values of the main graph that depend on a TopK."""
    from stages.ort.instrument import read_by

    found: set[ir.Value] = set()
    for node in model.graph:
        if node.op_type == "TopK" or any(value in found for value in read_by(node)):
            found.update(node.outputs)
    return found


# --- words ------------------------------------------------------------------------------------------------------------


def _sentence(suspects: Sequence[Suspect], found: Sequence[Nonfinite], looked_at: str) -> str:
    """The first suspect, and the first non-finite node where it is another."""
    if suspects and suspects[0].cause == "nonfinite":
        first = next((item for item in found if item.tensor == suspects[0].tensor), None)
        if first is not None:
            return _first_nonfinite_sentence(first, looked_at)
    if not found:
        sentence = f"on {looked_at} FP16 makes no NaN and no Inf"
        return f"{sentence}; {suspects[0].sentence}" if suspects else sentence
    first_nonfinite = _first_nonfinite_sentence(found[0], None if suspects else looked_at)
    if not found[0].reaches_output:
        first_nonfinite += "; they reach no output"
    return f"on {looked_at} {suspects[0].sentence}; {first_nonfinite}" if suspects else first_nonfinite


def _blamed(item: Nonfinite, models: _Models) -> Nonfinite:
    """With the node that it is the fault of."""
    node = models.blamed(item.tensor)
    return item if node is None else replace(item, node=_label(node), op_type=node.op_type)


def _of_nonfinite(item: Nonfinite, models: _Models, growths: _Growths) -> Suspect:
    node = models.blamed(item.tensor)
    i = growths.of(item.tensor)
    written = _blamed(item, models)
    suspect = Suspect(
        node=f"{item.op_type} -> {item.tensor}" if node is None else _label(node),
        op_type=written.op_type,
        tensor=item.tensor,
        scope=_scope(node, models) if node is not None else "",
        cause="nonfinite",
        growth=_finite(growths.growth[i]) if i is not None else None,
        error=_finite(growths.error[i]) if i is not None else None,
        effect=None,
        inputs_absmax=item.inputs_absmax,
        output_absmax=item.unrounded_absmax,
        rule=None,
        selector=models.selector(node) if node is not None else "precision.keep_io_types=true",
        sentence=_first_nonfinite_sentence(written, None),
    )
    return _with_decision(suspect, models.decision(node) if node is not None else None)


def _with_decision(suspect: Suspect, row: Mapping[str, Any] | None) -> Suspect:
    if row is None:
        return suspect
    why = f"it runs in {str(row['precision']).upper()}: {row['reason']}"
    return replace(suspect, rule=row["rule"], sentence=f"{suspect.sentence}; {why}")


def _first_nonfinite_sentence(first: Nonfinite, where: str | None) -> str:
    what = f"node {first.node!r} ({first.op_type})" if first.node else first.op_type.lower()
    if first.inside:
        what = f"a sum inside {what}"
    bad = f"{first.nan} NaN and {first.posinf + first.neginf} Inf"
    on = f" on {where}" if where else ""
    sentence = f"the first non-finite values{on} are those of {what}, tensor {first.tensor!r}: {bad}"
    if first.unrounded_absmax is not None and first.unrounded_absmax > FP16_MAX:
        return f"{sentence}; |x| is {first.unrounded_absmax:.3g} there, above FP16's largest, {FP16_MAX:g}"
    if first.inputs_absmax is not None:
        sentence += f"; the largest |x| it reads is {first.inputs_absmax:.3g}"
    return sentence


def _scope(node: ir.Node, models: _Models) -> str:
    from stages.graph.selectors import scope_of

    return scope_of(models.original(node) or node)


def _share(number: float) -> str:
    return f"{100 * number:.2g} %"


def _finite(number: float) -> float | None:
    return float(number) if np.isfinite(number) else None


def _or_inf(number: float | None) -> float:
    return float("inf") if number is None else number
