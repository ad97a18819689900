"""Plans of the conv kernels, made for stored profiles: no device."""

from __future__ import annotations

import numpy as np
import pytest

from bench.isa.catalogue import catalogue
from tests.support.cases.conv import OPERATORS, random_case
from tests.support.profiles import H200, RTX4090, stored_profile
from tests.support.running import node_of, plan, tuned_to
from webnn_vk.compiler.ir import Emitter, Graph, Value
from webnn_vk.compiler.kernels import lower_graph
from webnn_vk.compiler.passes import Compilation
from webnn_vk.compiler.types.data_types import FLOAT_TYPES, MLOperandDescriptor
from webnn_vk.driver.device_profile import DeviceProfile

#: Profiles whose class has fast cooperative matrices.
FAST_MATRICES = ["nvidia_ampere", "amd_navi31", H200, RTX4090]


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
        "nvidia_ampere", (4, 28, 28, 64), (128, 1, 1, 64), input_layout="nhwc", filter_layout="ohwi"
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


def _kernels(profile: DeviceProfile, x: tuple[int, ...], w: tuple[int, ...], **arguments):
    filter_ = np.zeros(w, arguments.pop("data_type", "float32"))
    x = MLOperandDescriptor(str(filter_.dtype), x)
    node, _ = node_of("conv2d", x, filter_, **arguments)
    return [dispatch.kernel for dispatch in plan(node, profile)]


def test_where_no_tile_fits_the_registers_winograd_is_chosen() -> None:
    """On Mali: by its compiler's estimate 9 to 12 times as fast as element by element."""
    mali = stored_profile("arm_mali_g610")
    transforms = ["winograd_input", "winograd_product", "winograd_output"]
    x, w = (1, 64, 28, 28), (64, 64, 3, 3)
    assert _kernels(mali, x, w, padding=[1] * 4) == transforms
    assert _kernels(mali, x, w, padding=[1] * 4, strides=[2, 2]) == ["conv"]
    assert _kernels(mali, (1, 8, 28, 28), (64, 8, 3, 3), padding=[1] * 4) == ["conv"]
    # A transformed filter of 1024 by 1024 channels would take 64 MB.
    assert _kernels(mali, (1, 1024, 7, 7), (1024, 1024, 3, 3), padding=[1] * 4) == ["conv"]


def test_a_filter_in_scalar_registers_fits_them() -> None:
    """16 by 4 channels would not, on AMD's GPUs."""
    navi = stored_profile("amd_navi31")
    for channels, outputs in ((3, 16), (4, 8)):
        node, _ = node_of(
            "conv2d", _describe(1, channels, 56, 56), np.zeros((64, channels, 3, 3), np.float32)
        )
        (made,) = plan(node, navi)
        assert (made.kernel, made.constants["TC"]) == ("conv_wide", outputs)


@pytest.mark.parametrize("side, channels, variant, tile", [
    (56, 64, "4x4 25x32", 4),
    (28, 64, "4x4 25x32", 4),
    (14, 288, "2x2 25x32", 2),  # large tiles would save only a quarter of the multiplications
    (9, 64, "2x2 25x32", 2),  # here too, and there are 9 of them
])
def test_tiles_of_winograd_weigh_the_filter(
    side: int, channels: int, variant: str, tile: int
) -> None:
    """A filter transformed for large tiles takes twice the memory of one for small tiles: large
    ones are chosen if they save a third of the multiplications."""
    node, _ = node_of(
        "conv2d", _describe(1, channels, side, side),
        np.zeros((channels, channels, 3, 3), np.float32), padding=[1] * 4,
    )
    _, product, _ = plan(node, stored_profile("llvmpipe"))
    packed = product.bindings[1].value
    assert product.variant == variant
    assert packed.size == ((tile + 2) ** 2 + 5) * channels**2 * 4


@pytest.mark.parametrize("side, inputs, outputs, chosen", [
    (14, 256, 256, "conv_channels"), (14, 260, 256, "winograd_input"),
    (28, 60, 64, "conv_channels"),  # large tiles are not exact enough
    (13, 64, 64, "winograd_input"),  # a sixth more pixels than there are
])
def test_small_tiles_of_winograd_and_convolutions_by_channels(
    side: int, inputs: int, outputs: int, chosen: str
) -> None:
    """Transformed for small tiles, a filter takes 7/3 of its memory."""
    first, *_ = _kernels(
        stored_profile("llvmpipe"), (1, inputs, side, side), (outputs, inputs, 3, 3),
        padding=[1] * 4,
    )
    assert first == chosen


