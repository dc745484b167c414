"""A graph that stays FP32 as a whole though FP16 is declared: verify says so, and the run ends with it at the gate."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.run_record import Run
from tests.in_process import report, run_stages
from tests.messages import expect
from tests.stages.test_own_files import FREE, OPTIONS, PICTURES, ROWS, STAGES, samples, written
from tests.tiers import first_of

BLOCKED = "precision.op_block_list=[MatMul,Softmax]"
CASES = [
    (ROWS, {"batch": "n"}, BLOCKED),
    (ROWS, {"batch": "n"}, "precision.data_max=0.001"),
    (ROWS, {"batch": 2}, "precision.rules=autocast", BLOCKED),
    (PICTURES, {"batch": "n"} | FREE, "precision.node_block_list=[.*]"),
]


@pytest.mark.parametrize("case", first_of(CASES), ids=lambda case: case[-1])
def test_what_is_declared_fp16_and_is_not_is_not_verified(case: tuple, tmp_path: Path) -> None:  # type: ignore[type-arg]
    text, sides, *overrides = case
    samples(tmp_path, 4, written(tmp_path, text, **sides))
    run_stages(tmp_path, *OPTIONS, *overrides, stages=STAGES)
    reports = {name: report(tmp_path, name) for name in ("verify", "engine")}
    verify, engine = reports["verify"], reports["engine"]
    assert verify["verdict"] == "not verified" and verify["status"] == "done" and verify["evaluation"] == "fp32-cpu"
    (reason,) = verify["reasons"]
    expect(reason, "wrong-file", "precision=fp16", "precision=fp32", "reports/fp16.json")
    assert engine["status"] == "failed" and not (tmp_path / "artifacts/engine/model.engine").exists()
    expect(engine["reason"], "wrong-file")
    (said,) = Run(tmp_path, {}, reports).failures
    expect(said, "wrong-file", "engine")


def test_one_node_in_fp16_is_enough_and_fp32_may_be_declared(tmp_path: Path) -> None:
    samples(tmp_path, 4, written(tmp_path, ROWS, batch="n"))
    for overrides in (["precision.op_block_list=[Softmax]"], ["precision=fp32"]):
        run_stages(tmp_path, *OPTIONS, *overrides, stages=STAGES)
        assert report(tmp_path, "verify")["verdict"] == "passed"
        assert report(tmp_path, "engine")["status"] in ("planned", "compiled")
