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
@pytest.mark.parametrize(("opset", "mode"), [(16, "bicubic"), (20, "cubic")])
def test_cubic_weights_at_borders(cpu_context, padding, aligned, opset, mode):
    """Beyond the middle of the last pixel, and beyond its border: each neighbour is padded by
    itself, as in PyTorch. (ONNX's reference implementation moves the point to the border first.)"""
    pytest.importorskip("onnxruntime")
    across = np.linspace(-1.6, 1.6, 23, dtype=np.float32)
    grid = np.stack(np.meshgrid(across, across), -1)[None]
    node = Node("GridSample", [normal(1, 2, 4, 5), grid], {
        "mode": mode, "padding_mode": padding, "align_corners": aligned,
    }, domain="", opset=opset)
    (got,), (expected,) = node.results(cpu_context)
    assert_allclose(got, expected, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_positions_at_infinity_are_padding(cpu_context, mode):
    """Among others just outside, whose taps reach the image. (ONNX Runtime reads the image.)"""
    x = normal(1, 1, 2, 4)
    across = np.array([np.inf, -np.inf, 3e38, -1e9, 0.25, 1.375], np.float32)

    def at(across):
        grid = np.stack([across, np.zeros(6, np.float32)], -1)[None, None]
        return Node("GridSample", [x, grid], {"mode": mode}, domain="", opset=20)

    (got,) = at(across).here(cpu_context)
    (expected,) = ReferenceEvaluator(at(np.clip(across, -9, 9)).model()).run(None, {"i0": x})
    np.testing.assert_array_equal(got[..., :4], 0)
    assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.sample(0.34)
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
            np.testing.assert_array_equal(got[0], expected[0])


FRACTIONS = [
    (mode, way, attributes)
    for way in ("align_corners", "half_pixel_symmetric", "tf_half_pixel_for_nn")
    for mode, attributes in (
        ("nearest", {"nearest_mode": "ceil"}), ("linear", {}), ("linear", {"antialias": 1}),
        ("cubic", {}), ("cubic", {"exclude_outside": 1}),
    )
] + [("linear", "tf_crop_and_resize", {}), ("nearest", "tf_crop_and_resize", {})]


@pytest.mark.parametrize(("mode", "way", "attributes"), FRACTIONS)
def test_lengths_that_are_rounded_down(cpu_context, mode, way, attributes):
    """8 · 1.3 and 7 · 0.6 are no whole numbers. Axes whose scale is 1 stay as they are."""
    pytest.importorskip("onnxruntime")
    attributes = {"mode": mode, "coordinate_transformation_mode": way, **attributes}
    region = np.array([0, 0, 0.1, 0.2, 1, 1, 0.9, 0.7], np.float32) if "crop" in way else None
    scales = np.array([1, 1, 1.3, 0.6], np.float32)
    node = Node("Resize", [normal(1, 2, 8, 7), region, scales], attributes, domain="", opset=19)
    (got,), (expected,) = node.results(cpu_context)
    assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def test_corners_stay_where_the_aspect_ratio_does(cpu_context):
    """The new length follows from the smaller of two scales."""
    pytest.importorskip("onnxruntime")
    node = Node("Resize", [normal(1, 2, 8, 7), None, None, whole(5, 11)], {
        "mode": "linear", "coordinate_transformation_mode": "align_corners", "axes": [2, 3],
        "keep_aspect_ratio_policy": "not_larger",
    }, domain="", opset=19)
    (got,), (expected,) = node.results(cpu_context)
    np.testing.assert_array_equal(got[..., -1, -1], node.inputs[0][..., -1, -1])
    assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("operator", "scales"), [
    ("Resize", (0.6, 0.6)), ("Resize", (0.5, 1.5)), ("Resize", (2, 0.5)), ("Upsample", (1.5, 2)),
])
def test_nearest_before_there_was_a_nearest_mode(cpu_context, operator, scales):
    """Down, but up where an axis gets shorter: ONNX's own case of opset 10 is the first."""
    pytest.importorskip("onnxruntime")
    x = np.arange(1, 9, dtype=np.float32).reshape(1, 1, 2, 4)
    opset = 10 if operator == "Resize" else 9
    node = Node(operator, [x, np.array([1, 1, *scales], np.float32)], {"mode": "nearest"},
                domain="", opset=opset)
    (got,), (expected,) = node.results(cpu_context)
    np.testing.assert_array_equal(got, expected)
    if scales == (0.6, 0.6):
        assert got.tolist() == [[[[1, 3]]]]


