"""The notes of chords, by a trained network."""

import numpy as np
import pytest

from tests.support.trained import require, strings
from webnn_vk.examples.notes import MODEL, RATE, Transcriber, peaks

pytest.importorskip("onnx")
CHORDS = [(60, 64, 67), (65, 69, 72), (60, 64, 67)]


@pytest.fixture(scope="module", autouse=True)
def weights():
    require(MODEL)


@pytest.mark.parametrize("device, chords, each", [("cpu", 3, 0.8), ("vulkan", 2, 0.6)])
def test_the_notes_of_chords(request, device, chords, each):
    context = request.getfixturevalue(f"{device}_context")
    notes = Transcriber(context).notes(strings(RATE, CHORDS[:chords], each))
    expected = [
        (0.25 + each * i, pitch) for i, chord in enumerate(CHORDS[:chords]) for pitch in chord
    ]
    assert [note.pitch for note in notes] == [pitch for _, pitch in expected]
    starts = np.array([note.start for note in notes])
    lengths = np.array([note.end - note.start for note in notes])
    assert np.abs(starts - [start for start, _ in expected]).max() < 0.05
    assert np.abs(lengths - each).max() < 0.1


def test_silence_has_no_notes(cpu_context):
    assert Transcriber(cpu_context).notes(np.zeros(5000, np.float32)) == []


def test_peaks():
    assert peaks(np.array([0.9, 0.2, 0.6, 0.6, 0.4, 0.49, 0.1, 0.7])) == [0, 2, 7]
