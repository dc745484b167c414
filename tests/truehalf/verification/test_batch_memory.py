"""Batches are as large as the memory that they are given allows."""

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir

from tests.messages import expect
from truehalf.data.samples import Sample
from truehalf.verification.activation_memory import activations_gb, fitting_batch, too_large

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[N,C,H,W] x) => (float[N,C,H,W] y) { y = Relu (x) }"""
MODEL = ir.from_proto(onnx.parser.parse_model(TEXT))
ONE: Sample = Sample(
    "one", {"x": np.zeros((3, 100, 100), np.float32)}, None, None
)  # 120 kB, and as much for what comes out
GB = 240e3 / 1e9


def test_activations_are_those_of_samples_like_the_one_given() -> None:
    assert activations_gb(MODEL, ONE, 1) == GB and activations_gb(MODEL, ONE, 8) == 8 * GB


def test_samples_run_in_batches_of_half_the_memory_and_never_of_none() -> None:
    assert fitting_batch(MODEL, ONE, 25, 1.0) == 25
    assert fitting_batch(MODEL, ONE, 25, 2 * 10.5 * GB) == 10
    assert fitting_batch(MODEL, ONE, 25, GB / 100) == 1


def test_a_size_that_must_be_looked_at_has_all_of_it_and_is_said_to_be_too_large_beyond() -> None:
    assert too_large(MODEL, ONE, 8, 8.1 * GB) is None
    expect(str(too_large(MODEL, ONE, 8, 7.9 * GB)), None, "0.0 GB", f"verify.memory_gb ({7.9 * GB:g})")
    assert too_large(MODEL, ONE, 1, GB / 100) is None, "one sample is run all the same"
