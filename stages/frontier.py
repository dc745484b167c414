"""Ranking for a search of the cheapest file inside the gates: parts of a workspace's model, ranked
(truehalf/verification/pinning/frontier.py). No stage of the chain: `python -m pipeline search=frontier` calls it.

    python -m stages.frontier --count 64 --samples 4 --out parts.json [--checkpoint FILE]

parts.json: a list, those first that pay most to be kept FP32, of {node_block_list, scope_block_list, nodes (how many),
error, cost}.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from stages.frame import load_params, workspace
from truehalf.codes import coded
from truehalf.errors import StageError
from truehalf.files import check_outputs, explain, write_json
from truehalf.verification.pinning.frontier import ranked_parts


def rank(out: Path, samples: int, count: int, checkpoint: Path | None) -> None:
    """Write the ranked parts of the workspace's model to a JSON file."""
    root = workspace()
    check_outputs({"--out": out, "--checkpoint": checkpoint}, {})
    parts = ranked_parts(root, load_params(root), samples=samples, count=count, checkpoint=checkpoint)
    rows = [
        {
            **{"node_block_list": part.node_block_list, "scope_block_list": part.scope_block_list},
            **{"nodes": len(part.nodes), "error": part.error, "cost": part.cost},
        }
        for part in parts
    ]
    write_json(out, rows)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m stages.frontier", description="Rank the parts of a model.")
    parser.add_argument("--count", type=int, required=True, help="at most so many parts")
    parser.add_argument("--samples", type=int, required=True, help="of calibration")
    parser.add_argument("--out", type=Path, required=True, help="JSON file for the parts")
    parser.add_argument("--checkpoint", type=Path, help="JSON file with which a ranking that was killed goes on")
    try:
        rank(**vars(parser.parse_args()))
    except StageError as error:
        sys.exit(f"frontier: {error}")
    except OSError as error:
        sys.exit(f"frontier: {coded('file-unwritable', explain(error))}")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
