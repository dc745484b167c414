"""python -m pipeline.report: draw reports/report.html again."""

import argparse

from pipeline.report.page import main
from truehalf.report.terminal import run_program

if __name__ == "__main__":
    argparse.ArgumentParser("python -m pipeline.report", description=__doc__).parse_args()
    run_program(main)
