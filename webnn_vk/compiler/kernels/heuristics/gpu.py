"""Rules for GPUs of any vendor. They use the numbers of a `GpuClass`, none of which was measured on
hardware. Tuned schedules outrank the rules."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

from webnn_vk.support.integers import ceil_divide, round_up

from ..schedule import Schedule
from .device_classes import GpuClass
from .rules import Rules

# Rows up to which a product's weights are read row by row.
_FEW_ROWS = 8


class Gpu(Rules):
    """Preferences of a device with many cores and shared memory."""

    device: GpuClass

    def matmul(self, candidates: Sequence[Schedule], problem: Any) -> Schedule:
        """A kernel by rows for a matrix times a vector; else the largest tile that still makes
        enough workgroups to fill the device: large tiles reuse more of what they load."""
        in_parts = [c for c in candidates if c.parts > 1]
        candidates = [c for c in candidates if c.parts == 1]
        # Matrices of whole workgroups, where a device has them, are preferred to those of
        # subgroups.
        by_matrices = [c for c in candidates if c.kernel == "matmul_coopmat2"] or [
            c for c in candidates if c.kernel == "matmul_coopmat"
        ]
        if by_matrices and self._matrices_pay(problem):
            return self._in_parts(self._filling(by_matrices, problem), in_parts, problem)
        by_rows = [c for c in candidates if c.kernel == "matvec" and c["LX"] * c["LY"] > 8]
        if by_rows:
            return by_rows[0]
        tiled = [c for c in candidates if c.kernel == "matmul_tiled"] or [
            c for c in candidates if c.kernel == "matmul" and c.load == "storage"
        ]
        return self._in_parts(self._filling(tiled, problem), in_parts, problem)

    def block_product(self, candidates: Sequence[Schedule], problem: Any) -> Schedule:
        """For few rows, subgroups that share a row of weights, with as many lanes as the row has
        work for; else the largest tile that still makes enough workgroups."""
        by_rows = [c for c in candidates if c.kernel == "matvec_blocks" and c["LX"] * c["LY"] > 8]
        if by_rows and problem.m <= _FEW_ROWS:
            steps = problem.stored // problem.chunk
            return next((c for c in by_rows if c["LX"] <= steps), by_rows[-1])
        tiled = [c for c in candidates if c.kernel == "matmul_tiled"] or [
            c for c in candidates if c.kernel == "matmul" and c.load == "storage"
        ]
        return self._filling(tiled, problem)

    def _in_parts(self, whole: Schedule, in_parts: Sequence[Schedule], problem: Any) -> Schedule:
        """The tiling. If its tiles fill less than half of the device, the inner dimension is cut
        into as few parts as fill it. Parts that are too short cost more than they save."""
        rows, columns = _sides(whole)
        tiles = problem.batches * ceil_divide(problem.m, rows) * ceil_divide(problem.n, columns)
        if 2 * tiles > self.device.product_tiles:
            return whole
        best = whole
        for candidate in in_parts:
            if candidate.of_part == whole and (
                problem.k // candidate.parts >= self.device.shortest_part
            ):
                best = candidate
                if tiles * candidate.parts >= self.device.product_tiles:
                    break
        return best

    def _matrices_pay(self, problem: Any) -> bool:
        """Whether a product fills the smallest tile by cooperative matrices, on devices where these
        are faster."""
        device = self.device
        return device.fast_matrices and min(problem.m, problem.n, problem.k) >= device.matrix_side

    def _filling(self, tiled: Sequence[Schedule], problem: Any) -> Schedule:
        """The largest of several tiles, given in order, that still makes enough workgroups."""
        best = tiled[0]
        for candidate in tiled[1:]:
            rows, columns = _sides(candidate)
            tiles = ceil_divide(problem.m, rows) * ceil_divide(problem.n, columns)
            if problem.batches * tiles >= self.device.product_tiles:
                best = candidate
        return best

    def recurrence(self, candidates: Sequence[Schedule], problem: Any) -> Schedule:
        """One workgroup for each row, because few rows leave most of the device idle. It has up
        to 512 lanes; fewer where 512 force the wider form of a kernel, with half the registers
        (Skylake)."""
        most = 512 if self.device.cost.registers >= 128 else 256
        candidates = [c for c in candidates if c["ROWS"] == 1]
        fitting = [c for c in candidates if c["LX"] * c["LY"] <= most]
        return max(fitting or candidates[:1], key=lambda c: c["LY"])

    def attention(self, candidates: Sequence[Schedule], problem: Any) -> Schedule:
        """Many keys at a time for one or two queries. Else the most queries for each workgroup
        that still make enough workgroups to fill the device, because queries share what is read:
        with tiles in shared memory if those fill it."""
        tiled = [c for c in candidates if c.kernel == "attention_tiled"]
        candidates = [c for c in candidates if c.kernel == "attention"]
        if problem.rows <= 2:
            return candidates[-1]
        for candidate in reversed(tiled):
            rows = candidate["LY"] * candidate["TM"]
            if problem.batches * ceil_divide(problem.rows, rows) >= self.device.product_tiles:
                return candidate
        best = None
        for candidate in candidates[:-1]:
            rows = candidate["LY"] * candidate["TM"]
            groups = problem.batches * ceil_divide(problem.rows, rows)
            rank = (
                min(groups, self.device.product_tiles), candidate["LX"] * candidate["LY"] > 32, rows
            )
            if best is None or rank > best[0]:
                best = rank, candidate
        return candidates[-1] if best is None else best[1]

    def rows(self, candidates: Sequence[Schedule], problem: Any) -> Schedule:
        """A workgroup shares a row unless rows are short, or so numerous that one invocation
        each fills the device while neighbours read neighbouring elements."""
        candidates = [c for c in candidates if c.load == "storage"]
        many = problem.rows >= self.device.many_rows
        alone = problem.length < 32 or (many and not problem.contiguous) or (
            many and problem.length < 64
        )
        if alone:
            return candidates[0]
        wanted = min(256, 1 << max(5, (problem.length // 4 - 1).bit_length()))
        return max(
            (c for c in candidates if c["lanes"] <= wanted),
            key=lambda c: c["lanes"],
            default=candidates[0],
        )

    def elementwise(self, candidates: Sequence[Schedule], problem: Any) -> Schedule:
        """One vector for each invocation; several, loaded together, if elements are addressed
        without divisions and enough invocations are left."""
        candidates = [c for c in candidates if c.load == "storage" and c["LX"] >= 64]
        fitting = [
            c for c in candidates[1:]
            if problem.in_order and problem.size >= self.device.min_invocations * 4 * c["ITEMS"]
        ]
        return (fitting or candidates)[0]

    def norm(self, candidates: Sequence[Schedule], problem: Any) -> Schedule:
        """Subgroup operations where a workgroup would share a row. First, no invocation is idle;
        then few invocations, which have fewer partial sums, if there are rows for every
        multiprocessor. Two rows at a time if each multiprocessor still gets a workgroup."""
        usual = super().norm([c for c in candidates if c.kernel != "subgroups"], problem)
        shared = [c for c in candidates if c.kernel == "subgroups"]
        if usual["lanes"] == 1 or not shared:
            return usual
        rows, units = problem.rows, self.device.product_tiles
        vectors = rows.length // 4

        def rank(candidate: Schedule) -> tuple[int, bool, int]:
            lanes = candidate["lanes"]
            busy = ceil_divide(vectors, lanes) * max(lanes, self.profile.min_subgroup_size)
            enough = rows.rows >= candidate["rows"] * units
            return (busy, candidate["rows"] != (2 if enough else 1),
                    lanes if rows.rows >= units else -lanes)

        return min(shared, key=rank)

    def conv(self, candidates: Sequence[Schedule], problem: Any) -> Schedule:
        """Depthwise kernels where they fit. With at least a tile's depth of channels: the cheapest
        tiles in shared memory that fill the device, or Winograd's transforms if these save more
        than they cost. With fewer input channels: pixels that share vectors of a constant filter.
        Else 16 x 8 invocations along the dimension, channels or pixels, that is contiguous."""
        depthwise = [c for c in candidates if c.kernel == "conv_depthwise"]
        for tall in self.device.depthwise_rows if problem.SH == 1 else self.device.strided_rows:
            for candidate in depthwise:
                if candidate["TP"] == tall:
                    return candidate
        tiled = [c for c in candidates if c.kernel == "conv_tiled" and problem.IC >= c["BK"]]
        if tiled and problem.OC >= self.device.tiled_channels:
            best = min(tiled, key=lambda candidate: self._tiling_cost(candidate, problem))
            return self._winograd(best, candidates, problem)
        wide = [c for c in candidates if c.kernel == "conv_wide" and c.load == "storage"]
        if wide and problem.OC >= self.device.tiled_channels:
            return self._wide(wide, problem)
        channels = int(problem.channels_last and problem.OC >= 16)
        direct = (c for c in candidates if c.kernel == "conv" and c["LX"] == 16)
        return next(c for c in direct if c["CHANNEL_LANES"] == channels)

    def _wide(self, wide: Sequence[Schedule], problem: Any) -> Schedule:
        """The most pixels for each invocation that still make enough workgroups: a workgroup is
        one or two waves, so a busy device needs four times as many as tiles in shared memory."""
        pixels = problem.N * problem.OH * problem.OW

        def groups(c: Schedule) -> int:
            return ceil_divide(pixels, c["LX"] * c["TP"]) * ceil_divide(problem.OC, c["TC"])

        filling = [c for c in wide if groups(c) >= 4 * self.device.product_tiles]
        return min(filling, key=groups) if filling else max(wide, key=groups)

    def _tiling_cost(self, candidate: Schedule, problem: Any) -> tuple[int, float]:
        """How many workgroups are missing to fill the device; the cost of computing and reading."""
        pixels = problem.N * problem.OH * problem.OW
        extents = (pixels, problem.OC) if problem.channels_last else (problem.OC, pixels)
        tiles, cost = self._computed(candidate, extents, problem.G)
        return max(self.device.product_tiles - tiles, 0), cost

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

    def _winograd(
        self, direct: Schedule, candidates: Sequence[Schedule], problem: Any
    ) -> Schedule:
        """The cheapest of the direct schedule and the Winograd schedules. Costs are in
        multiply-adds: the computation, on a device that may be partly idle, the filter read once
        from memory, and what the transforms write and read."""
        device, channels = self.device, problem.IC + problem.OC
        pixels = problem.N * problem.OH * problem.OW

        def cost(candidate: Schedule) -> float:
            tile = dict(candidate.numbers).get("TILE", 0)
            points, columns = (tile + 2) ** 2, pixels
            if tile:
                across = ceil_divide(problem.OH, tile) * ceil_divide(problem.OW, tile)
                columns = problem.N * across
                if 4 * points * columns * channels > device.transformed_bytes or (
                    4 * points * problem.IC * problem.OC > device.filter_bytes
                ):
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

        if min(problem.IC, problem.OC) < device.winograd_channels:
            return direct
        return min((direct, *(c for c in candidates if c.kernel == "winograd_tiled")), key=cost)


def _sides(tiling: Schedule) -> tuple[int, int]:
    """Rows and columns of the output that a workgroup of a product computes."""
    if tiling.kernel in ("matmul_coopmat", "matmul_coopmat2"):
        return tiling["BM"], tiling["BN"]
    return tiling["LY"] * tiling["TM"], tiling["LX"] * tiling["TN"]
