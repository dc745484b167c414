"""ONNX files that a verification runs.

    the file holds FP16    emulated-fp16 (explicit rounding, truehalf.emulation.emulate); when asked, the same with the
                           sums inside nodes rounded, too (emulated-fp16-pessimistic), or the CUDA provider
    it does not            fp32-cpu: ONNX Runtime's CPU provider

A file with FP16 is first judged as it lies on disk; all else runs a copy that was typed anew and rounds by itself:

    ONNX Runtime finds the graph invalid, and the reference's not   failed: float16 meets float32 in a node, for example
    onnx's checker refuses what ONNX Runtime loads                  named, no verdict: stated shapes may be false
    ONNX Runtime lacks a kernel, an operator or a plugin            named, no verdict

The CPU provider computes FP16 nodes in FP32, so it never judges a file that holds FP16. A file with a fixed batch gets
groups of just that size, the last one filled up with its last sample.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np

from truehalf.codes import coded, codes_in
from truehalf.config.verification import Evaluation
from truehalf.data.samples import digest_of, repeated
from truehalf.emulation.sessions import EmulatedSession
from truehalf.errors import StageError, some_of
from truehalf.float16 import MAX
from truehalf.ir.facts import holds_fp16
from truehalf.ir.model_forms import ModelFile
from truehalf.ir.proto.plugins import plugins_of
from truehalf.ir.proto.refusals import checker_refusal, refused
from truehalf.runtime.ort import CUDA, Session, custom_operators
from truehalf.verification.findings import FAILED, NOT_VERIFIED, VERIFIED, Finding, not_checked
from truehalf.verification.lanes import lanes_of, threads_of
from truehalf.verification.runs import Part, as_type, joined, part_of

FP32_CPU = "fp32-cpu"
SUMS_IN_FP32 = (
    "kernels that accumulate in FP16: emulation rounds what each node outputs and accumulates in FP32 inside a node, "
    "as tensor cores do"
)
FILE = "file"  # the check of a file as it lies on disk
_INVALID = re.compile(r"INVALID_GRAPH|Type Error|type inference failed", re.IGNORECASE)
_MIXED = re.compile(r"bound to different types \(tensor\(float\w*\) and tensor\(float\w*\)", re.IGNORECASE)
_NODE = re.compile(r"node \(([^)]+)\)", re.IGNORECASE)
Arrays = dict[str, np.ndarray]


class Runner(Protocol):
    """Computes the outputs of a model: ONNX Runtime on the CPU or CUDA, the emulation, a TensorRT engine.

    Attributes:
        provider: the execution provider, read back.
        cpu_nodes: on CUDA, after the first run, the nodes that computed floats on the CPU provider; else None.
        not_split: the FP16 nodes whose inner sums an emulation does not round, each with the reason (EmulatedSession).
    """

    provider: str
    cpu_nodes: list[str] | None
    not_split: dict[str, str]

    def run(self, feeds: Mapping[str, np.ndarray]) -> Arrays:
        """Outputs by name."""

    def close(self) -> None:
        """Free what it holds; it does not run again."""


class Remembered:
    """A runner that computes the outputs of the same inputs once; for few inputs, as it holds all outputs."""

    def __init__(self, runner: Runner) -> None:
        self._runner, self._known = runner, dict[str, Arrays]()
        self.provider, self.cpu_nodes, self.not_split = runner.provider, runner.cpu_nodes, runner.not_split

    def run(self, feeds: Mapping[str, np.ndarray]) -> Arrays:
        key = digest_of(feeds)
        if key not in self._known:
            self._known[key] = self._runner.run(feeds)
        return dict(self._known[key])

    def close(self) -> None:
        self._runner.close()


# On the processors, and in the memory that truehalf.verification.activation_memory estimates: sums that are split take
# more, and a device has its own.
_IN_LANES = (FP32_CPU, Evaluation.emulated_fp16.value)
# What runs FP16 itself, by the evaluation that asks for it; the other evaluations emulate it.
BACKENDS: Mapping[str, Callable[[ModelFile], Runner]] = {
    Evaluation.cuda.value: lambda file: Session(file.runnable, CUDA),
}


def evaluation_of(file: ModelFile, asked: str) -> str:
    """Choose the evaluation of a file: as asked if it holds FP16, else "fp32-cpu"."""
    return asked if holds_fp16(file.model) else FP32_CPU


def open_runner(file: ModelFile, evaluation: str, lanes: int = 1) -> Runner:
    """Open a Runner for an evaluation, none of which is ever replaced by another.

    Args:
        lanes: how many runs go beside each other (truehalf.verification.lanes).

    Raises:
        StageError: a file that cannot be loaded or emulated, or a provider that is not there.
    """
    if evaluation in BACKENDS:
        return BACKENDS[evaluation](file)
    if evaluation == FP32_CPU:
        return Session(file.runnable, intra_op_num_threads=threads_of(lanes))
    pessimistic = is_pessimistic(evaluation)
    return EmulatedSession(file.model, pessimistic=pessimistic, intra_op_num_threads=threads_of(lanes))


def is_pessimistic(evaluation: str) -> bool:
    """True if sums inside nodes are rounded, too."""
    return evaluation == Evaluation.emulated_fp16_pessimistic.value


class OpenFile:
    """A file with what runs it, fed with FP32 samples, however many.

    Attributes:
        file: the file.
        evaluation: "fp32-cpu" or one of truehalf.config.verification.Evaluation.
        runner: see `open_runner`.
        lanes: how many runs go beside each other.
    """

    def __init__(
        self, file: ModelFile, evaluation: str, runner: Runner | None = None, called: str = "", lanes: int = 1
    ) -> None:
        """Open a file.

        Args:
            runner: where it is open already.
            called: what errors call it beside its path; empty: they name neither.
            lanes: how many runs go beside each other.

        Raises:
            StageError: as open_runner.
        """
        self.file, self.evaluation, self._called = file, evaluation, called
        self.lanes = lanes
        self._beyond_float16: list[tuple[str, float]] = []  # by run
        with self._naming():
            self.runner = runner or open_runner(file, evaluation, lanes)

    @property
    def provider(self) -> str:
        """The execution provider, read back."""
        return self.runner.provider

    @cached_property
    def dtypes(self) -> dict[str, np.dtype]:
        """Types of the inputs, as the file states them."""
        inputs = self.file.model.graph.inputs
        return {str(value.name): np.dtype(value.dtype.numpy()) for value in inputs if value.dtype is not None}

    def run(self, part: Part) -> Arrays:
        """Outputs by name; of arrays that are float32 where the file takes float16, or the other way round. Samples are
        fed as the file asks for them.

        Raises:
            StageError: when the run fails; of a fixed batch, an output whose axis 0 does not count samples.
        """
        typed = {name: as_type(value, self.dtypes.get(name)) for name, value in part.feed.items()}
        self._beyond_float16 += self.beyond_float16(part.feed).items()
        fixed = self.file.fixed_batch if part.rows else None
        with self._naming():
            if fixed is None or fixed == part.rows:
                return self.runner.run(typed)
            parts = []
            for start in range(0, part.rows, fixed):
                outputs = self.runner.run(repeated(part_of(typed, start, fixed), fixed))
                parts.append(_trimmed(outputs, fixed, min(fixed, part.rows - start)))
            return joined(parts)

    def beyond_float16(self, feed: Mapping[str, np.ndarray]) -> dict[str, float]:
        """Measure the largest finite |x| of each float32 input that the file takes as float16, where it becomes Inf."""
        found = {}
        for name, array in feed.items():
            if array.dtype == np.float32 and self.dtypes.get(name) == np.float16:
                largest = float(np.abs(array[np.isfinite(array)]).max(initial=0.0))
                if np.isinf(as_type(np.array(largest, np.float32), np.dtype(np.float16))):
                    found[name] = largest
        return found

    def findings(self) -> list[Finding]:
        """List findings on kernels that accumulate in FP16, on nodes that did not run on CUDA, and on inputs that
        float16 does not hold.
        """
        found = [self._accumulation()]
        if nodes := self.runner.cpu_nodes:
            text = f"{len(nodes)} nodes ran on the CPU provider, which computes FP16 in FP32"
            found.append(not_checked(f"{text}: {some_of(nodes)}"))
        for name, value in dict(sorted(self._beyond_float16, key=lambda each: each[1])).items():
            beyond = f"input {name!r} holds |x| up to {value:.4g}, beyond FP16's largest, {MAX:g}"
            found.append(not_checked(f"{beyond}, and the candidate takes float16: there it is Inf", explains=True))
        return found

    def _accumulation(self) -> Finding:
        is_plain = self.evaluation == Evaluation.emulated_fp16.value
        if self.runner.not_split:
            named = some_of((f"{node}: {why}" for node, why in self.runner.not_split.items()), between="; ")
            left = f"sums inside {len(self.runner.not_split)} FP16 nodes were not rounded ({named})"
            # A sum of more terms than are rounded one by one may stop growing long before the last.
            are_too_long = any(codes_in(why) for why in self.runner.not_split.values())
            if are_too_long:
                left += "; keep them FP32, or run the file (verify.evaluation=cuda)"
            reason = f"{SUMS_IN_FP32}; {left}" if is_plain else f"kernels that accumulate in FP16: {left}"
            return Finding("accumulation", NOT_VERIFIED, coded("sums-not-rounded", reason), decides=are_too_long)
        if is_plain:
            reason = f"{SUMS_IN_FP32}; verify.evaluation=emulated-fp16-pessimistic rounds the inner sums, too"
            return Finding("accumulation", NOT_VERIFIED, coded("sums-not-rounded", reason), decides=False)
        if is_pessimistic(self.evaluation):
            return Finding("accumulation", VERIFIED, "sums inside nodes are rounded to FP16, too")
        ran = self.evaluation != FP32_CPU
        reason = f"the kernels of {self.evaluation} ran" if ran else "the file holds no FP16"
        return Finding("accumulation", VERIFIED, reason)

    def close(self) -> None:
        """Free what runs it."""
        self.runner.close()

    @contextlib.contextmanager
    def _naming(self) -> Iterator[None]:
        """Errors that name the file, where it is called something."""
        try:
            yield
        except StageError as error:
            if not self._called or str(self.file.path) in str(error):
                raise
            raise StageError(error.code, f"{self.file.path} (the {self._called}): {error}") from error


def opened(file: ModelFile, asked: str, runs: int = 1) -> OpenFile:
    """Open a file by the evaluation that is asked for.

    Args:
        runs: how many there will be; many go beside each other.
    """
    evaluation = evaluation_of(file, asked)
    return OpenFile(file, evaluation, lanes=lanes_of(runs) if evaluation in _IN_LANES else 1)


def _trimmed(outputs: Arrays, fixed: int, rows: int) -> Arrays:
    wrong = {name: list(array.shape) for name, array in outputs.items() if array.ndim == 0 or array.shape[0] != fixed}
    if wrong:
        raise StageError(
            "wrong-shape",
            f"its batch is fixed to {fixed}, but axis 0 of these outputs does not count samples: {wrong}; give inputs "
            f"of {fixed} samples each",
        )
    return {name: array[:rows] for name, array in outputs.items()}


# --- the file as it lies on disk --------------------------------------------------------------------------------------


def judge_file(file: ModelFile, reference: ModelFile) -> list[Finding]:
    """Judge a file that holds FP16, by its path; other files are run as they are, and refused there.

    Args:
        reference: the FP32 file; what ONNX Runtime refuses in it as well is not held against the other.
    """
    if not holds_fp16(file.model):
        return []
    error = None if plugins_of(file.model) or custom_operators(file.model) else _refusal(file.path)
    if error is not None and _INVALID.search(str(error)) and _refusal(reference.path) is None:
        return [Finding(FILE, FAILED, _reason(file.path, error), no_node=True, facts=_node(error))]
    found = [] if error is None else [not_checked(f"whether a runtime loads the file as it is: {error}")]
    if (said := checker_refusal(file.path)) is not None:
        found.append(not_checked(str(refused(said, file.path, None))))
    return found or [Finding(FILE, VERIFIED)]


def _refusal(path: Path) -> StageError | None:
    """Return ONNX Runtime's error for a file that it does not load."""
    try:
        Session(path, optimize=False).close()
    except StageError as error:
        return error
    return None


def _reason(path: Path, error: StageError) -> str:
    if not _MIXED.search(str(error)):
        return str(error)
    text = f"{path}: a node reads float16 and float32, and its operator takes one type: no runtime loads the file"
    return coded("types-mixed", f"{text}. Cast one of them. ONNX Runtime says: {error.text}")


def _node(error: StageError) -> dict[str, str]:
    """Read the node that ONNX Runtime names."""
    named = _NODE.search(str(error))
    return {"node": named[1]} if named else {}
