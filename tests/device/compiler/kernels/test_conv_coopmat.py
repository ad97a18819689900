"""Convolutions of halves as products of columns by cooperative matrices, in their emulation (or by
the device's own matrices), compared with the NumPy reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.support.comparing import random_array
from tests.support.discriminating import assert_allclose
from tests.support.drivers import require_vulkan
from tests.support.matrices import emulating, shape
from tests.support.running import device_profile, node_of, plan, run, schedules_of, tuned_to
from webnn_vk.compiler.ir import Emitter, Graph, Value
from webnn_vk.compiler.kernels import Schedule, conv_columns, kernel_nodes
from webnn_vk.compiler.passes import Compilation
from webnn_vk.compiler.types.data_types import MLOperandDescriptor
from webnn_vk.driver.device_profile import DeviceProfile

# A rounding of the output, and of sums of up to 600 products of numbers up to 2.
_TOLERANCE = 2.0**-10


def _gpu() -> DeviceProfile:
    """Parts are for devices whose class cuts products."""
    return emulating().replace(device_type="discrete", vendor_id=0x10DE)


def _schedules(node: Any, profile: DeviceProfile) -> list[Schedule]:
    found = [s for s in schedules_of(node, profile) if s.kernel == conv_columns.BY_MATRICES]
    assert found, "the profile lists no shape for this product"
    return found


def _assert_right(node: Any, arrays: Any, profile: DeviceProfile, schedules: Any) -> None:
    with np.errstate(invalid="ignore"):
        (expected,) = node.evaluate(arrays.get)
    for schedule in schedules:
        (computed,) = run(node, arrays, profile, schedule)
        assert_allclose(
            computed.astype(np.float64), expected.astype(np.float64), rtol=_TOLERANCE,
            atol=4 * _TOLERANCE, err_msg=f"{node.title} {dict(node.arguments)} by {schedule}",
        )


#: Shapes of the input and the filter (oihw), and arguments.
_CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "whole tiles": ((1, 16, 9, 9), (32, 16, 2, 2), {}),
    "three by three": ((1, 8, 10, 10), (40, 8, 3, 3), {"padding": [1, 1, 1, 1]}),
    "no vectors of columns": ((1, 3, 9, 11), (33, 3, 3, 5), {"padding": [2, 0, 1, 3]}),
    "fewer channels than a fragment": ((1, 5, 7, 9), (3, 5, 2, 2), {}),
    "strides": ((1, 4, 13, 12), (35, 4, 3, 3), {"strides": [2, 3], "padding": [1, 0, 2, 1]}),
    "strides past the last taps": ((1, 8, 12, 11), (32, 8, 2, 1), {"strides": [3, 4]}),
    "dilations": ((1, 6, 14, 12), (36, 6, 3, 2), {"dilations": [3, 2], "padding": [0, 2, 1, 0]}),
    "both": ((1, 6, 15, 14), (36, 6, 2, 3), {
        "dilations": [2, 3], "strides": [2, 1], "padding": [1, 2, 3, 1]}),
    "one dimension": ((1, 16, 1, 70), (40, 16, 1, 5), {"padding": [0, 0, 2, 2]}),
    "several images": ((3, 8, 7, 9), (34, 8, 3, 3), {"padding": [1, 0, 0, 1]}),
    "several images, no vectors": ((2, 3, 7, 7), (33, 3, 3, 3), {"strides": [2, 2]}),
}


@pytest.mark.parametrize("matrices", ["", "16x8x16, subgroups of 32"])
@pytest.mark.parametrize("name", _CASES)
def test_by_every_tiling(name: str, matrices: str) -> None:
    """With a bias and without."""
    require_vulkan()
    x_shape, w_shape, arguments = _CASES[name]
    number = [*_CASES].index(name)
    rng = np.random.default_rng(number)
    x, w = random_array(rng, "float16", x_shape), random_array(rng, "float16", w_shape)
    bias = random_array(rng, "float16", w_shape[:1]) if number % 2 else None
    node, arrays = node_of("conv2d", x, w, bias=bias, **arguments)
    profile = emulating(matrices)
    _assert_right(node, arrays, profile, _schedules(node, profile))


@pytest.mark.parametrize("order", ["hwio", "ohwi", "ihwo"])
def test_filters_that_lie_otherwise(order: str) -> None:
    """A constant is permuted; what is no constant has no such kernel."""
    require_vulkan()
    rng = np.random.default_rng(len(order))
    taps = {"o": 33, "i": 8, "h": 3, "w": 2}
    w = random_array(rng, "float16", tuple(taps[d] for d in order))
    x = random_array(rng, "float16", (2, 8, 7, 9))
    node, arrays = node_of("conv2d", x, w, filter_layout=order)
    profile = emulating()
    _assert_right(node, arrays, profile, _schedules(node, profile)[:1])
    given = (MLOperandDescriptor("float16", array.shape) for array in (x, w))
    node, _ = node_of("conv2d", *given, filter_layout=order)
    assert not [s for s in schedules_of(node, profile) if s.kernel == conv_columns.BY_MATRICES]


@pytest.mark.parametrize("images", [1, 2])
def test_parts_of_long_columns(images: int) -> None:
    """512 elements of a column, and 576, which only some numbers of parts divide; with a bias."""
    require_vulkan()
    rng, profile = np.random.default_rng(images), _gpu()
    for channels, taps, counts in ((128, (2, 2), {2, 4}), (64, (3, 3), {2, 4})):
        x = random_array(rng, "float16", (images, channels, 5, 9))
        w = random_array(rng, "float16", (34, channels, *taps)) / np.float16(8)
        node, arrays = node_of(
            "conv2d", x, w, bias=random_array(rng, "float16", (34,)), padding=[1, 0, 1, 0],
        )
        schedules = _schedules(node, profile)
        assert {s.parts for s in schedules} == {1, *counts}
        smallest = [s for s in schedules if s["BM"] == 32 and s.parts > 1]
        made = plan(node, profile, tuned_to(conv_columns.BY_MATRICES, node, profile))
        assert [d.kernel for d in made] == ["copy", "copy", "matmul_coopmat", "matmul_sum"]
        _assert_right(node, arrays, profile, smallest)


_Finish = Callable[[Emitter, Value, Value], Value]


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("finish, reference", [
    (lambda b, v, c: b.relu(b.add(v, c)), lambda y, c: np.maximum(y + c, 0)),
    (lambda b, v, c: b.cast(b.mul(v, c), "float32"), lambda y, c: y * c),
], ids=["add and relu", "mul and cast"])
def test_fused_steps(finish: _Finish, reference: Callable, parts: int) -> None:
    """What follows the convolution, with an operand of its size, as the kernel's epilogue."""
    require_vulkan()
    rng, profile = np.random.default_rng(parts), _gpu()
    x, w = (random_array(rng, "float16", s) for s in ((1, 64, 6, 7), (40, 64, 2, 2)))
    w, c = w / np.float16(4), random_array(rng, "float16", (1, 40, 5, 6))
    emit = Emitter()
    values = [Value(MLOperandDescriptor("float16", x.shape), name="x"), emit.constant(w),
              emit.constant(c)]
    out = finish(emit, emit.conv2d(*values[:2]), values[2])
    graph = Graph({"x": values[0]}, {"out": out}, tuple(emit.nodes))
    (node,) = kernel_nodes(graph, Compilation(profile))
    assert node.epilogue
    arrays = dict(zip(values, (x, w, c), strict=True))
    schedule = next(s for s in _schedules(node, profile) if s.parts == parts)
    (computed,) = run(node, arrays, profile, schedule)
    alone, given = node_of("conv2d", x.astype(np.float32), w.astype(np.float32))
    (plain,) = alone.evaluate(given.get)
    expected = reference(plain, c.astype(np.float32))
    assert_allclose(computed.astype(np.float64), expected, rtol=4e-3, atol=1e-2)


