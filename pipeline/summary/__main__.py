"""python -m pipeline.summary: print the verdict of the workspace's run again."""

from pipeline.summary.block import main
from truehalf.report.terminal import run_program

if __name__ == "__main__":
    run_program(main)
