"""Run one stage of the chain in the workspace, as dvc.yaml does.

It reads params.yaml and artifacts/ and takes no other arguments. For a single file: truehalf --help.
"""

from __future__ import annotations

import argparse
import importlib

from stages.frame import run_stage
from stages.lines import FIGURES


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m stages", description=__doc__)
    parser.add_argument("stage", choices=FIGURES)
    stage = parser.parse_args().stage
    run_stage(stage, importlib.import_module(f"stages.{stage}").run)


if __name__ == "__main__":
    main()
