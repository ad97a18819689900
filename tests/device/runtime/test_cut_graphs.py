"""Graphs that take long are several submits on a GPU: by estimates before the first run, by what
was measured afterwards."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.contexts import open_over
from tests.support.driver_proxy import DriverProxy
from webnn_vk import MLContext, MLGraph, MLGraphBuilder, Settings
from webnn_vk.api.ml_graph import executable_of
from webnn_vk.codegen.store import ShaderStore
from webnn_vk.driver import DispatchCommand, Driver
from webnn_vk.driver.device_info import DeviceInfo
from webnn_vk.driver.null.driver import NullDriver
from webnn_vk.driver.null.profile import NULL_PROFILE
from webnn_vk.runtime import throttle
from webnn_vk.runtime.driver_device import DriverDevice
from webnn_vk.runtime.timeline import Timeline

LAYERS, SIDE = 6, 24
KIND = {"data_type": "float32", "shape": [SIDE, SIDE]}
WEIGHTS = np.random.default_rng(1).integers(-1, 2, (LAYERS, SIDE, SIDE)).astype(np.float32)
X = np.random.default_rng(2).integers(-1, 2, (SIDE, SIDE)).astype(np.float32)
#: The estimate of one of the products.
PRODUCT_FLOPS = 2 * SIDE**3


class Counting(DriverProxy):
    """A driver of a device of this type; ``submitted_dispatches``: how many each submit had."""

    def __init__(self, driver: Driver, device_type: str) -> None:
        super().__init__(driver)
        self.profile = driver.profile.replace(device_type=device_type, vendor_id=0x8086)
        self.submitted_dispatches: list[int] = []
        self._of: dict[int, int] = {}

    def record(self, commands: Any) -> Any:
        recording = self.driver.record(commands)
        self._of[id(recording)] = sum(isinstance(c, DispatchCommand) for c in commands)
        return recording

    def submit(self, recordings: Any, **options: Any) -> int:
        self.submitted_dispatches.append(sum(self._of[id(r)] for r in recordings))
        return self.driver.submit(recordings, **options)


def _build(context: MLContext) -> MLGraph:
    """Products that no kernel joins, and a scaling that keeps the numbers small."""
    builder = MLGraphBuilder(context)
    value = builder.input("x", KIND)
    for weights in WEIGHTS:
        value = builder.matmul(value, builder.constant(weights))
    return builder.build({"y": value}).result(120)


def _expected() -> np.ndarray:
    value = X
    for weights in WEIGHTS:
        value = value @ weights
    return value


def _tensors(context: MLContext) -> tuple[Any, Any]:
    described = {**KIND, "readable": True, "writable": True}
    x, y = (context.create_tensor(described).result(60) for _ in range(2))
    context.write_tensor(x, X)
    context.fence().wait(60)
    return x, y


def _run(context: MLContext, driver: Counting, graph: MLGraph, x: Any, y: Any) -> list[int]:
    """Runs the graph once, checks its result, and returns how many dispatches each of its submits
    had."""
    context.write_tensor(y, np.zeros_like(X))
    context.fence().wait(60)
    driver.submitted_dispatches.clear()
    context.dispatch(graph, {"x": x}, {"y": y})
    context.fence().wait(60)
    found = [count for count in driver.submitted_dispatches if count]
    np.testing.assert_array_equal(context.read_tensor(y).result(60), _expected())
    return found


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A product is estimated to take 60 ms on every device."""
    monkeypatch.setattr(throttle, "RATES", dict.fromkeys(throttle.RATES, PRODUCT_FLOPS / 0.06))


