"""Compares arrays in units in the last place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from tests.support.discriminating import assert_discriminating
from tests.support.running import run
from webnn_vk.compiler.ir import Node, Value
from webnn_vk.compiler.kernels import KernelNode
from webnn_vk.driver.device_profile import DeviceProfile


def ulp_distance(a: np.ndarray, b: np.ndarray) -> int:
    """The largest distance in units in the last place (of integers: difference). NaN matches NaN;
    denormals count like other numbers."""
    distance = _distances(a, b)
    return int(distance.max()) if distance.size else 0


def _distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind != "f":
        return np.asarray(np.abs(a.astype(object) - b.astype(object)))
    integer = {2: np.int16, 4: np.int32}[a.dtype.itemsize]

    def line(x: np.ndarray) -> np.ndarray:
        bits = x.view(integer).astype(np.int64)
        return np.where(bits < 0, -(bits & np.iinfo(integer).max), bits)

    return np.where(np.isnan(a) & np.isnan(b), 0, np.abs(line(a) - line(b)))


def _within(want: np.ndarray, ulp: int, got: np.ndarray) -> np.ndarray:
    return _distances(got.astype(want.dtype), want) <= ulp


def assert_close(results: Sequence[np.ndarray], expected: Sequence[np.ndarray], ulp: int) -> None:
    """Every output equals the expected one up to ``ulp`` units in the last place."""
    for got, want in zip(results, expected, strict=True):
        assert got.dtype == want.dtype and got.shape == want.shape
        distance = ulp_distance(got, want)
        assert distance <= ulp, f"{distance} > {ulp} ULP:\n{got}\n{want}"
        if want.dtype.kind == "f":
            assert_discriminating(want, partial(_within, np.atleast_1d(want), ulp), f"{ulp} ULP")


def assert_as_reference(
    node: Node | KernelNode,
    arrays: Mapping[Value, np.ndarray],
    profile: DeviceProfile,
    ulp: int = 0,
) -> None:
    """The device's outputs equal the reference's up to ``ulp`` units in the last place."""
    assert_close(run(node, arrays, profile), node.evaluate(arrays.get), ulp)
