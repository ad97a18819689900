"""The benchmark's MobileNetV2: a plausible output, all of it on Vulkan, equal on both devices."""

import numpy as np
import pytest

from bench.models import mobilenet_v2


@pytest.fixture(scope="module")
def expected(cpu_context):
    with mobilenet_v2.build(cpu_context).result() as graph:
        return cpu_context.compute(graph, {"image": mobilenet_v2.image()})["logits"]


def test_signal_neither_dies_nor_explodes(expected):
    assert expected.shape == (1, 1000)
    assert 0.01 < expected.std() < 100


def test_devices_agree_and_every_step_is_on_vulkan(vulkan_context, expected):
    with mobilenet_v2.build(vulkan_context).result() as graph:
        logits = vulkan_context.compute(graph, {"image": mobilenet_v2.image()})["logits"]
        steps = [step.device for step in graph.report().steps]
    assert np.abs(logits - expected).max() <= 1e-4 * np.abs(expected).max()
    assert steps.count("vulkan") >= 53 and steps.count("cpu") == 0


def test_weights_are_those_of_the_seed():
    assert np.array_equal(mobilenet_v2.image(), mobilenet_v2.image())
    assert not np.array_equal(mobilenet_v2.image(1), mobilenet_v2.image(2))
