"""No false pass and no false fail: the verdicts of the planted pairs (tests/corpus/pairs)."""

from pathlib import Path

import onnx
import pytest

from tests.corpus.pairs import Pair, every_pair
from tests.tiers import third_of
from truehalf.codes import codes_in
from truehalf.verification.chain.compare import compare

PAIRS = list(every_pair())


def test_their_names_are_unique() -> None:
    names = [pair.name for pair in PAIRS]
    assert sorted(set(names)) == sorted(names)


@pytest.mark.parametrize("pair", third_of(PAIRS), ids=lambda pair: pair.name)
def test_a_planted_pair_gets_its_verdict(pair: Pair, tmp_path: Path) -> None:
    files = {"reference": pair.reference, "candidate": pair.candidate}
    for name, model in files.items():
        onnx.save(model, tmp_path / f"{name}.onnx")
    options = {"locate": False} | dict(pair.options)
    report = compare(*(tmp_path / f"{name}.onnx" for name in files), pair.inputs, spec=pair.spec, **options)
    assert report.verdict == pair.expected, report.reasons or report.not_verified
    assert {*pair.codes} <= {*codes_in("\n".join([*report.reasons, *report.not_verified]))}
