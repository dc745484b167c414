"""Which FP32 nodes of an attention keep it in the compiler's fused kernel: the table of docs/explanation/attention.md.

    python -m benchmarks.attention [--docs docs/explanation/attention.md]

Every set of the parts {Q K^T, scale, mask, Softmax, product with V} of each form (tests/measuring/attention_graphs.py)
is made FP32, with casts around it, and compiled by TensorRT for RTX without a GPU: 500 engines, eight minutes.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tests.measuring.attention_graphs import FORMS, Form, attention, is_fused
from truehalf.runtime.tensorrt.versions import RTX, tensorrt_version

BEGIN, END = "<!-- attention -->\n", "<!-- /attention -->\n"
_CALLED = {"qk": "Q K^T", "scale": "scale", "mask": "mask", "softmax": "Softmax", "pv": "P V"}


def lost(form: Form) -> tuple[int, list[frozenset[str]]]:
    """How many sets of FP32 parts were compiled, and those with which the attention is not fused."""
    sets = [frozenset(each) for n in range(len(form.parts) + 1) for each in itertools.combinations(form.parts, n)]
    with tempfile.TemporaryDirectory() as folder:
        return len(sets), [each for each in sets if not is_fused(attention(form, each), Path(folder))]


def _row(name: str, form: Form) -> list[str]:
    count, sets = lost(form)
    smallest = [each for each in sets if not any(other < each for other in sets)]
    kept = _largest(form, sets)
    size = f"{form.queries}x{form.keys}"
    return [
        name.partition(", heads of ")[0],
        size,
        str(form.width),
        form.scale,
        form.mask,
        _shown(smallest),
        _shown(kept),
        f"{len(sets)} of {count}",
    ]


def _largest(form: Form, sets: list[frozenset[str]]) -> list[frozenset[str]]:
    every = [frozenset(each) for n in range(len(form.parts) + 1) for each in itertools.combinations(form.parts, n)]
    kept = [each for each in every if each not in sets]
    return [each for each in kept if not any(each < other for other in kept)]


def _shown(sets: Iterable[Iterable[str]]) -> str:
    return "; ".join(" + ".join(called for part, called in _CALLED.items() if part in set(each)) for each in sets)


def merged(rows: Iterable[list[str]]) -> list[list[str]]:
    """Rows that differ only in the width of heads are one."""
    found: dict[tuple[str, ...], list[str]] = {}
    for name, tokens, head, *others in rows:
        found.setdefault((name, tokens, *others), []).append(head)
    return [[name, tokens, ", ".join(heads), *others] for (name, tokens, *others), heads in found.items()]


def table() -> str:
    """The table, in Markdown."""
    head = (
        "attention",
        "tokens",
        "head",
        "scale",
        "mask",
        "smallest FP32 sets that lose it",
        "largest that keep it",
        "lost",
    )
    lines = [f"TensorRT for RTX {tensorrt_version(RTX)}:", "", f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    rows = merged(_row(name, form) for name, form in FORMS.items())
    return "\n".join([*lines, *(f"| {' | '.join(cells)} |" for cells in rows)]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.attention", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("--docs", type=Path, help="the page whose table is written anew")
    page = parser.parse_args().docs
    made = table()
    if page is None:
        print(made)
        return
    before, _, rest = page.read_text().partition(BEGIN)
    page.write_text(before + BEGIN + made + END + rest.partition(END)[2])


if __name__ == "__main__":
    main()
