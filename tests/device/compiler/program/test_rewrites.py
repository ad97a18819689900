"""Graphs whose pads and normalisations fold: fewer steps on the device, the same results."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import webnn_vk
from tests.support.discriminating import assert_allclose
from tests.support.drivers import require_vulkan
from tests.support.running import device_profile
from webnn_vk import MLGraphBuilder, Settings

REWRITES = ("fold_pad", "fold_batch_norm")


@pytest.fixture(scope="module")
def plain_context():
    """Without the rewrites."""
    require_vulkan()
    chosen = replace(Settings.from_environment(), device="vulkan", skip_passes=REWRITES)
    with webnn_vk.ml.create_context(settings=chosen).result() as context:
        yield context


def run(context, describe, x: np.ndarray):
    """(output, description of each step) of the graph that ``describe(builder, x)`` makes."""
    builder = MLGraphBuilder(context)
    described = {"data_type": x.dtype.name, "shape": x.shape}
    y = describe(builder, builder.input("x", described))
    with builder.build({"y": y}).result() as graph:
        steps = [step.operators for step in graph.report().steps]
        return context.compute(graph, {"x": x})["y"], steps


def block(data_type: str, transposed: bool):
    """A pad (if not transposed), a convolution, a batch normalisation and a relu, channels
    last."""
    rng = np.random.default_rng(3)

    def describe(b, x):
        def constant(*shape, low=-1.0):
            return b.constant(rng.uniform(low, 1, shape).astype(data_type))

        if transposed:
            y = b.conv_transpose2d(
                x, constant(8, 2, 3, 3), groups=2, strides=[2, 2], input_layout="nhwc",
                bias=constant(4),
            )
            count = 4
        else:
            y = b.pad(x, [0, 0, 1, 0], [0, 1, 1, 0])
            y = b.conv2d(
                y, constant(16, 3, 3, 8), strides=[2, 2], input_layout="nhwc", filter_layout="ohwi"
            )
            count = 16
        y = b.batch_normalization(
            y, constant(count), constant(count, low=0.2), scale=constant(count),
            bias=constant(count), axis=3,
        )
        return b.relu(y)

    return describe


@pytest.mark.parametrize("data_type", ["float32", "float16"])
@pytest.mark.parametrize(("transposed", "expected", "expected_plain"), [
    (False, "conv2d", ["pad", "conv2d", "batch_normalization"]),
    (True, "conv_transpose2d", ["conv_transpose2d", "batch_normalization"]),
])
def test_convolution_blocks(
    vulkan_context, plain_context, cpu_context, data_type, transposed, expected, expected_plain
):
    x = np.random.default_rng(1).uniform(-1, 1, (2, 11, 12, 8)).astype(data_type)
    got, steps = run(vulkan_context, block(data_type, transposed), x)
    plain, plain_steps = run(plain_context, block(data_type, transposed), x)
    wanted, _ = run(cpu_context, block(data_type, transposed), x)
    assert steps == [(expected, "relu")]
    assert [s[0] for s in plain_steps] == expected_plain
    # 72 products of numbers of a few units.
    tolerance = 256 * float(np.finfo(data_type).eps)
    for result in (got, plain):
        assert_allclose(
            result.astype(np.float64), wanted.astype(np.float64), rtol=tolerance, atol=tolerance
        )


def test_max_pooling(vulkan_context, plain_context, cpu_context):
    def describe(b, x):
        y = b.pad(x, [0, 0, 1, 1], [0, 0, 1, 1], value=-np.inf)
        return b.max_pool2d(y, window_dimensions=[3, 3], strides=[2, 2])

    x = np.random.default_rng(2).uniform(-9, 9, (1, 3, 9, 10)).astype(np.float32)
    got, steps = run(vulkan_context, describe, x)
    plain, plain_steps = run(plain_context, describe, x)
    wanted, _ = run(cpu_context, describe, x)
    assert (steps, len(plain_steps)) == ([("max_pool2d",)], 2)
    np.testing.assert_array_equal(got, wanted)
    np.testing.assert_array_equal(plain, wanted)


def test_a_constant_tensor_is_not_folded(vulkan_context, cpu_context):
    x = np.random.default_rng(4).uniform(-1, 1, (1, 2, 5, 5)).astype(np.float32)
    w = np.random.default_rng(5).uniform(-1, 1, (3, 2, 3, 3)).astype(np.float32)
    one = np.array([1, 2, 3], np.float32)
    tensor = vulkan_context.create_constant_tensor(
        {"data_type": "float32", "shape": w.shape}, w
    ).result()
    described = lambda weights: lambda b, v: b.batch_normalization(  # noqa: E731
        b.conv2d(v, b.constant(weights)), b.constant(one), b.constant(one)
    )
    got, steps = run(vulkan_context, described(tensor), x)
    assert [s[0] for s in steps] == ["conv2d", "batch_normalization"]
    folded, steps = run(vulkan_context, described(w), x)
    assert steps == [("conv2d",)]
    wanted, _ = run(cpu_context, described(w), x)
    assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)
    assert_allclose(folded, wanted, rtol=1e-5, atol=1e-5)
    tensor.destroy()


def test_the_end_of_a_stage_computes_the_pixels_that_are_read(vulkan_context):
    """Of ResNet's first version, against a context without the pass."""
    rng = np.random.default_rng(7)

    def stage(b, x):
        def constant(*shape):
            return b.constant(rng.uniform(-1, 1, shape).astype(np.float32))

        y = b.relu(b.conv2d(x, constant(40, 24, 3, 3), padding=[1] * 4, bias=constant(40)))
        y = b.relu(b.add(b.conv2d(y, constant(64, 40, 1, 1), bias=constant(64)), b.conv2d(
            x, constant(64, 24, 1, 1)
        )))
        left = b.conv2d(y, constant(48, 64, 1, 1), strides=[2, 2], bias=constant(48))
        return b.add(left, b.relu(b.conv2d(y, constant(48, 64, 1, 1), strides=[2, 2])))

    x = rng.uniform(-1, 1, (1, 24, 27, 28)).astype(np.float32)
    state = rng.bit_generator.state
    computed, steps = run(vulkan_context, stage, x)
    # GPUs compute all of them.
    assert sum("slice" in step for step in steps) == 2 * device_profile().is_software
    rng.bit_generator.state = state
    chosen = replace(Settings.from_environment(), device="vulkan", skip_passes=("unread_pixels",))
    with webnn_vk.ml.create_context(settings=chosen).result() as plain:
        expected, steps = run(plain, stage, x)
    assert not any("slice" in step for step in steps)
    assert_allclose(computed, expected, rtol=1e-5, atol=1e-5)
