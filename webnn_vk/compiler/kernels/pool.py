"""Pooling. An invocation computes the outputs at one position of the spatial dimensions, of several
images or channels. Pooling whose window is the whole input is computed as a reduction."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.support.dataclass import dataclass

from . import indexing, rows
from .dispatch import Dispatch, Unsupported
from .family import Family
from .indexing import Positions, of_positions
from .multi_binding import bound
from .node import KernelNode
from .reduce import Reduction
from .schedule import Schedule

_REDUCTIONS = {"average": ("sum", "mean"), "l2": ("square", "sqrt"), "max": ("order", "")}

# Taps that an invocation goes through at most, those in the padding included: drivers take a device
# away whose shader runs for seconds. Larger windows are rare, and combined axis by axis on the CPU.
_TAPS = 1 << 22
# Taps for whose window a pipeline is specialised, at most. On lavapipe 49 take two thirds of the
# time, and 20 ms more to compile.
_UNROLLED = 49


@dataclass(frozen=True)
class Pooling:
    """Pooling over two spatial dimensions; pairs are (height, width). ``before`` is the padding in
    front, ``columns`` the width of the output."""

    kind: str
    positions: Positions
    columns: int
    size: tuple[int, int]
    window: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    before: tuple[int, int]


class PoolFamily(Family):
    """See the module's docstring."""

    name = "pool"
    fuses = True
    input_loads = 3

    def problem(self, node: KernelNode) -> Pooling | Reduction:
        x, arguments = node.operands["input"], node.arguments
        kind = node.lowering.kind
        height = 2 if arguments["layout"] == "nchw" else 1
        spatial = x.shape[height : height + 2]
        window, padding = arguments["window_dimensions"], arguments["padding"]
        if window == spatial and arguments["dilations"] == (1, 1) and not any(padding):
            return Reduction(*_REDUCTIONS[kind], rows.split(x.shape, (height, height + 1)))
        vertical, horizontal = arguments["output_sizes"]
        outer, inner = prod(x.shape[:height]), prod(x.shape[height + 2 :])
        cost = window[0] * (window[1] + 2) + 1
        positions = Positions(outer, vertical * horizontal, inner, x.data_type == "float32", cost)
        return Pooling(
            kind, positions, horizontal, spatial, window, arguments["strides"],
            arguments["dilations"], (padding[0], padding[2]),
        )

    def candidates(self, problem: Pooling, profile: DeviceProfile) -> Sequence[Schedule]:
        return indexing.schedules(problem.positions, profile)

    def lower(
        self, node: KernelNode, problem: Pooling, schedule: Schedule, profile: DeviceProfile
    ) -> list[Dispatch]:
        p, x = problem, node.operands["input"]
        # Positions before the input wrap around to beyond its end, never into it: the record has
        # seen to it that the extents that padding and windows reach are below 2³¹.
        if p.window[0] * p.window[1] > _TAPS:
            raise Unsupported(
                f"{p.window[0]} × {p.window[1]} taps in one invocation; {_TAPS} at most"
            )
        operands = bound("x", x, profile), bound("out", node.output, profile, "w")
        params = {
            "columns": p.columns, "size": p.size, "window": p.window, "stride": p.stride,
            "dilation": p.dilation, "before": p.before,
        }
        height, width = p.window if prod(p.window) <= _UNROLLED else (0, 0)
        return [
            of_positions(
                node, "pool", operands, p.positions, schedule, profile, params,
                constants={"KH": height, "KW": width}, options=[("op", p.kind)], variant=p.kind,
                flops=node.results[0].size * p.window[0] * p.window[1],
            )
        ]
