"""The command line of the conversion."""

from __future__ import annotations

import pytest

from tests.messages import expect
from truehalf.cli.conversion_arguments import arguments, meanings
from truehalf.conversion.options import DEFAULTS


def test_help_says_what_each_flag_means(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "500")
    with pytest.raises(SystemExit):
        arguments(["--help"])
    text = capsys.readouterr().out
    assert "python -m stages.fp16 in.onnx out.onnx [options]" in text
    assert all(f"--{key.replace('_', '-')}" in text for key in DEFAULTS)
    assert not [key for key in DEFAULTS if not meanings()[key]], "a flag without a meaning"


@pytest.mark.parametrize(
    ("flags", "options"),
    [
        ([], {}),
        (["--keep-io-types"], {"keep_io_types": True}),
        (["--keep-io-types", "a", "b"], {"keep_io_types": ["a", "b"]}),
        (["--no-keep-io-types"], {"keep_io_types": False}),
        (["--data-max", "off"], {"data_max": None}),
        (["--input-shapes", "x:1x3", "a:b:2"], {"input_shapes": {"x": [1, 3], "a:b": [2]}}),
    ],
)
def test_flags_become_keywords(flags: list[str], options: dict[str, object]) -> None:
    assert arguments(["in.onnx", "out.onnx", *flags]) == {"model_path": "in.onnx", "out_path": "out.onnx"} | options


def test_a_bad_shape_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        arguments(["in.onnx", "out.onnx", "--input-shapes", "x:axb"])
    expect(capsys.readouterr().err, None, "--input-shapes", "NAME:1x3x640x640", "'x:axb'")
