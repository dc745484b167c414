"""Text of libraries' errors, before it is shown: an address in it may hold a password."""

from __future__ import annotations

import re

_PASSWORD = re.compile(r"(\w+://)[^\s/@]*@")


def without_password(text: str) -> str:
    """The text with what stands before the @ of an address replaced by stars."""
    return _PASSWORD.sub(r"\1***@", text)
