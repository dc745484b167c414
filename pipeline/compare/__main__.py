"""python -m pipeline.compare: runs beside each other; --help has the arguments."""

from pipeline.compare.compare import main

if __name__ == "__main__":
    main()
