"""Verdicts in, assignment out: which precision each owner (truehalf.conversion.ports) runs in.

`min_cut` gives the free owners the assignment of least cost. In bytes of memory traffic at the given shapes, with n the
elements of a tensor:

    cast(t) = 6 n + CAST         4n + 2n bytes read and written; once for a tensor and direction, however many read it
    fp32(v) = 2 (n1 + n2 + ...)  what an owner reads and writes more in FP32 (nothing for a Reshape and its like)

    both(w) = 2 n                the float16 copy of a weight that is stored in both types, as its readers differ

    cost = sum of cast(t) over tensors t whose producer's type differs from that of at least one reader
         + sum of both(w) over weights w whose readers differ
         + sum of fp32(v) over the owners v in FP32

This is a minimum s-t cut, and so is solved exactly. S, the side of the source, is FP32; T is FP16. Owners whose type is
given are merged with the source or the sink; a free owner v has an edge v -> sink of capacity fp32(v). A tensor t with
producer p and readers c1, c2, ... adds two vertices:

    p -> a: cast(t)    a -> ci: infinite     p in S, some ci in T: the infinite edge puts a into T, so cast(t) is cut
    b -> p: cast(t)    ci -> b: infinite     p in T, some ci in S: the infinite edge puts b into S, so cast(t) is cut

A weight has the infinite edges of its readers, and b -> a of capacity both(w): cut where readers are on both sides.

In every other case a and b can stand on p's side, and a minimum cut puts them there. No p and ci can make both cuts, as
p has one side. With one reader, p -> c and c -> p of capacity cast(t) say the same without a and b. Among the cuts of
least cost the one with the fewest FP32 owners is taken: those that the residual graph reaches from the source.

The solver counts in 32-bit integers. The cost U of the naive placement bounds every minimum, so capacities above U act
as infinite. Where U is above 2^29 bytes, costs are divided by a unit, and the result is exact in that unit.

`eager`: every owner that is not pinned runs in FP16. It is the naive placement, which reports show beside the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import ceil

import numpy as np
import onnx_ir as ir

from truehalf.conversion.ports import FP16, FP32, End, Owner, Ports, Slot, Tensor, type_at
from truehalf.conversion.rules.base import Decision, Verdict
from truehalf.ir.normalize import elements
from truehalf.ir.ops import Trait, has

# A launch of 3 to 5 microseconds is worth 1 MiB on a T4, and more on faster memory. As TensorRT for RTX compiles the
# embedded D-FINE, 22 of its 23 casts are no launch: they vanish at the borders of kernels.
CAST = 1 << 16
_LIMIT = 2**29

Assignment = dict[Owner, ir.DataType]


@dataclass(frozen=True)
class Link:
    """A tensor between owners as far as placing sees it: ends are owners, or fixed types."""

    producer: End
    readers: tuple[End, ...]
    cast_bytes: int

    @property
    def cost(self) -> int:
        return self.cast_bytes + CAST


@dataclass(frozen=True)
class Weight:
    """A constant of several readers: where their types differ, it is stored in both, which costs `cost` bytes."""

    readers: tuple[End, ...]
    cost: int


@dataclass(frozen=True)
class Problem:
    """What placing decides on.

    Attributes:
        fixed: owners whose type is given.
        fp32: extra cost in bytes of every owner that is not fixed, were it FP32; in graph order.
        links: tensors that a cast can stand on.
        weights: constants of several readers.
    """

    fixed: Assignment
    fp32: dict[Owner, int]
    links: tuple[Link, ...]
    weights: tuple[Weight, ...] = ()


@dataclass(frozen=True)
class Cost:
    """Of an assignment: cost in bytes as above, casts in the file and the bytes that they move, owners in FP32."""

    bytes: int
    casts: int
    cast_bytes: int
    fp32_owners: int


def problem(ports: Ports, decisions: Mapping[ir.Node, Decision], shapes: Mapping[ir.Value, tuple[int, ...]]) -> Problem:
    """The placing problem of a model; `shapes` as truehalf.ir.normalize finds them."""
    fixed: Assignment = {}
    fp32: dict[Owner, int] = {}
    for owner, node in ports.owners.items():
        verdict = decisions[node].verdict
        if verdict is Verdict.free:
            fp32[owner] = _fp32_cost(owner, ports, shapes)
        else:
            fixed[owner] = FP32 if verdict is Verdict.fp32 else FP16
    links = (_link(each, shapes) for each in ports.tensors if not each.constant)
    weights = (_weight(each, shapes) for each in ports.tensors if each.constant)
    several = (weight for weight in weights if len(weight.readers) > 1)
    return Problem(fixed, fp32, tuple(link for link in links if link.readers), tuple(several))


def eager(problem: Problem) -> Assignment:
    """FP16 for whatever is not pinned."""
    return problem.fixed | dict.fromkeys(problem.fp32, FP16)


def min_cut(problem: Problem) -> Assignment:
    """The assignment of least cost; among equals, the one with the fewest FP32 owners."""
    if FP32 not in _given(problem):
        return eager(problem)
    network = _Network(problem)
    return problem.fixed | network.solve(limit=cost(problem, eager(problem)).bytes)


def cost(problem: Problem, assignment: Mapping[Owner, ir.DataType]) -> Cost:
    """What an assignment costs."""
    cast = [link for link in problem.links if _is_cast(link, assignment)]
    twice = [each for each in problem.weights if len({type_at(end, assignment) for end in each.readers}) > 1]
    extra = sum(bytes_ for owner, bytes_ in problem.fp32.items() if assignment[owner] == FP32)
    return Cost(
        bytes=sum(link.cost for link in cast) + sum(weight.cost for weight in twice) + extra,
        casts=len(cast),
        cast_bytes=sum(link.cast_bytes for link in cast),
        fp32_owners=sum(dtype == FP32 for dtype in assignment.values()),
    )


def _is_cast(link: Link, assignment: Mapping[Owner, ir.DataType]) -> bool:
    written = type_at(link.producer, assignment)
    return any(type_at(reader, assignment) != written for reader in link.readers)


def _given(problem: Problem) -> set[ir.DataType]:
    """Types that are fixed anywhere: without FP32 among them there is nothing to decide."""
    ends = [end for link in problem.links for end in (link.producer, *link.readers)]
    ends += [end for weight in problem.weights for end in weight.readers]
    return {*(end for end in ends if isinstance(end, ir.DataType)), *problem.fixed.values()}


def _link(tensor: Tensor, shapes: Mapping[ir.Value, tuple[int, ...]]) -> Link:
    readers = tuple(end for end in _readers(tensor) if end != tensor.producer)
    return Link(tensor.producer, readers, 6 * elements(shapes.get(tensor.value)))


def _weight(tensor: Tensor, shapes: Mapping[ir.Value, tuple[int, ...]]) -> Weight:
    return Weight(_readers(tensor), 2 * elements(shapes.get(tensor.value)))


def _readers(tensor: Tensor) -> tuple[End, ...]:
    return tuple(dict.fromkeys(use.end for use in tensor.uses if use.end is not None))


def _fp32_cost(owner: Owner, ports: Ports, shapes: Mapping[ir.Value, tuple[int, ...]]) -> int:
    if isinstance(owner, Slot) or has(owner, Trait.VIEW):
        return 0
    return 2 * sum(elements(shapes.get(value)) for value in ports.slots[owner].values(owner))


class _Network:
    """The flow network: vertex 0 is the source (FP32), vertex 1 the sink (FP16), then owners, then tensors."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.vertices: dict[End, int] = {FP32: 0, FP16: 1}
        for owner, dtype in problem.fixed.items():
            self.vertices[owner] = self.vertices[dtype]
        for number, owner in enumerate(problem.fp32):
            self.vertices[owner] = 2 + number
        self.size = 2 + len(problem.fp32)
        self.tails: list[int] = []
        self.heads: list[int] = []
        self.capacities: list[int | None] = []
        for owner, bytes_ in problem.fp32.items():
            self._edge(self.vertices[owner], 1, bytes_)
        for link in problem.links:
            self._link(link)
        for weight in problem.weights:
            self._weight(weight)

    def _link(self, link: Link) -> None:
        p = self.vertices[link.producer]
        readers = [c for c in dict.fromkeys(self.vertices[reader] for reader in link.readers) if c != p]
        if len(readers) == 1:
            self._edge(p, readers[0], link.cost)
            self._edge(readers[0], p, link.cost)
        elif readers:
            a, b = self._around(readers)
            self._edge(p, a, link.cost)
            self._edge(b, p, link.cost)

    def _weight(self, weight: Weight) -> None:
        a, b = self._around(dict.fromkeys(self.vertices[reader] for reader in weight.readers))
        self._edge(b, a, weight.cost)

    def _around(self, readers: Iterable[int]) -> tuple[int, int]:
        """The two vertices that a tensor of several readers adds."""
        a, b = self.size, self.size + 1
        self.size += 2
        for c in readers:
            self._edge(a, c, None)
            self._edge(c, b, None)
        return a, b

    def _edge(self, tail: int, head: int, capacity: int | None) -> None:
        if tail != 1 and head != 0 and capacity != 0:  # nothing flows out of the sink or into the source
            self.tails.append(tail)
            self.heads.append(head)
            self.capacities.append(capacity)

    def solve(self, limit: int) -> Assignment:
        """Types of the owners that are not fixed; `limit` bounds the cost of the minimum."""
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import breadth_first_order, maximum_flow

        unit = max(1, ceil((limit + 1) / _LIMIT))
        infinite = ceil((limit + 1) / unit) + (len(self.capacities) if unit > 1 else 0)  # roundings accumulate
        scaled = [infinite if c is None else min(infinite, max(1, round(c / unit))) for c in self.capacities]
        shape = (self.size, self.size)
        network = csr_array((np.array(scaled, np.int64), (self.tails, self.heads)), shape=shape)
        network.data = np.minimum(network.data, infinite).astype(np.int32)  # parallel edges have been added up
        flow = maximum_flow(network, 0, 1, method="dinic").flow
        residual = (network - flow).tocsr()
        residual.data = np.maximum(residual.data, 0)
        residual.eliminate_zeros()
        reached = np.zeros(self.size, bool)
        reached[breadth_first_order(residual, 0, return_predecessors=False)] = True
        return {owner: FP32 if reached[self.vertices[owner]] else FP16 for owner in self.problem.fp32}


def nodes_in_fp16(ports: Ports, assignment: Mapping[Owner, ir.DataType]) -> Iterable[ir.Node]:
    """Judged nodes that run in FP16; an If counts when all its outputs are FP16."""
    by_node: dict[ir.Node, list[ir.DataType]] = {}
    for owner, node in ports.owners.items():
        by_node.setdefault(node, []).append(assignment.get(owner, FP32))
    return [node for node, types in by_node.items() if set(types) == {FP16}]
