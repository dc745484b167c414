"""python -m pipeline.report: draw reports/report.html again."""

from pipeline.report.page import main

if __name__ == "__main__":
    main()
