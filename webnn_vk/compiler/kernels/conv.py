"""Convolutions: conv2d and conv_transpose2d in every layout.

There are eight ways: a 1×1 convolution with stride 1 is computed as a matrix product; ``winograd``
(CPUs) and ``winograd_tiled`` (GPUs) compute 3×3 ones of many channels with fewer multiplications;
the template ``conv_tiled`` computes others as products too, with tiles in shared memory (GPUs);
``conv_wide`` loads the filter in vectors of output channels (CPUs; GPUs where input channels are
few: there neighbours are pixels, for which the filter's elements are the same, and lie in scalar
registers of the hardware that has such); ``conv_columns`` copies the inputs of each output into a
column, and multiplies those as a matrix (CPUs; GPUs by cooperative matrices); ``conv_channels`` has
output channels as lanes, which exchange the pixels that they load (CPUs); ``conv_depthwise`` serves
groups of one input channel; ``conv`` serves the rest. In a transposed convolution too, each output
gathers the inputs that reach it. All accumulate in float32.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import numpy as np

from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.integers import ceil_divide

from ..ops.lowering import QuantizedConvolution
from ..types.data_types import DATA_TYPES
from . import conv_channels, conv_columns, coopmat, matmul, split_k, winograd
from . import epilogue as fused
from .dispatch import Dispatch, Packed
from .expression import HALF_CONVERSIONS
from .family import Family
from .loads import has_texels
from .matmul import MATMUL
from .multi_binding import bound, dispatch
from .node import KernelNode
from .packing import is_weight, permuted
from .product import Product
from .product_dispatch import tile_bytes
from .rows import check_iterations
from .schedule import Schedule

_STRIDES = ("xc", "xw", "yc", "ys", "fg", "fo", "fc", "fw")
_SIZES = ("N", "IC", "OC", "G", "H", "W", "OH", "OW")
_TAPS = ("KH", "KW", "SH", "SW", "DH", "DW", "PW")
_WINDOW = (*_SIZES, *_TAPS[:-1], "PH", "PW")
# Input channels that don't fill a step of tiles in shared memory.
_FEW = 8
# Templates that have the option ``transposed``.
_TRANSPOSED = ("conv", "conv_depthwise")
# Loads and multiplications that the depthwise kernel unrolls at most.
_LOADS, _PRODUCTS = 128, 512


@dataclass(frozen=True)
class Geometry:
    """Sizes and strides (in elements) of a convolution, named as in the templates: IC and OC are
    channels of one group, the filter's strides are fg (a group), fo, fc (channels), fw (a tap).
    ``constant``: whether the filter can be packed. ``data_types``: of input and output.
    ``zero_point``: what is subtracted from a filter of 8-bit integers; None for other filters.
    ``whole``: whether a constant filter holds whole numbers only."""

    numbers: tuple[tuple[str, int], ...]
    transposed: bool
    channels_last: bool
    data_types: tuple[str, str]
    zero_point: float | None = None
    whole: bool = field(default=False, repr=False)

    def __getattr__(self, name: str) -> int:
        for key, number in self.numbers:
            if key == name:
                return number
        raise AttributeError(name)

    @property
    def columns(self) -> Product:
        """The product by cooperative matrices that it can be computed as (``conv_columns``)."""
        return conv_columns.product(self, by_matrices=True)


def geometry(node: KernelNode) -> Geometry:
    """The geometry of a conv2d or conv_transpose2d."""
    arguments = node.arguments
    layout, filter_layout = arguments["input_layout"], arguments["filter_layout"]
    transposed = node.lowering.transposed
    groups = arguments["groups"]
    x = dict(zip(layout, node.operands["input"].shape, strict=True))
    y = dict(zip(layout, node.results[0].shape, strict=True))
    kernel = node.operands["filter"]
    quantized = isinstance(node.lowering, QuantizedConvolution)
    w = dict(zip(filter_layout, kernel.shape, strict=True))
    step = dict(zip(filter_layout, kernel.strides, strict=True))
    inputs, outputs = x["c"] // groups, y["c"] // groups
    last = layout == "nhwc"
    numbers = {
        "N": x["n"], "IC": inputs, "OC": outputs, "G": groups,
        "H": x["h"], "W": x["w"], "OH": y["h"], "OW": y["w"], "KH": w["h"], "KW": w["w"],
        "SH": arguments["strides"][0], "SW": arguments["strides"][1],
        "DH": arguments["dilations"][0], "DW": arguments["dilations"][1],
        "PH": arguments["padding"][0], "PW": arguments["padding"][2],
        "xc": 1 if last else x["h"] * x["w"], "xw": x["c"] if last else 1,
        "yc": 1 if last else y["h"] * y["w"], "ys": y["c"] if last else 1,
        # A conv's filter holds all output channels, a transposed one's all input channels.
        "fg": inputs * step["i"] if transposed else outputs * step["o"],
        "fo": step["o"], "fc": step["i"], "fw": step["w"],
        "constant": int(is_weight(kernel, 0) and not quantized),
    }
    data_types = node.operands["input"].data_type, node.out_type
    zero_point = arguments["zero_point"] if quantized else None
    whole = bool(numbers["constant"]) and _is_whole(kernel.value.data)
    return Geometry(tuple(numbers.items()), transposed, last, data_types, zero_point, whole)


def _is_whole(elements: np.ndarray | None) -> bool:
    """Whether known elements are whole numbers, not all 0. Mostly the first few elements decide."""
    if elements is None or elements.dtype.kind != "f":
        return False
    flat = elements.reshape(-1)
    whole = (bool((part == np.rint(part)).all()) for part in (flat[:64], flat))
    return all(whole) and bool(flat.any())


@dataclass(frozen=True)
class _Launch:
    """How a kernel is launched: its workgroups; its options, among which ``vector`` says whether
    inputs are loaded 4 at a time; the buffers that are loaded and stored so; specialisation
    constants beside the schedule's."""

    groups: int
    options: Mapping[str, bool]
    wide: frozenset[str]
    constants: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class _Algorithm:
    """A kernel: ``candidates`` (given the ways to load) are its schedules, ``launch`` (given
    whether all tensors fit a binding) says how it is launched by one of them. ``params``: the
    numbers of the geometry that its template has, strides aside."""

    candidates: Callable[[Geometry, Sequence[str], DeviceProfile], list[Schedule]]
    launch: Callable[[Geometry, Schedule, bool, DeviceProfile], _Launch]
    params: tuple[str, ...] = _WINDOW


