"""Pooling with every combination of its attributes, compared with ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from onnx import TensorProto, ValueInfoProto, helper

from tests.support.discriminating import assert_allclose
from tests.support.onnx_models import info, model
from tests.support.onnx_nodes import runtime
from webnn_vk.onnx import Session, UnsupportedModelError


def pooling(operator: str, shape: tuple[int, ...], outputs: int = 1, **attributes: Any) -> Any:
    names = [f"o{i}" for i in range(outputs)]
    node = helper.make_node(operator, ["x"], names, "pooled", **attributes)
    return model([node], [info("x", shape)], [ValueInfoProto(name=n) for n in names], opset=22)


def agree(proto: Any, shape: tuple[int, ...], cpu_context: Any) -> None:
    feeds = {"x": np.random.default_rng(len(proto.SerializeToString())).normal(
        size=shape).astype(np.float32)}
    results = Session(proto, cpu_context).run(None, feeds)
    expected = runtime(proto).run(None, feeds)
    for result, other in zip(results, expected, strict=True):
        assert (result.shape, result.dtype) == (other.shape, other.dtype)
        assert_allclose(result, other, rtol=1e-5, atol=1e-5)


#: Rows round up and columns do not; columns do; both; neither; a last window that would start in
#: the padding after the input.
MIXED = [
    {"strides": [2, 2], "pads": [0, 0, 0, 0]},
    {"strides": [3, 2], "pads": [1, 1, 0, 1]},
    {"strides": [2, 3], "pads": [1, 1, 1, 1], "dilations": [1, 2]},
    {"strides": [1, 1], "pads": [0, 1, 1, 0]},
    {"strides": [4, 2], "pads": [1, 0, 1, 0]},
    {"kernel_shape": [2, 3], "strides": [5, 2], "pads": [0, 0, 1, 0]},
    {"kernel_shape": [3, 2], "strides": [2, 5], "pads": [0, 0, 0, 1]},
]


@pytest.mark.parametrize("operator", ["MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize("attributes", MIXED, ids=str)
@pytest.mark.parametrize("ceil_mode", [0, 1])
def test_sizes_that_round_up_in_some_dimensions(cpu_context, operator, attributes, ceil_mode):
    for shape in [(2, 3, 8, 9), (2, 3, 9, 8), (1, 2, 6, 6), (1, 2, 5, 8), (1, 2, 8, 5)]:
        for included in [0, 1] if operator == "AveragePool" else [None]:
            more = {} if included is None else {"count_include_pad": included}
            given = {"kernel_shape": [3, 3], "ceil_mode": ceil_mode} | attributes | more
            agree(pooling(operator, shape, **given), shape, cpu_context)


@st.composite
def poolings(draw) -> tuple[Any, tuple[int, ...]]:
    rank = draw(st.integers(1, 3))

    def each(low: int, high: int) -> list[int]:
        return draw(st.lists(st.integers(low, high), min_size=rank, max_size=rank))

    operator = draw(st.sampled_from(["MaxPool", "AveragePool", "LpPool"]))
    kernel, strides, dilations, spatial = each(1, 4), each(1, 5), each(1, 3), each(1, 13)
    attributes: dict[str, Any] = {"kernel_shape": kernel, "strides": strides,
                                  "ceil_mode": draw(st.integers(0, 1))}
    # ONNX Runtime pads for SAME as if there were no dilations, and by a negative number where
    # strides exceed the window; ONNX's text does neither.
    tight = all(s <= k for s, k in zip(strides, kernel, strict=True))
    automatic = ["VALID", "SAME_UPPER", "SAME_LOWER"] if tight else ["VALID"]
    pad = draw(st.sampled_from(["NOTSET", *automatic]))
    if pad in ("NOTSET", "VALID"):
        attributes["dilations"] = dilations
    else:
        dilations = [1] * rank
    pads = [0] * (2 * rank)
    if pad == "NOTSET":
        pads = attributes["pads"] = [draw(st.integers(0, k - 1)) for k in (*kernel, *kernel)]
    else:
        attributes["auto_pad"] = pad
    for i, (n, k, d) in enumerate(zip(spatial, kernel, dilations, strict=True)):
        # ONNX Runtime rounds a negative output size towards 0, hence up.
        assume(pad.startswith("SAME") or n + pads[i] + pads[i + rank] > (k - 1) * d)
        # ONNX leaves open the maximum over padding alone: ONNX Runtime takes a tap inside.
        assume(operator != "MaxPool" or n >= d)
    if operator == "AveragePool":
        attributes["count_include_pad"] = draw(st.integers(0, 1))
    if operator == "LpPool":
        attributes["p"] = draw(st.integers(1, 3))
    outputs = draw(st.integers(1, 2)) if operator == "MaxPool" else 1
    shape = (draw(st.integers(1, 2)), 2, *spatial)
    return pooling(operator, shape, outputs, **attributes), shape


def test_every_combination_of_attributes(cpu_context):
    @given(poolings())
    def check(case):
        agree(*case, cpu_context)

    check()


def test_a_window_larger_than_the_input_when_sizes_round_up(cpu_context):
    """ONNX's formula gives one window where half a stride is missing, none where two are."""
    agree(pooling("MaxPool", (1, 1, 3, 8), kernel_shape=[4, 2], strides=[2, 3], ceil_mode=1),
          (1, 1, 3, 8), cpu_context)
    for ceil_mode, lacking in [(0, 1), (1, 2)]:
        shape = (1, 1, 4 - lacking)
        proto = pooling("MaxPool", shape, kernel_shape=[4], strides=[2], ceil_mode=ceil_mode)
        with pytest.raises(UnsupportedModelError, match="'pooled': a window of 4 does not fit"):
            Session(proto, cpu_context).run(None, {"x": np.zeros(shape, np.float32)})


