"""python -m pipeline.summary: print the verdict of the workspace's run again."""

from pipeline.summary.block import main

if __name__ == "__main__":
    main()
