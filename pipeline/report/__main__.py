"""python -m pipeline.report: draw reports/report.html again."""

from pipeline.report.page import main
from truehalf.report.terminal import run_program

if __name__ == "__main__":
    run_program(main)
