"""Python runs this when it starts: it notes, at the end of each process, what it was and what it took.

benchmarks/sweep.py puts this folder on PYTHONPATH, and so counts what really ran, whatever DVC says of it.
"""

import os
import sys

if os.environ.get("OBSERVED_PROCESSES"):
    import atexit
    import json
    import resource
    import time

    _started, _folder = time.time(), os.getcwd()  # noqa: PTH109 - this runs before everything, and stays small
    _waited = 0.0
    _waitpid = os.waitpid

    def _timed_waitpid(pid, options):  # by which subprocess waits for a child
        global _waited
        began = time.time()
        try:
            return _waitpid(pid, options)
        finally:
            _waited += time.time() - began

    os.waitpid = _timed_waitpid

    def _note() -> None:
        used = resource.getrusage(resource.RUSAGE_SELF)
        said = {"command": sys.orig_argv[1:], "folder": _folder, "start": _started, "end": time.time()}
        said |= {"processor_s": used.ru_utime + used.ru_stime, "waited_s": _waited}
        line = json.dumps(said) + "\n"
        place = os.open(os.environ["OBSERVED_PROCESSES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.write(place, line.encode())  # one write to a file opened for appending is not torn apart
        os.close(place)

    atexit.register(_note)