@pytest.mark.parametrize(("mode", "way"), [
    ("linear", "half_pixel"), ("nearest", "half_pixel"), ("linear", "pytorch_half_pixel"),
    ("nearest", "asymmetric"),
])
def test_a_scale_that_keeps_the_length(cpu_context, mode, way):
    """4 · 1.2 is rounded down to 4, but elements move."""
    pytest.importorskip("onnxruntime")
    attributes = {"mode": mode, "coordinate_transformation_mode": way}
    if mode == "nearest":
        attributes["nearest_mode"] = "floor" if way == "asymmetric" else "round_prefer_floor"
    scales = np.array([1, 1, 1.2, 2], np.float32)
    node = Node("Resize", [normal(1, 2, 4, 3), None, scales], attributes, domain="", opset=19)
    (got,), (expected,) = node.results(cpu_context)
    assert got.shape == (1, 2, 4, 6)
    assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("attributes", "scales"), [
    ({"mode": "nearest", "nearest_mode": "floor"}, (1.1, 1.1)), ({"mode": "linear"}, (1.1, 1.1)),
    ({"mode": "cubic"}, (1.1, 1)), ({"mode": "linear", "antialias": 1}, (1.1, 2)),
])
def test_scales_that_keep_all_lengths_or_those_without_aliasing(cpu_context, attributes, scales):
    """Nothing moves then, as in ONNX Runtime."""
    pytest.importorskip("onnxruntime")
    scales = np.array([1, 1, *scales], np.float32)
    node = Node("Resize", [normal(1, 2, 8, 7), None, scales], attributes, domain="", opset=19)
    (got,), (expected,) = node.results(cpu_context)
    assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("side", ["SAME_UPPER", "SAME_LOWER"])
def test_filters_smaller_than_their_strides(cpu_context, side):
    """The output has as many elements as the strides say, and its edges are the bias. (ONNX
    Runtime's is shorter.)"""
    x, weights, bias = normal(1, 1, 2, 3, 2), normal(1, 2, 1, 2, 4), normal(2)
    node = Node("ConvTranspose", [x, weights, bias], {
        "strides": [4, 3, 2], "auto_pad": side,
    }, domain="", opset=22)
    (expected,) = ReferenceEvaluator(node.model()).run(None, {"i0": x})
    (got,) = node.here(cpu_context)
    assert got.shape == (1, 2, 8, 9, 4)
    assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("pads", [(-3, 0, 2, 0), (-1, 1, 1, -2), (0, -2, 0, 2)])
def test_padding_alone(cpu_context, pads):
    """Where pads cut off all elements, and add others."""
    pytest.importorskip("onnxruntime")
    node = Node("Pad", [normal(3, 2), whole(*pads), np.float32(2.5)], domain="")
    got, expected = node.results(cpu_context)
    np.testing.assert_array_equal(got[0], expected[0])


@pytest.mark.parametrize(("pads", "mode"), [
    ((-3, 0, 0, 0), "constant"), ((-5, 0, 4, 0), "constant"), ((-3, 0, 2, 0), "edge"),
])
def test_nothing_is_left(cpu_context, pads, mode):
    node = Node("Pad", [normal(3, 2), whole(*pads)], {"mode": mode}, domain="")
    with pytest.raises(UnsupportedModelError, match=r"of \[3, 2\] elements .* would be left"):
        node.here(cpu_context)


def test_regions_are_rounded_away_from_zero(cpu_context):
    """-0.5 and -1.5, half of the regions' corners."""
    pytest.importorskip("onnxruntime")
    regions = np.array([[0, -3, -3, 3, 3], [0, -1, -1, 1, 1], [0, 1, 1, 5, 5]], np.float32)
    node = Node("MaxRoiPool", [normal(1, 2, 6, 7), regions], {
        "pooled_shape": [2, 3], "spatial_scale": 0.5,
    }, domain="")
    (got,), (expected,) = node.results(cpu_context)
    np.testing.assert_array_equal(got, expected)
