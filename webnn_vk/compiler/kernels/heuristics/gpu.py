"""Rules for GPUs of any vendor. They use the numbers of a `GpuClass`, few of which were measured on
hardware. Tuned schedules outrank the rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from webnn_vk.support.integers import ceil_divide

from ...types.data_types import DATA_TYPES
from ..schedule import Schedule
from .device_classes import GpuClass
from .rules import Constraint, Constraints, Rules, first_that, only

# Rows up to which a product's weights are read row by row.
_FEW_ROWS = 8
# Vectors of a row that an invocation keeps without being tuned for it.
_FEW_KEPT = 4
# Bytes that a core reads in the time of another dispatch: 5 µs, 64 bytes a clock (H200).
_ONE_CORE_BYTES = 640_000


class Gpu(Rules):
    """Constraints of a device with many cores and shared memory."""

    device: GpuClass
    loads = only("no texels, which are for devices that load storage buffers lane by lane",
                 lambda c: c.load == "storage")

    def matmul(self, candidates: Sequence[Schedule], problem: Any) -> Constraints:
        if by_vectors := [c for c in candidates if c.kernel == "matvec"]:
            yield only("few rows: what is read of the matrix serves all", by_vectors.__contains__)
            yield only("more than a row for each workgroup", lambda c: c["LX"] * c["LY"] > 8)
            yield self._whole_registers()
            yield from self._in_flight(by_vectors, problem.by_vector)
            return
        # Few rows wait for the weights, by matrices least.
        few = 2 if self.device.matrix_times else None
        if self._matrices_pay(problem, few) and any(c.by_matrices for c in candidates):
            yield only("matrices", lambda c: c.by_matrices)
            yield from self._matrices(candidates, problem)
            return
        yield only("no matrices", lambda c: not c.by_matrices)
        yield from self._tiles()
        yield self._parts(candidates, problem)

    def _in_flight(self, candidates: Sequence[Schedule], problem: Any) -> Constraints:
        """Of a matrix times few vectors: memory delivers its full rate only while most of the GPU's
        invocations load. On an H200 less than 7/8 of them take up to 1.9 times as long, less than
        3/8 where a is stored transposed, and more gain nothing."""
        eighths = 3 if problem.a_transposed else 7

        def enough(c: Schedule) -> bool:
            down = c["LX"] if problem.a_transposed else c["LY"]
            groups: int = problem.batches * ceil_divide(problem.m, down * c["TM"])
            return 8 * groups * c["LX"] * c["LY"] >= eighths * self.device.min_invocations

        yield Constraint("the most vectors ahead", lambda c: -dict(c.numbers).get("AHEAD", 0))
        yield first_that(
            "the fewest invocations for an output with which most of the device's have work",
            candidates, enough,
        )

    def block_product(self, candidates: Sequence[Schedule], problem: Any) -> Constraints:
        by_rows = [c for c in candidates if c.kernel == "matvec_blocks" and c["LX"] * c["LY"] > 8]
        if by_rows and problem.m <= _FEW_ROWS:
            yield only("few rows: subgroups share a row of weights", by_rows.__contains__)
            steps, wanted = problem.stored // problem.chunk, self.device.min_invocations
            yield only("no more lanes than a row has work for", lambda c: c["LX"] <= max(8, steps))
            # Each lane of a row loads a vector at a time.
            full = [c for c in candidates if problem.n * c["LX"] >= wanted]
            yield Constraint(
                "as many vectors are loaded at once as the device has invocations, by the fewest "
                "lanes, but 32, and for the most columns",
                lambda c: (c["LX"] < 32, c["LX"], -c["TM"]) if c in full else (True, 256, 0),
            )
            yield Constraint("else by the most invocations", lambda c: (-c["LX"], c["TM"]))
            yield Constraint("the most columns for a subgroup", lambda c: -c["LY"])
            return
        yield only("many rows: tiles", lambda c: c.kernel != "matvec_blocks")
        if self._matrices_pay(problem):
            yield only("cooperative matrices", lambda c: c.by_matrices)
        else:
            yield only("no matrices", lambda c: not c.by_matrices)
        yield from self._tiles()

    def _tiles(self) -> Constraints:
        yield only("tiles in shared memory", lambda c: c.kernel == "matmul_tiled")
        yield self._depth()
        lanes = self.profile.min_subgroup_size
        yield only("workgroups that fill a subgroup",
                   lambda c: c.kernel != "matmul" or c["LX"] * c["LY"] >= lanes)

    def _depth(self) -> Constraint:
        def deep(c: Schedule) -> bool:
            numbers = dict(c.numbers)
            return "TM" in numbers and numbers["TM"] * numbers.get("BK", 1) > 64

        return only("no deep tiles on devices that aren't known to be faster with them",
                    lambda c: self.device.deep_tiles or not deep(c))

    def _matrices(self, candidates: Sequence[Schedule], problem: Any) -> Constraints:
        """Of tiles and parts of a product by cooperative matrices."""
        times, cores = self.device.matrix_times, self.device.product_tiles
        if times is None:
            yield self._parts(candidates, problem)
            return
        yield Constraint(
            "the tiles and parts that take least by measured times of their steps",
            lambda c: times.of(problem, c, cores) if c.by_matrices else float("inf"),
        )

    def _parts(self, candidates: Sequence[Schedule], problem: Any) -> Constraint:
        cut = [c for c in candidates if c.parts > 1]
        tiles = max((c.tiles(problem.m, problem.n) for c in cut), default=0)
        few = problem.batches * tiles <= self.device.few_tiles
        most = problem.k // self.device.shortest_part if few else 1
        return only(
            "the inner dimension is cut only where the smallest tiles are few, and no part is so "
            "short that it costs more than it saves",
            lambda c: c.parts <= max(1, most),
        )

    def _matrices_pay(self, problem: Any, rows: int | None = None) -> bool:
        """Whether a product fills the smallest tile by cooperative matrices, or has this many
        ``rows``, on devices where these are faster."""
        device = self.device
        return (
            device.fast_matrices and problem.m >= (rows or device.matrix_side)
            and min(problem.n, problem.k) >= device.matrix_side
        )

    def recurrence(self, candidates: Sequence[Schedule], problem: Any) -> Constraints:
        yield only("few rows leave most of the device idle: a workgroup for each",
                   lambda c: c["ROWS"] == 1)
        yield self._whole_registers()
        yield Constraint("the most lanes", lambda c: -c["LY"])

    @property
    def _most_invocations(self) -> int:
        """Of a workgroup: more force the form of a kernel with half the registers (Skylake)."""
        return 512 if self.device.cost.registers >= 128 else 256

    def _whole_registers(self) -> Constraint:
        return only("a workgroup leaves its invocations their registers",
                    lambda c: c["LX"] * c["LY"] <= self._most_invocations)

    def attention(self, candidates: Sequence[Schedule], problem: Any) -> Constraints:
        most = self._most_invocations
        if parted := [c for c in candidates if c.kernel == "attention_parted"]:
            yield only("few queries: subgroups share the keys", parted.__contains__)
            yield Constraint("the fewest workgroups that have all queries", lambda c: -c["TM"])
            # What a workgroup without others for its keys reads.
            size = problem.keys * (problem.depth + problem.width)
            size *= DATA_TYPES[problem.data_type].size
            cores = self.device.product_tiles
            split = problem.batches < 2 * cores and size > _ONE_CORE_BYTES
            yield only("workgroups divide the keys where one core would read them for longer than "
                       "another dispatch takes", lambda c: (c.parts > 1) == split)
            if split:
                yield first_that("four workgroups for each core", parted,
                                 lambda c: problem.batches * c.parts >= 4 * cores)
            else:
                yield Constraint("of the most subgroups",
                                 lambda c: -c["LZ"] if c["LX"] * c["LZ"] <= most else 0)
            return
        many_keys = [c for c in candidates if c.kernel == "attention"][-1]
        if problem.rows <= 2:
            yield only("many keys at a time for one or two queries", many_keys.__eq__)
            return
        wanted = self.device.product_tiles
        place = {candidate: number for number, candidate in enumerate(candidates)}

        def groups(c: Schedule) -> int:
            return problem.batches * ceil_divide(problem.rows, c["LY"] * c["TM"])

        def tiles(c: Schedule) -> tuple[int, int]:
            if c.kernel == "attention":
                return 2, 0
            if groups(c) >= wanted:
                return 0, -place[c]
            return (1, abs(c["LX"] * c["LY"] - 128)) if problem.rows >= 32 else (3, 0)

        # The model doesn't know that queries of a workgroup find keys and values in the cache.
        yield Constraint(
            "tiles in shared memory, the largest ones that fill the device; of many queries also "
            "if none fills it, of 128 invocations (H200: a third of the time without tiles)", tiles,
        )
        yield only("not many keys at a time", lambda c: c != many_keys)
        yield Constraint(
            "queries share what is read: of more than 32 invocations the most for each workgroup "
            "that still make enough of them",
            lambda c: (c["LX"] * c["LY"] <= 32, -min(groups(c), wanted), -c["LY"] * c["TM"]),
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
        several = [c for c in candidates if c["ITEMS"] > 1 and problem.in_order
                   and problem.size >= enough * c["ITEMS"]]
        yield only(
            "several vectors for each invocation, if elements are addressed without divisions and "
            "enough invocations are left", several.__contains__,
        )
        yield only("four of them loaded together",
                   lambda c: c in several and dict(c.numbers).get("TOGETHER") == 4)

    def norm(self, candidates: Sequence[Schedule], problem: Any) -> Constraints:
        yield from self._by_subgroups(candidates, problem.rows)

    def softmax(self, candidates: Sequence[Schedule], problem: Any) -> Constraints:
        if problem.length // 4 < self.profile.min_subgroup_size:
            usual = [c for c in candidates if c.kernel != "subgroups"]
            yield only("no subgroup shares a row that doesn't fill it: 128 elements take 1.5 times "
                       "as long on Vega 10, by the bound of its kernels", usual.__contains__)
            yield from self.rows(usual, problem)
            return
        yield from self._by_subgroups(candidates, problem)

    def _by_subgroups(self, candidates: Sequence[Schedule], rows: Any) -> Constraints:
        units, vectors = self.device.product_tiles, rows.length // 4
        usual = [c for c in candidates if c.kernel != "subgroups"]
        few = [c for c in candidates if c not in usual and vectors <= _FEW_KEPT * c["lanes"]]
        if not few or (self._alone(rows) and any(c["lanes"] == 1 for c in usual)):
            yield only("no subgroup shares a row", lambda c: c.kernel != "subgroups")
            yield from self.rows(usual, rows)
            return
        yield only("subgroup operations where a workgroup would share a row, of which an "
                   "invocation keeps little", few.__contains__)
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
        if any(c.by_matrices for c in candidates) and self._columns_pay(problem):
            yield only("columns, by cooperative matrices", lambda c: c.by_matrices)
            yield from self._matrices(candidates, problem.columns)
            return
        large = problem.OC >= self.device.tiled_channels
        tiled = {c for c in candidates if c.kernel == "conv_tiled" and problem.IC >= c["BK"]}
        if tiled and large:
            yield self._depth()
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

    def _columns_pay(self, problem: Any) -> bool:
        """Whether cooperative matrices are worth the columns that they multiply: where the vectors
        of columns are halves."""
        columns = problem.columns
        size = 2 * columns.batches * columns.n * columns.k
        return (
            problem.data_types[0] == "float16" and self._matrices_pay(columns)
            and size <= self.device.transformed_bytes
        )

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

