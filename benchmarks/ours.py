"""One conversion by truehalf, with the command line of peer.py.

python -m benchmarks.ours truehalf in.onnx out.onnx --sample sample.npz --options options.json
"""

from __future__ import annotations

from typing import Any

from benchmarks.peer import main


def truehalf(source: str, target: str, sample: str | None, **options: Any) -> None:
    """The library door; `sample: null` converts without ranges."""
    from tests.measuring.converted import to_fp16

    to_fp16(source, target, calibration=sample, **options)


if __name__ == "__main__":
    main({"truehalf": truehalf})