# -- the kernels ----------------------------------------------------------------------------------
def _direct(g: Geometry, loads: Sequence[str], profile: DeviceProfile) -> list[Schedule]:
    return [
        Schedule("conv", (
            ("LX", x), ("LY", y), ("TC", tc), ("TP", tp), ("CHANNEL_LANES", channel_lanes)
        ), load)
        for load in loads
        for x, y, tc, tp, channel_lanes in (
            (8, 1, 4, 8, 0), (8, 1, 8, 8, 0),
            # The larger ones spill where registers are few.
            *((16, 8, *tile, c) for tile in ((4, 4), (4, 2), (2, 4), (2, 2)) for c in (0, 1)),
        )
    ]


def _launch_direct(g: Geometry, schedule: Schedule, whole: bool, profile: DeviceProfile) -> _Launch:
    """A transposed convolution has workgroups for each phase of its outputs."""
    phases, rows, columns = 1, g.OH, g.OW
    if g.transposed:
        phases = min(g.SH, rows) * min(g.SW, columns)
        rows, columns = ceil_divide(rows, g.SH), ceil_divide(columns, g.SW)
    pixels = g.N * rows * columns
    lanes = schedule["LX"], schedule["LY"]
    channels, along = lanes if schedule["CHANNEL_LANES"] else lanes[::-1]
    channel_tiles = ceil_divide(g.OC, channels * schedule["TC"])
    vector = whole and g.xc == g.fc == 1 and not any(n % 4 for n in (g.IC, g.fg, g.fo, g.fw))
    return _Launch(
        phases * g.G * channel_tiles * ceil_divide(pixels, along * schedule["TP"]),
        {"vector": vector}, frozenset("xw" * vector),
    )


def _wide(g: Geometry, loads: Sequence[str], profile: DeviceProfile) -> list[Schedule]:
    """The filter is loaded in vectors of output channels."""
    if g.transposed or g.IC == 1 or g.OC % 4 or not (g.constant or _by_outputs(g)):
        return []
    step = next(n for n in (4, 3, 2, 1) if not g.IC % n)
    # Converted by integer arithmetic, halves of the filter spill on Intel's GPUs.
    fast = g.data_types[0] == "float32" or profile.features >= HALF_CONVERSIONS | {"float16"}
    few = g.IC < _FEW and g.zero_point is None and fast
    # A filter of 16 by 4 channels is too large for the scalar registers of AMD's GPUs.
    in_scalars = ((8, 4), (8, 8)) if step == 4 else ((16, 2), (16, 4))
    return [
        Schedule("conv_wide", (("LX", lanes), ("TC", tc), ("TP", tp), ("UC", step)), load)
        for load, lanes, tiles in (
            ("texel", 8, ((8, 4), (8, 8), (16, 4), (16, 8))), ("storage", 64, in_scalars),
        )
        if (few if load == "storage" else load in loads)
        for tc, tp in tiles
    ]


