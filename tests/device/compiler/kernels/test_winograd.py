"""Winograd's convolution on the device: its error, its edges, and its filter transformed back."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.comparing import assert_close, profile_for, random_array
from tests.support.contexts import open_context
from tests.support.discriminating import assert_allclose
from tests.support.drivers import require_vulkan
from tests.support.forced import pretended_gpu
from tests.support.running import device_profile, node_of, plan, run
from webnn_vk import MLGraphBuilder, MLOperandDescriptor
from webnn_vk.api.graph_source import source_of
from webnn_vk.compiler.ir import Node
from webnn_vk.compiler.kernels import KernelNode, Schedule, choose
from webnn_vk.compiler.kernels.conv import Conv, geometry
from webnn_vk.compiler.kernels.winograd_tiles import LEAST_INPUTS

FILTERS = ("oihw", "hwio", "ohwi", "ihwo")
KERNELS = ["winograd_input", "winograd_product", "winograd_output"]
#: By the kernel that a schedule names: the kind of device whose rules choose it.
DEVICES = {"winograd": "software", "winograd_tiled": "discrete"}


def schedules(kernel: str, layout: str = "nchw") -> list[Schedule]:
    """The largest tiles may not fit in shared memory with channels last."""
    node, _ = _case(np.random.default_rng(0), inputs=64, outputs=32, layout=layout)
    way = DEVICES[kernel]
    candidates = Conv().candidates(geometry(KernelNode.of(node)), profile_for(way))
    return [schedule for schedule in candidates if schedule.kernel == kernel]


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
    """Σ|x·w|, with the bias's magnitude: the magnitude that is rounded."""
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


@pytest.mark.parametrize("kernel", DEVICES)
@pytest.mark.parametrize("tile", [2, 4])
def test_the_error_is_bounded(tile: int, kernel: str, monkeypatch) -> None:
    """At most 2·n·ε·Σ|x·w| for n products, everywhere, on random problems."""
    require_vulkan()
    rng = np.random.default_rng(tile)
    way = DEVICES[kernel]
    # The last has the most sums per invocation.
    legal = schedules(kernel, "nhwc" if way == "discrete" else "nchw")
    *_, chosen = (s for s in legal if s["TILE"] == tile and s.load == "storage")
    monkeypatch.setattr(choose, "narrowed", lambda *_: [chosen])
    for case in range(6):
        layout, order = ("nchw", "nhwc")[case % 2], FILTERS[case % 4]
        inputs, outputs = (int(4 * rng.integers(4, 24)) for _ in range(2))
        padding = [int(p) for p in rng.integers(0, 3, 4)]
        node, arrays = _case(
            rng, inputs, outputs, size=tuple(int(n) for n in rng.integers(3, 15, 2)),
            images=1 + case % 2, layout=layout, order=order, bias=case > 2, padding=padding,
        )
        profile = profile_for(way)
        assert [d.kernel for d in plan(node, profile)] == KERNELS
        (result,) = run(node, arrays, profile)
        bound = 2 * (9 * inputs) * 2.0**-24 * _magnitude(node, arrays)
        assert (np.abs(result - _exact(node, arrays)) <= bound).all(), (tile, case)


def _inputs(rng: np.random.Generator, kind: str, channels: int) -> np.ndarray:
    x = rng.standard_normal((1, channels, 28, 28), np.float32)
    return {"N(0, 1)": x, "N(5, 1)": x + np.float32(5), "relu": np.maximum(x, 0)}[kind]


def _weights(rng: np.random.Generator, kind: str, channels: int) -> np.ndarray:
    """He's initialisation; and weights as after training: channels of very different size, smooth
    taps, a mean for each pair of channels."""
    deviation = np.sqrt(2 / (9 * channels))
    taps = rng.standard_normal((32, channels, 3, 3)) * deviation
    if kind == "trained":
        sizes = np.exp(0.8 * rng.standard_normal((32, 1)) + 0.5 * rng.standard_normal(channels))
        smooth = np.outer([0.5, 1, 0.5], [0.5, 1, 0.5])
        taps = taps * sizes[:, :, None, None] * smooth
        taps += 0.3 * deviation * rng.standard_normal((32, channels, 1, 1))
    return taps.astype(np.float32)


