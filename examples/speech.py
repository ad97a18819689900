"""Where speech is in a recording, by a trained network (silero-vad) that runs as an ONNX model."""

from __future__ import annotations

from typing import Any

import numpy as np

from .weights import Weights

MODEL = Weights(
    "silero-vad", "6.2.3", "silero_vad.onnx",
    "1a153a22f4509e292a94e67d6f9b85e8deb25b4988682b7e174c65279d8788e3",
)
#: Samples per second; per step of the network; and of the step before that it sees again.
RATE, STEP, BEFORE = 16000, 512, 64
#: From this probability on it is speech.
SPEECH = 0.5


class SpeechDetector:
    """Probabilities of speech, on one context. `WeightsError` where the weights are missing."""

    def __init__(self, context: Any) -> None:
        from webnn_vk.onnx import Session

        self.session = Session(MODEL.path(), context)

    def probabilities(self, samples: np.ndarray) -> np.ndarray:
        """How probable speech is in each `STEP` of a recording (float32 [samples], −1 to 1, `RATE`
        per second); the last step is filled up with silence."""
        filled = np.pad(samples.astype(np.float32), (BEFORE, -len(samples) % STEP))
        state = np.zeros((2, 1, 128), np.float32)
        made = []
        for start in range(0, len(filled) - BEFORE, STEP):
            frame = filled[None, start : start + BEFORE + STEP]
            feeds = {"input": frame, "state": state, "sr": np.array(RATE)}
            probability, state = self.session.run(["output", "stateN"], feeds)
            made.append(float(probability[0, 0]))
        return np.array(made)

    def spans(self, samples: np.ndarray) -> list[tuple[float, float]]:
        """Start and end of each stretch of speech, in seconds; pauses of less than 0.2 s belong
        to it."""
        speech = np.flatnonzero(self.probabilities(samples) >= SPEECH)
        if not len(speech):
            return []
        gap = round(0.2 * RATE / STEP)
        parts = np.split(speech, np.flatnonzero(np.diff(speech) > gap) + 1)
        seconds = STEP / RATE
        return [(int(part[0]) * seconds, (int(part[-1]) + 1) * seconds) for part in parts]