def _launch_wide(g: Geometry, schedule: Schedule, whole: bool, profile: DeviceProfile) -> _Launch:
    pixel_tiles = ceil_divide(g.N * g.OH * g.OW, schedule["LX"] * schedule["TP"])
    vector = whole and g.xc == 1 and not g.IC % 4
    return _Launch(
        g.G * ceil_divide(g.OC, schedule["TC"]) * pixel_tiles, {"vector": vector},
        frozenset("xw" if vector else "w"),
    )


def _by_outputs(g: Geometry) -> bool:
    """Whether the filter's output channels lie side by side, whole vectors of them."""
    return g.fo == 1 and not any(n % 4 for n in (g.OC, g.fg, g.fc, g.fw))


def _tiled(g: Geometry, loads: Sequence[str], profile: DeviceProfile) -> list[Schedule]:
    """As a product of pixels and channels where channels come last, else of channels and pixels."""
    return [] if g.transposed or g.IC == 1 else [
        Schedule("conv_tiled", (("LX", x), ("LY", y), ("TM", tm), ("TN", tn), ("BK", steps)))
        for x, y, tm, tn, steps in (
            (8, 8, 4, 4, 16), (16, 16, 4, 4, 16), (16, 16, 8, 4, 8), (16, 16, 4, 8, 8),
            (16, 16, 8, 8, 8),
        )
        if x * y <= profile.max_workgroup_invocations
        and tile_bytes(y * tm, x * tn, steps, g.channels_last, False) <= profile.max_shared_memory
    ]


def _launch_tiled(g: Geometry, schedule: Schedule, whole: bool, profile: DeviceProfile) -> _Launch:
    pixels = g.N * g.OH * g.OW
    rows, columns = (pixels, g.OC) if g.channels_last else (g.OC, pixels)
    vectors = {
        "x": whole and g.channels_last and not g.IC % 4,
        "w": whole and g.fo == 1 and not any(n % 4 for n in (g.fg, g.fc, g.fw, g.OC)),
        "out": whole and DATA_TYPES[g.data_types[1]].size <= 4
        and not (g.OC if g.channels_last else g.OH * g.OW) % 4,
    }
    # The bias, beside it.
    vectors["c"] = vectors["out"] and g.channels_last
    return _Launch(
        g.G * schedule.tiles(rows, columns),
        {
            "vector": vectors["x"], "channels_last": g.channels_last,
            "filter_vector": vectors["w"], "out_vector": vectors["out"],
        },
        frozenset(name for name, vector in vectors.items() if vector),
        {"RAGGED": int(g.IC % schedule["BK"] != 0)},
    )


def _depthwise(g: Geometry, loads: Sequence[str], profile: DeviceProfile) -> list[Schedule]:
    rows = _stores_rows(g, profile)
    return [] if g.transposed or g.IC > 1 else [
        Schedule("conv_depthwise", (("LX", 64), ("TP", tall)), load)
        for load in loads
        for tall in (7, 4, 1)
        if _unrolls(g, tall, rows, not rows and is_ragged(g, load))
    ]


def _launch_depthwise(
    g: Geometry, schedule: Schedule, whole: bool, profile: DeviceProfile
) -> _Launch:
    """By rows of vectors, or with 4 outputs side by side an invocation, where that can be."""
    vector = whole and _stores_rows(g, profile)
    ragged = not vector and is_ragged(g, schedule.load)
    columns = ceil_divide(g.OW, 4) if vector or ragged else g.OW
    invocations = g.N * g.G * g.OC * ceil_divide(g.OH, schedule["TP"]) * columns
    numbers = dict(g.numbers)
    return _Launch(
        ceil_divide(invocations, schedule["LX"]), {"vector": vector, "ragged": ragged},
        frozenset(("x", "out") * vector), {n: numbers[n] for n in _TAPS},
    )


