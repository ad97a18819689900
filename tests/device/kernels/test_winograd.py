"""Winograd's convolution on the device: its error, its edges, and the filter's way back."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.comparing import assert_close, profile_for, random_array
from tests.support.drivers import require_vulkan
from tests.support.running import node_of, run
from webnn_vk import MLGraphBuilder, MLOperandDescriptor
from webnn_vk.graph import Node
from webnn_vk.kernels import KernelNode, Schedule, plan
from webnn_vk.kernels.conv import Conv, geometry
from webnn_vk.kernels.heuristics.software import Software
from webnn_vk.readback import source_of

FILTERS = ("oihw", "hwio", "ohwi", "ihwo")
KERNELS = ["winograd_input", "winograd_product", "winograd_output"]


def schedules() -> list[Schedule]:
    node, _ = _case(np.random.default_rng(0), inputs=32, outputs=32)
    candidates = Conv().candidates(geometry(KernelNode.of(node)), profile_for("software"))
    return [schedule for schedule in candidates if schedule.kernel == "winograd"]


def _case(
    rng: np.random.Generator, inputs: int, outputs: int, *, size: tuple[int, int] = (8, 8),
    images: int = 1, layout: str = "nchw", order: str = "oihw", bias: bool = False,
    **arguments,
) -> tuple[Node, dict]:
    x = {"n": images, "c": inputs, "h": size[0], "w": size[1]}
    w = {"o": outputs, "i": inputs, "h": 3, "w": 3}
    return node_of(
        "conv2d", rng.standard_normal([x[d] for d in layout], np.float32),
        rng.standard_normal([w[d] for d in order], np.float32),
        bias=random_array(rng, "float32", (outputs,)) if bias else None,
        input_layout=layout, filter_layout=order, **arguments,
    )


def _magnitude(node: Node, arrays: dict) -> np.ndarray:
    """Σ|x·w|, with the bias's magnitude: of what is rounded."""
    return node.evaluate({v: np.abs(a) for v, a in arrays.items()}.get)[0].astype(np.float64)


def _exact(node: Node, arrays: dict) -> np.ndarray:
    """The result with products and sums in float64."""
    x, w = (arrays[node.operands[name]] for name in ("input", "filter"))
    layout, order = node.arguments["input_layout"], node.arguments["filter_layout"]
    x = x.transpose([layout.index(d) for d in "nchw"]).astype(np.float64)
    w = w.transpose([order.index(d) for d in "oihw"]).astype(np.float64)
    top, bottom, left, right = node.arguments["padding"]
    x = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))
    y = np.einsum("nchwij,ocij->nohw", windows, w, optimize=True)
    if "bias" in node.operands:
        y += arrays[node.operands["bias"]].astype(np.float64)[:, None, None]
    return y.transpose(["nchw".index(d) for d in layout])


@pytest.mark.parametrize("tile", [2, 4])
def test_the_error_is_bounded(tile: int, monkeypatch) -> None:
    """At most 2·n·ε·Σ|x·w| of n products, everywhere, on random problems."""
    require_vulkan()
    rng = np.random.default_rng(tile)
    chosen = {"TILE": tile, "LX": 8, "TM": 8, "TN": 8}
    monkeypatch.setattr(
        Software, "conv", lambda *_: Schedule("winograd", tuple(chosen.items()))
    )
    for case in range(6):
        layout, order = ("nchw", "nhwc")[case % 2], FILTERS[case % 4]
        inputs, outputs = (int(4 * rng.integers(4, 24)) for _ in range(2))
        padding = [int(p) for p in rng.integers(0, 3, 4)]
        node, arrays = _case(
            rng, inputs, outputs, size=tuple(int(n) for n in rng.integers(3, 15, 2)),
            images=1 + case % 2, layout=layout, order=order, bias=case > 2, padding=padding,
        )
        profile = profile_for("software")
        assert [d.kernel for d in plan(node, profile)] == KERNELS
        (result,) = run(node, arrays, profile)
        bound = 2 * (9 * inputs) * 2.0**-24 * _magnitude(node, arrays)
        assert (np.abs(result - _exact(node, arrays)) <= bound).all(), (tile, case)


@pytest.mark.parametrize("schedule", schedules(), ids=str)
def test_every_tile(schedule: Schedule, monkeypatch) -> None:
    """Tiles and channels that fill what a workgroup computes, and that don't."""
    require_vulkan()
    monkeypatch.setattr(Software, "conv", lambda *_: schedule)
    rng = np.random.default_rng(1)
    for inputs, outputs, size in ((32, 68, (9, 4)), (36, 32, (4, 16))):
        node, arrays = _case(
            rng, inputs, outputs, size=size, images=2, bias=True, padding=[1, 1, 1, 1]
        )
        assert_close(node, arrays, profile_for("software"), 2e-4)


@pytest.mark.parametrize("order", FILTERS)
def test_the_filter_comes_back_as_it_was(order: str, vulkan_context) -> None:
    rng = np.random.default_rng(2)
    for size, tile in (((4, 9), 2), ((12, 14), 4)):
        shape = {"o": 36, "i": 32, "h": 3, "w": 3}
        taps = rng.standard_normal([shape[d] for d in order], np.float32)
        builder = MLGraphBuilder(vulkan_context)
        x = builder.input("x", MLOperandDescriptor("float32", (1, 32, *size)))
        y = builder.conv2d(x, builder.constant(taps), filter_layout=order, padding=[1, 1, 1, 1])
        graph = builder.build({"y": y}).result()
        (packing,) = (line for line in str(graph.report()).splitlines() if "WinogradFilter" in line)
        assert f'"tile": {tile}' in packing
        compiled, elements = source_of(graph, "read")
        (constant,) = (v for node in compiled.nodes for v in node.inputs if v.is_constant)
        np.testing.assert_array_equal(elements(constant), taps)
