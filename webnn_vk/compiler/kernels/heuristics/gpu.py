"""Rules for GPUs of any vendor. They use the numbers of a `GpuClass`, none of which was measured on
hardware. Tuned schedules outrank the rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from webnn_vk.support.integers import ceil_divide

from ..schedule import Schedule
from .device_classes import GpuClass
from .rules import Constraint, Constraints, Rules, first_that, only

# Rows up to which a product's weights are read row by row.
_FEW_ROWS = 8


class Gpu(Rules):
    """Constraints of a device with many cores and shared memory."""

    device: GpuClass
    loads = only("no texels, which are for devices that load storage buffers lane by lane",
                 lambda c: c.load == "storage")

    def matmul(self, candidates: Sequence[Schedule], problem: Any) -> Constraints:
        if any(c.kernel == "matvec" for c in candidates):
            yield only("more than a row for each workgroup", lambda c: c["LX"] * c["LY"] > 8)
            return
        if self._matrices_pay(problem):
            yield only("matrices of whole workgroups", lambda c: c.kernel == "matmul_coopmat2")
            yield only("matrices of subgroups", lambda c: c.kernel in _BY_MATRICES)
        else:
            yield only("no matrices", lambda c: c.kernel not in _BY_MATRICES)
        yield from self._tiles()
        yield self._parts(candidates, problem)

    def block_product(self, candidates: Sequence[Schedule], problem: Any) -> Constraints:
        by_rows = [c for c in candidates if c.kernel == "matvec_blocks" and c["LX"] * c["LY"] > 8]
        if by_rows and problem.m <= _FEW_ROWS:
            yield only("few rows: subgroups share a row of weights", by_rows.__contains__)
            steps = problem.stored // problem.chunk
            yield first_that("as many lanes as a row has work for", candidates,
                             lambda c: c["LX"] <= steps)
            return
        yield only("many rows: tiles", lambda c: c.kernel != "matvec_blocks")
        yield from self._tiles()

    def _tiles(self) -> Constraints:
        yield only("tiles in shared memory", lambda c: c.kernel == "matmul_tiled")
        lanes = self.profile.min_subgroup_size
        yield only("workgroups that fill a subgroup",
                   lambda c: c.kernel != "matmul" or c["LX"] * c["LY"] >= lanes)

    def _parts(self, candidates: Sequence[Schedule], problem: Any) -> Constraint:
        cut = [c for c in candidates if c.parts > 1]
        tiles = max((c.tiles(problem.m, problem.n) for c in cut), default=0)
        idle = 2 * problem.batches * tiles <= self.device.product_tiles
        most = problem.k // self.device.shortest_part if idle else 1
        return only(
            "the inner dimension is cut only where the smallest tiles fill less than half of the "
            "device, and no part is so short that it costs more than it saves",
            lambda c: c.parts <= max(1, most),
        )

    def _matrices_pay(self, problem: Any) -> bool:
        """Whether a product fills the smallest tile by cooperative matrices, on devices where these
        are faster."""
        device = self.device
        return device.fast_matrices and min(problem.m, problem.n, problem.k) >= device.matrix_side

    def recurrence(self, candidates: Sequence[Schedule], problem: Any) -> Constraints:
        yield only("few rows leave most of the device idle: a workgroup for each",
                   lambda c: c["ROWS"] == 1)
        most = 512 if self.device.cost.registers >= 128 else 256
        yield Constraint(
            "the most lanes that don't force the form of a kernel with half the registers "
            "(Skylake: 256)", lambda c: -c["LY"] if c["LX"] * c["LY"] <= most else 1,
        )

    def attention(self, candidates: Sequence[Schedule], problem: Any) -> Constraints:
        many_keys = [c for c in candidates if c.kernel == "attention"][-1]
        if problem.rows <= 2:
            yield only("many keys at a time for one or two queries", many_keys.__eq__)
            return
        wanted = self.device.product_tiles
        place = {candidate: number for number, candidate in enumerate(candidates)}

        def groups(c: Schedule) -> int:
            return problem.batches * ceil_divide(problem.rows, c["LY"] * c["TM"])

        # The model doesn't know that queries of a workgroup find keys and values in the cache.
        yield Constraint(
            "tiles in shared memory if they fill the device, the largest ones that do",
            lambda c: -place[c] if c.kernel != "attention" and groups(c) >= wanted else 1,
        )
        yield only("else no tiles, and not many keys at a time",
                   lambda c: c.kernel == "attention" and c != many_keys)
        yield Constraint(
            "queries share what is read: the most for each workgroup that still make enough of "
            "them, of more than 32 invocations",
            lambda c: (-min(groups(c), wanted), c["LX"] * c["LY"] <= 32, -c["LY"] * c["TM"]),
        )

    def rows(self, candidates: Sequence[Schedule], problem: Any) -> Constraints:
        if self._alone(problem):
            yield only("an invocation for each row: neighbours read neighbouring elements, or rows "
                       "are short", lambda c: c["lanes"] == 1)
            return
        wanted = min(256, 1 << max(5, (problem.length // 4 - 1).bit_length()))
        yield Constraint("a workgroup shares a row, as far as each lane has work",
                         lambda c: -c["lanes"] if c["lanes"] <= wanted else 1)

    def _alone(self, rows: Any) -> bool:
        """Whether an invocation computes a row: if rows are short, or so numerous that they fill
        the device while neighbours read neighbouring elements."""
        many = rows.rows >= self.device.many_rows
        return rows.length < 32 or (many and (not rows.contiguous or rows.length < 64))

    def elementwise(self, candidates: Sequence[Schedule], problem: Any) -> Constraints:
        yield only("whole subgroups", lambda c: c["LX"] >= 64)
        enough = self.device.min_invocations * 4
        yield only(
            "several vectors for each invocation, loaded together, if elements are addressed "
            "without divisions and enough invocations are left",
            lambda c: c["ITEMS"] > 1 and problem.in_order and problem.size >= enough * c["ITEMS"],
        )

    def norm(self, candidates: Sequence[Schedule], problem: Any) -> Constraints:
        rows, units = problem.rows, self.device.product_tiles
        usual = [c for c in candidates if c.kernel != "subgroups"]
        if len(usual) == len(candidates) or (
            self._alone(rows) and any(c["lanes"] == 1 for c in usual)
        ):
            yield only("no subgroup shares a row", lambda c: c.kernel != "subgroups")
            yield from self.rows(usual, rows)
            return
        yield only("subgroup operations where a workgroup would share a row",
                   lambda c: c.kernel == "subgroups")
        vectors = rows.length // 4
        yield Constraint(
            "no invocation is idle", lambda c: ceil_divide(vectors, c["lanes"]) * max(
                c["lanes"], self.profile.min_subgroup_size
            ),
        )
        yield only("two rows at a time if each multiprocessor still gets a workgroup",
                   lambda c: c["rows"] == 1 + (rows.rows >= c["rows"] * units))
        sign = 1 if rows.rows >= units else -1
        yield Constraint("few invocations, which have fewer partial sums, if there are rows for "
                         "every multiprocessor, else many", lambda c: sign * c["lanes"])

    def conv(self, candidates: Sequence[Schedule], problem: Any) -> Constraints:
        if any(c.kernel == "conv_depthwise" for c in candidates):
            tall = self.device.depthwise_rows if problem.SH == 1 else self.device.strided_rows
            yield Constraint(
                "a depthwise kernel, of the first number of rows: more leave fewer invocations",
                lambda c: tall.index(c["TP"])
                if c.kernel == "conv_depthwise" and c["TP"] in tall else len(tall),
            )
            return
        large = problem.OC >= self.device.tiled_channels
        tiled = {c for c in candidates if c.kernel == "conv_tiled" and problem.IC >= c["BK"]}
        if tiled and large:
            yield only(
                "at least a tile's depth of channels: tiles in shared memory, or transforms",
                lambda c: c in tiled or self._transforms(c, "winograd_tiled", problem),
            )
            return
        if large and any(c.kernel == "conv_wide" for c in candidates):
            yield only("few input channels: pixels share vectors of a constant filter",
                       lambda c: c.kernel == "conv_wide")
            pixels, wanted = problem.N * problem.OH * problem.OW, 4 * self.device.product_tiles
            yield Constraint(
                "a workgroup is one or two waves, so a busy device needs four times as many as "
                "tiles in shared memory", lambda c: max(0, wanted - ceil_divide(
                    pixels, c["LX"] * c["TP"]
                ) * ceil_divide(problem.OC, c["TC"])),
            )
            return
        if not tiled:
            yield only("no tile fits the registers: transforms",
                       lambda c: self._transforms(c, "winograd", problem))
        channels = int(problem.channels_last and problem.OC >= 16)
        yield only(
            "16 x 8 invocations along the dimension, channels or pixels, that is contiguous",
            lambda c: c.kernel == "conv" and c["LX"] == 16 and c["CHANNEL_LANES"] == channels,
        )
        yield Constraint("the most sums that fit the registers: each element loaded is used most",
                         lambda c: -c["TC"] * c["TP"] if c.kernel == "conv" else 0)

    def _transforms(self, c: Schedule, kernel: str, problem: Any) -> bool:
        """Whether a candidate is this form of Winograd's transforms, the convolution has the
        channels for it, and its filter and tiles the sizes."""
        if c.kernel != kernel:
            return False
        device, points = self.device, 4 * (c["TILE"] + 2) ** 2
        tiles = problem.N * ceil_divide(problem.OH, c["TILE"]) * ceil_divide(problem.OW, c["TILE"])
        return bool(
            min(problem.IC, problem.OC) >= device.winograd_channels
            and points * tiles * (problem.IC + problem.OC) <= device.transformed_bytes
            and points * problem.IC * problem.OC <= device.filter_bytes
        )


_BY_MATRICES = ("matmul_coopmat", "matmul_coopmat2")
