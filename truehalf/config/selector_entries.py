"""Syntax of the entries of block lists and include lists; truehalf.ir.selectors has their meaning."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterator
from typing import Any

from truehalf.codes import coded

_LIKE = 0.8  # likeness from which on an unknown name is a misspelt operator, and none of the user's own
_ABBREVIATED = 8  # letters of a name that others may begin with, as Layernorm
_KNOWN_DOMAINS = {"": "ONNX", "ai.onnx": "ONNX", "com.microsoft": "ONNX Runtime"}
_OF_PLUGINS = ("_TRT", "Plugin")  # ends of names that TensorRT's plugins have
# Operators of ONNX Runtime that ONNX has not, and whose names are that like those of others.
_OF_RUNTIME = (
    *("DynamicQuantizeLSTM", "EmbedLayerNormalization", "GemmaRotaryEmbedding", "LinearAttentionGate", "MulInteger"),
    *("MRotaryEmbedding", "MatMulInteger16", "QAttention", "QEmbedLayerNormalization", "QGemm", "QLinearConcat"),
    *("QLinearGlobalAveragePool", "QLinearMul", "QOrderedLayerNormalization", "Scale", "SkipLayerNormalization"),
    *("DynamicQuantizeMatMul", "GroupNorm", "QLinearAveragePool", "SimplifiedLayerNormalization"),
    *("SkipGroupNorm", "SkipSimplifiedLayerNormalization", "VarlenCausalConvWithState"),
)


def problems_of_lists(owner: str, section: Any) -> Iterator[str]:
    """A line for each entry that cannot be read.

    Args:
        owner: dotted path of the section, for the lines.
        section: has lists called op_block_list, scope_include_list, ..., not necessarily all of them.
    """
    for kind, problem_of in _PROBLEMS.items():
        names = [f"{kind}_block_list", f"{kind}_include_list", *(["fp16_ops"] if kind == "op" else [])]
        for name in names:
            for i, entry in enumerate(getattr(section, name, None) or []):
                if found := problem_of(entry):
                    yield coded("bad-syntax", f"{owner}.{name}[{i}]: {entry!r} {found}")


def misspelt_operators(owner: str, section: Any, of_model: Collection[str] = ()) -> Iterator[str]:
    """A line for each operator type that nobody has, and whose name is like that of one of ONNX, or of the model.

    Args:
        owner, section: as of `problems_of_lists`, whose lists can be read.
        of_model: operator types that a model has, those of other domains than ONNX's as domain::Op.
    """
    listed = [
        (f"{owner}.{name}[{i}]", operator.strip())
        for name in (*(f"{kind}_{use}_list" for kind in ("op", "pattern") for use in ("block", "include")), "fp16_ops")
        for i, entry in enumerate(getattr(section, name, None) or [])
        for operator in re.split("->|<-", entry)
    ]
    if not listed:
        return
    import onnx.defs

    schemas = onnx.defs.get_all_schemas()
    known = {schema.name for schema in schemas} | {*_OF_RUNTIME}
    meant = {schema.name for schema in schemas if "preview" not in schema.domain}
    own = {name for entry in of_model for name in (entry, entry.rpartition("::")[2])}
    for where, operator in listed:
        domain, _, name = operator.rpartition("::")
        if re.search(r"\W", name) or operator in own:
            continue
        if domain not in _KNOWN_DOMAINS:
            of_domain = [each.rpartition("::")[2] for each in of_model if each.startswith(f"{domain}::")]
            if like := _like(name, of_domain):
                names = " or ".join(f"{domain}::{each}" for each in like)
                yield coded("unknown-choice", f"{where}: the model has no operator {operator}; did you mean {names}?")
        elif name not in known and not name.endswith(_OF_PLUGINS):
            whose, pool = _KNOWN_DOMAINS[domain], {*meant, *(_OF_RUNTIME if domain == "com.microsoft" else ())}
            if like := _like(name, pool):
                said = f"no operator of {whose} is called {name!r}; did you mean {' or '.join(like)}?"
                own_one = f"one of your own is listed with its domain, as com.acme::{name}"
                yield coded("unknown-choice", f"{where}: {said} {own_one}")


def _like(name: str, known: Collection[str]) -> list[str]:
    """Names that one may be meant for, whatever their case: the same, those that it begins, or one or two like it.

    Modules of torch say how many axes they are for: Conv2d.
    """
    folded = {each.lower(): each for each in sorted(known)}
    word = re.sub(r"[123]d$", "", name.lower())
    like = [each for each in folded if each == word]
    like = like or [each for each in folded if len(word) >= _ABBREVIATED and each.startswith(word)][:2]
    return [folded[each] for each in like or difflib.get_close_matches(word, folded, 2, _LIKE)]


def problem_of_op(entry: str) -> str | None:
    """What is wrong with an operator type, Op or domain::Op; None: nothing."""
    if re.fullmatch(r"(?:[^\s:]+::)?[A-Za-z_]\w*", entry):
        return None
    return (
        "is no op type; expected a name such as Softmax, or com.acme::Op (regular expressions over node names go to "
        "node_block_list)"
    )


def problem_of_node(entry: str) -> str | None:
    """What is wrong with a regular expression over node names; None: nothing."""
    try:
        re.compile(entry)
    except re.error as error:
        return f"is no regular expression: {error}"
    return None if entry.strip() else "would match every node; expected a regular expression over node names"


def _problem_of_scope(entry: str) -> str | None:
    if re.search(r"[/\s]", entry) or not all(entry.split(".")) or not entry.strip("*."):
        return "is no module scope; expected a dotted path such as decoder.layers.*.cross_attn"
    return None


def _problem_of_pattern(entry: str) -> str | None:
    chain = r"\s*[^\s<>-]+(?:\s*(?:{0}\s*[^\s<>-]+\s*)+)"
    chains = (chain.format("->"), chain.format("<-"))
    position = r"\s*(?:outputs|inputs)\s*:\s*[1-9]\d*\s*"
    if any(re.fullmatch(expected, entry) for expected in (*chains, position)):
        return None
    return "is no pattern; expected 'MatMul -> Softmax', 'Add <- Conv' or a position such as outputs:2"


_PROBLEMS = {"op": problem_of_op, "node": problem_of_node, "scope": _problem_of_scope, "pattern": _problem_of_pattern}
