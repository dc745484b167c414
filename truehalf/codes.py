"""Codes of errors and findings: what stays the same when a message is worded anew.

A message that may need action ends its first line with its code, `model.onnx: no such file [file-missing]`,
so that scripts and tests can tell it by the code, and people can look it up in docs/reference/error-codes.md, which is
made of `CODES` by `python -m truehalf.codes`.
"""

from __future__ import annotations

import re

# By room; each with what it means. A code names a class of errors that is fixed in one way, not a sentence.
CONFIGURATION = {
    "unknown-key": "a key that the configuration does not have",
    "missing-key": "a key that must be given, and is not",
    "wrong-type": "a value of another type than the key's",
    "unknown-choice": "a value that is none of the key's choices",
    "out-of-range": "a number, or a list of them, outside the key's bounds",
    "needs-value": "a value that must be given beside another one, or in the environment, and is not",
    "in-conflict": "two values that cannot stand beside each other",
    "given-twice": "an entry or name that is there twice",
    "bad-syntax": "an entry that cannot be read: a selector, a regular expression, `module:function`, a shape",
    "no-match": "an entry of a list that matches nothing",
    "stale-configuration": "a `params.yaml` that was written before a file of conf/ changed",
    "wrong-shape": "a shape, or a number of axes, that does not fit what it is for",
}
FILES = {
    "file-missing": "a file or folder that is not there",
    "file-unreadable": "a file that is there and cannot be read: its content is broken, or is something else",
    "file-unwritable": "a file or folder where the system refuses what is asked, most often to write",
    "would-overwrite": "an output whose place is that of an input or of another output",
    "wrong-file": "a file that is whole, but not the one that is needed here",
}
MODELS = {
    "axis-fixed": "an axis that is to vary, and that the code of the model or its file fixes",
    "code-refused": "a file that holds Python objects or code, or names some, which is never run",
    "download-fails": "a model or weights that are not in the cache and cannot be downloaded, for want of a login too",
    "export-fails": "a module that the exporter of torch cannot write, for the reason that is named",
    "input-unread": "an input that the exported file does not read: Python read it, or takes one value only",
    "module-fails": "a model that cannot be made as it is asked for, or that raises an error on what goes in",
    "module-varies": "a module whose outputs for one input vary: random numbers, or state that calls leave",
    "revision-moves": "a branch, which moves, where a commit or a tag is needed",
    "trace-open": "a place of your code where Python decided while it was traced: some inputs that agree prove nothing",
    "wrong-class-count": "more or fewer names of classes than the model has classes",
}
DATA = {
    "too-few-samples": "fewer samples than the purposes need together, or than a verdict can rest on",
    "wrong-feeds": "arrays that are not what the inputs of a model or an engine take",
    "wrong-preprocessing": "a preprocessing that cannot be as it is declared",
}
GRAPH = {
    "graph-cycle": "nodes that wait for each other's outputs, so that none of them can be first",
    "nothing-in-fp16": "a file of which no float node is FP16, or a model of which none can be",
    "sizes-unknown": "a rank, size or element type that the model does not say, or sizes that have to be equal",
    "types-mixed": "a node that reads float16 and float32 where its operator takes one type: no runtime loads the file",
    "wrong-opset": "an opset that is too old or too new, or to which a model cannot be raised",
}
RUNTIMES = {
    "no-device": "a GPU, driver or execution provider that is asked for and does not work on this machine",
    "runtime-refuses": "a model, an engine or a call that ONNX Runtime or TensorRT refuses, with its message",
    "wrong-plan": "a plan of an engine that is none, or whose options, profiles or plugins do not fit the model",
}
PARITY = {
    "beyond-gate": "a measured value, or a metric of your own, beyond the limit of its gate",
    "boxes-misread": "boxes that are not what the I/O spec declares: of another format, or in other units",
    "first-samples": "a verification of the first samples, as verify.first_samples asks for",
    "fp16-not-enough": "a model that is beyond the tolerance with most of it in FP16, whichever nodes are pinned",
    "input-ignored": "an output that is the same whatever the input",
    "metadata-differ": "an I/O spec or names of classes of a candidate that contradict the reference's",
    "near-ties": "other classes, indices or steps where the FP32 values are as good as equal, so that rounding decides",
    "no-labels": "samples without true boxes, so that no average precision can be measured against them",
    "not-asked-for": "a comparison that was not made, as no samples were given, or --no-verify",
    "not-searched": "a place, pins or errors of nodes that were not looked for, or whose search ended with an error",
    "nothing-compared": "outputs, samples or detections of which nothing, or nothing but zeros, was compared",
    "other-order": "rows of an output, inputs or outputs that come in another order than the reference's",
    "outputs-differ": "outputs of two models that should be the same, and are not",
    "plugin-not-run": "plugins of TensorRT inside a file, which nothing here runs: what enters them is looked at alone",
    "required-open": "a check that `verify.require` names, and that was not verified",
    "samples-alike": "one sample, or samples that are all alike, which do not show whether outputs react to the input",
    "spec-proposed": "outputs compared as detections, which their values plainly are, and which no I/O spec declares",
    "sums-not-rounded": "sums inside FP16 nodes that an evaluation does not round",
    "weights-random": "random weights, so that what the model finds means nothing",
    "wrong-spec": "an I/O spec that is none, or is not that of the model",
}
STAGES = {
    "function-fails": "a function of yours that cannot be found, or that raised an error",
    "internal-error": "a defect of truehalf, not an error in what it was given; the command ends with exit code 70",
    "wrong-return": "a function or module of yours that returned something else than is expected of it",
    "package-missing": "a Python package, or a version of it, that is needed and not installed, or cannot be imported",
    "wrong-dtype": "a tensor of another element type than is needed",
    "wrong-name": "a tensor, node or option named that is not there under this name",
    "part-missing": "lint, notes, a picture or a page that ended with an error and is missing; all else stands",
    "not-supported": "an operator, model or request that this cannot do",
    "not-finite": "NaN or infinity where finite numbers are needed",
    "not-comparable": "two files or outputs that cannot be compared with each other",
    "changed-meanwhile": "a file that changed while a stage or run was using it",
    "bad-options": "options that are refused; the lines below say which, and why",
    "lint-fails": "what TensorRT refuses of a converted file; findings of lint from `lint.fail_on` on",
    "half-trace-fails": "a module that cannot be traced in FP16",
    "slim-fails": "a model of which onnxslim or repair fails to make a smaller one with the same inputs and outputs",
    "unsafe-data": "external data that is not read: outside the model's folder, or a file of several links",
    "model-invalid": "a model that breaks the rules of ONNX",
}
PIPELINE = {
    "gates-not-passed": "a run whose gates have not passed, and which is not registered",
    "jobs-failed": "jobs of a sweep that failed, as its table says of each, or whose launcher gave up",
    "no-decisions": "a run that decided over no nodes: it is FP32, traced in FP16, or crashed before",
    "no-engine": "an engine that was not built, for the reason that is named",
    "not-logged": "a run that could not be logged; `python -m pipeline.track NAME` logs it later",
    "not-run": "a stage whose word is needed, and that has not run",
    "too-large": "a file above a limit: of what is logged, or of what protobuf can hold",
    "waits-for-another": "another process is at work there; this one goes on when that has ended",
}
CODES: dict[str, str] = CONFIGURATION | FILES | DATA | MODELS | GRAPH | RUNTIMES | PARITY | STAGES | PIPELINE
# Errors in what was given, not in what was made of it: packages and downloads, whoever asks for them, and a model that
# is not what the configuration says of it.
NOT_AVAILABLE = frozenset({"download-fails", "package-missing"})
BAD_INPUT = NOT_AVAILABLE | {
    *CONFIGURATION,
    "function-fails",
    "module-fails",
    "revision-moves",
    "wrong-class-count",
    "wrong-dtype",
    "wrong-feeds",
    "wrong-name",
    "wrong-preprocessing",
    "wrong-return",
    "wrong-spec",
}

