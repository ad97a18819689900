"""Devices that run on the CPU: llvmpipe, SwiftShader. Measured on lavapipe (Mesa 22.3) at 1ae5cd9,
on two cores, unless said otherwise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from webnn_vk.support.integers import ceil_divide

from ..schedule import Schedule
from .device_classes import SoftwareClass
from .rules import Constraint, Constraints, Rules, first_that, last, only

_ONE_SIMD_GROUP = "one SIMD group for each workgroup, and few distinct sizes"


class Software(Rules):
    """Constraints of a device whose workgroup is a task of one core with 8-wide SIMD, and whose
    driver takes 100 ms and more to compile each distinct tile size."""

    device: SoftwareClass
    # 63 ns a load of 8 elements where texels take 7 ns for 32, on an EPYC of 2021. A product of
    # 512 x 512 x 512: 22 ms of processor time by texels, 274 by vectors of storage buffers.
    loads = only("texels: lavapipe loads storage buffers lane by lane, through memory",
                 lambda c: c.load == "texel")

    def copy(self, candidates: Sequence[Schedule], problem: Any) -> Constraints:
        yield only("shared memory is no faster than other memory", candidates[0].__eq__)

    def elementwise(self, candidates: Sequence[Schedule], problem: Any) -> Constraints:
        yield only("one SIMD group for each workgroup: each further one costs 35 ns to start",
                   lambda c: c["LX"] == 8)
        enough = self.device.min_invocations * 4
        yield Constraint(
            "several vectors for each invocation, as long as every core has work",
            lambda c: -c["ITEMS"] if problem.size >= enough * c["ITEMS"] else c["ITEMS"],
        )

    def matmul(self, candidates: Sequence[Schedule], problem: Any) -> Constraints:
        exchanges = candidates[0].load == "texel" and _exchanges_filter(problem)
        if exchanges and any(c.kernel == "matmul_rows" for c in candidates):
            yield only("rows below each other: the fewest loads where lanes exchange the inputs",
                       lambda c: c.kernel == "matmul_rows")
            yield _fewest(problem.n)
        elif exchanges:
            yield only("tall tiles: the fewest loads where lanes exchange a filter's rows",
                       lambda c: c.kernel == "matmul" and (c["TM"], c["TN"]) == (32, 4))
        elif not any(c.kernel == "matvec" for c in candidates):
            wide = problem.n > 32 or candidates[0].load == "texel"
            yield _tiles(problem.m, 8 if wide else 4)

    def block_product(self, candidates: Sequence[Schedule], problem: Any) -> Constraints:
        if any(c.kernel == "matvec_blocks" and c["LX"] == 8 for c in candidates):
            yield only(_ONE_SIMD_GROUP, lambda c: c.kernel == "matvec_blocks" and c["LX"] == 8)
            yield last("as many rows as there are", candidates)
            return
        yield _tiles(problem.m, 8)

    def attention(self, candidates: Sequence[Schedule], problem: Any) -> Constraints:
        yield only(_ONE_SIMD_GROUP, lambda c: (c["LX"], c["LY"]) == (8, 1))
        yield Constraint("the fewest queries that cover all rows, else the most",
                         lambda c: (c["TM"] < problem.rows, abs(c["TM"] - problem.rows)))

    def recurrence(self, candidates: Sequence[Schedule], problem: Any) -> Constraints:
        yield only(_ONE_SIMD_GROUP, lambda c: c["LY"] == 1)
        cores = self.device.cost.units
        yield Constraint(
            "rows share the weights that they read, as long as every core has work",
            lambda c: -c["ROWS"] if problem.directions * ceil_divide(
                problem.batch, c["ROWS"]
            ) >= cores else 1,
        )

    def softmax(self, candidates: Sequence[Schedule], problem: Any) -> Constraints:
        if problem.length >= 64:
            yield only("a SIMD group keeps a row of 2 vectors a lane and more",
                       lambda c: c.kernel == "subgroup")
        yield from self.rows(candidates, problem)

    def rows(self, candidates: Sequence[Schedule], problem: Any) -> Constraints:
        wanted = 32 if problem.rows < 64 and problem.length >= 256 else 1
        yield first_that("only few long rows need sharing", candidates,
                         lambda c: c["lanes"] >= wanted)

    def conv(self, candidates: Sequence[Schedule], problem: Any) -> Constraints:
        if any(c.kernel == "conv_depthwise" for c in candidates):
            yield only("a depthwise kernel", lambda c: c.kernel == "conv_depthwise")
            return
        winograd = [c for c in candidates if c.kernel == "winograd"]
        if winograd and self._winograd_pays(winograd, candidates, problem):
            tile, tiles = _winograd_tile(winograd, problem)
            yield only("Winograd's transforms where they save time",
                       lambda c: c.kernel == "winograd" and c["TILE"] == tile)
            yield Constraint("the fewest rows that are computed in vain",
                             lambda c: ceil_divide(tiles, c["TM"]) * (c["TM"] + 3))
        elif any(c.kernel == "conv_channels" and _fills_lanes(c, problem) for c in candidates):
            yield only("lanes of output channels that exchange the pixels that they load",
                       lambda c: c.kernel == "conv_channels")
            yield Constraint("the fewest pixels that are computed in vain",
                             lambda c: c.tiles(problem.OH, problem.OW) * math.prod(c.tile))
        elif self._columns_pay(candidates, problem):
            yield only("columns of inputs, and lanes that exchange what they load",
                       lambda c: c.kernel == "conv_columns")
            yield Constraint("rows below each other, as in a product", lambda c: c["TM"])
            yield _fewest(problem.OH * problem.OW)
        elif any(c.kernel == "conv_wide" and c["LX"] == 8 for c in candidates):
            yield only("a filter's vectors for all pixels of a tile",
                       lambda c: c.kernel == "conv_wide" and c["LX"] == 8)
        else:
            together = 8 if problem.OC > 4 else 4
            yield only("one SIMD group of pixels for each workgroup",
                       lambda c: c.kernel == "conv" and (c["LX"], c["TC"]) == (8, together))

    def _winograd_pays(
        self, winograd: Sequence[Schedule], candidates: Sequence[Schedule], problem: Any
    ) -> bool:
        device = self.device
        pixels = problem.N * problem.OH * problem.OW
        channels = min(problem.IC, problem.OC)
        if channels < device.winograd_channels or pixels < device.winograd_pixels:
            return False
        tile, _ = _winograd_tile(winograd, problem)
        if tile == 2 and problem.IC * problem.OC <= device.most_channels and any(
            c.kernel == "conv_channels" and _in_vain(c, problem) <= 1 / 8 for c in candidates
        ):
            return False
        # Where only small tiles are exact enough.
        return any(c["TILE"] == 4 for c in winograd) or (
            channels >= device.small_tile_channels and pixels <= device.small_tile_pixels
        )

    def _columns_pay(self, candidates: Sequence[Schedule], problem: Any) -> bool:
        """Whether a product of columns saves more than it takes to copy them: where many output
        channels use each element, and where they stay in a cache. Copies of several taps find their
        elements by more divisions."""
        taps = problem.KH * problem.KW
        elements = problem.N * problem.OH * problem.OW * problem.IC * taps
        return (
            any(c.kernel == "conv_columns" for c in candidates)
            and problem.OC >= self.device.column_channels[taps > 1]
            and elements <= self.device.most_in_columns
        )


def _winograd_tile(candidates: Sequence[Schedule], problem: Any) -> tuple[int, int]:
    """The size and the number of the tiles: large ones where they save a third of the
    multiplications of small ones, since their filter takes twice the memory (ResNet-50's 14x14
    layers: 31 MB for 2 % of its time), and where there are enough of them to fill the products'
    rows. The rows that waste least are chosen later: loading the filter takes as long as three."""
    small, large = (
        problem.N * ceil_divide(problem.OH, tile) * ceil_divide(problem.OW, tile)
        for tile in (2, 4)
    )
    pays = 3 * 36 * large <= 2 * 16 * small  # multiplications for each tile
    exact = any(c["TILE"] == 4 for c in candidates)
    return (4, large) if exact and pays and large >= 8 else (2, small)


def _fewest(columns: int) -> Constraint:
    """The constraint to tiles that compute few columns in vain. What else a tile takes is as long
    as two columns."""
    return Constraint("the fewest columns that are computed in vain",
                      lambda c: ceil_divide(columns, c["TN"]) * (c["TN"] + 2))


def _fills_lanes(schedule: Schedule, problem: Any) -> bool:
    """Whether output channels, four a lane, and a tile's pixels leave little to be computed in
    vain. With 48 of 64 channels a 3x3 convolution takes two thirds of the time of other kernels,
    with 16 of 32 it takes a third more."""
    lanes = 32 * ceil_divide(problem.OC, 32)
    return 8 * problem.OC >= 5 * lanes and _in_vain(schedule, problem) <= 1 / 2


def _in_vain(schedule: Schedule, problem: Any) -> float:
    """The pixels that the tiles compute in vain, for each one that there is."""
    computed = schedule.tiles(problem.OH, problem.OW) * math.prod(schedule.tile)
    return computed / (problem.OH * problem.OW) - 1


def _exchanges_filter(problem: Any) -> bool:
    """Whether lanes can exchange the rows of a convolution's filter, more than 8, and there are
    many pixels."""
    return (
        problem.operands[0] == "filter" and not problem.a_transposed and problem.m > 8
        and problem.n > 1 and problem.k % 4 == problem.lda % 4 == 0
    )


def _tiles(rows: int, columns: int) -> Constraint:
    """The constraint to tiles with this number of columns, computed by one SIMD group: with 4 rows
    if the output has no more than 4, otherwise with 8 or more."""
    return only(
        _ONE_SIMD_GROUP,
        lambda c: c.kernel == "matmul" and c["LY"] == 1 and c["TN"] == columns
        and (c["TM"] <= 4) == (rows <= 4),
    )

