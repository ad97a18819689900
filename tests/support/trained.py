"""Trained models that packages ship (`trained-models.txt`), and signals that they understand."""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support import judges
from tests.support.paths import ROOT
from webnn_vk.examples.weights import Weights, WeightsError


def require(*weights: Weights) -> None:
    """Skips the test, counted in the summary, if the weights are not installed."""
    for one in weights:
        try:
            one.path()
        except WeightsError as error:
            judges.skip(f"trained models: {error}")


def packaged(package: str, ending: str) -> Path:
    """A file of a package by the end of its name; skips the test if the package is not installed.
    """
    try:
        named = [f for f in files(package) or () if str(f).endswith(ending)]
    except PackageNotFoundError:
        judges.skip(f"trained models: {package} is not installed")
    return Path(str(named[0].locate()))


def image_of(
    text: str, size: tuple[int, int] = (320, 96), ink: Any = "black", ground: Any = "white",
    mode: str = "RGB", height: int = 40,
) -> Any:
    """A PIL image with a line of text near its top left corner."""
    Image = pytest.importorskip("PIL.Image")
    from PIL import ImageDraw, ImageFont

    image = Image.new(mode, size, ground)
    place = (size[0] // 16, (size[1] - height) // 3)
    ImageDraw.Draw(image).text(place, text, ink, ImageFont.load_default(height))
    return image


def kinds_of_files() -> dict[str, bytes]:
    """Contents of files by their type."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("a.txt", "hello " * 50)
        file.writestr("b.bin", bytes(range(256)) * 4)
    pdf = (
        b"%PDF-1.4\n1 0 obj\n<< /Type /Catalog /Pages 2 0 R >>\nendobj\n2 0 obj\n<< /Type /Pages "
        b"/Kids [3 0 R] /Count 1 >>\nendobj\n3 0 obj\n<< /Type /Page /Parent 2 0 R /MediaBox [0 0 "
        b"612 792] >>\nendobj\nxref\n0 4\n0000000000 65535 f \ntrailer\n<< /Size 4 /Root 1 0 R >>\n"
        b"startxref\n190\n%%EOF\n"
    )
    return {
        "python": (ROOT / "setup.py").read_bytes(),
        "markdown": (ROOT / "README.md").read_bytes(),
        "toml": (ROOT / "pyproject.toml").read_bytes(),
        "shell": (ROOT / "scripts" / "setup.sh").read_bytes(),
        "png": (ROOT / "examples" / "page.png").read_bytes(),
        "json": json.dumps({"list": list(range(9)), "more": {"name": "value"}}, indent=1).encode(),
        "pdf": pdf,
        "zip": archive.getvalue(),
        "gzip": gzip.compress(b"hello" * 100, mtime=0),
        "unknown": np.random.default_rng(0).bytes(3000),
    }


#: Frequencies of the resonances of a, i, e, o and u, in Hz.
VOWELS = (
    (730, 1090, 2440), (270, 2290, 3010), (530, 1840, 2480), (570, 840, 2410), (300, 870, 2240),
)


def babble(rate: int, seconds: float) -> np.ndarray:
    """A voice that speaks syllables: its harmonics through the resonances of vowels, one vowel
    after the other."""
    time = np.arange(int(rate * seconds)) / rate
    pitch = 120 + 15 * np.sin(2 * np.pi * 2.3 * time) + 8 * np.sin(2 * np.pi * 0.7 * time)
    turns = np.cumsum(pitch) / rate
    syllable = time / 0.22
    vowel = syllable.astype(int) * 7 % len(VOWELS)
    voice = np.zeros(len(time))
    for harmonic in range(1, 40):
        frequency = harmonic * pitch
        strength = np.zeros(len(time))
        for index, resonances in enumerate(VOWELS):
            for centre, weight in zip(resonances, (1, 0.6, 0.3), strict=True):
                distance = (frequency - centre) / (60 + 0.04 * centre)
                strength += (vowel == index) * weight / (1 + distance**2)
        audible = strength * (frequency < rate / 2) / np.sqrt(harmonic)
        voice += audible * np.sin(2 * np.pi * harmonic * turns)
    voice *= np.sqrt(np.sin(np.pi * (syllable % 1)))
    voice += 0.01 * np.random.default_rng(0).normal(size=len(time))
    return (0.3 * voice / np.abs(voice).max()).astype(np.float32)


def strings(rate: int, chords: list[tuple[int, ...]], seconds: float) -> np.ndarray:
    """Chords (MIDI note numbers) one after the other, each tone plucked and dying away."""
    time = np.arange(int(rate * seconds)) / rate
    shape = np.exp(-2 * time) * np.minimum(1, time * 200)

    def tone(pitch: int) -> np.ndarray:
        turns = 440 * 2 ** ((pitch - 69) / 12) * time
        return sum(np.sin(2 * np.pi * h * turns) / h**1.5 for h in range(1, 7)) * shape

    quiet = np.zeros(rate // 4)
    sound = [sum(tone(pitch) for pitch in chord) for chord in chords]
    recording = np.concatenate([quiet, *sound, quiet])
    return (0.5 * recording / np.abs(recording).max()).astype(np.float32)