def test_infinite_weights_and_inputs() -> None:
    """Zeros beside the input turn infinite weights into NaN; nothing reaches another channel or
    pixel."""
    require_vulkan()
    rng, profile = np.random.default_rng(3), emulating()
    x = random_array(rng, "float16", (1, 5, 6, 7))
    w = random_array(rng, "float16", (33, 5, 3, 3))
    x[0, 4, 5, 6], w[32, 4, 0, 2], w[0, 0, 2, 2] = np.inf, np.inf, np.nan
    node, arrays = node_of("conv2d", x, w, padding=[1, 1, 1, 1])
    _assert_right(node, arrays, profile, _schedules(node, profile)[:1])


def test_float32_where_a_device_has_such_matrices() -> None:
    """Only tuning chooses them."""
    require_vulkan()
    profile = device_profile().masked(["cooperative_matrix"]).replace(
        cooperative_matrices=(shape(8, 8, 8, "float32"),), subgroup_size=8,
        device_type="discrete", vendor_id=0x10DE,
    )
    rng = np.random.default_rng(4)
    x, w = (random_array(rng, "float32", s) for s in ((1, 12, 9, 10), (36, 12, 3, 3)))
    node, arrays = node_of("conv2d", x, w, padding=[1, 1, 0, 0], strides=[1, 2])
    assert "matmul_coopmat" not in {d.kernel for d in plan(node, profile)}
    _assert_right(node, arrays, profile, _schedules(node, profile)[:1])