def _least_kept(kernel: str, tile: int, channels: int) -> float:
    """The size of an output, relative to √Σ(x·w)², from which on all outputs keep the tolerance of
    conv2d: 2·n units in the last place of the result."""
    profile, least = profile_for(DEVICES[kernel]), 0.0
    chosen = next(s for s in schedules(kernel) if s["TILE"] == tile)
    for x_kind in ("N(0, 1)", "N(5, 1)", "relu"):
        for w_kind in ("He", "trained"):
            rng = np.random.default_rng(channels)
            node, arrays = node_of(
                "conv2d", _inputs(rng, x_kind, channels), _weights(rng, w_kind, channels),
                bias=None, padding=[1, 1, 1, 1],
            )
            (result,) = run(node, arrays, profile, chosen)
            exact = _exact(node, arrays)
            squares = {v: (a.astype(np.float64) ** 2).astype(np.float32) for v, a in arrays.items()}
            size = np.abs(exact) / np.sqrt(node.evaluate(squares.get)[0].astype(np.float64))
            allowed = 2 * (9 * channels) * np.spacing(np.abs(exact).astype(np.float32))
            least = max(least, float(size[np.abs(result - exact) > allowed].max(initial=0)))
    return least


@pytest.mark.parametrize("kernel", DEVICES)
@pytest.mark.parametrize("tile", [2, 4])
def test_the_tolerance_of_conv2d_is_kept_where_it_is_chosen(tile: int, kernel: str) -> None:
    """With the fewest channels, for outputs of a tenth of √Σ(x·w)². No tile is a candidate with
    fewer channels, and large tiles would exceed the tolerance there."""
    require_vulkan()
    assert _least_kept(kernel, tile, LEAST_INPUTS[tile]) < 0.1
    if tile == 4:
        assert _least_kept(kernel, tile, LEAST_INPUTS[tile] // 4) > 0.1
    for channels in (LEAST_INPUTS[tile] - 4, LEAST_INPUTS[tile]):
        node, _ = _case(np.random.default_rng(0), channels, 64, size=(28, 28))
        candidates = Conv().candidates(geometry(KernelNode.of(node)), profile_for(DEVICES[kernel]))
        tiles = {s["TILE"] for s in candidates if s.kernel == kernel}
        assert (tile in tiles) == (channels == LEAST_INPUTS[tile])


@pytest.mark.parametrize("kernel", DEVICES)
@pytest.mark.parametrize("tile", [2, 4])
def test_huge_and_infinite_inputs_stay_in_their_tile(tile: int, kernel: str) -> None:
    """The promise of docs/operators.md: the tile that sees special values may become anything that
    its bound allows, infinite or NaN; the others have the usual bits."""
    require_vulkan()
    chosen = next(s for s in schedules(kernel) if s["TILE"] == tile)
    profile = profile_for(DEVICES[kernel])
    rng = np.random.default_rng(9)
    node, arrays = _case(rng, 64, 32, size=(12, 12), padding=[1, 1, 1, 1])
    (plain,) = run(node, arrays, profile, chosen)
    magnitudes = np.abs(arrays[node.operands["filter"]]).sum((1, 2, 3), dtype=np.float64)
    # Pixel (0, 0) is an input of the first tile only.
    touched = np.zeros((12, 12), bool)
    touched[:tile, :tile] = True
    for number in (np.inf, -np.inf, np.nan, 3e38, 1e30, 1e10):
        x = arrays[node.operands["input"]].copy()
        x[0, 0, 0, 0] = number
        changed = {**arrays, node.operands["input"]: x}
        (result,) = run(node, changed, profile, chosen)
        np.testing.assert_array_equal(result[..., ~touched], plain[..., ~touched])
        seen = result[0][:, touched]
        if not np.isfinite(number):
            assert not np.isfinite(seen).any()
        elif number < 1e35:
            error = np.abs(seen - _exact(node, changed)[0][:, touched])
            assert (error <= 2 * (9 * 64) * 2.0**-24 * magnitudes[:, None] * number).all()


@pytest.mark.parametrize("kernel", DEVICES)
def test_every_tile(kernel: str, monkeypatch) -> None:
    """Tiles and channels that fill a workgroup's share, and that don't."""
    require_vulkan()
    way, rng = DEVICES[kernel], np.random.default_rng(1)
    for inputs, outputs, size, layout in (
        (32, 68, (9, 4), "nchw"), (36, 32, (4, 16), "nchw"), (20, 36, (5, 7), "nhwc"),
    )[: 3 if way == "discrete" else 2]:
        legal = schedules(kernel, layout)
        assert legal
        node, arrays = _case(
            rng, inputs, outputs, size=size, images=2, bias=True, padding=[1, 1, 1, 1],
            layout=layout,
        )
        for schedule in legal:
            monkeypatch.setattr(choose, "narrowed", lambda *_, chosen=schedule: [chosen])
            assert_close(node, arrays, profile_for(way), 2e-4)


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_what_follows_is_fused_on_gpus(layout: str) -> None:
    """The end of a residual block: bias, addition, an activation, with rows that are stored in
    vectors and that aren't."""
    require_vulkan()
    rng, gpu = np.random.default_rng(3), pretended_gpu(device_profile())
    for size in ((6, 8), (5, 7)):
        shape = {"n": 2, "c": 64, "h": size[0], "w": size[1]}
        dimensions = tuple(shape[d] for d in layout)
        x, other = (rng.standard_normal(dimensions, np.float32) for _ in range(2))
        taps = rng.standard_normal((64, 64, 3, 3), np.float32)
        bias = rng.standard_normal(64, np.float32)
        results = []
        for device, limits in (("vulkan", gpu), ("cpu", None)):
            with open_context(device, limits=limits) as context:
                builder = MLGraphBuilder(context)
                a, b = (
                    builder.input(name, MLOperandDescriptor("float32", dimensions))
                    for name in ("a", "b")
                )
                y = builder.conv2d(
                    a, builder.constant(taps), bias=builder.constant(bias),
                    padding=[1, 1, 1, 1], input_layout=layout,
                )
                graph = builder.build({"y": builder.relu(builder.add(b, y))}).result()
                if device == "vulkan":
                    report = str(graph.report())
                    assert all(kernel in report for kernel in KERNELS)
                    assert "elementwise" not in report
                results.append(context.compute(graph, {"a": x, "b": other})["y"])
        assert_allclose(*results, rtol=1e-4, atol=2e-4)


def test_infinities_stay_in_their_tiles_on_gpus(monkeypatch) -> None:
    """They reach all outputs of a tile, and no others; padding of a vector of tiles is not a tile.
    """
    require_vulkan()
    rng = np.random.default_rng(4)
    chosen = schedules("winograd_tiled", "nhwc")[-1]
    assert chosen["TILE"] == 4
    monkeypatch.setattr(choose, "narrowed", lambda *_: [chosen])
    for layout in ("nchw", "nhwc"):
        node, arrays = _case(rng, 16, 16, size=(12, 12), layout=layout, padding=[1, 1, 1, 1])
        (plain,) = run(node, arrays, profile_for("discrete"))
        x = arrays[node.operands["input"]].copy()
        # Pixel (1, 1) is seen by the first tile only: the others begin at row or column 3.
        x[(0, 0, 1, 1) if layout == "nchw" else (0, 1, 1, 0)] = np.inf
        (result,) = run(node, {**arrays, node.operands["input"]: x}, profile_for("discrete"))
        if layout == "nhwc":
            plain, result = plain.transpose(0, 3, 1, 2), result.transpose(0, 3, 1, 2)
        touched = np.zeros((12, 12), bool)
        touched[:4, :4] = True
        assert not np.isfinite(result[..., touched]).any()
        np.testing.assert_array_equal(result[..., ~touched], plain[..., ~touched])


@pytest.mark.parametrize("order", FILTERS)
def test_the_filter_comes_back_as_it_was(order: str, vulkan_context, monkeypatch) -> None:
    rng = np.random.default_rng(2)
    for size, channels, tile in (((8, 9), 32, 2), ((12, 14), 64, 4)):
        # GPUs would take other tiles for few pixels.
        monkeypatch.setattr(choose, "narrowed", lambda _, candidates, *more, tile=tile: [
            c for c in candidates if c.kernel in DEVICES and c["TILE"] == tile
        ])
        shape = {"o": 36, "i": channels, "h": 3, "w": 3}
        taps = rng.standard_normal([shape[d] for d in order], np.float32)
        builder = MLGraphBuilder(vulkan_context)
        x = builder.input("x", MLOperandDescriptor("float32", (1, channels, *size)))
        y = builder.conv2d(x, builder.constant(taps), filter_layout=order, padding=[1, 1, 1, 1])
        graph = builder.build({"y": y}).result()
        (packing,) = (line for line in str(graph.report()).splitlines() if "WinogradFilter" in line)
        assert f'"tile": {tile}' in packing
        compiled, elements = source_of(graph, "read")
        (constant,) = (v for node in compiled.nodes for v in node.inputs if v.is_constant)
        np.testing.assert_array_equal(elements(constant), taps)
