"""Addresses in errors: neither password nor token is shown, whatever a URL can hold; the host and the rest are."""

from __future__ import annotations

import pytest

from pipeline.redact import first_line, redact_credentials


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("no http://host:5000/api was there", "no http://host:5000/api was there"),
        ("http://u:p@host/x", "http://***@host/x"),
        ("http://token@host", "http://***@host"),
        ("http://u:p@ss@host", "http://***@host"),
        ("http://u:p%40ss@host", "http://***@host"),
        ("https://u:a/b@h/", "https://***@h/"),
        ("https://u:1/b@h/", "https://***@h/"),
        ("http://u:a?b=c@h", "http://***@h"),
        ("http://u:a#b@h", "http://***@h"),
        ("'postgresql+psycopg://u:p@h/db'", "'postgresql+psycopg://***@h/db'"),
        ("http://u:p@h1 and http://v:q@h2", "http://***@h1 and http://***@h2"),
        ("http://u:p@h1,http://v:q@h2", "http://***@h2"),
        ("cannot resolve ss@host", "cannot resolve ***@host"),  # what is left where a library split at the first @
        ("exceeded with url: /b@h:9/api", "exceeded with url: ***@h:9/api"),
        ("https://h/f?token=secret", "https://h/f?token=***"),
        ("https://h/f?a=1&X-Amz-Signature=secret/+=#part", "https://h/f?a=***&X-Amz-Signature=***#part"),
        ("https://h/f#access_token=secret end", "https://h/f#access_token=*** end"),
        ("with url: /?token=secret (Caused by", "with url: /?token=*** (Caused by"),
        ("http://u:p@h/f?sig=secret", "http://***@h/f?sig=***"),
        ("is x == 3? y = 4", "is x == 3? y = 4"),
    ],
)
def test_what_is_shown_of_addresses(text: str, shown: str) -> None:
    assert redact_credentials(text) == shown


def test_an_error_is_a_line() -> None:
    assert first_line(ValueError("one\ntwo")) == "one"
    assert first_line(ValueError()) == "ValueError"
    assert len(first_line(ValueError("x" * 400))) == 300


def test_an_address_at_the_cut_is_masked_before_it() -> None:
    assert "hidden" not in first_line(ValueError("x" * 280 + " http://u:hidden@host"))


def test_of_a_server_that_does_not_answer_the_cause_is_told() -> None:
    from mlflow.exceptions import MlflowException
    from mlflow.tracking import MlflowClient

    with pytest.MonkeyPatch.context() as told, pytest.raises(MlflowException) as caught:
        told.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
        MlflowClient(tracking_uri="http://someone:secret@127.0.0.1:9").search_experiments()
    said = first_line(caught.value)
    assert "http://***@127.0.0.1:9/api/" in said and said.endswith("[Errno 111] Connection refused")
