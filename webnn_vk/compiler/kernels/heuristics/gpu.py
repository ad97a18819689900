"""Rules for GPUs of any vendor. They use the numbers of a `GpuClass`, none of which was measured on
hardware. Tuned schedules outrank the rules."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

from webnn_vk.support.integers import ceil_divide, round_up

from ..schedule import Schedule
from .device_classes import GpuClass
from .rules import Preference, Preferences, Rules, depthwise, first_that, last, prefer

# Rows up to which a product's weights are read row by row.
_FEW_ROWS = 8


class Gpu(Rules):
    """Preferences of a device with many cores and shared memory."""

    device: GpuClass

    def matmul(self, candidates: Sequence[Schedule], problem: Any) -> Preferences:
        if any(c.kernel == "matvec" for c in candidates):
            yield prefer("more than a row for each workgroup", lambda c: c["LX"] * c["LY"] > 8)
            return
        if self._matrices_pay(problem):
            yield prefer("matrices of whole workgroups", lambda c: c.kernel == "matmul_coopmat2")
            yield prefer("matrices of subgroups", lambda c: c.kernel in _BY_MATRICES)
        else:
            yield prefer("no matrices", lambda c: c.kernel not in _BY_MATRICES)
        yield from self._filling(candidates, problem)
        yield self._in_parts(problem)

    def block_product(self, candidates: Sequence[Schedule], problem: Any) -> Preferences:
        by_rows = [c for c in candidates if c.kernel == "matvec_blocks" and c["LX"] * c["LY"] > 8]
        if by_rows and problem.m <= _FEW_ROWS:
            yield prefer("few rows: subgroups share a row of weights", lambda c: c in by_rows)
            steps = problem.stored // problem.chunk
            yield first_that("as many lanes as a row has work for", candidates,
                             lambda c: c["LX"] <= steps)
            return
        yield prefer("many rows: tiles", lambda c: c.kernel != "matvec_blocks")
        yield from self._filling(candidates, problem)

    def _in_parts(self, problem: Any) -> Preference:
        def cost(c: Schedule) -> tuple[int, int]:
            rows, columns = _sides(c)
            tiles = problem.batches * ceil_divide(problem.m, rows) * ceil_divide(problem.n, columns)
            parts, wanted = c.parts, self.device.product_tiles
            if parts > 1 and (
                2 * tiles > wanted or problem.k // parts < self.device.shortest_part
            ):
                return 2, 0
            return (0, parts) if tiles * parts >= wanted else (1, -parts)

        return Preference(
            "where tiles fill less than half of the device, the inner dimension is cut into as few "
            "parts as fill it, none of which is so short that it costs more than it saves", cost,
        )

    def _matrices_pay(self, problem: Any) -> bool:
        """Whether a product fills the smallest tile by cooperative matrices, on devices where these
        are faster."""
        device = self.device
        return device.fast_matrices and min(problem.m, problem.n, problem.k) >= device.matrix_side

    def _filling(self, candidates: Sequence[Schedule], problem: Any) -> Preferences:
        """Tiles of one kernel: large ones reuse more of what they load."""
        yield prefer("tiles in shared memory", lambda c: c.kernel == "matmul_tiled")
        yield prefer("no texels", lambda c: c.load == "storage")
        lanes = self.profile.min_subgroup_size
        yield prefer("workgroups that fill a subgroup",
                     lambda c: c.kernel != "matmul" or c["LX"] * c["LY"] >= lanes)
        place = {c: number for number, c in enumerate(candidates) if c.parts == 1}

        def cost(c: Schedule) -> float:
            rows, columns = _sides(c)
            tiles = ceil_divide(problem.m, rows) * ceil_divide(problem.n, columns)
            number = place.get(c if c in place else c.of_part, inf)
            fills = problem.batches * tiles >= self.device.product_tiles
            return -number if fills else number

        yield Preference("the largest tiles that still make enough workgroups", cost)

    def recurrence(self, candidates: Sequence[Schedule], problem: Any) -> Preferences:
        yield prefer("few rows leave most of the device idle: a workgroup for each",
                     lambda c: c["ROWS"] == 1)
        most = 512 if self.device.cost.registers >= 128 else 256
        yield Preference(
            "the most lanes that don't force the form of a kernel with half the registers "
            "(Skylake: 256)", lambda c: -c["LY"] if c["LX"] * c["LY"] <= most else 1,
        )

    def attention(self, candidates: Sequence[Schedule], problem: Any) -> Preferences:
        if problem.rows <= 2:
            yield prefer("no tiles for one or two queries", lambda c: c.kernel == "attention")
            yield last("many keys at a time", candidates)
            return
        wanted = self.device.product_tiles
        place = {candidate: number for number, candidate in enumerate(candidates)}
        many_keys = [c for c in candidates if c.kernel == "attention"][-1]

        def groups(c: Schedule) -> int:
            return problem.batches * ceil_divide(problem.rows, c["LY"] * c["TM"])

        yield Preference(
            "tiles in shared memory if they fill the device, the largest ones that do",
            lambda c: -place[c] if c.kernel != "attention" and groups(c) >= wanted else 1,
        )
        yield prefer("else no tiles", lambda c: c.kernel == "attention")
        yield prefer("not many keys at a time", lambda c: c != many_keys)
        yield Preference(
            "queries share what is read: the most for each workgroup that still make enough of "
            "them, of more than 32 invocations",
            lambda c: (-min(groups(c), wanted), c["LX"] * c["LY"] <= 32, -c["LY"] * c["TM"]),
            lambda c: c.kernel == "attention" and c != many_keys,
        )

    def rows(self, candidates: Sequence[Schedule], problem: Any) -> Preferences:
        yield prefer("no texels", lambda c: c.load == "storage")
        if self._alone(problem):
            return
        wanted = min(256, 1 << max(5, (problem.length // 4 - 1).bit_length()))
        yield Preference("a workgroup shares a row, as far as each lane has work",
                         lambda c: -c["lanes"] if c["lanes"] <= wanted else 1)

    def _alone(self, rows: Any) -> bool:
        """Whether an invocation computes a row: if rows are short, or so numerous that they fill
        the device while neighbours read neighbouring elements."""
        many = rows.rows >= self.device.many_rows
        return rows.length < 32 or (many and (not rows.contiguous or rows.length < 64))

    def elementwise(self, candidates: Sequence[Schedule], problem: Any) -> Preferences:
        yield prefer("whole subgroups, no texels", lambda c: c.load == "storage" and c["LX"] >= 64)
        enough = self.device.min_invocations * 4
        yield prefer(
            "several vectors for each invocation, loaded together, if elements are addressed "
            "without divisions and enough invocations are left",
            lambda c: c["ITEMS"] > 1 and problem.in_order and problem.size >= enough * c["ITEMS"],
        )

    def norm(self, candidates: Sequence[Schedule], problem: Any) -> Preferences:
        rows, units = problem.rows, self.device.product_tiles
        usual = [c for c in candidates if c.kernel != "subgroups"]
        if len(usual) == len(candidates) or (
            self._alone(rows) and any(c["lanes"] == 1 for c in usual)
        ):
            yield prefer("no subgroup shares a row", lambda c: c.kernel != "subgroups")
            yield from self.rows(usual, rows)
            return
        yield prefer("subgroup operations where a workgroup would share a row",
                     lambda c: c.kernel == "subgroups")
        vectors = rows.length // 4
        yield Preference(
            "no invocation is idle", lambda c: ceil_divide(vectors, c["lanes"]) * max(
                c["lanes"], self.profile.min_subgroup_size
            ),
        )
        yield prefer("two rows at a time if each multiprocessor still gets a workgroup",
                     lambda c: c["rows"] == 1 + (rows.rows >= c["rows"] * units))
        sign = 1 if rows.rows >= units else -1
        yield Preference("few invocations, which have fewer partial sums, if there are rows for "
                         "every multiprocessor, else many", lambda c: sign * c["lanes"])

    def conv(self, candidates: Sequence[Schedule], problem: Any) -> Preferences:
        tall = self.device.depthwise_rows if problem.SH == 1 else self.device.strided_rows
        if by_channel := depthwise(candidates, tall):
            yield from by_channel
            return
        large = problem.OC >= self.device.tiled_channels
        tiled = [c for c in candidates if c.kernel == "conv_tiled" and problem.IC >= c["BK"]]
        if tiled and large:
            yield from self._tiled(set(tiled), problem)
            return
        if large and any(c.kernel == "conv_wide" and c.load == "storage" for c in candidates):
            yield prefer("few input channels: pixels share vectors of a constant filter",
                         lambda c: c.kernel == "conv_wide" and c.load == "storage")
            yield self._wide(problem)
            return
        if not tiled:
            yield prefer(
                "no tile fits the registers: transforms", lambda c: c.kernel == "winograd"
                and c.load == "storage" and self._transforms_fit(c["TILE"], problem),
            )
        channels = int(problem.channels_last and problem.OC >= 16)
        yield prefer(
            "16 x 8 invocations along the dimension, channels or pixels, that is contiguous",
            lambda c: c.kernel == "conv" and c["LX"] == 16 and c["CHANNEL_LANES"] == channels,
        )

    def _wide(self, problem: Any) -> Preference:
        """A workgroup is one or two waves, so a busy device needs four times as many as tiles in
        shared memory."""
        pixels = problem.N * problem.OH * problem.OW

        def cost(c: Schedule) -> tuple[bool, int]:
            groups = ceil_divide(pixels, c["LX"] * c["TP"]) * ceil_divide(problem.OC, c["TC"])
            fills = groups >= 4 * self.device.product_tiles
            return not fills, groups if fills else -groups

        return Preference(
            "the most pixels for each invocation that still make enough workgroups", cost
        )

    def _computed(
        self, candidate: Schedule, extents: tuple[int, int], batches: int
    ) -> tuple[int, float]:
        """The workgroups of a product with these rows and columns, and, for a step of its inner
        dimension, what they compute, edges included, with what has to be read for it: (1/TM + 1/TN)
        elements a multiply-add from shared memory, and (1/rows + 1/columns) of the tile from
        buffers."""
        tile = _sides(candidate)
        rows, columns = (ceil_divide(n, side) for n, side in zip(extents, tile, strict=True))
        tiles = batches * rows * columns
        unit = self.device.cost
        shared = (1 / candidate["TM"] + 1 / candidate["TN"]) * unit.shared
        reads = shared + (1 / tile[0] + 1 / tile[1]) * unit.storage
        return tiles, tiles * tile[0] * tile[1] * (1 + reads)

    def _tiled(self, tiled: set[Schedule], problem: Any) -> Preferences:
        """Tiles in shared memory, or Winograd's transforms if these save more than they cost."""
        device, channels = self.device, problem.IC + problem.OC
        pixels = problem.N * problem.OH * problem.OW
        transforms = min(problem.IC, problem.OC) >= device.winograd_channels

        def tiling(c: Schedule) -> tuple[int, float]:
            extents = (pixels, problem.OC) if problem.channels_last else (problem.OC, pixels)
            tiles, cost = self._computed(c, extents, problem.G)
            return max(device.product_tiles - tiles, 0), cost

        def cost(candidate: Schedule) -> float:
            tile = dict(candidate.numbers).get("TILE", 0)
            points, columns = (tile + 2) ** 2, pixels
            if tile:
                columns = _transformed(tile, problem)
                if not self._transforms_fit(tile, problem):
                    return inf
            extents = (columns, problem.OC) if problem.channels_last else (problem.OC, columns)
            planes, steps = (points, 1) if tile else (1, problem.KH * problem.KW)
            groups, computed = self._computed(candidate, extents, planes * problem.G)
            idle = max(1.0, device.product_tiles / groups)
            filters = planes * steps * problem.IC * problem.OC * problem.G
            moved = points * columns * channels if tile else 0
            deep = steps * round_up(problem.IC, candidate["BK"])
            return (
                computed * deep * idle + filters * device.first_read + moved * device.there_and_back
            )

        yield prefer("at least a tile's depth of channels: tiles in shared memory, or transforms",
                     lambda c: c in tiled or (transforms and c.kernel == "winograd_tiled"))
        yield Preference("the cheapest tiles that fill the device", tiling, tiled.__contains__)
        if transforms:
            yield Preference(
                "the least multiply-adds: the computation, on a device that may be partly idle, "
                "the filter read once from memory, and what transforms write and read", cost,
            )
            yield prefer("no transforms", tiled.__contains__)

    def _transforms_fit(self, tile: int, problem: Any) -> bool:
        """Whether a convolution has the channels, and its filter and tiles the sizes, for which
        Winograd's transforms are considered."""
        device, points = self.device, 4 * (tile + 2) ** 2
        moved = points * _transformed(tile, problem) * (problem.IC + problem.OC)
        return (
            min(problem.IC, problem.OC) >= device.winograd_channels
            and moved <= device.transformed_bytes
            and points * problem.IC * problem.OC <= device.filter_bytes
        )


def _transformed(tile: int, problem: Any) -> int:
    """How many tiles Winograd's transforms cut a convolution's output into."""
    across: int = ceil_divide(problem.OH, tile) * ceil_divide(problem.OW, tile)
    return int(problem.N) * across


_BY_MATRICES = ("matmul_coopmat", "matmul_coopmat2")


def _sides(tiling: Schedule) -> tuple[int, int]:
    """Rows and columns of the output that a workgroup of a product computes."""
    if tiling.kernel in _BY_MATRICES:
        return tiling["BM"], tiling["BN"]
    return tiling["LY"] * tiling["TM"], tiling["LX"] * tiling["TN"]
