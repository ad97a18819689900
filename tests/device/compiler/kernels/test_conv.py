"""Convolution kernels compared with the NumPy reference, and their plans for stored profiles."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.cases.conv import OPERATORS, random_case
from tests.support.comparing import GPU_WAYS, assert_close, profile_for, random_array
from tests.support.discriminating import assert_allclose
from tests.support.drivers import require_vulkan
from tests.support.profiles import stored_profile
from tests.support.running import (
    node_of,
    plan,
    promise_exact_conversions,
    run,
    schedules_of,
    software_profile,
)
from webnn_vk.compiler.kernels import KernelNode, Schedule, choose
from webnn_vk.compiler.kernels.conv import Conv, geometry
from webnn_vk.compiler.kernels.expression import HALF_CONVERSIONS
from webnn_vk.compiler.kernels.heuristics.gpu import Gpu
from webnn_vk.compiler.kernels.heuristics.rules import only
from webnn_vk.compiler.types.data_types import FLOAT_TYPES, MLOperandDescriptor

FILTERS = ("hwio", "oihw", "ohwi", "ihwo")

# Sums of up to 200 products of numbers up to 2, of which float32 keeps 24 bits each.
_ERROR = 5e-5


@pytest.mark.parametrize("data_type", FLOAT_TYPES)
@pytest.mark.parametrize("name", OPERATORS)
def test_random(name: str, data_type: str) -> None:
    require_vulkan()
    rng = np.random.default_rng([FLOAT_TYPES.index(data_type), len(name)])
    for _ in range(5):
        node, arrays = random_case(rng, name, data_type)
        for way in GPU_WAYS:
            assert_close(node, arrays, profile_for(way, 8192), _ERROR)


@pytest.mark.parametrize("way", ["software", "discrete"])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("dilation", [1, 2])
def test_depthwise(stride: int, dilation: int, way: str) -> None:
    """Rows that share taps in every way, with a channel multiplier. To save time, each layout has
    some of the taps on one device and the others on the other."""
    require_vulkan()
    rng = np.random.default_rng([stride, dilation])
    taps = ((3, 3), (2, 5))[:: -1 if way == "discrete" else 1]
    layouts = ("nchw", (2, 3, 13, 11)), ("nhwc", (2, 13, 11, 3))
    for (layout, shape), size in zip(layouts, taps, strict=True):
        node, arrays = node_of(
            "conv2d", random_array(rng, "float32", shape),
            random_array(rng, "float32", (6, 1, *size)), groups=3, input_layout=layout,
            strides=[stride, stride], dilations=[dilation, dilation], padding=[1, 2, 2, 0],
        )
        (dispatch,) = plan(node, profile_for(way))
        assert dispatch.kernel == "conv_depthwise"
        assert_close(node, arrays, profile_for(way), _ERROR)


@pytest.mark.parametrize("stride", [1, 2, 4])
@pytest.mark.parametrize("left", [0, 1, 2, 5])
def test_depthwise_rows_of_vectors(left: int, stride: int) -> None:
    require_vulkan()
    rng = np.random.default_rng([left, stride])
    for case, (taps, dilation) in enumerate(((1, 1), (3, 1), (3, 2), (4, 3))):
        data_type = FLOAT_TYPES[(case + left + stride // 2) % 2]
        right = max(0, (taps - 1) * dilation - left)
        # Cropped to a multiple of 4 outputs.
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


@pytest.mark.parametrize(("left", "stride", "dilation"), [(0, 1, 1), (1, 2, 1), (3, 1, 2)])
def test_depthwise_of_ragged_widths(left: int, stride: int, dilation: int) -> None:
    """Widths that vectors don't divide: 4 outputs side by side nevertheless, where inputs are read
    as texels."""
    require_vulkan()
    rng = np.random.default_rng([left, stride])
    for width in (9, 10, 11, 13):
        x, w = (random_array(rng, "float32", s) for s in ((2, 5, 11, width), (5, 1, 3, 3)))
        node, arrays = node_of(
            "conv2d", x, w, bias=random_array(rng, "float32", (5,)), groups=5,
            padding=[1, 1, left, 2], strides=[2, stride], dilations=[1, dilation],
        )
        profile = profile_for("software")
        (dispatch,) = plan(node, profile)
        texels = dispatch.spec.buffers[0].load == "texel"
        assert dict(dispatch.spec.options)["ragged"] == (texels and "v" not in dispatch.variant)
        assert_close(node, arrays, profile, _ERROR)


def tilings() -> list[Schedule]:
    shapes = (1, 8, 5, 5), (8, 8, 3, 3)
    node, _ = node_of("conv2d", *(MLOperandDescriptor("float32", shape) for shape in shapes))
    problem = geometry(KernelNode.of(node))
    candidates = Conv().candidates(problem, stored_profile("amd_navi31"))
    return [schedule for schedule in candidates if schedule.kernel == "conv_tiled"]


@pytest.mark.sample(0.4)
@pytest.mark.parametrize("schedule", tilings(), ids=str)
def test_tiles_in_shared_memory(schedule: Schedule, monkeypatch) -> None:
    """Every tile size, with channels and pixels that fill tiles, and that don't in the other
    layout, loaded one by one and in vectors, with every filter layout; including zeros and values
    beside the input."""
    require_vulkan()
    profile = profile_for("discrete")
    monkeypatch.setattr(choose, "narrowed", lambda *_: [schedule])
    rng = np.random.default_rng(schedule["TM"])
    used = set()
    cases = list(enumerate((
        (16, 64, 1, (9, 12)), (3, 5, 1, (7, 9)), (12, 20, 2, (8, 8)), (20, 131, 1, (5, 6)),
        (8, 4, 3, (4, 15)),
    )))
    # The first case loads and stores vectors; of the others one, to save time.
    turn = tilings().index(schedule)
    for case, (inputs, outputs, groups, size) in (cases[0], cases[1 + turn % 4]):
        data_type, layout = FLOAT_TYPES[case % 2], ("nchw", "nhwc")[(turn + (case > 0)) % 2]
        shape = {"n": 2, "c": inputs * groups, "h": size[0], "w": size[1]}
        taps = {"o": outputs * groups, "i": inputs, "h": 3, "w": 1 + case % 3}
        order = FILTERS[case % len(FILTERS)]
        options = {"strides": [1 + case % 2, 1], "dilations": [1, 1 + case % 2]}
        node, arrays = node_of(
            "conv2d", random_array(rng, data_type, tuple(shape[d] for d in layout)),
            random_array(rng, data_type, tuple(taps[d] for d in order)), groups=groups,
            input_layout=layout, filter_layout=order, padding=[1, case % 2, case % 3, 0],
            bias=random_array(rng, data_type, (outputs * groups,)), **options,
        )
        (dispatch,) = plan(node, profile)
        assert dispatch.kernel == "conv_tiled"
        used.add(tuple(b.width for b in dispatch.spec.buffers))
        assert_close(node, arrays, profile, _ERROR)
    assert any(widths[1] == 4 for widths in used)


def few_channels() -> list[Schedule]:
    x, w = MLOperandDescriptor("float32", (1, 3, 9, 9)), np.zeros((64, 3, 7, 7), np.float32)
    node, _ = node_of("conv2d", x, w)
    candidates = Conv().candidates(geometry(KernelNode.of(node)), stored_profile("amd_navi31"))
    return [s for s in candidates if (s.kernel, s.load) == ("conv_wide", "storage")]


@pytest.mark.parametrize(
    ("layout", "data_type"),
    [("nchw", "float32"), ("nhwc", "float32"), ("nchw", "float16"), ("nhwc", "float16")],
)
@pytest.mark.parametrize("pixels", [s["TP"] for s in few_channels()])
def test_few_input_channels_on_gpus(
    pixels: int, layout: str, data_type: str, monkeypatch
) -> None:
    """Pixels that share a filter, as at the start of models: channels and pixels that fill a
    workgroup and that don't, one to four input channels a step, infinite weights and padding."""
    require_vulkan()
    profile = profile_for("discrete")
    if data_type == "float16":
        promise_exact_conversions(monkeypatch)
        profile = profile.replace(features=profile.features | HALF_CONVERSIONS)
    kernel = only("the test's kernel", lambda c: c.kernel == "conv_wide")
    size = only("the tile, if these channels have one of this size", lambda c: c["TP"] == pixels)
    monkeypatch.setattr(Gpu, "conv", lambda *_: [kernel, size])
    rng = np.random.default_rng(pixels)
    for case, (inputs, outputs, taps) in enumerate(((3, 64, 7), (4, 20, 3), (5, 36, 3))):
        shape = {"n": 2, "c": inputs, "h": 17, "w": 23}
        w = random_array(rng, data_type, (outputs, inputs, taps, taps))
        w[1, inputs - 1, 0, 2] = (np.inf, np.nan, 1.0)[case]
        node, arrays = node_of(
            "conv2d", random_array(rng, data_type, tuple(shape[d] for d in layout)), w,
            bias=random_array(rng, data_type, (outputs,)), strides=[2, 1 + case % 2],
            padding=[taps // 2, 1, 0, taps // 2], input_layout=layout,
        )
        (dispatch,) = plan(node, profile)
        assert dispatch.kernel == "conv_wide" and dispatch.spec.buffers[1].width == 4
        assert {b.load for b in dispatch.spec.buffers} == {"storage"}
        assert dispatch.constants["UC"] == (3, 4, 1)[case]
        assert_close(node, arrays, profile, _ERROR)


def test_products_of_columns() -> None:
    """Strides, dilations and padding of every kind; several images; tiles that channels and pixels
    fill and that they don't; filters whose taps lie otherwise; filters that are no constants; an
    infinite weight, which the zeros beside the input turn into NaN."""
    profile, rng, heights = software_profile(), np.random.default_rng(3), set()
    for case in range(8):
        inputs, outputs, side = 4 * (1 + case % 3), (33, 20, 64)[case % 3], (8, 9)[case % 2]
        taps = {"o": outputs, "i": inputs, "h": 1 + case % 3, "w": 3 if case > 3 else 1}
        order = FILTERS[case % len(FILTERS)]
        w = random_array(rng, "float32", tuple(taps[d] for d in order))
        w.reshape(-1)[case] = (1.0, np.inf)[case % 2]
        node, arrays = node_of(
            "conv2d", random_array(rng, "float32", (1 + case % 2, inputs, side, 12)), w,
            bias=random_array(rng, "float32", (outputs,)) if case % 4 else None,
            strides=[2 - case % 2, 1 + case // 2 % 2], dilations=[1 + case // 4, 1],
            padding=[case % 3, 1, 0, case % 2] if case > 1 else [0] * 4, filter_layout=order,
        )
        with np.errstate(invalid="ignore"):
            (expected,) = node.evaluate(arrays.get)
        schedules = [s for s in schedules_of(node, profile) if s.kernel == "conv_columns"]
        heights |= {s["TM"] for s in schedules}
        for schedule in schedules:
            (computed,) = run(node, arrays, profile, schedule)
            assert_allclose(
                computed, expected, rtol=_ERROR, atol=_ERROR, err_msg=f"{case} {schedule}"
            )
    assert heights == {4, 32}  # rows below each other, and tall tiles


@pytest.mark.parametrize(("side", "options", "unrolled"), [
    ((7, 7), {"padding": [1] * 4}, [(7, 7, 3)]),
    ((6, 9), {"padding": [2, 0, 1, 3], "dilations": [1, 2]}, [(6, 9, 3)]),
    ((9, 8), {"padding": [1, 2, 0, 1], "strides": [2, 1]}, [(5, 7, 3)]),
    ((17, 30), {"padding": [1] * 4}, [(2, 14, 3), (4, 7, 3), (4, 8, 3)]),
    # The other tiles would load too much at once.
    ((31, 29), {"padding": [0, 3, 2, 1], "strides": [2, 3], "dilations": [2, 1]}, [(4, 7, 3)]),
    ((23, 40), {"padding": [3] * 4, "strides": [2, 2], "taps": (7, 5)},
     [(2, 14, 1), (4, 7, 1), (4, 8, 1)]),
    ((20, 30), {"padding": [3, 0, 0, 2], "dilations": [2, 1], "taps": (4, 6)},
     [(2, 14, 1), (4, 7, 1), (4, 8, 1)]),
    # One dimension.
    ((1, 150), {"padding": [0, 0, 2, 1], "taps": (1, 4)}, [(1, 28, 1)]),
    ((1, 300), {"padding": [0, 0, 4, 5], "strides": [1, 5], "taps": (1, 10)}, [(1, 28, 1)]),
    ((9, 6), {"taps": (9, 4)}, []),  # three pixels
])
def test_lanes_that_are_channels(side, options, unrolled) -> None:
    """One tile with all pixels, and tiles that they fill and that they don't; taps unrolled
    together and row by row; channels that fill no lane, and several panels; several images; an
    infinite input, which reaches no neighbours."""
    profile, rng = software_profile(), np.random.default_rng(5)
    taps = options.get("taps", (3, 3))
    options = {name: value for name, value in options.items() if name != "taps"}
    for images, outputs, inputs in ((1, 33, 3), (2, 70, 2)):
        x = random_array(rng, "float32", (images, inputs, *side))
        x[0, 1, -1, -1] = np.inf
        node, arrays = node_of(
            "conv2d", x, random_array(rng, "float32", (outputs, inputs, *taps)),
            bias=random_array(rng, "float32", (outputs,)) if images > 1 else None, **options,
        )
        with np.errstate(invalid="ignore"):
            (expected,) = node.evaluate(arrays.get)
        schedules = [s for s in schedules_of(node, profile) if s.kernel == "conv_channels"]
        assert sorted((s["TH"], s["TW"], s["KU"]) for s in schedules) == unrolled
        for schedule in schedules:
            (computed,) = run(node, arrays, profile, schedule)
            assert_allclose(
                computed, expected, rtol=_ERROR, atol=_ERROR, err_msg=f"{images} {schedule}"
            )


@pytest.mark.parametrize(("side", "columns"), [
    ((5, 5), [25]), ((6, 6), [32, 36, 56]), ((7, 7), [49]), ((3, 4), [12, 32, 56]),
    ((10, 10), [32, 56]), ((8, 7), [32, 56]), ((9, 9), []), ((2, 4), []),
])
def test_rows_of_a_filter(side: tuple[int, int], columns: list[int]) -> None:
    """A tile with all pixels, tiles that they fill and that they don't; channels that fill no tile;
    several images; a bias; an infinite weight, and an infinite input, which reach no neighbours."""
    profile, rng = software_profile(), np.random.default_rng(4)
    for images, outputs, inputs in ((1, 33, 8), (3, 50, 20)):
        w = random_array(rng, "float32", (outputs, inputs, 1, 1))
        x = random_array(rng, "float32", (images, inputs, *side))
        w[outputs - 1, 2], x[0, 1, -1, -1] = np.inf, np.inf
        node, arrays = node_of(
            "conv2d", x, w, bias=random_array(rng, "float32", (outputs,)) if images > 1 else None
        )
        with np.errstate(invalid="ignore"):
            (expected,) = node.evaluate(arrays.get)
        schedules = [s for s in schedules_of(node, profile) if s.kernel == "matmul_rows"]
        assert sorted(s["TN"] for s in schedules) == columns
        for schedule in schedules:
            (computed,) = run(node, arrays, profile, schedule)
            assert_allclose(
                computed, expected, rtol=_ERROR, atol=_ERROR, err_msg=f"{images} {schedule}"
            )


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_weights_of_tiles_that_are_no_numbers(value: float, monkeypatch) -> None:
    """Beside the input, infinite weights turn zeros into NaN; past the last channel there is
    nothing."""
    require_vulkan()
    profile = profile_for("discrete")
    rng = np.random.default_rng(2)
    for layout, shape in (("nchw", (1, 18, 5, 6)), ("nhwc", (1, 5, 6, 18))):
        w = random_array(rng, "float32", (20, 18, 3, 3))
        w[3, 17, 0, 2] = w[19, 0, 1, 1] = value
        node, arrays = node_of(
            "conv2d", random_array(rng, "float32", shape), w, input_layout=layout,
            padding=[1, 1, 1, 1],
        )
        assert [d.kernel for d in plan(node, profile)] == ["conv_tiled"]
        assert_close(node, arrays, profile, _ERROR)


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
    """Padding is zeros, which infinite weights turn into NaN; a missing tap of a transposed
    convolution is not."""
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


@pytest.mark.parametrize("strides", [(1, 2), (2, 2), (3, 2), (4, 3), (6, 6)], ids=str)
@pytest.mark.parametrize("way", ["software", "discrete"])
def test_transposed_phases(way: str, strides: tuple[int, int]) -> None:
    """Every remainder of outputs by the strides, dilations with and without common factors
    (including phases without any tap), fewer and more taps than strides."""
    require_vulkan()
    rng = np.random.default_rng(strides)
    profile = profile_for(way)
    for dilations, taps, groups, layout in (
        ((1, 1), (4, 3), 1, "nchw"), ((2, 3), (3, 4), 2, "nchw"), ((4, 2), (2, 5), 1, "nhwc"),
        ((3, 6), (1, 2), 3, "nhwc"), ((1, 1), (8, 7), 1, "nhwc"),
    ):
        shape = {"n": 2, "c": 4 * groups, "h": 4, "w": 3}
        for padding, extra in (([0, 0, 0, 0], (0, 0)), ([1, 0, 0, 1], (-1, -1))):
            room = [s - 1 for s in strides]
            node, arrays = node_of(
                "conv_transpose2d",
                random_array(rng, "float32", tuple(shape[d] for d in layout)),
                random_array(rng, "float32", (4 * groups, 3, *taps)), groups=groups,
                strides=list(strides), dilations=list(dilations), padding=padding,
                output_padding=[n and r for n, r in zip(extra, room, strict=True)],
                input_layout=layout, bias=random_array(rng, "float32", (3 * groups,)),
            )
            assert_close(node, arrays, profile, _ERROR)


def test_a_transposed_convolution_computes_no_absent_taps() -> None:
    """Every workgroup belongs to one phase: there are as many as the phases have tiles."""
    x, w = (MLOperandDescriptor("float32", s) for s in ((1, 8, 16, 16), (8, 8, 4, 4)))
    profile = stored_profile("llvmpipe")
    groups = []
    for strides in ([1, 1], [2, 2]):
        (dispatch,) = plan(node_of("conv_transpose2d", x, w, strides=strides)[0], profile)
        groups.append(dispatch.groups[0])
    # 19 × 19 outputs; four times 17 × 17. Tiles of 64 pixels by 8 channels.
    assert groups == [6, 4 * 5]
