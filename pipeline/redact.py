"""Text of libraries' errors, before it is shown: an address in it may hold a password or a token."""

from __future__ import annotations

import os
import re

_WITH_USER = re.compile(r"\S*@\S*")
_RETRIES = re.compile(r" failed with exception .*?(\[Errno -?\d+\] [^\"')]+|Read timed out|Connection aborted).*")
_READ = 5000  # characters of an error
_SECRETS = ("MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN")
_OF_QUERY = re.compile(r"([?&;#][^\s?&;#=]+=)[^\s&;#]+")


def redact_credentials(text: str) -> str:
    """The text with stars for what stands before the @ of an address, and for every value of its query.

    A password may itself hold @, /, ? and #, and libraries tell of half an address: in each word all up to its last @
    goes, but for the scheme.
    """
    return _OF_QUERY.sub(r"\1***", _WITH_USER.sub(_without_user, text))


def first_line(error: BaseException) -> str:
    """What an error says, in a line of at most 300 characters without passwords; its type where it says nothing.

    Of a server that does not answer, requests reports urllib3's whole chain of errors; only the cause stays.
    """
    line = next(iter(str(error).strip().splitlines()), type(error).__name__)
    if len(line) > _READ:  # a page of HTML; half an address looks like a word, so a word is the end
        line = line[:_READ].rpartition(" ")[0]
    for name in _SECRETS:
        if value := os.environ.get(name):
            line = line.replace(value, "***")
    return _RETRIES.sub(r": \1", redact_credentials(line))[:300]


def _without_user(word: re.Match[str]) -> str:
    head, _, host = word[0].rpartition("@")
    before, scheme, _ = head.partition("://")
    return f"{before}{scheme}***@{host}" if scheme else f"***@{host}"