@pytest.mark.parametrize("mode", ["avg", "max"])
def test_regions_without_an_area_give_zeros(cpu_context: Any, mode: str) -> None:
    """Padding boxes of detectors: with as many samples as pixels they have none."""
    node = helper.make_node(
        "RoiAlign", ["x", "regions", "images"], ["y"], mode=mode, output_height=3, output_width=2,
        coordinate_transformation_mode="half_pixel",
    )
    regions = np.array([[3, 3, 3, 3], [0, 0, 0, 0], [2, 2, 2, 6], [1, 4, 5, 4],
                        [1, 1, 5, 5]], np.float32)
    proto = model([node], [info("x", (1, 2, 9, 8))], [ValueInfoProto(name="y")],
                  {"regions": regions, "images": np.zeros(5, np.int64)}, opset=16)
    feeds = {"x": np.random.default_rng(0).normal(size=(1, 2, 9, 8)).astype(np.float32)}
    (result,) = Session(proto, cpu_context).run(None, feeds)
    (expected,) = runtime(proto).run(None, feeds)
    assert result.shape == expected.shape == (5, 2, 3, 2)
    assert not result[:4].any() and not expected[:4].any() and result[4].all()


def test_regions_without_an_area_in_float16(cpu_context: Any) -> None:
    node = helper.make_node("RoiAlign", ["x", "regions", "images"], ["y"])
    for regions in ([[3, 3, 3, 3], [1, 1, 5, 5]], [[3, 3, 3, 3]]):
        proto = model(
            [node], [info("x", (1, 2, 9, 8), TensorProto.FLOAT16)], [ValueInfoProto(name="y")],
            {"regions": np.array(regions, np.float16), "images": np.zeros(len(regions), np.int64)},
            opset=16,
        )
        (result,) = Session(proto, cpu_context).run(None, {"x": np.ones((1, 2, 9, 8), np.float16)})
        assert result.dtype == np.float16
        assert result[:, 0, 0, 0].tolist() == [0, 1][: len(regions)]
