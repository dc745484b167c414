"""Configuration errors that several sources share; each check yields messages and codes, or none."""

from __future__ import annotations

from collections.abc import Iterator

from truehalf.codes import coded
from truehalf.config.schema import Config, DecoderName, Layout


def own_decoder(config: Config, what: str = "model") -> Iterator[str]:
    """Of sources that bring a decoder."""
    if config.decoder.name is not DecoderName.none:
        yield coded("in-conflict", f"decoder: the {what} brings one; expected none, got {config.decoder.name.value}")


def half_a_size(config: Config, whose: str) -> Iterator[str]:
    """Of sources that know a size themselves: height and width are given both, or neither."""
    size = list(config.model.image_size)
    if size.count(None) == 1:
        message = f"model.image_size: expected [height, width], or [null, null] for {whose}, got {size}"
        yield coded("needs-value", message)


def another_layout(config: Config, who: str) -> Iterator[str]:
    """Of sources whose networks take NCHW."""
    if config.model.preprocessing.layout is Layout.nhwc:
        yield coded("in-conflict", f"model.preprocessing.layout: {who} NCHW; expected NCHW or null, got NHWC")


def declared_needlessly(config: Config) -> Iterator[str]:
    """Of sources that know what goes in and comes out."""
    model = config.model
    if model.inputs is not None or model.outputs is not None or model.drop_outputs:
        yield coded(
            "in-conflict",
            "model.inputs, model.outputs, model.drop_outputs: are known of this source; expected null, null and []",
        )


def key_of_no_checkpoint(config: Config) -> Iterator[str]:
    """Of sources with the options `key` and `prefix`."""
    options = config.model.options
    if config.model.checkpoint is None and (options.key is not None or options.prefix is not None):
        message = "model.options.key, model.options.prefix: of model.checkpoint, which is null; expected null"
        yield coded("in-conflict", message)
