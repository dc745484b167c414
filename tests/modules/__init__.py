"""Forty modules as users write them, each with the verdict that its export deserves.

`after_repositories` rebuilds what twenty public repositories do in forward, in own and smaller code; `of_users` holds
what users ask about. A module says what it is in `VERDICT`: "passed", "open" (the trace read a number or a count from a
tensor, which other inputs may change: exported, not verified) or "failed" (the file computes something else).
"""