_CODE = re.compile(r" \[([a-z0-9]+(?:-[a-z0-9]+)+)\]")


def coded(code: str, text: str) -> str:
    """A message whose first line ends with its code. One that ends with a code already keeps that: where an error is
    raised again with more about its place, the first code says what is wrong.
    """
    first, newline, rest = text.partition("\n")
    return text if first.endswith(tuple(f" [{known}]" for known in CODES)) else f"{first} [{code}]{newline}{rest}"


def uncoded(text: str) -> str:
    """A message without its codes, for a sentence that names several."""
    return _CODE.sub(lambda found: "" if found[1] in CODES else found[0], text)


def codes_in(text: str) -> list[str]:
    """The codes of a message, or of all lines of an output, in their order."""
    return [code for code in _CODE.findall(text) if code in CODES]


def table() -> str:
    """docs/reference/error-codes.md."""
    head = """# Codes of errors and findings

A message ends its first line with a code in brackets. The code stays when the message is worded anew: look for it here,
and let scripts compare it rather than the sentence. This page is made by `python -m truehalf.codes`.

| code | meaning |
|---|---|
"""
    return head + "".join(f"| `{code}` | {meaning} |\n" for code, meaning in sorted(CODES.items()))


if __name__ == "__main__":
    print(table(), end="")
