"""Sound and EEG for trained models: speech by espeak-ng, chords of plucked notes, brain waves with events."""

from __future__ import annotations

import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

SENTENCES = (
    "The harbour was quiet before the first boats came in.",
    "Please send the report to the office by tomorrow morning.",
    "He counted twelve yellow windows on the other side of the street.",
    "A cold wind moved over the empty fields.",
    "Nobody had opened the museum since last winter.",
    "Turn left at the second bridge, and then go straight on.",
    "It costs four hundred and fifty, or less for students.",
    "She laughed, closed the book, and said nothing at all.",
)
VOICES = ("en-us", "en-gb", "en-us+f3", "en-gb+m4")


class NoSpeech(Exception):
    """espeak-ng is not installed."""


def speech(index: int, rate: int = 16000) -> np.ndarray:
    """Two spoken sentences with pauses around them, and noise: float32, within -1 to 1.

    Raises:
        NoSpeech: without espeak-ng, which Debian packages as `espeak-ng`.
    """
    rng = np.random.default_rng((77, index))
    parts = [np.zeros(int(rate * rng.uniform(0.4, 0.9)))]
    for i in range(2):
        parts += [spoken(SENTENCES[(index + 3 * i) % len(SENTENCES)], VOICES[(index // 2 + i) % len(VOICES)], rate)]
        parts += [np.zeros(int(rate * rng.uniform(0.5, 1.0)))]
    wave = np.concatenate(parts)
    return (wave * rng.uniform(0.3, 0.9) + rng.normal(0, rng.uniform(0.001, 0.01), wave.size)).astype(np.float32)


@functools.cache
def spoken(sentence: str, voice: str, rate: int) -> np.ndarray:
    """One sentence by espeak-ng, at a sampling rate."""
    from scipy.io import wavfile
    from scipy.signal import resample_poly

    if shutil.which("espeak-ng") is None:
        raise NoSpeech("espeak-ng is not installed (Debian: apt-get install espeak-ng)")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "spoken.wav")
        subprocess.run(["espeak-ng", "-v", voice, "-s", "155", "-w", str(file), sentence], check=True)
        own, wave = wavfile.read(file)
    wave = resample_poly(wave.astype(np.float64) / 32768, rate, own)
    return wave / max(1e-9, float(np.abs(wave).max()))


def chords(rng: np.random.Generator, length: int, rate: int) -> np.ndarray:
    """Plucked notes with harmonics, up to three at a time, in a little noise: float32 (length,)."""
    seconds, wave, start = np.arange(length) / rate, np.zeros(length), 0.05
    while start < length / rate - 0.3:
        for _ in range(int(rng.integers(1, 4))):
            pitch = 440 * 2 ** ((int(rng.integers(40, 84)) - 69) / 12)
            held = np.clip(seconds - start, 0, None)
            shape = np.where(seconds >= start, np.exp(-2.5 * held) * np.clip(held / 0.01, 0, 1), 0)
            wave += shape * sum(np.sin(2 * np.pi * pitch * k * seconds) / k**1.5 for k in range(1, 6))
        start += float(rng.uniform(0.25, 0.7))
    wave *= 0.5 / max(1e-9, float(np.abs(wave).max()))
    return (wave + rng.normal(0, 0.002, length)).astype(np.float32)


def brain(rng: np.random.Generator, seconds: float, rate: int, event: str) -> np.ndarray:
    """Noise whose power falls with frequency, with sleep spindles (13 Hz, a second long) or a seizure (rhythmic
    discharges that slow down from 12 to 3 Hz): float64, microvolts.
    """
    length = round(seconds * rate)
    spectrum = np.fft.rfft(rng.normal(0, 1, length))
    spectrum /= np.maximum(np.arange(spectrum.size), 3 * seconds / 3) ** 0.9
    wave = np.fft.irfft(spectrum, length)
    wave *= 20 / wave.std()
    time = np.arange(length) / rate
    if event == "spindles":
        for centre in np.arange(3, seconds - 2, rng.uniform(3.5, 6)):
            shape = np.exp(-0.5 * ((time - centre) / rng.uniform(0.25, 0.4)) ** 2)
            wave += rng.uniform(15, 45) * shape * np.sin(2 * np.pi * rng.uniform(12, 14) * time)
    elif event == "seizure":
        begin, end = seconds * rng.uniform(0.2, 0.4), seconds * rng.uniform(0.6, 0.9)
        inside = (time > begin) & (time < end)
        frequency = np.interp(time, [begin, end], [12, 3])
        phase = 2 * np.pi * np.cumsum(frequency) / rate
        sharp = np.sign(np.sin(phase)) * np.abs(np.sin(phase)) ** 0.3
        wave += np.where(inside, 120 * sharp, 0)
    return wave


def scalogram(wave: np.ndarray) -> np.ndarray:
    """Magnitudes (15, length) of the wavelet transform that the spindle models were trained on: complex Shannon
    wavelet of bandwidth 6 and centre 13, at 15 scales from 135 to 270 samples, its integral taken at 2^10 points.
    """
    from scipy.signal import fftconvolve

    grid = np.linspace(-20, 20, 2**10)
    step = grid[1] - grid[0]
    integral = np.conj(np.cumsum(np.sqrt(6) * np.sinc(6 * grid) * np.exp(2j * np.pi * 13 * grid)) * step)
    rows = []
    for scale in np.geomspace(135, 270, num=15):
        places = (np.arange(scale * 40 + 1) / (scale * step)).astype(int)
        kernel = integral[places[places < integral.size]][::-1]
        found = -np.sqrt(scale) * np.diff(fftconvolve(wave.astype(complex), kernel))
        cut = (found.size - wave.size) / 2
        rows.append(np.abs(found[int(np.floor(cut)) : found.size - int(np.ceil(cut))]))
    return np.stack(rows)


def spectrogram(wave: np.ndarray, rate: int) -> np.ndarray:
    """float32 (1, 100, columns) of the seizure models: 1 s segments every 0.5 s, 0 to 99 Hz, standardized by row."""
    from scipy.signal import spectrogram as of_signal

    power = of_signal((wave - wave.mean()) / wave.std(), rate, nperseg=rate, noverlap=rate // 2)[2][:100]
    power = (power - power.mean(1, keepdims=True)) / power.std(1, keepdims=True)
    return power[None].astype(np.float32)


def standardized(array: np.ndarray) -> np.ndarray:
    """float32, each row with mean 0 and deviation 1."""
    return ((array - array.mean(-1, keepdims=True)) / array.std(-1, keepdims=True)).astype(np.float32)