@pytest.mark.parametrize("device_type, pieces", [
    ("integrated", [1] * LAYERS), ("virtual", [1] * LAYERS), ("discrete", [3] * (LAYERS // 3)),
    ("cpu", [LAYERS]),
])
def test_the_first_run_is_cut_by_estimates(
    vulkan: None, slow: None, device_type: str, pieces: list[int]
) -> None:
    context, driver = open_over(lambda driver: Counting(driver, device_type))
    with context:
        graph, (x, y) = _build(context), _tensors(context)
        assert _run(context, driver, graph, x, y) == pieces


def test_later_runs_are_cut_by_what_was_measured(vulkan: None, slow: None) -> None:
    context, driver = open_over(lambda driver: Counting(driver, "integrated"))
    with context:
        graph, (x, y) = _build(context), _tensors(context)
        assert len(_run(context, driver, graph, x, y)) == LAYERS
        cost = executable_of(graph).cost
        assert cost.seconds is not None
        # The limit lets two products pass at a time.
        cost.seconds = LAYERS * 0.04
        assert _run(context, driver, graph, x, y) == [2] * (LAYERS // 2)
        # What was recorded stays, and other tensors get the present measurement.
        cost.seconds = 0.001
        assert _run(context, driver, graph, x, y) == [2] * (LAYERS // 2)
        assert _run(context, driver, graph, *_tensors(context)) == [LAYERS]


def test_a_short_graph_is_one_submit_once_it_was_measured(vulkan: None, slow: None) -> None:
    context, driver = open_over(lambda driver: Counting(driver, "integrated"))
    with context:
        graph, (x, y) = _build(context), _tensors(context)
        assert len(_run(context, driver, graph, x, y)) == LAYERS
        executable_of(graph).cost.seconds = 0.002
        for _ in range(2):
            assert _run(context, driver, graph, x, y) == [LAYERS]


def test_a_graph_that_takes_longer_than_estimated_is_cut_afterwards(vulkan: None) -> None:
    context, driver = open_over(lambda driver: Counting(driver, "integrated"))
    with context:
        graph, (x, y) = _build(context), _tensors(context)
        assert _run(context, driver, graph, x, y) == [LAYERS]
        executable_of(graph).cost.seconds = LAYERS * 0.06
        assert _run(context, driver, graph, x, y) == [1] * LAYERS


def test_what_moves_many_bytes_is_long_too(vulkan: None, monkeypatch) -> None:
    monkeypatch.setattr(throttle, "BANDWIDTHS", dict.fromkeys(throttle.BANDWIDTHS, 1e5))
    context, driver = open_over(lambda driver: Counting(driver, "integrated"))
    with context:
        graph, (x, y) = _build(context), _tensors(context)
        steps = [*executable_of(graph).program.dispatches_of_a_run]
        assert all(0.05 < step.bytes / 1e5 < 0.1 for step in steps)
        assert _run(context, driver, graph, x, y) == [1] * LAYERS


class Watchdog(NullDriver):
    """A device that computes a tenth of what is estimated, and is lost when a submit takes 2 s."""

    def __init__(self, profile: Any) -> None:
        super().__init__(profile)
        self.flops: dict[Any, int] = {}
        self.longest = 0.0
        self._seconds: dict[int, float] = {}

    def record(self, commands: Any) -> Any:
        recording = super().record(commands)
        rate = throttle.rate_of(self.profile) / 10
        self._seconds[id(recording)] = sum(
            self.flops.get((c.groups, c.push), 0) / rate
            for c in commands if isinstance(c, DispatchCommand)
        )
        return recording

    def submit(self, recordings: Any, **options: Any) -> int:
        self.longest = max(self.longest, sum(self._seconds[id(r)] for r in recordings))
        return super().submit(recordings, **options)


@pytest.mark.parametrize("device_type", ["integrated", "discrete"])
def test_no_watchdog_fires_on_a_device_that_is_ten_times_slower(device_type: str) -> None:
    """Forty products, 4 s of work on such a device of each type."""
    profile = NULL_PROFILE.replace(device_type=device_type)
    driver = Watchdog(profile)
    side = round((0.1 * throttle.rate_of(profile) / 10 / 2) ** (1 / 3)) // 32 * 32
    context = MLContext(
        Timeline(DriverDevice(driver, ShaderStore())), DeviceInfo.of(profile, 0), Settings()
    )
    with context:
        builder = MLGraphBuilder(context)
        kind = {"data_type": "float32", "shape": [side, side]}
        value = builder.input("x", kind)
        w = builder.input("w", kind)
        for _ in range(40):
            value = builder.matmul(value, w)
        graph = builder.build({"y": value}).result(120)
        steps = [*executable_of(graph).program.dispatches_of_a_run]
        driver.flops = {(step.groups, step.push): step.flops for step in steps}
        whole = sum(step.flops for step in steps) / (throttle.rate_of(profile) / 10)
        assert whole > 3
        described = {**kind, "readable": True, "writable": True}
        x, w, y = (context.create_tensor(described).result(60) for _ in range(3))
        context.dispatch(graph, {"x": x, "w": w}, {"y": y})
        context.fence().wait(60)
        assert 0.1 < driver.longest < 2.1
