"""Outputs judged as what they are: a good twin and a bad one of each kind."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx.parser
import onnx_ir as ir
import pytest

from truehalf.io_spec.spec import IoSpec, OutputSpec
from truehalf.verification.metrics.kinds import CLASSES, EMBEDDING, MAP, SEQUENCE, decided, kinds_of

Array = np.ndarray


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def logits(*shape: int, lead: float = 1.0) -> Array:
    """Values whose best along the last axis leads by 3, at every tenth place by `lead`."""
    values = rng().uniform(-4, 0, shape).reshape(-1, shape[-1])
    best = rng(1).integers(0, shape[-1], len(values))
    values[np.arange(len(values)), best] = 3
    values[::10][np.arange(len(values[::10])), (best[::10] + 1) % shape[-1]] = 3 - lead
    return values.reshape(shape)


def pages(shift: int = 0, without: int = 0, faint: float = 0.0) -> Array:
    """Probabilities of four regions on a page; the last `without` are gone."""
    page = np.full((2, 1, 64, 64), 0.01)
    for number in range(4 - without):
        page[:, :, 4 + 14 * number : 14 + 14 * number, 8 + shift : 40 + shift] = 0.9
    page[:, :, 60:63, 50:60] = faint
    return page


def turned(values: Array, every: int) -> Array:
    """The best exchanged with the second best at every so many places."""
    rows = values.reshape(-1, values.shape[-1]).copy()
    order = np.argsort(-rows, axis=1)
    some = np.arange(0, len(rows), every)
    first, second = order[some, 0], order[some, 1]
    rows[some, first], rows[some, second] = rows[some, second], rows[some, first]
    return rows.reshape(values.shape)


def noisy(values: Array, by: float) -> Array:
    return np.asarray(values + rng(5).uniform(-by, by, values.shape))


def clusters() -> Array:
    """Vectors in pairs: each has one near neighbour."""
    centres = rng(7).normal(0, 1, (6, 16))
    return np.concatenate([centres, centres + 0.3 * rng(8).normal(0, 1, (6, 16))])


TIED, CLEAR = logits(10, 8, lead=1e-3), logits(10, 8)
STEPS = logits(4, 50, 30, lead=1e-3)
# Kind, reference, good twin, bad twin.
TWINS: dict[str, tuple[str, Array, Array, Array]] = {
    "classes": (CLASSES, CLEAR, noisy(CLEAR, 0.1), turned(CLEAR, 5)),
    "classes, nearly equal": (CLASSES, TIED, turned(TIED, 10), turned(TIED, 5)),
    "sequence": (SEQUENCE, STEPS, noisy(STEPS, 1e-5), turned(STEPS, 7)),
    "sequence, nearly equal": (SEQUENCE, STEPS, turned(STEPS, 10), turned(STEPS, 9)),
    "embedding": (
        EMBEDDING,
        clusters(),
        noisy(clusters(), 0.02),
        np.concatenate([clusters()[:6], np.roll(clusters()[6:], 1, 0)]),
    ),
    "embedding, of another length": (EMBEDDING, clusters(), 3 * clusters(), np.abs(clusters())),
    "map": (MAP, pages(), pages() * 0.95, pages(without=1)),
    "map, moved": (MAP, pages(), pages(shift=1), pages(shift=20)),
    "map, one more": (MAP, pages(faint=0.2), pages(faint=0.25), pages(faint=0.6)),
}


@pytest.mark.parametrize("name", TWINS)
def test_a_good_twin_passes_and_a_bad_one_fails(name: str) -> None:
    kind, reference, good, bad = TWINS[name]
    verdicts = [decided(kind, [reference], [other], 0.5, tuple) for other in (reference, good, bad)]
    assert [each is not None and each.passed for each in verdicts] == [True, True, False], verdicts


@pytest.mark.parametrize(
    ("kind", "reference", "other"),
    [
        (CLASSES, CLEAR, turned(CLEAR, 10)),
        (SEQUENCE, logits(2, 50, 30), turned(logits(2, 50, 30), 10)),
        (MAP, pages(faint=0.49), pages(faint=0.51)),
    ],
)
def test_what_half_a_step_turns_too_is_a_near_tie(kind: str, reference: Array, other: Array) -> None:
    def passed(draws: Callable[[], list[list[Array]]]) -> bool:
        found = decided(kind, [reference], [other], 0.5, draws)
        return found is not None and found.passed

    assert not passed(list) and not passed(lambda: [[reference]])
    assert passed(lambda: [[reference], [other]])


def test_values_that_are_not_of_the_kind_are_not_judged_so() -> None:
    assert decided(MAP, [10 * pages()], [10 * pages()], 0.5, tuple) is None
    assert decided(SEQUENCE, [CLEAR], [CLEAR], 0.5, tuple) is None


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("(float[N,3,8,8] x) => (float[N,3,8,8] y) { y = Sigmoid (x) }", MAP),
        ("(float[N,3,8] x) => (float[N,3,8] y) { y = Softmax <axis = 2> (x) }", SEQUENCE),
        ("(float[N,3,8] x) => (float[N,3,8] y) { y = Softmax <axis = 1> (x) }", None),
        ("(float[N,8] x) => (float[N,8] y) { p = Softmax (x) y = Cast <to = 1> (p) }", CLASSES),
        ("(float[N,8] x) => (float[N,8] y) { y = LpNormalization <axis = 1> (x) }", EMBEDDING),
        ("(float[N,8] x) => (float[N,8] y) { y = Relu (x) }", None),
    ],
)
def test_the_last_operator_says_the_kind(text: str, kind: str | None) -> None:
    model = ir.from_proto(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> g {text}'))
    assert kinds_of(IoSpec(), model).get("y") == kind
    assert kinds_of(IoSpec(outputs=(OutputSpec("y", "tensor"),)), model) == {}
    assert kinds_of(IoSpec(outputs=(OutputSpec("y", "embedding"),)), None) == {"y": EMBEDDING}
