"""Numbers as pages show them."""

import pytest

from truehalf.report.numbers import count, number, percent


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        *((None, "–"), (0, "0"), (1, "1"), (512.0, "512"), (0.05698, "0.057"), (33600, "33\u202f600")),
        *(
            (8.9e-4, "8.9e−4"),
            (-0.00228, "−0.00228"),
            ("inf", "∞"),
            (float("-inf"), "−∞"),
            ("nan", "nan"),
            (1234.0, "1\u202f234"),
        ),
    ],
)
def test_numbers(value, expected):
    assert number(value) == expected


@pytest.mark.parametrize(
    ("value", "digits", "expected"),
    [
        (1, 1, "100 %"),
        (0.99999, 1, "99.9 %"),
        (0.99999, 2, "99.99 %"),
        (0.995, 2, "99.50 %"),
        (None, 1, "–"),
        (0.0, 1, "0.0 %"),
    ],
)
def test_percent_never_rounds_up_to_all(value, digits, expected):
    assert percent(value, digits) == expected


def test_counts():
    assert count(12345) == "12\u202f345" and count(None) == "–"
