"""Lines that say something in words of our own where the field has one.

    python -m benchmarks.vocabulary [COMMIT ...]

Counts, by word and in all, the lines of code and docs in which a word of the list stands, at each commit (default: the
working tree). What is moved as it is until its room is rewritten is counted apart: the two verifiers, the reader of
torch source, the sweep's farm.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORDS = {  # ours: the field's
    r"found again": "matched",
    r"\bgone\b": "missed",
    r"\b(hold|holds|held) .{0,40}against\b": "compare(d) with",
    r"\bhops?\b": "stage",
    r"\bputs? out\b|\badds? up\b": "outputs, accumulates",
    r"\bmend(s|ed|ing)?\b": "fix, repair",
    r"\bdoors?\b": "API, entry point",
    r"\bpictures?\b": "image",
    r"\b(halve|Halved|halves)\b": "convert_to_fp16",
    r"\bwish(es)?\b": "selectors",
    r"\balone_on\b": "device_lock",
    r"\bAway\b": "RemoteJobs",
    r"\bwithout_password\b": "redact_credentials",
    r"\bgrowth\b|\bOwnError\b": "node_errors, local_error",
    r"\bTwoFiles\b": "ModelPair",
    r"\bunjudged\b": "not_checked",
    r"\bmake_ready\b": "prepare",
    r"\bcheck_complete\b": "check_required_inputs",
    r"\bdoubted\b": "box_format_problem",
    r"\b(told|tells|said)\b": "arguments, config, reports, caveats",
    r"\bEvidence\b": "RuleContext, EngineReference",
    r"\bPlaces?\b": "location, insertion point",
    r"\bmade_by\b|\bread_by\b|\bbehind\b": "producer, consumers, upstream",
    r"\bnames_apart\b|\blight_proto\b": "unique_names, proto_without_weights",
    r"\b(Same|unseen|misread|meant|hidden|elsewhere)\b": "agreement, not checked, misinterpreted, intended",
    r"\b(forget|launched|guard|take_over|bring_(along|back)|_wind_up)\b": "delete, patch, adopt, collect, report_crash",
    r"\b(own|alone)\b": "accumulated, local, isolated, exclusive",
    r"\bbod(y|ies)\b|\bfloating\b": "subgraph(s), float outputs",
    r"\bfaults?\b": "error, problem",
    r"\btiny\b": "underflow, subnormal",
    r"\bhonest(ly)?\b|\bguilty\b": "measured; that introduced the error",
    r"\b(nobody|somebody|whoever)\b": "none, whichever",
    r"\bthat there is not\b|\bthere is not\b": "unknown",
    r"will not like": "compatibility",
    r"where protobuf ends": "protobuf's 2 GiB limit",
    r"Whose precision": "maps each end to what decides its precision",
    r'^"""(What|Which|Where|How|Whose|Who|Whether) ': "a noun phrase of the field",
}
_AS_IT_IS = (
    "truehalf/verification/",
    "pipeline/sweep/",
    "stages/graph/",
    "stages/parity/",
)
_READ = ("truehalf/", "stages/", "pipeline/", "conf/", "docs/", "README.md", "hydra_plugins/")


def lines_at(commit: str | None) -> dict[str, list[str]]:
    """Lines of the product and its docs, by file."""
    listed = ["git", "ls-files"] if commit is None else ["git", "ls-tree", "-r", "--name-only", commit]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    wanted = [n for n in names if n.startswith(_READ) and n.endswith((".py", ".md", ".yaml", ".j2"))]
    if commit is None:
        return {name: (ROOT / name).read_text().splitlines() for name in wanted if (ROOT / name).exists()}
    shown = [subprocess.run(["git", "show", f"{commit}:{n}"], cwd=ROOT, capture_output=True, text=True) for n in wanted]
    return {name: done.stdout.splitlines() for name, done in zip(wanted, shown, strict=True)}


def counted(lines: dict[str, list[str]]) -> tuple[Counter[str], int, int]:
    """Lines by word; lines in all; those of rooms that are moved as they are."""
    by_word: Counter[str] = Counter()
    total = as_it_is = 0
    for name, content in lines.items():
        for line in content:
            found = [word for word in WORDS if re.search(word, line)]
            by_word.update(found)
            total += bool(found)
            as_it_is += bool(found) and name.startswith(_AS_IT_IS)
    return by_word, total, as_it_is


def main() -> None:
    columns = [counted(lines_at(commit)) for commit in (*sys.argv[1:],) or (None,)]
    for word, standard in WORDS.items():
        numbers = "  ".join(f"{column[0][word]:>6}" for column in columns)
        print(f"{numbers}  {word}  ->  {standard}")
    print("  ".join(f"{column[1]:>6}" for column in columns), " lines in all")
    print("  ".join(f"{column[2]:>6}" for column in columns), " of them in rooms that are moved as they are")


if __name__ == "__main__":
    main()