@pytest.mark.parametrize("channels, side, chosen", [
    (64, 56, "4x4"), (60, 56, ""), (60, 28, "2x2"), (32, 28, "2x2"), (28, 28, ""),
])
def test_few_channels_have_small_tiles_or_none(channels: int, side: int, chosen: str) -> None:
    """Large ones would exceed conv2d's tolerance."""
    node, _ = node_of(
        "conv2d", _describe(1, channels, side, side), np.zeros((3, 3, channels, 64), np.float32),
        padding=[1] * 4, filter_layout="hwio",
    )
    first, *_ = plan(node, stored_profile("llvmpipe"))
    assert (first.variant if first.kernel == "winograd_input" else "") == chosen
    assert _tile((1, channels, side, side), (64, channels, 3, 3)) != (
        "" if channels >= 64 else "4x4"
    )


def test_columns_on_software_devices() -> None:
    """A product of columns where many output channels use each element of them, and where all of
    them stay in a cache."""
    software = stored_profile("llvmpipe")

    def kernels(channels: int, side: int, outputs: int, **arguments) -> list[str]:
        x, w = (1, channels, side, side), (outputs, channels, 1, 1)
        return _kernels(software, x, w, strides=[2, 2], **arguments)

    assert kernels(256, 56, 128) == ["copy", "matmul"]
    assert kernels(256, 56, 128, padding=[1] * 4) == ["copy", "copy", "matmul"]
    assert kernels(256, 56, 64) == ["conv_wide"]  # few channels use an element
    assert kernels(256, 112, 128) == ["conv_wide"]  # large columns
    assert kernels(254, 56, 128) == ["conv_wide"]  # no vectors of columns' elements
    assert kernels(256, 56, 128, data_type="float16") == ["conv"]
    x, w = (1, 56, 56, 256), (1, 1, 256, 128)
    layouts = {"input_layout": "nhwc", "filter_layout": "hwio"}
    assert _kernels(software, x, w, strides=[2, 2], **layouts) == ["conv_wide"]


@pytest.mark.parametrize("side, tile", [(24, (8, 4)), (40, (16, 4)), (80, (16, 8))])
def test_tiles_of_wide_convolutions_grow_with_the_work(side: int, tile: tuple[int, int]) -> None:
    """The larger ones take less time for each multiply-add and longer to compile."""
    node, _ = node_of(
        "conv2d", _describe(1, 32, 2 * side, 2 * side), np.zeros((3, 3, 32, 64), np.float32),
        padding=[1] * 4, strides=[2, 2], filter_layout="hwio",
    )
    (wide,) = plan(node, stored_profile("llvmpipe"))
    assert wide.kernel == "conv_wide"
    assert (wide.constants["TC"], wide.constants["TP"]) == tile


def test_constant_filters_on_software_devices() -> None:
    winograd = ["winograd_input", "winograd_product", "winograd_output"]
    software = stored_profile("llvmpipe")
    x, w = (1, 64, 56, 56), (64, 64, 3, 3)
    assert _kernels(software, x, w) == winograd
    assert _kernels(software.masked(["texel_buffers"]), x, w) == winograd
    assert _kernels(software, x, w, strides=[2, 2]) == ["conv_channels"]
    assert _kernels(software, x, w, dilations=[2, 2]) == ["conv_channels"]
    # Filters whose taps don't lie in rows, and too few output channels for the lanes.
    hwio = {"strides": [2, 2], "filter_layout": "hwio"}
    assert _kernels(software, x, (3, 3, 64, 64), **hwio) == ["conv_wide"]
    assert _kernels(software, x, (16, 64, 3, 3), strides=[2, 2]) == ["conv_wide"]
    # Float16 would lose too much precision, few channels would gain too little.
    assert _kernels(software, x, w, data_type="float16") == ["conv"]
    assert _kernels(software, (1, 8, 56, 56), (64, 8, 3, 3)) == ["conv_channels"]
    # So few pixels are not worth a filter of twice the size.
    x7, w7 = (1, 512, 7, 7), (512, 512, 3, 3)
    assert _kernels(software, x7, w7, padding=[1] * 4) == ["conv_channels"]
    assert _kernels(software, (1, 256, 7, 7), (256, 256, 3, 3), padding=[1] * 4) == [
        "conv_channels"
    ]
    last = (3, 3, 512, 512)
    columns = ["copy", "copy", "matmul"]
    assert _kernels(software, x7, last, padding=[1] * 4, filter_layout="hwio") == columns
    assert _kernels(software, (2, 512, 7, 7), (512, 512, 3, 3), padding=[1] * 4) == winograd
    assert _kernels(software, x, (64, 32, 3, 3), groups=2) == ["conv_wide"]
    assert _kernels(software, (1, 3, 56, 56), (30, 3, 3, 3)) == ["conv_channels"]
    assert _kernels(software, (1, 3, 56, 56), (18, 3, 3, 3)) == ["conv"]


