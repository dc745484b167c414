"""Every ONNX backend test with a float32 tensor: converted and cleaned, it is valid, keeps its inputs and outputs, and
loads in ONNX Runtime where the original does; with float32 inputs and outputs it computes the same within FP16.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from tests.measuring.converted import only
from tests.onnx_backend import FLOAT, SAMPLE_AND_WHOLE, cases, io_types, is_valid
from truehalf.calibration.calibrate import calibrate
from truehalf.conversion.casts_of_file import clean_model
from truehalf.conversion.convert import convert_to_fp16
from truehalf.errors import StageError
from truehalf.ir.normalize import PREPARE

# Their reference outputs hold finfo.max masks beyond FP16's range, made inside the operator.
BEYOND_FP16 = {
    "test_attention_4d_with_past_and_present_qk_matmul_bias_3d_mask_causal",
    "test_attention_4d_with_past_and_present_qk_matmul_bias_4d_mask_causal",
}


def prepared(proto: onnx.ModelProto) -> ir.Model:
    model = ir.from_proto(proto)
    PREPARE(model)
    return model


def converted(proto: onnx.ModelProto, keep_io_types: bool) -> tuple[onnx.ModelProto, set[str | None]]:
    """And the inputs that stay float32, since they decide a shape or an index."""
    model = prepared(proto)
    result = convert_to_fp16(model, None, only(init_max=65504.0, placement="eager", keep_io_types=keep_io_types))
    clean_model(model)
    return ir.to_proto(model), {value.name for value in result.decisions.exact if value.is_graph_input()}


def session(model: onnx.ModelProto) -> Any:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception:  # ONNX Runtime's exceptions share no base but Exception
        return None


def outputs(session: Any, inputs: list[Any]) -> list[Any] | None:
    arrays = [onnx.numpy_helper.to_array(x) if isinstance(x, onnx.TensorProto) else x for x in inputs]
    if not all(isinstance(array, np.ndarray) for array in arrays):
        return None  # sequences and optionals
    try:
        values = session.run(None, dict(zip([i.name for i in session.get_inputs()], arrays, strict=True)))
    except Exception:
        return None
    return values if all(isinstance(value, np.ndarray) for value in values) else None


def differs(expected: list[Any], got: list[Any] | None) -> bool:
    if got is None:
        return True
    pairs = [
        (a.astype(np.float64), b.astype(np.float64)) for a, b in zip(expected, got, strict=True) if a.dtype != object
    ]
    return not all(np.allclose(b, a, rtol=1e-2, atol=1e-2, equal_nan=True) for a, b in pairs)


@pytest.mark.parametrize("whole", SAMPLE_AND_WHOLE)
@pytest.mark.parametrize("keep_io_types", [True, False])
def test_all_backend_nodes(keep_io_types: bool, whole: bool) -> None:
    invalid, changed_io, unloadable, different, compared, total = [], [], [], [], 0, 0
    for name, proto, inputs in cases(whole):
        total += 1
        result, exact = converted(proto, keep_io_types)
        if not is_valid(result):
            invalid.append(name)
            continue
        expected_io = [
            (n, 10 if t == FLOAT and not keep_io_types and n not in exact else t) for n, t in io_types(proto)
        ]
        if io_types(result) != expected_io:
            changed_io.append(name)
        before, after = session(proto), session(result)
        if before is not None and after is None:
            unloadable.append(name)
        elif before is not None and keep_io_types and (expected := outputs(before, inputs)) is not None:
            compared += 1
            if differs(expected, outputs(after, inputs)) and name not in BEYOND_FP16:
                different.append(name)
    assert (invalid, changed_io, unloadable, different) == ([], [], [], [])
    assert total > (1400 if whole else 175)
    assert compared > (1000 if whole else 125) or not keep_io_types


# The one free axis of the first has no rows, which is a sample without rows; a Scan of opset 8 runs over a batch, which
# no later one does.
NO_ROWS = {"test_sequence_model8", "test_scan_sum"}


@pytest.mark.slow
@pytest.mark.parametrize("half", [0, 1])
def test_none_is_refused_with_its_inputs_as_a_sample(half: int) -> None:
    """Those that ONNX Runtime runs."""
    refused, total = {}, 0
    for name, proto, inputs in list(cases())[half::2]:
        runs = session(proto)
        arrays = [onnx.numpy_helper.to_array(x) if isinstance(x, onnx.TensorProto) else x for x in inputs]
        if runs is None or not arrays or outputs(runs, inputs) is None:
            continue
        total += 1
        feed = dict(zip([value.name for value in runs.get_inputs()], arrays, strict=True))
        try:
            calibrate(prepared(proto), [feed], nonfinite_outputs="warn")
        except StageError as error:
            refused[name] = str(error)
    assert set(refused) <= NO_ROWS, refused
    assert total > 450