def _stores_rows(g: Geometry, profile: DeviceProfile) -> bool:
    """Whether the depthwise kernel can load and store rows in vectors: elements of a row are
    neighbours in input and output, each tensor fits one binding, and 4 elements can be stored at
    a time."""
    sizes = [DATA_TYPES[t].size for t in g.data_types]
    fits = all(
        n * h * w * size <= profile.max_storage_buffer_range
        for n, h, w, size in (
            (g.N * g.G * g.IC, g.H, g.W, sizes[0]), (g.N * g.G * g.OC, g.OH, g.OW, sizes[1])
        )
    )
    return fits and g.xw == g.ys == 1 and not (g.W % 4 or g.OW % 4) and max(sizes) <= 4


def is_ragged(g: Geometry, load: str) -> bool:
    """Whether the depthwise kernel computes 4 outputs side by side where it can't use vectors. With
    texels, where loading one element takes as long as loading 4, this needs fewer loads."""
    return load == "texel" and g.xw == g.ys == 1


def _unrolls(g: Geometry, tall: int, rows: bool, ragged: bool) -> bool:
    """Whether the depthwise kernel may unroll ``tall`` outputs below each other an invocation
    (with ``rows`` or ``ragged``, 4 side by side too)."""
    side = 4 if rows or ragged else 1
    reach = (side - 1) * g.SW + (g.KW - 1) * g.DW
    across = reach // 4 + 2 if rows else reach + 1 if ragged else g.KW
    loads = ((tall - 1) * g.SH + (g.KH - 1) * g.DH + 1) * across
    return loads <= _LOADS and tall * side * g.KH * g.KW <= _PRODUCTS


_ALGORITHMS = {
    "conv": _Algorithm(_direct, _launch_direct),
    "conv_wide": _Algorithm(_wide, _launch_wide),
    "conv_tiled": _Algorithm(_tiled, _launch_tiled),
    "conv_depthwise": _Algorithm(_depthwise, _launch_depthwise, (*_SIZES, "PH")),
}
_WINOGRAD = ("winograd", winograd.TILED)
_BY_COLUMNS = (conv_columns.KERNEL, conv_columns.BY_MATRICES)


# -- the family -----------------------------------------------------------------------------------
class Conv(Family):
    """See the module's docstring."""

    name = "conv"
    templates = (
        *_ALGORITHMS, conv_channels.KERNEL, "matmul", coopmat.KERNEL, split_k.KERNEL, "copy",
        "winograd_filter", "winograd_input", "winograd_product", "winograd_output",
        "winograd_tiled_output",
    )
    fuses = True
    weights = "filter"

    def problem(self, node: KernelNode) -> Geometry | Product:
        g = geometry(node)
        return _product(node, g) if _is_product(node, g) else g

    def candidates(self, problem: Geometry, profile: DeviceProfile) -> Sequence[Schedule]:
        texels = has_texels(profile) and problem.data_types[0] == "float32"
        loads = ("storage", *["texel"] * (texels and problem.zero_point is None))
        made = {
            name: algorithm.candidates(problem, loads, profile)
            for name, algorithm in _ALGORITHMS.items()
        }
        by_winograd = winograd.candidates(problem, profile)
        by_columns = conv_columns.candidates(problem, profile)
        by_channels = conv_channels.candidates(problem, profile)
        plain = made.pop("conv")
        return [
            *plain, *by_winograd, *itertools.chain(*made.values()), *by_columns, *by_channels
        ]

    def takes(self, node: KernelNode, operand: str) -> bool:
        if isinstance(node.operands[operand].value, Packed):
            return True
        return super().takes(node, operand)

    def pack(
        self, node: KernelNode, problem: Geometry | Product, schedule: Schedule,
        profile: DeviceProfile,
    ) -> KernelNode:
        """Packs the filter: in panels where the convolution is a matrix product, else with its
        dimensions permuted so that the channels loaded together lie side by side."""
        if isinstance(problem, Product) and problem.operands[1] == self.weights:
            return MATMUL.pack(node, problem, schedule, profile)
        if schedule.kernel in (*_WINOGRAD, "conv_wide", *_BY_COLUMNS, conv_channels.KERNEL):
            return node  # lowered, it binds the form that it can't do without
        return _permuted(node, _filter_order(problem, schedule))

    def lower(
        self, node: KernelNode, problem: Geometry, schedule: Schedule, profile: DeviceProfile
    ) -> list[Dispatch]:
        if schedule.kernel in _WINOGRAD:
            return winograd.lower(node, problem, schedule, profile)
        if schedule.kernel == conv_channels.KERNEL:
            return conv_channels.lower(node, problem, schedule, profile)
        if schedule.kernel in _BY_COLUMNS:
            return conv_columns.lower(
                _permuted(node, "oihw" * problem.constant), problem, schedule, profile
            )
        if schedule.kernel == "conv_wide" and not _by_outputs(problem):
            node = _permuted(node, "hwio")
            problem = geometry(node)
        # Kernels tell positions before the input by their wrapping around to beyond its end. None
        # wraps into it: the record has seen to it that padded and dilated extents are below 2³¹.
        g = problem
        values = {
            "x": node.operands["input"], "w": node.operands["filter"], "c": node.operand("bias")
        }
        bounds = [bound(name, v, profile) for name, v in values.items() if v is not None]
        bounds.append(bound("out", node.output, profile, "w"))
        whole = not any(b.constants for b in bounds)
        algorithm = _ALGORITHMS[schedule.kernel]
        launch = algorithm.launch(g, schedule, whole, profile)
        vector, ragged = launch.options["vector"], launch.options.get("ragged", False)
        check_iterations(g.KH * (1 + g.KW * (1 + g.IC / (4 if vector else 1))), profile)
        numbers = dict(g.numbers)
        params: dict[str, Any] = {name: numbers[name] for name in algorithm.params + _STRIDES}
        if g.zero_point is not None:
            params["zero_point"] = g.zero_point
        transposed = [("transposed", g.transposed)] * (schedule.kernel in _TRANSPOSED)
        return [
            dispatch(
                node, schedule.kernel,
                [b.in_vectors() if b.buffer.name in launch.wide else b for b in bounds],
                fused.by_vectors(fused.build(node), launch.options.get("out_vector", False)),
                launch.groups, params,
                dict(schedule.numbers) | launch.constants, profile,
                (*transposed, ("addend", values["c"] is not None), *launch.options.items()),
                types={"zero_point": "float"}, texels=schedule.load == "texel",
                variant=f"{'transposed ' * g.transposed}{g.KH}x{g.KW}"
                f"{' v' * vector}{' ragged' * ragged}",
                flops=2 * node.results[0].size * g.IC * g.KH * g.KW,
            )
        ]


