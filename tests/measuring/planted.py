"""Faults planted at random nodes of real networks, and where the search names them.

A fault counts when it moves the outputs (relative RMS, rows in order of size) by at least 2 %, and by four times what
the FP16 file without it does. Where that one is off by 2 % itself (random weights at 640x640 score thousands of places
alike, and rounding chooses others), the fault must move the FP16 file's outputs by 2 % instead. Else the next node is
drawn (`redraws`). Files are converted with one sample and searched with another. Found: the first of the suspects is
the node or one that reads its output (Casts between them aside).
"""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import onnx_ir as ir

from tests.measuring.faults import LEAST_EFFECT, PLANT, Fault, Network, NoSite, named
from truehalf.emulation.sessions import EmulatedSession
from truehalf.runtime.ort import Session
from truehalf.verification.localize.both_files import BothFiles
from truehalf.verification.localize.locate import locate
from truehalf.verification.metrics.tensors import outputs_apart

LEAST_RATIO = 4.0
_ATTEMPTS = 200


def draw(network: Network, kind: str, seed: int) -> tuple[Fault, float, int]:
    """A fault that has an effect; the effect, and how many draws before had none."""
    for attempt in range(_ATTEMPTS):
        try:
            fault = PLANT[kind](network, np.random.default_rng((seed, attempt)))
        except NoSite:
            continue
        own = fault.reference is network.model
        expected = network.outputs if own else Session(fault.reference).run(network.check)
        found = EmulatedSession(fault.candidate).run(network.check)
        effect = outputs_apart(expected, found)
        if effect < LEAST_EFFECT:
            continue
        healthy = EmulatedSession(fault.healthy).run(network.check) if fault.healthy else network.halved_outputs
        rounding = outputs_apart(expected, healthy)
        least = LEAST_RATIO * rounding
        if rounding >= LEAST_EFFECT:
            effect, least = outputs_apart(healthy, found), LEAST_EFFECT
        if effect < least:
            continue
        return fault, effect, attempt
    raise RuntimeError(f"{network.name}, {kind}, seed {seed}: no draw of {_ATTEMPTS} has an effect")


def searched(network: Network, kind: str, seed: int) -> dict[str, Any]:
    """One row of the results."""
    fault, effect, redraws = draw(network, kind, seed)
    start = time.perf_counter()
    suspects = locate(BothFiles(fault.reference, fault.candidate), [network.check])
    seconds = time.perf_counter() - start
    meant = [fault.node, *_readers(fault.candidate, fault.node)]
    ranks = [i for i, suspect in enumerate(suspects, 1) if suspect.node in meant]
    first = suspects[0].node if suspects else None
    return {
        "seed": seed,
        "model": network.name,
        "kind": kind,
        "node": fault.node,
        "op": named(fault.candidate, fault.node).op_type,
        "detail": fault.detail,
        "effect": effect if math.isfinite(effect) else "nonfinite",
        "redraws": redraws,
        "named": first,
        "found": "node" if first == fault.node else "reader" if first in meant else "no",
        "rank": ranks[0] if ranks else None,
        "seconds": round(seconds, 1),
    }


def _readers(model: ir.Model, name: str) -> list[str]:
    found, waiting = [], list(named(model, name).outputs)
    for value in waiting:
        for reader in value.consumers():
            if reader.op_type in ("Cast", "Identity"):
                waiting += reader.outputs
            else:
                found.append(str(reader.name))
    return found
