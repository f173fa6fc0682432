"""Sound files, and the logarithm of their energy in bands of the mel scale."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from deep500.errors import DataError, InputError

SUFFIXES = frozenset({".wav", ".flac"})


def read_audio(path: Path, rate: int) -> np.ndarray:
    """The samples of a WAV or FLAC file, float64 in [-1, 1], channels averaged. WAV needs SciPy, FLAC soundfile.

    Raises:
        DataError: the file cannot be read, or has another rate.
    """
    if path.suffix.lower() == ".flac":
        soundfile = _soundfile(path)
        try:
            samples, file_rate = soundfile.read(path, dtype="float64", always_2d=True)
        except (soundfile.LibsndfileError, OSError) as error:
            raise _unreadable(path, error) from error
    else:
        samples, file_rate = _read_wav(path)
    _check_rate(path, file_rate, rate)
    return samples.mean(axis=1)


def sound_length(path: Path, rate: int) -> int:
    """Return the number of samples in a file; only the head of a FLAC file is read. Raises as :func:`read_audio`."""
    if path.suffix.lower() != ".flac":
        return len(read_audio(path, rate))
    soundfile = _soundfile(path)
    try:
        info = soundfile.info(path)
    except (soundfile.LibsndfileError, OSError) as error:
        raise _unreadable(path, error) from error
    _check_rate(path, info.samplerate, rate)
    return int(info.frames)


def _read_wav(path: Path) -> tuple[np.ndarray, int]:
    import struct
    import warnings

    from scipy.io import wavfile

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", wavfile.WavFileWarning)
            rate, samples = wavfile.read(path)
    except (OSError, ValueError, EOFError, struct.error, wavfile.WavFileWarning) as error:
        raise _unreadable(path, error) from error
    if samples.dtype.kind == "f":
        scaled = samples.astype(np.float64)
    elif samples.dtype == np.uint8:
        scaled = (samples.astype(np.float64) - 128) / 128
    else:
        scaled = samples / -float(np.iinfo(samples.dtype).min)
    return scaled if scaled.ndim == 2 else scaled[:, None], int(rate)


def _unreadable(path: Path, error: Exception) -> DataError:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return DataError(
        f"{path}: got a sound file that cannot be read ({lines[0]}); expected WAV or FLAC: replace or remove it"
    )


def _check_rate(path: Path, got: int, rate: int) -> None:
    if got != rate:
        raise DataError(
            f"{path}: got {got} samples a second; expected {rate}, as the features have: pass rate={got}, or convert it"
        )


def _soundfile(path: Path):  # type: ignore[no-untyped-def] # an optional package
    try:
        import soundfile  # type: ignore[import-untyped]
    except (ImportError, OSError) as error:
        raise DataError(
            f"{path}: got no package 'soundfile' to read FLAC with; expected it: pip install 'deep500[data]'"
        ) from error
    return soundfile


@dataclass(frozen=True)
class LogMel:
    """Log-mel features: windows of a signal, power of their spectrum, summed in triangular bands, log.

    Windows are periodic Hann windows, padded with zeros to the next power of two (400 samples to 512); their first
    begins at the first sample, and a rest that fills none is left out.
    The mel scale is 2595 log10(1 + f / 700) (O'Shaughnessy 1987), bands are triangles in mel between equally spaced
    corners, with height 1.

    Args:
        rate: samples a second.
        window, step: samples of a frame, and between the beginnings of frames; 25 and 10 ms of 16 kHz.
        bands: features of a frame.
        lowest, highest: Hz; the highest is half the rate if None.
        floor: added to the energy before the logarithm, which keeps silence finite.

    Raises:
        InputError: sizes that cannot be.

    Example:
        >>> tone = np.sin(2 * np.pi * 1000 * np.arange(16000) / 16000)
        >>> features = LogMel(bands=40)(tone)
        >>> features.shape, int(features[0].argmax())
        ((98, 40), 13)
    """

    rate: int = 16000
    window: int = 400
    step: int = 160
    bands: int = 80
    lowest: float = 20.0
    highest: float | None = None
    floor: float = 1e-10

    def __post_init__(self) -> None:
        top = self.rate / 2 if self.highest is None else self.highest
        sizes = min(self.rate, self.window, self.step, self.bands) >= 1
        if not sizes or not 0 <= self.lowest < top <= self.rate / 2 or self.floor <= 0:
            raise InputError(
                f"got {self}; expected sizes of at least 1, 0 <= lowest < highest <= rate / 2 and a floor above 0: "
                "correct them"
            )

    def frames(self, samples: int) -> int:
        """Return the number of frames of a signal of so many samples."""
        return max(0, (samples - self.window) // self.step + 1)

    @property
    def size(self) -> int:
        """Of the Fourier transform: the next power of two."""
        return 1 << (self.window - 1).bit_length()

    @cached_property
    def filters(self) -> np.ndarray:
        """(bins, bands): the weight of each frequency in each band."""
        mel = lambda f: 2595 * np.log10(1 + np.asarray(f) / 700)  # noqa: E731
        highest = self.rate / 2 if self.highest is None else self.highest
        corners = np.linspace(mel(self.lowest), mel(highest), self.bands + 2)
        place = mel(np.arange(self.size // 2 + 1) * self.rate / self.size)[:, None]
        rising = (place - corners[:-2]) / (corners[1:-1] - corners[:-2])
        falling = (corners[2:] - place) / (corners[2:] - corners[1:-1])
        return np.maximum(0.0, np.minimum(rising, falling))

    def __call__(self, signal: np.ndarray) -> np.ndarray:
        """(frames, bands) float32 of a signal (samples,)."""
        from scipy import fft
        from scipy import signal as processing

        if len(signal) < self.window:
            raise InputError(
                f"LogMel: got a signal of {len(signal)} samples; expected at least a window of {self.window}: leave it "
                "out, pad it, or give a smaller window"
            )
        windows = np.lib.stride_tricks.sliding_window_view(signal, self.window)[:: self.step]
        shaped = windows * processing.get_window("hann", self.window)
        power = np.abs(fft.rfft(shaped, self.size)) ** 2
        return np.log(power @ self.filters + self.floor).astype(np.float32)
