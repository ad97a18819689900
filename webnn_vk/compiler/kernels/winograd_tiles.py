"""Tiles of Winograd's convolution, for which convolutions they are, and their filter's form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from webnn_vk.codegen.spec import Buffer, KernelSpec
from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.integers import ceil_divide

from ..types.data_types import DATA_TYPES, MLOperandDescriptor
from .dispatch import Binding, Dispatch, Packed, declared, grid, workgroup
from .loads import as_texels, has_texels

#: Outputs of a tile along each side.
TILES = (2, 4)
#: Input channels from which on a tile keeps the web-platform-tests' tolerance of conv2d, 2·n units
#: in the last place for n products, for every output of a tenth of √Σ(x·w)² or more. (What cancels
#: out to less has a larger relative error by the plain sum too: that exceeds the tolerance below a
#: twentieth.) Measured: tiles of 2x2 keep it down to 0.05 of that size at 16 channels, tiles of 4x4
#: to 0.2 at 16, 0.13 at 32, 0.06 at 64.
LEAST_INPUTS = {2: 16, 4: 64}


def tiles_for(g: Any) -> tuple[int, ...]:
    """The tiles by which a convolution (``conv.Geometry``) can be computed, exactly enough. None
    for a filter of whole numbers, which promises exact sums: transforms have fractions."""
    taps = g.KH, g.KW, g.SH, g.SW, g.DH, g.DW
    if (
        g.transposed or g.whole or g.G > 1 or taps != (3, 3, 1, 1, 1, 1) or not g.constant
        or g.IC % 4 or g.OC % 4 or g.data_types[0] != "float32"
    ):
        return ()
    return tuple(tile for tile in TILES if g.IC >= LEAST_INPUTS[tile])


def points(tile: int) -> int:
    """Multiplications for each tile, input and output channel."""
    return (tile + 2) ** 2


def tile_counts(g: Any, tile: int) -> tuple[int, int]:
    """Tiles of an image below each other and side by side."""
    return ceil_divide(g.OH, tile), ceil_divide(g.OW, tile)


def sizes(g: Any, tile: int, tiles: int) -> tuple[int, ...]:
    """Elements of the transformed input, the products, the filter, and of input and output, of so
    many tiles."""
    numbers = points(tile) * tiles
    return (
        numbers * g.IC, numbers * g.OC, (points(tile) + 5) * g.IC * g.OC, g.N * g.IC * g.H * g.W,
        g.N * g.OC * g.OH * g.OW,
    )


@dataclass(frozen=True)
class WinogradFilter:
    """A filter of 3x3 taps, one group, transformed for tiles of ``tile`` outputs a side:
    [point, input channel, output channel]. Behind it lie the taps of the middle row and column, so
    that the filter can be restored. ``fo``, ``fc`` and ``fw`` are the constant's strides
    along output channels, input channels and taps."""

    tile: int
    outputs: int
    inputs: int
    fo: int
    fc: int
    fw: int

    def byte_length(self, descriptor: MLOperandDescriptor) -> int:
        planes = points(self.tile) + 5
        return planes * self.inputs * self.outputs * DATA_TYPES[descriptor.data_type].size

    def pack(self, packed: Packed, profile: DeviceProfile) -> Sequence[Dispatch]:
        lanes, template = workgroup(profile, 64), "winograd_filter"
        buffers = Buffer("w", "float32"), Buffer("out", "float32", "w")
        params = {
            "IC": self.inputs, "OC": self.outputs, "fo": self.fo, "fc": self.fc, "fw": self.fw
        }
        return [Dispatch(
            KernelSpec(
                f"{template}.comp.j2", as_texels(buffers) if has_texels(profile) else buffers,
                declared(params), options=(("tile", self.tile),),
            ),
            (Binding(packed.value), Binding(packed)),
            grid(ceil_divide(self.inputs * self.outputs, lanes), profile),
            params,
            {"LX": lanes},
            template,
            f"{self.tile}x{self.tile}",
            bytes=packed.size + packed.value.descriptor.byte_length,
        )]

    def unpack(self, data: np.ndarray, descriptor: MLOperandDescriptor) -> np.ndarray:
        side = self.tile + 2
        planes = data.view(descriptor.numpy_dtype)[: self._elements].reshape(
            side * side + 5, self.inputs, self.outputs
        )
        first, last, rest = 0, side - 1, side * side
        # The transform leaves corners as they are.
        of_tap = (
            first, rest, last, rest + 1, rest + 4, rest + 2, side * last, rest + 3,
            side * last + last,
        )
        constant = np.zeros(descriptor.size, descriptor.numpy_dtype)
        at = self.fc * np.arange(self.inputs)[:, None] + self.fo * np.arange(self.outputs)
        for tap, plane in enumerate(of_tap):
            constant[at + tap * self.fw] = planes[plane]
        return constant.reshape(descriptor.shape)

    @property
    def _elements(self) -> int:
        return (points(self.tile) + 5) * self.inputs * self.outputs
