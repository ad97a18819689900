"""Products of integers of 8 bits by dot products of four of them, an instruction of
VK_KHR_shader_integer_dot_product, with tiles in shared memory. The sums are exact. Where the
feature is missing, plain arithmetic takes the instruction's place: for tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.integers import VECTOR_BYTES, ceil_divide

from ..ops.quantized import INTEGER_STEP
from .dispatch import Dispatch
from .epilogue import build
from .family import Family
from .multi_binding import bound, dispatch
from .node import KernelNode
from .schedule import Schedule

KERNEL = "matmul_dot"
# The elements of a that are loaded at once: 16, 4, or 4 that need not begin a word.
_LOADS = ("vectors", "words", "bytes")

@dataclass(frozen=True)
class IntegerSums:
    """out[m, n] = Σ (a[m, k] − a_zero_point) · (b[n, k] − zero_points[n]). ``data_type`` belongs to
    a; ``zero_points``: whether any of b's is not 0."""

    m: int
    n: int
    k: int
    data_type: str
    a_zero_point: int
    zero_points: bool

    @property
    def load(self) -> str:
        """How a is read: the best of `_LOADS` that the length of its rows allows."""
        for load, elements in zip(_LOADS, (16, 4), strict=False):
            if not self.k % elements:
                return load
        return "bytes"


class IntegerProductFamily(Family):
    """See the module's docstring."""

    name = "integer_product"
    templates = (KERNEL,)
    fuses = True

    def problem(self, node: KernelNode) -> IntegerSums:
        a = node.operands["a"]
        k, n = a.shape[-1], node.operands["b"].shape[0]
        # All rows share b, so that batches are just more rows.
        return IntegerSums(
            a.size // k, n, k, a.data_type, round(node.arguments["a_zero_point"]),
            node.operand("zero_points") is not None,
        )

    def candidates(self, problem: IntegerSums, profile: DeviceProfile) -> Sequence[Schedule]:
        schedules = [
            Schedule(KERNEL, (("LX", lanes), ("LY", lanes), ("TM", 4), ("TN", 4), ("BK", 4)))
            for lanes in (8, 16)
        ]
        return [s for s in schedules if _fits(s, profile)]

    def lower(
        self, node: KernelNode, problem: IntegerSums, schedule: Schedule, profile: DeviceProfile
    ) -> list[Dispatch]:
        p, operands = problem, node.operands
        made = [
            bound("a", operands["a"], profile, data_type="uint32",
                  width=4 if p.load == "vectors" else 1),
            bound("b", operands["b"], profile, data_type="uint32", width=4),
            bound("sums", operands["sums"], profile),
            *([bound("zeros", operands["zero_points"], profile)] if p.zero_points else []),
            bound("out", node.output, profile, "w"),
        ]
        # The kernel makes signed numbers of unsigned ones: the same bits but for the first one.
        zero = p.a_zero_point - 128 * (p.data_type == "uint8")
        params = {
            "M": p.m, "N": p.n, "K": p.k, "steps": ceil_divide(p.k, INTEGER_STEP),
            "last": (p.m * p.k - 1) // 4, "zero": zero,
        }
        options = {
            "a_load": p.load, "unsigned": p.data_type == "uint8", "zero_points": p.zero_points
        }
        rows, columns = schedule.tile
        step = dispatch(
            node, KERNEL, made, build(node), schedule.tiles(p.m, p.n), params,
            dict(schedule.numbers), profile, options.items(), types={"zero": "int"},
            variant=f"{p.data_type} by {p.load} {rows}x{columns}", flops=2 * p.m * p.n * p.k,
        )
        used = step.spec.features | (profile.features & {"integer_dot_product"})
        return [replace(step, spec=replace(step.spec, features=used))]


def _fits(schedule: Schedule, profile: DeviceProfile) -> bool:
    lanes = schedule["LX"] * schedule["LY"]
    # Two tiles of each operand, whose rows have one vector more.
    shared = 2 * sum(schedule.tile) * (schedule["BK"] + 1) * VECTOR_BYTES
    return lanes <= profile.max_workgroup_invocations and shared <= profile.max_shared_memory
