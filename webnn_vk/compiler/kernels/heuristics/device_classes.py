"""Facts about classes of devices, for use before anything is tuned: one table, in which each record
says where its numbers come from. The rules (``gpu``, ``software``), the cost model and the kernel
families read them.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any, ClassVar

from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.support.dataclass import dataclass

from ..cost import CostParameters, MatrixTimes


@dataclass(frozen=True)
class DeviceClass:
    """A class of devices.

    source: where the numbers come from. cost: the parameters of the cost model.
    min_invocations: the least number of invocations that keep the device busy.
    row_groups, shortest_chunk: workgroups that few long rows are cut into, and the shortest piece
    that is worth it, in elements.
    """

    name: str
    source: str
    cost: CostParameters
    min_invocations: int
    row_groups: int
    shortest_chunk: int

    #: Whether one kernel for several chains behind a product (``epilogue.merged``), a little slower
    #: than each, is better than compiling each.
    merges_epilogues: ClassVar[bool] = False
    #: Whether kernels store extra outputs for the steps fused into them, element by element.
    stores_extra_outputs: ClassVar[bool] = True
    #: Whether copies read texels. Lavapipe loads storage buffers lane by lane.
    copies_texels: ClassVar[bool] = False
    #: Whether a product with few outputs leaves much of the device idle, so that cutting its inner
    #: dimension into parts may be worth it (``split_k``).
    cuts_products: ClassVar[bool] = False
    #: Whether kernels have activations in line for each unit; the compilers of processors' drivers
    #: take long for that.
    unrolls_activations: ClassVar[bool] = True
    #: Whether kernels of products of one row also normalise the row, in each workgroup, and combine
    #: the halves of the result, which costs less than a dispatch.
    extends_row_products: ClassVar[bool] = False
    #: The least number of elements of an operand that a kernel computes where it loads it. This
    #: takes a kernel compiled for the purpose; smaller operands are stored by a kernel before.
    min_prologue_elements: ClassVar[int] = 0

    @property
    def max_registers(self) -> int:
        """The most values that an invocation of a chosen kernel keeps."""
        return self.cost.registers

    def workgroup(self, count: int) -> int:
        """Invocations in a workgroup where ``count`` of them work independently."""
        return 64

    def share(self, lanes: int, profile: DeviceProfile) -> int:
        """How many times as many registers a value takes in subgroups of ``lanes`` invocations (0:
        as the driver chooses) as in the narrowest that the device has."""
        return 1

    def shared_memory(self, profile: DeviceProfile) -> int:
        """Bytes of shared memory that tiles of attention may take."""
        return profile.max_shared_memory

    def chunks(self, rows: int, length: int) -> int:
        """Into how many pieces each of few and very long rows is cut."""
        return max(1, min(self.row_groups // rows, length // self.shortest_chunk))


@dataclass(frozen=True)
class GpuClass(DeviceClass):
    """A device with many cores and shared memory.

    product_tiles: tiles of a matrix product that keep it busy, about one for each multiprocessor.
    many_rows: the least number of rows with which one invocation for each row fills the device.
    tiled_channels: the least output channels of a convolution that is computed in tiles.
    fast_matrices: cooperative matrices are known to be faster than other kernels; matrix_side: the
    sizes of a product from which on they are used then. matrix_times: what they take, if known.
    few_tiles: the most tiles with which the inner dimension of a product is cut into parts, and
    shortest_part: steps of it that are worth a part of their own (H200: 96 tiles of 32×32, not cut,
    take 18.6 µs for 768 steps and 53.1 for 3072; adding up four parts takes 6.4).
    deep_tiles: the largest tiles of products have 16 steps of the inner dimension, not 8 (H200: a
    float32 product of 4096³ takes 3.46 ms instead of 4.03; AMD's compiler spills for GFX1100).
    winograd_channels: the least input and output channels for which Winograd's transforms are
    considered.
    filter_bytes, transformed_bytes: memory that Winograd's transforms may take for a convolution's
    filter, and between the dispatches.
    shared_bytes: shared memory of a workgroup that leaves a core room for another one.
    occupancy: the least of any kernel of a model, as the vendor's compiler counts it (see
    `docs/shaders.md`). occupied_registers: the most registers of 4 bytes at that occupancy, on the
    chip of `codegen.isa.chips` with the fewest; addresses take some of them.
    depthwise_rows, strided_rows: how many outputs below each other an invocation of a depthwise
    convolution computes, without and with a stride; the preferred number comes first.
    divides_registers: a subgroup has so many registers, however wide it is.
    slow_conversions: making a float of a byte takes longer than a few other instructions.
    """

    product_tiles: int
    many_rows: int
    tiled_channels: int
    fast_matrices: bool = False
    matrix_side: int = 32
    matrix_times: MatrixTimes | None = None
    few_tiles: int = 32
    shortest_part: int = 256
    deep_tiles: bool = False
    winograd_channels: int = 16
    filter_bytes: int = 1 << 25
    transformed_bytes: int = 1 << 28
    shared_bytes: int = 1 << 15
    occupancy: int = 1
    occupied_registers: int = 128
    depthwise_rows: tuple[int, ...] = (4, 1)
    strided_rows: tuple[int, ...] = (4, 1)
    divides_registers: bool = True
    slow_conversions: bool = False

    cuts_products = True
    extends_row_products = True

    @property
    def max_registers(self) -> int:
        """As many as nothing is spilled with and the occupancy holds with."""
        return min(self.cost.registers, self.occupied_registers)

    def share(self, lanes: int, profile: DeviceProfile) -> int:
        if not self.divides_registers:
            return 1
        return max(1, lanes // profile.min_subgroup_size)

    def shared_memory(self, profile: DeviceProfile) -> int:
        return min(profile.max_shared_memory, self.shared_bytes)


@dataclass(frozen=True)
class SoftwareClass(DeviceClass):
    """A device whose workgroup is a task of one core with SIMD, and whose driver takes 100 ms and
    more to compile each distinct tile size.

    winograd_channels, winograd_pixels: channels from which on Winograd's transforms cost less than
    the multiplications they save, and pixels below which a tenth of a model's time is not worth
    the memory of filters twice as large (ResNet-50's 7x7 layers: 38 MB).
    small_tile_channels, small_tile_pixels: channels from which on, and pixels up to which, tiles of
    2x2 outputs save time where tiles of 4x4 are not exact enough (of 32 channels and 28x28
    pixels 6 %; at 56x56 they take 30 % longer than without them, of 16 channels 35 %).
    most_channels: input times output channels up to which ``conv_channels`` takes as long as such
    tiles, where few pixels are computed in vain, or less (at 14x14 of 60 to 64 channels two thirds
    of the time, of 256 to 256 7 % more, of 256 to 512 a fifth more). Its filters take 3/7 of the
    memory.
    column_channels: output channels from which on a product of columns (``conv_columns``) saves
    what it takes to copy them, for filters of one tap and of several (lavapipe, an Intel Xeon:
    10 and 16 ns an element; 1x1 convolutions with stride 2 of 128 channels 4.5 -> 3.8 ms, of 1024
    21 -> 10; 3x3 of 256 channels equal, of 512 at 7x7 24 -> 15).
    most_in_columns: elements of columns up to which this was measured; they stay in a cache.
    """

    winograd_channels: int
    winograd_pixels: int
    small_tile_channels: int
    small_tile_pixels: int
    most_channels: int
    column_channels: tuple[int, int]
    most_in_columns: int

    unrolls_activations = False
    merges_epilogues = True
    stores_extra_outputs = False
    copies_texels = True
    # Compiling another kernel takes as long as storing this many elements a few times.
    min_prologue_elements = 1 << 20

    def workgroup(self, count: int) -> int:
        """Invocations in a workgroup where ``count`` of them work independently: small enough that
        few invocations still occupy all the cores."""
        return 16 if count < 512 else 64


_GPU = GpuClass(
    "gpu",
    "Not measured on hardware: what webnn_vk began with (1ae5cd9), from what is published for such "
    "devices. The figures count an element read from shared memory as a multiply-add, and one from "
    "a buffer as four of them. Where they changed a choice of the rules before, in MobileNetV2 and "
    "ResNet-50, the new one takes 0.54 to 0.95 of the cycles by the estimates of Intel's "
    "compiler for DG2, and 0.25 to 0.99 by AMD's for Navi 31. What compiling costs isn't known.",
    CostParameters(
        units=64, width=32, registers=128, multiply_add=1, storage=4, texel=4, shared=1, store=4,
        barrier=8, group=0, compile=0,
    ),
    min_invocations=1 << 16,  # 2 waves of 1024 on each of 32 multiprocessors
    product_tiles=64,
    many_rows=8192,
    row_groups=512,
    shortest_chunk=16384,
    tiled_channels=16,
)

_SLOW_GATHERS = SoftwareClass(
    "llvmpipe-slow-gathers",
    "Thresholds measured on lavapipe (Mesa 22.3) at 1ae5cd9, on two cores. The figures are fitted "
    "to the CPU time of 277 schedules of 26 problems on an EPYC whose gathers are slow: 12 times "
    "as long for the same tile as by texels. They are right within a factor of 1.4 (root mean "
    "square). Compiling: 64 sums more take 0.14 s (products) to 0.24 s (convolutions) of processor "
    "time, on 26 November 2026, spread over 125 runs.",
    CostParameters(
        units=2, width=8, registers=1024, multiply_add=0.08, storage=62, texel=4, shared=75,
        store=46, barrier=69, group=134, compile=24_000,
    ),
    min_invocations=1024,
    winograd_channels=16,
    winograd_pixels=64,
    small_tile_channels=32,
    small_tile_pixels=1024,
    most_channels=1 << 16,
    column_channels=(128, 512),
    most_in_columns=1 << 19,
    row_groups=256,
    shortest_chunk=4096,
)
_FAST_GATHERS = replace(
    _SLOW_GATHERS,
    name="llvmpipe",
    source="As for slow gathers, but for loads from storage buffers and shared memory: so that a "
    "matrix product by them takes 1.3 times as long as by texels. Derived, not fitted: from 23 to "
    "26 against 26 to 42 GFLOP/s, reported for such a CPU.",
    cost=replace(_SLOW_GATHERS.cost, storage=5.3, shared=6.4),
)


def _vendor(
    name: str, registers: int, occupancy: tuple[int, int], reported: str = "", **fields: Any
) -> GpuClass:
    """A vendor's class, as long as little was measured. registers: the most that no kernel spills
    with on the vendor's chips in `codegen.isa.chips`. occupancy: `GpuClass.occupancy` and
    `GpuClass.occupied_registers`, from those chips' compilers."""
    least, occupied = occupancy
    return replace(
        _GPU, name=name, cost=replace(_GPU.cost, registers=registers), occupancy=least,
        occupied_registers=occupied, source=f"{_GPU.source} {reported}", **fields,
    )


# Fitted to what an H200's tuner measured on 28 November 2026 (24 of 27 are within 20 %), and the
# largest tiles to one product of 4096³ on the day before.
_H200_MATRICES = MatrixTimes(
    {(32, 32): (0.27, 7), (64, 64): (0.36, 4), (128, 128): (0.78, 1), (128, 256): (0.99, 1)},
    launch=4, joining=3, cached=32.6, stored=22.7,
)
_VENDOR_CLASSES = [
    # 65536 registers for 12 warps of 32 invocations. NVIDIA's own driver doesn't say what spills.
    # There, on an H200, the fastest product takes 184 registers by the model.
    *(
        _vendor(
            name, registers, occupancy, "Cooperative matrices: llama.cpp on an RTX 3090 (its "
            "issue 12767), 3 times its kernels without them; on an H200 (27 November 2026) ours "
            "take 0.51 ms for a float16 product of 4096³, those without them 3.94.",
            fast_matrices=True, matrix_times=_H200_MATRICES, slow_conversions=True,
            deep_tiles=True)
        for name, registers, occupancy in (("nvidia", 192, (10, 192)), ("nvk", 128, (12, 168)))
    ),
    # Vega has 256 registers for 2 waves; RDNA has more, of either width.
    _vendor(
        "amd", 128, (2, 128), "Cooperative matrices: llama.cpp on an RX 9070 XT (its pull request "
        "22620), twice its kernels without them. Where a driver emulates them, as ncnn's issue "
        "6504 saw on RDNA2, tuning has to say otherwise.", fast_matrices=True,
        divides_registers=False),
    # 128 registers of 32 bytes for 8 invocations.
    _vendor(
        "intel", 42, (8, 128), "Cooperative matrices are left to tuning: on an Arc A770 others saw "
        "anything from a thousandth to twenty times the speed (llama.cpp's issue 24404)."),
    # Its compiler loads all rows of a depthwise convolution at once, with a stride too many.
    _vendor(
        "adreno", 60, (4, 128), "Cooperative matrices are left to tuning: ncnn turned them off "
        "there (its issue 6719).", shared_bytes=1 << 14, strided_rows=(1,)),
    # No product fits with operands in shared memory, and that is right: Mali's compiler counts 96
    # to 120 cycles of loads and stores an iteration for these, 14 to 32 for operands from buffers.
    _vendor("arm", 24, (1, 64), shared_bytes=1 << 14),
    _vendor("apple", 60, (384, 127), shared_bytes=1 << 14),
]

#: Every class of devices by its name.
DEVICE_CLASSES: dict[str, GpuClass | SoftwareClass] = {
    device.name: device
    for device in (
        _GPU,
        *_VENDOR_CLASSES,
        _FAST_GATHERS,
        _SLOW_GATHERS,
    )
}
_VENDORS = {
    0x10DE: "nvidia", 0x1002: "amd", 0x8086: "intel", 0x5143: "adreno", 0x13B5: "arm",
    0x106B: "apple",
}
#: Mesa's driver for Apple's GPUs reports Mesa as the vendor.
_DRIVERS = {"Honeykrisp": "apple", "NVK": "nvk"}


def device_class(profile: DeviceProfile) -> GpuClass | SoftwareClass:
    """The class that a device belongs to."""
    if profile.device_type == "cpu":
        return DEVICE_CLASSES["llvmpipe-slow-gathers" if profile.slow_gathers else "llvmpipe"]
    by_vendor = _VENDORS.get(profile.vendor_id, "gpu")
    name = _DRIVERS.get(profile.driver_name, by_vendor)
    if not profile.multiprocessors:
        return DEVICE_CLASSES[name]
    return _of_size(name, profile.multiprocessors)


@functools.cache
def _of_size(name: str, multiprocessors: int) -> GpuClass:
    """A class of GPUs for a device with this many multiprocessors."""
    device = DEVICE_CLASSES[name]
    assert isinstance(device, GpuClass)
    return replace(
        device, cost=replace(device.cost, units=multiprocessors), product_tiles=multiprocessors,
        few_tiles=multiprocessors, min_invocations=2048 * multiprocessors,
        many_rows=128 * multiprocessors, row_groups=8 * multiprocessors,
    )
