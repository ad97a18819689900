"""A trained network finds speech where it is, and none in noise and silence."""

import numpy as np
import pytest

from tests.support.trained import babble, require
from webnn_vk.examples.speech import MODEL, RATE, STEP, SpeechDetector

pytest.importorskip("onnx")


@pytest.fixture(scope="module", autouse=True)
def weights():
    require(MODEL)


def test_speech_is_found_where_it_is(context):
    silence, voice = np.zeros(RATE // 2), babble(RATE, 1.2)
    noise = 0.1 * np.random.default_rng(1).normal(size=RATE // 2)
    recording = np.concatenate([silence, voice, silence, noise, voice])
    detector = SpeechDetector(context)
    spans = np.array(detector.spans(recording))
    # Two steps before and after: the network uses past samples, and syllables fade.
    expected = np.array([[0.5, 1.7], [2.7, 3.9]])
    assert spans.shape == expected.shape and np.abs(spans - expected).max() <= 0.1


def test_no_speech(cpu_context):
    detector = SpeechDetector(cpu_context)
    noise = 0.1 * np.random.default_rng(1).normal(size=4 * STEP + 5)
    assert detector.probabilities(noise).shape == (5,)
    assert detector.spans(noise) == [] and detector.spans(np.zeros(0)) == []
