"""The notes of a recording, by a trained network (basic-pitch) that runs as an ONNX model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .weights import Weights

MODEL = Weights(
    "basic-pitch", "0.4.0", "nmp.onnx",
    "2c3c1d144bfa61ad236e92e169c13535c880469a12a047d4e73451f2c059a0ec",
)
#: Samples per second, per frame of the result, and of the window that the network sees; frames of a
#: window; and those at each of its ends that are taken from the window beside it.
RATE, FRAME, WINDOW, FRAMES, MARGIN = 22050, 256, 43844, 172, 15
#: The network's lowest note as MIDI counts them: A0, 27.5 Hz.
LOWEST = 21
#: A note starts where both say so, lasts while it sounds, and for at least this many frames.
STARTS, SOUNDS, SHORTEST = 0.5, 0.3, 11
_INPUT, _SOUNDS, _STARTS = (
    "serving_default_input_2:0", "StatefulPartitionedCall:1", "StatefulPartitionedCall:2",
)


@dataclass(frozen=True)
class Note:
    """A note: start and end in seconds, and its number as MIDI counts (69: A4, 440 Hz)."""

    start: float
    end: float
    pitch: int


class Transcriber:
    """Finds notes, on one context. `WeightsError` where the weights are missing."""

    def __init__(self, context: Any) -> None:
        from webnn_vk.onnx import Session

        self.session = Session(MODEL.path(), context)

    def activity(self, samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Probabilities [frames, 88 notes] that a note sounds, and that one starts, for a recording
        (float32 [samples], −1 to 1, `RATE` per second)."""
        hop = (FRAMES - 2 * MARGIN) * FRAME
        padded = np.pad(samples.astype(np.float32), (MARGIN * FRAME, WINDOW))
        pieces: list[list[np.ndarray]] = [[], []]
        for start in range(0, max(len(samples), 1), hop):
            window = padded[None, start : start + WINDOW, None]
            outputs = self.session.run([_SOUNDS, _STARTS], {_INPUT: window})
            for piece, output in zip(pieces, outputs, strict=True):
                piece.append(output[0, MARGIN : FRAMES - MARGIN])
        frames = -(-len(samples) // FRAME)
        sounds, starts = (np.concatenate(piece)[:frames] for piece in pieces)
        return sounds, starts

    def notes(self, samples: np.ndarray) -> list[Note]:
        """The notes of a recording, by their start."""
        sounds, starts = self.activity(samples)
        found = []
        for key in range(sounds.shape[1]):
            free = 0
            for frame in peaks(starts[:, key]):
                if frame < free:
                    continue
                quiet = np.flatnonzero(sounds[frame:, key] < SOUNDS)
                end = frame + int(quiet[0]) if len(quiet) else len(sounds)
                if end - frame >= SHORTEST:
                    seconds = FRAME / RATE
                    found.append(Note(frame * seconds, end * seconds, LOWEST + key))
                    free = end
        return sorted(found, key=lambda note: (round(note.start, 1), note.pitch))


def peaks(curve: np.ndarray) -> list[int]:
    """Where a curve has a maximum of at least `STARTS`."""
    before, after = np.pad(curve, (1, 0))[:-1], np.pad(curve, (0, 1))[1:]
    return np.flatnonzero((curve >= STARTS) & (curve > before) & (curve >= after)).tolist()
