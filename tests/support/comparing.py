"""Compares floating-point results of a plan with the NumPy reference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from tests.support.discriminating import assert_allclose
from tests.support.running import device_profile, run
from webnn_vk.compiler.ir import Node
from webnn_vk.compiler.kernels import KernelNode, Schedule
from webnn_vk.compiler.kernels.node import reads
from webnn_vk.driver.device_profile import DeviceProfile

#: The unchanged device, and a device whose kernels share rows among many invocations.
WAYS = ("software", "discrete")
#: One floating-point type for each: every pair would compile twice as many modules.
EACH_WAY = pytest.mark.parametrize(
    ("way", "data_type"), [("software", "float32"), ("discrete", "float16")]
)
#: The second device, which binds whole tensors or small portions, by the same modules. The first
#: one has its random operators, as it is, without native types and in portions, in
#: conformance/differential/test_operators.py.
GPU_WAYS = ("discrete", "portions")


def profile_for(way: str, portion: int = 1024) -> DeviceProfile:
    """The test device's profile, changed so that plans go the given way; ``portion`` in bytes."""
    match way:
        case "discrete":
            return device_profile(device_type="discrete")
        case "masked":
            return device_profile(masked=True)
        case "portions":
            return device_profile(max_storage_buffer_range=portion, device_type="discrete")
    return device_profile()


def assert_close(
    node: Node | KernelNode,
    arrays: Mapping[Any, np.ndarray],
    profile: DeviceProfile,
    error: float = 1e-6,
    schedule: Schedule | None = None,
    least: float = 1.0,
) -> None:
    """Compares the outputs of the node's plan or of a ``schedule``. Outputs are exact if integer or
    without ``error``; otherwise within it, relative above ``least`` and absolute below (float16:
    one rounding of its own size more)."""
    (own,), (expected,) = run(node, arrays, profile, schedule), node.evaluate(arrays.get)
    assert own.dtype == expected.dtype and own.shape == expected.shape
    what = f"{node.title} {[str(v.descriptor) for v in reads(node)]} {dict(node.arguments)}"
    if own.dtype.kind != "f" or not error:
        np.testing.assert_array_equal(own, expected, err_msg=what)
        return
    rounding = 2.0**-10 if own.dtype == np.float16 else 0.0
    assert_allclose(
        own.astype(np.float64), expected.astype(np.float64), rtol=error + rounding,
        atol=error * least, err_msg=what,
    )


def random_array(
    rng: np.random.Generator, data_type: str, shape: tuple[int, ...], high: float = 2.0
) -> np.ndarray:
    """Floats in -high … high, integers from their whole range."""
    dtype = np.dtype(data_type)
    if dtype.kind == "f":
        return rng.uniform(-high, high, shape).astype(dtype)
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)


def random_shape(rng: np.random.Generator, low: int = 0, high: int = 8) -> tuple[int, ...]:
    rank = int(rng.integers(low, high + 1))
    return tuple(int(n) for n in rng.choice((1, 2, 3, 4, 7) if rank < 5 else (1, 2, 3), rank))
