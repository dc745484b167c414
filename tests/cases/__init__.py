"""Cases from real life that fail, or once failed, at the public front doors; each names where it was met.

A case that fails today is marked `xfail(strict=True)` with the fault's name; who mends it removes the mark.
"""
