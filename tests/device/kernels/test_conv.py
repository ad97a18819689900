"""Convolution kernels against the NumPy reference, and their plans for stored profiles."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.comparing import WAYS, assert_close, profile_for, random_array
from tests.support.drivers import require_vulkan
from tests.support.profiles import stored_profile
from tests.support.running import node_of
from webnn_vk.data_types import FLOAT_TYPES, MLOperandDescriptor
from webnn_vk.kernels import catalogue, plan

OPERATORS = ("conv2d", "conv_transpose2d")
FILTER_LAYOUTS = {
    "conv2d": ("oihw", "hwio", "ohwi", "ihwo"),
    "conv_transpose2d": ("iohw", "hwoi", "ohwi"),
}


def _case(rng: np.random.Generator, name: str, data_type: str) -> tuple:
    def pick(*values):
        return values[rng.integers(len(values))]

    groups, inputs, outputs = pick(1, 1, 2, 4), pick(1, 3, 4, 8), pick(1, 2, 5, 8, 12)
    rows, columns = pick((1, 1), (1, 1), (3, 3), (2, 3), (4, 1), (5, 5))
    input_layout, filter_layout = pick("nchw", "nhwc"), pick(*FILTER_LAYOUTS[name])
    size = {
        "n": pick(1, 2), "c": groups * inputs, "h": int(rng.integers(6, 12)),
        "w": int(rng.integers(6, 12)),
    }
    transposed = name == "conv_transpose2d"
    taps = {
        "o": outputs * (1 if transposed else groups), "i": inputs * (groups if transposed else 1),
        "h": rows, "w": columns,
    }
    arguments = {}
    if rng.random() < 0.6:
        strides = [int(s) for s in rng.integers(1, 4, 2)]
        arguments = {
            "padding": [int(p) for p in rng.integers(0, 3, 4)],
            "strides": strides,
            "dilations": [pick(1, 2) if rows < 4 else 1, pick(1, 2) if columns < 4 else 1],
        }
        if transposed:
            # Padding cuts the output, which has to keep a row.
            arguments["padding"] = [int(p) for p in rng.integers(0, 2, 4)]
            arguments["output_padding"] = [int(rng.integers(s)) for s in strides]
    x = random_array(rng, data_type, tuple(size[d] for d in input_layout))
    w = random_array(rng, data_type, tuple(taps[d] for d in filter_layout))
    bias = random_array(rng, data_type, (groups * outputs,)) if rng.random() < 0.5 else None
    return node_of(
        name, x, w, bias=bias, groups=groups, input_layout=input_layout,
        filter_layout=filter_layout, **arguments,
    )


# Sums of up to 200 products of numbers up to 2, of which float32 keeps 24 bits each.
_ERROR = 5e-5


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("data_type", FLOAT_TYPES)
@pytest.mark.parametrize("name", OPERATORS)
def test_random(name: str, data_type: str, way: str) -> None:
    require_vulkan()
    rng = np.random.default_rng([WAYS.index(way), FLOAT_TYPES.index(data_type), len(name)])
    profile = profile_for(way)
    if way == "windows":
        profile = profile.replace(max_storage_buffer_range=8192)
    for _ in range(10 if way == "windows" else 25):
        assert_close(*_case(rng, name, data_type), profile, _ERROR)


@pytest.mark.parametrize("way", ["software", "discrete"])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("dilation", [1, 2])
def test_depthwise(stride: int, dilation: int, way: str) -> None:
    """Rows that share taps in every way, with a channel multiplier."""
    require_vulkan()
    rng = np.random.default_rng([stride, dilation])
    for layout, shape in (("nchw", (2, 3, 13, 11)), ("nhwc", (2, 13, 11, 3))):
        for taps in ((3, 3), (2, 5)):
            node, arrays = node_of(
                "conv2d", random_array(rng, "float32", shape),
                random_array(rng, "float32", (6, 1, *taps)), groups=3, input_layout=layout,
                strides=[stride, stride], dilations=[dilation, dilation], padding=[1, 2, 2, 0],
            )
            (dispatch,) = plan(node, profile_for(way))
            assert dispatch.kernel == "conv_depthwise"
            assert_close(node, arrays, profile_for(way), _ERROR)


@pytest.mark.parametrize("data_type", FLOAT_TYPES)
@pytest.mark.parametrize("stride", [1, 2, 4])
@pytest.mark.parametrize("left", [0, 1, 2, 5])
def test_depthwise_rows_of_vectors(left: int, stride: int, data_type: str) -> None:
    require_vulkan()
    rng = np.random.default_rng([left, stride])
    for taps, dilation in ((1, 1), (3, 1), (3, 2), (4, 3)):
        right = max(0, (taps - 1) * dilation - left)
        # Cut to a multiple of 4 outputs.
        right += -((16 + left + right - (taps - 1) * dilation - 1) // stride + 1) % 4 * stride
        node, arrays = node_of(
            "conv2d", random_array(rng, data_type, (2, 3, 9, 16)),
            random_array(rng, data_type, (6, 1, 2, taps)), groups=3, strides=[stride, stride],
            dilations=[1, dilation], padding=[1, 0, left, right],
            bias=random_array(rng, data_type, (6,)),
        )
        (dispatch,) = plan(node, profile_for("software"))
        assert dispatch.kernel == "conv_depthwise" and dispatch.spec.buffers[0].width == 4
        assert_close(node, arrays, profile_for("software"), _ERROR)


def test_padding_is_zero_whatever_the_corner_holds() -> None:
    require_vulkan()
    x = np.full((1, 1, 3, 3), 2, np.float32)
    x[0, 0, 0, 0] = np.nan
    w = np.ones((1, 1, 3, 3), np.float32)
    for name in OPERATORS:
        for groups in (1, 2):
            node = node_of(
                name, np.concatenate([x] * groups, 1), np.concatenate([w] * groups),
                padding=[1, 1, 1, 1], groups=groups,
            )
            assert_close(*node, profile_for("software"))


@pytest.mark.parametrize("channels", [3, 4])
@pytest.mark.parametrize("name", OPERATORS)
def test_infinite_weights(name: str, channels: int) -> None:
    """Padding is zeros, which they make NaN; a tap that a transposed convolution lacks is not."""
    require_vulkan()
    rng = np.random.default_rng(channels)
    x = random_array(rng, "float32", (2, 5, 6, channels))
    w = random_array(rng, "float32", (2, 3, 3, channels))
    w[0, 1, 2, 1] = np.inf
    w[1, 0, 0, 0] = np.nan
    node, arrays = node_of(
        name, x, w, strides=[2, 2], padding=[1, 1, 1, 1], input_layout="nhwc", filter_layout="ohwi"
    )
    assert_close(node, arrays, profile_for("software"), _ERROR)


def _describe(*shape: int) -> MLOperandDescriptor:
    return MLOperandDescriptor("float32", shape)


def _planned(
    profile: str, x: tuple[int, ...], w: tuple[int, ...], name: str = "conv2d", **arguments
):
    node, _ = node_of(name, _describe(*x), _describe(*w), **arguments)
    return plan(node, stored_profile(profile))


def test_plans() -> None:
    (expand,) = _planned("llvmpipe", (1, 16, 112, 112), (96, 16, 1, 1))
    assert expand.kernel == "matmul" and expand.params["N"] == 112 * 112
    (expand,) = _planned(
        "nvidia_h200", (4, 28, 28, 64), (128, 1, 1, 64), input_layout="nhwc", filter_layout="ohwi"
    )
    assert expand.kernel == "matmul_tiled" and expand.params["M"] == 4 * 28 * 28
    (strided,) = _planned("llvmpipe", (1, 16, 8, 8), (8, 16, 1, 1), strides=[2, 2])
    assert strided.kernel == "conv" and strided.flops == 2 * 8 * 16 * 16
    (depthwise,) = _planned("llvmpipe", (1, 96, 56, 56), (96, 1, 3, 3), groups=96)
    assert depthwise.kernel == "conv_depthwise"
    # A huge filter would unroll for ever.
    (huge,) = _planned("llvmpipe", (1, 4, 56, 56), (4, 1, 31, 31), groups=4)
    assert huge.kernel == "conv"
    (last,) = _planned(
        "llvmpipe", (1, 28, 28, 64), (64, 3, 3, 64), input_layout="nhwc", filter_layout="ohwi"
    )
    assert [b.width for b in last.spec.buffers] == [4, 4, 1]


@pytest.mark.parametrize("profile", ["nvidia_h200", "llvmpipe", "adreno_minimum"])
def test_plans_are_in_the_catalogue(profile: str) -> None:
    device = stored_profile(profile)
    known = set(catalogue(device.features))
    rng = np.random.default_rng(5)
    for name in OPERATORS:
        for data_type in FLOAT_TYPES:
            for _ in range(20):
                node, _ = _case(rng, name, data_type)
                assert all(dispatch.spec in known for dispatch in plan(node, device))