def _permuted(node: KernelNode, order: str) -> KernelNode:
    """The node with its constant filter's dimensions in another order; "": any will do."""
    layout = node.arguments["filter_layout"]
    if not order or [d for d in order if d in layout] == list(layout):
        return node
    access = permuted(node.operands["filter"], tuple(layout.index(d) for d in order))
    return replace(node, operands={**node.operands, "filter": access})


def _filter_order(problem: Geometry | Product, schedule: Schedule) -> str:
    """The order of the filter's dimensions that the kernel reads best; "" where any will do."""
    if isinstance(problem, Product):
        # A product of filter and pixels: rows of input channels.
        return "oihw"
    if problem.IC == 1:
        return ""
    if problem.channels_last and schedule.kernel == "conv":
        # Input channels side by side are loaded four at a time.
        return "ohwi"
    return "hwio"


def _is_product(node: KernelNode, g: Geometry) -> bool:
    return (
        (g.G, g.KH, g.KW, g.SH, g.SW) == (1, 1, 1, 1, 1)
        and not any(node.arguments["padding"])
        and (g.H, g.W) == (g.OH, g.OW)
    )


def _product(node: KernelNode, g: Geometry) -> Product:
    """A 1x1 convolution as a product: of pixels and filter where channels come last, else of
    filter and pixels."""
    # Which channel is the filter's fast dimension: [outputs, inputs] or [inputs, outputs].
    inputs_last = g.fc == 1 and (g.fo != 1 or g.IC == 1)
    width = g.fo if inputs_last else g.fc
    data_type = node.operands["input"].data_type
    quantized = g.zero_point is not None
    if g.channels_last:
        product = Product(
            g.N * g.H * g.W, g.OC, g.IC, g.IC, width, g.OC, b_transposed=inputs_last,
            c_strides=(0, 1), operands=("input", "filter", "bias"),
            panel=matmul.panel_of(node.operands["filter"]), data_type=data_type,
            quantized="b" * quantized, zero_point=g.zero_point or 0.0,
        )
    else:
        pixels = g.H * g.W
        many = g.N > 1
        product = Product(
            g.OC, pixels, g.IC, width, pixels, pixels, a_transposed=not inputs_last,
            batch=(g.N,) * many, a_batch=(0,) * many, b_batch=(g.IC * pixels,) * many,
            out_batch=(g.OC * pixels,) * many, c_strides=(1, 0),
            operands=("filter", "input", "bias"), data_type=data_type,
            quantized="a" * quantized, zero_point=g.zero_point or 0.0,
        )
    return matmul.normalize(product)
