"""Resize, Pad, GridSample and ConvTranspose where definitions are easily missed."""

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from tests.support.discriminating import assert_allclose
from tests.support.onnx_nodes import Draws, Node
from webnn_vk.onnx import UnsupportedModelError

normal = Draws(2).normal


def whole(*numbers):
    return np.array(numbers, np.int64)


@pytest.mark.parametrize("aligned", [0, 1])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_cubic_weights_at_borders(context, padding, aligned):
    """Beyond the middle of the last pixel, and beyond its border. (ONNX Runtime moves both
    coordinates where one is outside.)"""
    across = np.linspace(-1.6, 1.6, 23, dtype=np.float32)
    grid = np.stack(np.meshgrid(across, across), -1)[None]
    node = Node("GridSample", [normal(1, 2, 4, 5), grid], {
        "mode": "cubic", "padding_mode": padding, "align_corners": aligned,
    }, domain="", opset=20)
    (expected,) = ReferenceEvaluator(node.model()).run(None, {"i0": node.inputs[0]})
    assert_allclose(node.here(context)[0], expected, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_positions_at_infinity_are_padding(context, mode):
    """Among others just outside, whose taps reach the image. (ONNX Runtime reads the image.)"""
    x = normal(1, 1, 2, 4)
    across = np.array([np.inf, -np.inf, 3e38, -1e9, 0.25, 1.375], np.float32)

    def at(across):
        grid = np.stack([across, np.zeros(6, np.float32)], -1)[None, None]
        return Node("GridSample", [x, grid], {"mode": mode}, domain="", opset=20)

    (got,) = at(across).here(context)
    (expected,) = ReferenceEvaluator(at(np.clip(across, -9, 9)).model()).run(None, {"i0": x})
    np.testing.assert_array_equal(got[..., :4], 0)
    assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("way", ["asymmetric", "align_corners", "half_pixel", "pytorch_half_pixel"])
@pytest.mark.parametrize("nearest", ["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"])
def test_sizes_by_scales_as_onnx_infers_shapes(cpu_context, way, nearest):
    """Scales that are no float32 numbers: sizes and positions are computed in float32."""
    pytest.importorskip("onnxruntime")
    attributes = {"coordinate_transformation_mode": way, "nearest_mode": nearest}
    for length in range(1, 8):
        for wanted in range(1, 16):
            scales = np.array([wanted / length], np.float32)
            node = Node("Resize", [normal(length), None, scales], attributes, domain="", opset=19)
            got, expected = node.results(cpu_context)
            assert len(got[0]) == wanted
            if (way, nearest) != ("asymmetric", "round_prefer_ceil"):
                # There ONNX Runtime has 3.5 for float32's 3.4999998.
                np.testing.assert_array_equal(got[0], expected[0])


@pytest.mark.parametrize(("mode", "way"), [
    ("linear", "half_pixel"), ("nearest", "half_pixel"), ("linear", "pytorch_half_pixel"),
    ("nearest", "asymmetric"),
])
def test_a_scale_that_keeps_the_length(context, mode, way):
    """4 · 1.2 is rounded down to 4, but elements move."""
    pytest.importorskip("onnxruntime")
    attributes = {"mode": mode, "coordinate_transformation_mode": way}
    if mode == "nearest":
        attributes["nearest_mode"] = "floor" if way == "asymmetric" else "round_prefer_floor"
    scales = np.array([1, 1, 1.2, 2], np.float32)
    node = Node("Resize", [normal(1, 2, 4, 3), None, scales], attributes, domain="", opset=19)
    (got,), (expected,) = node.results(context)
    assert got.shape == (1, 2, 4, 6)
    assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("side", ["SAME_UPPER", "SAME_LOWER"])
def test_filters_smaller_than_their_strides(context, side):
    """The output has as many elements as the strides say, and its edges are the bias. (ONNX
    Runtime's is shorter.)"""
    x, weights, bias = normal(1, 1, 2, 3, 2), normal(1, 2, 1, 2, 4), normal(2)
    node = Node("ConvTranspose", [x, weights, bias], {
        "strides": [4, 3, 2], "auto_pad": side,
    }, domain="", opset=22)
    (expected,) = ReferenceEvaluator(node.model()).run(None, {"i0": x})
    (got,) = node.here(context)
    assert got.shape == (1, 2, 8, 9, 4)
    assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("pads", [(-3, 0, 2, 0), (-1, 1, 1, -2), (0, -2, 0, 2)])
def test_padding_alone(context, pads):
    """Where pads cut off all elements, and add others."""
    pytest.importorskip("onnxruntime")
    node = Node("Pad", [normal(3, 2), whole(*pads), np.float32(2.5)], domain="")
    got, expected = node.results(context)
    np.testing.assert_array_equal(got[0], expected[0])


@pytest.mark.parametrize(("pads", "mode"), [
    ((-3, 0, 0, 0), "constant"), ((-5, 0, 4, 0), "constant"), ((-3, 0, 2, 0), "edge"),
])
def test_nothing_is_left(cpu_context, pads, mode):
    node = Node("Pad", [normal(3, 2), whole(*pads)], {"mode": mode}, domain="")
    with pytest.raises(UnsupportedModelError, match=r"of \[3, 2\] elements .* would be left"):
        node.here(cpu_context)
