"""What a failed verification is looked into with, by what failed (whole runs: test_chain_failures.py)."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.configurations import composed
from tests.messages import expect
from truehalf.config.validate import validate
from truehalf.data.samples import Sample
from truehalf.io_spec.decode import decode
from truehalf.io_spec.spec import IoSpec
from truehalf.ir.model_forms import ModelFile
from truehalf.verification.chain import failing
from truehalf.verification.chain.failing import Failing, failing_of
from truehalf.verification.chain.reference import Reference
from truehalf.verification.chain.stage import FileResult, Judge
from truehalf.verification.comparison import Agreement
from truehalf.verification.findings import FAILED, VERIFIED, Finding
from truehalf.verification.open_file import Ran

OPTIONS = validate(composed()).verify
SPEC = IoSpec.from_json(
    {
        "inputs": [{"name": "x", "shape": ["N", 3, 64, 64]}],
        "outputs": [{"name": "logits", "kind": "logits"}, {"name": "boxes", "kind": "boxes"}],
        "class_names": ["ant", "bee"],
    }
)


def outputs(*found: bool) -> dict[str, np.ndarray]:
    """One query a sample, which is a detection where it says so."""
    logits = np.full((len(found), 1, 2), -9, np.float32)
    logits[list(found), 0, 1] = 4
    return {"logits": logits, "boxes": np.full((len(found), 1, 4), 0.25, np.float32)}


def reference(kind: str, *found: bool) -> Reference:
    names = [f"{kind}/{i}" for i in range(len(found))]
    samples = [Sample(name, {"x": np.zeros(1, np.float32)}, None, None) for name in names]
    values = outputs(*found)
    return Reference(samples, names, names, values, SPEC, decode(values, SPEC), None)


def asked(monkeypatch: pytest.MonkeyPatch, gate: bool, failed: list[str], now: dict[str, np.ndarray]) -> Failing | None:
    """Of three samples and three pictures, where these checks failed and the file puts out `now` when run again."""
    frozen, pictures = reference("s", True, True, True), reference("p", True, True, False)
    made = outputs(True, True, True)
    sizes = [{"batch": 1, "state": "verified"}, {"batch": 2, "state": "failed", "samples": ["s/2", "s/0"]}]
    ran = Ran("emulated-fp16", "CPU", None, {}, {})
    state: Agreement = {"state": "verified", "reason": ""}
    final = FileResult(frozen.compare(made, OPTIONS), made, ran, 2, [], state, {**state, "sizes": sizes})
    found = [Finding(name, FAILED, decides=False) for name in failed]
    found.append(Finding("detections", VERIFIED if gate else FAILED, facts={"gate": "g"}))
    monkeypatch.setattr(failing, "opened", lambda *_: SimpleNamespace(run_all=lambda *_: now))
    return failing_of(ModelFile(Path("m.onnx")), Judge(frozen, pictures, OPTIONS), final, found)


def test_a_failed_gate_is_looked_into_on_all_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    found = asked(monkeypatch, False, ["adversarial", "batch"], outputs(True))
    assert found and found.reference.names == ["s/0", "s/1", "s/2"]
    assert found.judge(found.final) == found.final.findings


def test_a_failed_picture_is_looked_into_by_its_own_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    found = asked(monkeypatch, True, ["adversarial", "batch"], outputs(True, False, False))
    assert found and found.reference.samples[found.worst[0]].name == "p/1"
    assert found.evaluation == "emulated-fp16"
    (gate,) = found.judge(found.final)
    assert gate.state == "failed"
    expect(gate.reason, None, "1 of 2")
    (gate,) = found.judge(found.reference.compare(outputs(True, True, False), OPTIONS, outputs_only=True))
    assert gate.state == "verified"


@pytest.mark.parametrize("failed", [[], ["batch"]])
def test_what_no_rounding_fails_is_not_looked_into(failed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked(monkeypatch, True, failed, outputs(True)) is None