@pytest.mark.parametrize("inputs, side, taps, strides, tile", [
    (512, 7, 3, 1, (7, 7, 3)),  # one tile for all pixels
    (8, 20, 3, 1, (4, 7, 3)),  # tiles without a pixel in vain, or with the fewest
    (8, 28, 3, 2, (2, 14, 3)),
    (8, 32, 3, 1, (4, 8, 3)),
    (3, 56, 7, 2, (2, 14, 1)),  # 49 taps: only a row of them is unrolled
])
def test_tiles_of_lanes_that_are_channels(inputs, side, taps, strides, tile) -> None:
    node, _ = node_of(
        "conv2d", _describe(1, inputs, side, side),
        np.zeros((64, inputs, taps, taps), np.float32), padding=[taps // 2] * 4,
        strides=[strides, strides],
    )
    (made,) = plan(node, stored_profile("llvmpipe"))
    assert made.kernel == "conv_channels"
    assert (made.constants["TH"], made.constants["TW"], made.constants["KU"]) == tile


@pytest.mark.parametrize("length, taps, tile", [
    (56, 3, (1, 56, 1)),  # all outputs
    (57, 3, (1, 28, 1)), (3000, 3, (1, 28, 1)), (1000, 10, (1, 28, 1)),
])
def test_tiles_in_one_dimension(length: int, taps: int, tile: tuple[int, int, int]) -> None:
    node, _ = node_of(
        "conv2d", _describe(1, 80, 1, length), np.zeros((64, 80, 1, taps), np.float32),
        padding=[0, 0, taps // 2, (taps - 1) // 2],
    )
    (made,) = plan(node, stored_profile("llvmpipe"))
    assert made.kernel == "conv_channels"
    assert (made.constants["TH"], made.constants["TW"], made.constants["KU"]) == tile


@pytest.mark.parametrize("name", ["nvidia_ampere", "amd_navi31", "intel_dg2", "adreno_minimum"])
def test_constant_filters_on_gpus(name: str) -> None:
    winograd = ["winograd_input", "winograd_product", "winograd_output"]
    gpu = stored_profile(name)
    x, w = (1, 64, 56, 56), (64, 64, 3, 3)
    assert _kernels(gpu, x, w) == winograd
    last = {"input_layout": "nhwc", "filter_layout": "ohwi"}
    assert _kernels(gpu, (1, 56, 56, 64), (64, 3, 3, 64), **last) == winograd
    assert _kernels(gpu, x, w, strides=[2, 2]) == ["conv_tiled"]
    assert _kernels(gpu, x, w, dilations=[2, 2]) == ["conv_tiled"]
    assert _kernels(gpu, x, (64, 32, 3, 3), groups=2) == ["conv_tiled"]
    # Float16 would lose too much precision, few channels would gain less than the transforms cost.
    halves = ["copy", "matmul_coopmat"] if name in FAST_MATRICES else ["conv_tiled"]
    assert _kernels(gpu, x, w, data_type="float16") == halves
    assert _kernels(gpu, (1, 64, 56, 56), (12, 64, 3, 3)) == ["conv"]
    assert _kernels(gpu, (1, 12, 56, 56), (64, 12, 3, 3)) in (["conv_tiled"], ["conv"])
    # A filter that is an input would be transformed in every run.
    (given,) = _planned(name, x, w)
    assert given.kernel == "conv_tiled"
    # Input channels that don't fill a tile: pixels share the filter.
    assert _kernels(gpu, (1, 3, 224, 224), (64, 3, 7, 7), strides=[2, 2]) == ["conv_wide"]
    assert _kernels(gpu, (1, 3, 224, 224), (30, 3, 7, 7), strides=[2, 2]) == ["conv"]
    # Halves too, where their conversion is one instruction.
    (stem,) = _kernels(gpu, (1, 3, 224, 224), (32, 3, 3, 3), data_type="float16", strides=[2, 2])
    assert stem == ("conv_wide" if name in FAST_MATRICES else "conv")


@pytest.mark.parametrize("name", FAST_MATRICES)
def test_halves_are_products_of_columns_where_matrices_are_fast(name: str) -> None:
    gpu = stored_profile(name)
    x, w, strided = (1, 64, 56, 56), (64, 64, 3, 3), {"strides": [2, 2]}
    columns = ["copy", "matmul_coopmat"]

    def halves(x: tuple[int, ...], w: tuple[int, ...], **arguments) -> list[str]:
        return _kernels(gpu, x, w, data_type="float16", **arguments)

    assert halves(x, w) == halves(x, w, dilations=[2, 2]) == columns
    assert halves((4, *x[1:]), w, **strided) == columns
    assert halves(x, w, padding=[1] * 4) == ["copy", *columns]
    assert halves((8, 3, 224, 224), (64, 3, 7, 7), **strided) == columns
    assert halves((8, 128, 56, 56), (3, 3, 128, 64), filter_layout="hwio") == columns
    # Few outputs of long columns: parts of them.
    cut = halves((4, 128, 28, 28), (3, 3, 128, 64), filter_layout="hwio")
    assert cut == [*columns, *["matmul_sum"] * (name != "amd_navi31")]
    long, filter_ = (1, 512, 7, 7), (512, 512, 3, 3)
    assert halves(long, filter_, padding=[1] * 4) == ["copy", *columns, "matmul_sum"]
    # A filter that is an input, if it lies in rows.
    given = [MLOperandDescriptor("float16", shape) for shape in (x, w)]
    assert [d.kernel for d in plan(node_of("conv2d", *given)[0], gpu)] == columns
    given[1] = MLOperandDescriptor("float16", (3, 3, 64, 64))
    node, _ = node_of("conv2d", *given, filter_layout="hwio")
    assert [d.kernel for d in plan(node, gpu)] == ["conv_tiled"]
    # Pixels, channels and columns that fill no tile.
    for small in (((1, 64, 7, 6), w), (x, (30, 64, 3, 3)), ((1, 3, 56, 56), (64, 3, 3, 3))):
        assert "matmul_coopmat" not in halves(*small)
    # Columns of 345 MiB.
    assert halves((1, 64, 562, 562), w) == ["conv_tiled"]
    assert halves(x, (64, 32, 3, 3), groups=2) == ["conv_tiled"]
    last = {"input_layout": "nhwc", "filter_layout": "ohwi"}
    assert halves((1, 56, 56, 64), (64, 3, 3, 64), **last) == ["conv_tiled"]
    assert _kernels(gpu.masked(["cooperative_matrix"]), x, w, data_type="float16") == ["conv_tiled"]
    assert "matmul_coopmat" not in _kernels(gpu, x, w, **strided)


def test_matrices_for_columns_are_left_to_tuning_where_they_may_be_slow() -> None:
    """On Intel's GPUs."""
    gpu, given = stored_profile("intel_dg2"), np.zeros((64, 64, 3, 3), np.float16)
    x = MLOperandDescriptor("float16", (1, 64, 56, 56))
    node, _ = node_of("conv2d", x, given)
    assert [d.kernel for d in plan(node, gpu)] == ["conv_tiled"]
    tuned = tuned_to("conv_coopmat", node, gpu)
    assert [d.kernel for d in plan(node, gpu, tuned)] == ["copy", "matmul_coopmat"]


def test_without_the_shaders_of_matrices_tiles_compute() -> None:
    """Compilers that are too old, and archives made with them."""
    emit, gpu = Emitter(), stored_profile(H200)
    x = Value(MLOperandDescriptor("float16", (1, 512, 7, 7)), name="x")
    out = emit.conv2d(x, emit.constant(np.zeros((512, 512, 3, 3), np.float16)), padding=[1] * 4)
    graph = Graph({"x": x}, {"out": emit.relu(out)}, tuple(emit.nodes))

    def kernels(available) -> list[str]:
        lowered = lower_graph(graph, Compilation(gpu, available=available))
        return [d.kernel for work in lowered.works for d in work.dispatches]

    assert kernels(lambda spec: True) == ["copy", "copy", "matmul_coopmat", "matmul_sum"]
    assert kernels(lambda spec: "cooperative_matrix" not in spec.features) == ["conv_tiled"]


@pytest.mark.full
def test_columns_are_in_the_catalogue() -> None:
    gpu = stored_profile(H200)
    known = set(catalogue(gpu.features, "conv", "matmul"))
    for channels, side, bias in ((64, 56, False), (64, 57, True), (37, 21, True), (512, 7, True)):
        w = np.zeros((channels, channels, 3, 3), np.float16)
        x = MLOperandDescriptor("float16", (2, channels, side, side))
        node, _ = node_of("conv2d", x, w, padding=[1] * 4, bias=w[:, 0, 0, 0] if bias else None)
        made = plan(node, gpu)
        assert "matmul_coopmat" in {d.kernel for d in made}
        assert all(dispatch.spec in known for dispatch in made)


def _tile(x: tuple[int, ...], w: tuple[int, ...], profile: str = "amd_navi31") -> str:
    """"": not by Winograd's way."""
    node, _ = node_of("conv2d", _describe(*x), np.zeros(w, np.float32), padding=[1, 1, 1, 1])
    first, *_ = plan(node, stored_profile(profile))
    return first.variant if first.kernel == "winograd_input" else ""


def test_tiles_of_winograd_on_gpus() -> None:
    """Large tiles where multiplications cost most; small ones, with a smaller filter, where there
    are few pixels for it; none where the memory would exceed the rules' limit."""
    assert _tile((1, 64, 56, 56), (64, 64, 3, 3)) == "4x4"
    assert _tile((1, 128, 28, 28), (128, 128, 3, 3)) == "4x4"
    assert _tile((1, 256, 14, 14), (256, 256, 3, 3)) == "2x2"
    assert _tile((8, 256, 14, 14), (256, 256, 3, 3)) == "4x4"
    assert _tile((1, 512, 7, 7), (512, 512, 3, 3)) == "2x2"
    # 16 planes of 4 MiB, 36 of 11 MiB: more than 32 MiB.
    assert _tile((16, 1024, 28, 28), (1024, 1024, 3, 3)) == ""
    # 36 numbers of 4 bytes for each of 200704 tiles and 128 channels: 3.4 GiB.
    assert _tile((64, 64, 224, 224), (64, 64, 3, 3)) == ""


def test_products_of_winograd_are_by_vectors() -> None:
    """All loads into tiles and all stores move 16 bytes, whatever the number of tiles."""
    gpu = stored_profile("amd_navi31")
    # 15 × 14 tiles, which 4 doesn't divide.
    for shape, layout in (((1, 64, 57, 55), "nchw"), ((1, 57, 55, 64), "nhwc")):
        node, _ = node_of(
            "conv2d", _describe(*shape), np.zeros((64, 64, 3, 3), np.float32),
            padding=[1, 1, 1, 1], input_layout=layout,
        )
        _, product, _ = plan(node, gpu)
        assert product.spec.template == "matmul_tiled.comp.j2"
        assert [b.width for b in product.spec.buffers] == [4, 4, 4]
        assert product.params["batches"] == 36 and product.params["K"] == 64
        rows_and_columns = {product.params["M"], product.params["N"]}
        assert rows_and_columns == ({64, 212} if layout == "nchw" else {210, 64})


@pytest.mark.parametrize("profile", ["nvidia_ampere", "llvmpipe"])
def test_plans_are_in_the_catalogue(profile: str) -> None:
    device = stored_profile(profile)
    known = set(catalogue(device.features, "conv", "matmul"))
    rng = np.random.default_rng(5)
    for name in OPERATORS:
        for data_type in FLOAT_TYPES:
            for _ in range(20):
                node, _ = random_case(rng, name, data_type)
                assert all(dispatch.spec in known for dispatch in plan(node, device))
