"""python -m pipeline.report: draw reports/report.html again."""

from pipeline.report.page import main
from truehalf.report.terminal import parser_of, run_program

if __name__ == "__main__":
    parser_of("pipeline.report", __doc__).parse_args()
    run_program(main)
