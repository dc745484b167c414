"""python -m pipeline.compare: runs beside each other; --help has the arguments."""

from pipeline.compare.compare import main
from truehalf.report.terminal import run_program

if __name__ == "__main__":
    run_program(main)
