"""Pipelines are made while the rest of their graph is compiled, and weights are uploaded while
pipelines are made."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.contexts import open_over, returns_to, settled_bytes
from tests.support.discriminating import assert_allclose
from tests.support.driver_proxy import DriverProxy
from webnn_vk import MLContext, MLGraph, MLGraphBuilder, MLOperandDescriptor
from webnn_vk.driver import OutOfDeviceMemory, PipelineRequest
from webnn_vk.driver.vulkan.errors import VulkanError
from webnn_vk.runtime import pipelines_ahead
from webnn_vk.support import warnings as library_warnings

AHEAD = "webnn_vk-pipelines"
X = np.random.default_rng(1).integers(-4, 5, (3, 40)).astype(np.float32) / 32
W = np.random.default_rng(2).integers(-4, 5, (40, 24)).astype(np.float32)


class Gated(DriverProxy):
    """A GPU's driver. ``before`` is called before it makes the pipelines of a request; ``by``: the
    threads that asked, by templates. ``submits``: how many there were."""

    def __init__(self, driver: Any) -> None:
        super().__init__(driver)
        self.profile = driver.profile.replace(device_type="discrete", vendor_id=0x10DE)
        self.by: dict[str, set[str]] = {}
        self.submits = 0
        self.before: Any = lambda request: None

    def pipelines(self, requests: Sequence[PipelineRequest]) -> Any:
        for request in requests:
            self.by.setdefault(request.name, set()).add(threading.current_thread().name)
            self.before(request)
        return self.driver.pipelines(requests)

    def allocate(self, size: int, **options: Any) -> Any:
        allocation = self.driver.allocate(size, **options)
        if not (options.get("host") or options.get("host_access")):
            allocation.mapped = None  # weights are copied on the device
        return allocation

    def submit(self, recordings: Any, **options: Any) -> int:
        self.submits += 1
        return self.driver.submit(recordings, **options)


@pytest.fixture
def opened(vulkan: None, tmp_path: Path):
    context, driver = open_over(Gated, cache=tmp_path)
    with context:
        _run(context, _build(context))  # keeps the modules in memory
        driver.by.clear()
        yield context, driver


def _build(context: MLContext, timeout: float = 120) -> MLGraph:
    builder = MLGraphBuilder(context)
    x = builder.input("x", MLOperandDescriptor("float32", X.shape))
    product = builder.matmul(x, builder.constant(W))
    return builder.build({"y": builder.softmax(product, 1)}).result(timeout)


def _run(context: MLContext, graph: MLGraph) -> None:
    computed = context.compute(graph, {"x": X})["y"]
    exponential = np.exp(X @ W - (X @ W).max(1, keepdims=True))
    assert_allclose(
        computed, exponential / exponential.sum(1, keepdims=True), rtol=1e-5, atol=1e-7
    )


def test_pipelines_are_begun_while_the_graph_is_planned(opened, monkeypatch) -> None:
    context, driver = opened
    begun = threading.Event()
    driver.before = lambda request: begun.set()
    device = context._state.device
    find_shaders = device.find_shaders

    def after_planning(program: Any) -> None:
        assert begun.wait(60), "no pipeline was begun before the program was there"
        find_shaders(program)

    monkeypatch.setattr(device, "find_shaders", after_planning)
    graph = _build(context)
    for threads in driver.by.values():
        assert AHEAD in threads
    assert not [t for t in threading.enumerate() if t.name == AHEAD]
    _run(context, graph)


def test_each_pipeline_is_begun_once(opened) -> None:
    context, driver = opened
    asked = []
    driver.before = lambda request: threading.current_thread().name == AHEAD and (
        asked.append((request.spirv, request.constants))
    )
    for _ in range(2):  # the second time its modules are there
        asked.clear()
        builder = MLGraphBuilder(context)
        value = builder.input("x", MLOperandDescriptor("float32", X.shape))
        for _ in range(4):  # of one kernel
            value = builder.softmax(value, 1)
        builder.build({"y": value}).result(120)
    assert len(asked) == 1


def test_without_another_thread_the_executable_makes_them(opened, monkeypatch) -> None:
    context, driver = opened

    def none_left() -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(pipelines_ahead.memory_probe, "require_for_thread", none_left)
    graph = _build(context)
    assert not [name for names in driver.by.values() for name in names if name == AHEAD]
    monkeypatch.undo()
    _run(context, graph)


def test_modules_for_the_compiler_are_left_to_it(vulkan: None, tmp_path: Path) -> None:
    context, driver = open_over(Gated, cache=tmp_path)
    with context:
        # A number that no other kernel has, in a module that is not in the archive either.
        builder = MLGraphBuilder(context)
        x = builder.input("x", MLOperandDescriptor("float32", (5,)))
        value = builder.mul(builder.add(x, builder.constant("float32", 0.1234567)), x)
        for _ in range(3):
            value = builder.tan(builder.add(value, builder.sin(x)))
        builder.build({"y": value}).result(120)
        assert driver.by
        assert not [n for names in driver.by.values() for n in names if n == AHEAD]


def test_what_fails_ahead_is_tried_again(opened) -> None:
    context, driver = opened

    def fails_ahead(request: PipelineRequest) -> None:
        if threading.current_thread().name == AHEAD:
            raise OutOfDeviceMemory("planted")

    driver.before = fails_ahead
    _run(context, _build(context))


def test_weights_are_uploaded_while_pipelines_are_made(opened) -> None:
    context, driver = opened
    packed = threading.Event()
    submit = driver.driver.submit

    def noted(recordings: Any, **options: Any) -> int:
        value = submit(recordings, **options)
        packed.set()
        return value

    driver.submit = noted
    late = []

    def waits(request: PipelineRequest) -> None:
        if request.name.startswith("softmax"):
            late.append(packed.wait(60))

    driver.before = waits
    _run(context, _build(context))
    assert late and all(late), "the weights' submit came after the last pipeline"


def test_a_pipeline_refused_after_the_upload(opened, monkeypatch) -> None:
    """The graph is built without it; what was uploaded for the first attempt is freed."""
    context, driver = opened
    monkeypatch.setattr(library_warnings, "_said", set())
    _build(context).destroy()
    held = settled_bytes(context)

    def refuses(request: PipelineRequest) -> None:
        if request.name.startswith("softmax"):
            raise VulkanError("no free register", "VK_ERROR_UNKNOWN")

    driver.before = refuses
    submits = driver.submits
    with pytest.warns(RuntimeWarning, match="refuses are not used"):
        graph = _build(context)
    assert driver.submits > submits
    assert graph.report().count("cpu") == 1
    _run(context, graph)
    graph.destroy()
    assert returns_to(context, held)


def test_memory_that_runs_out_for_a_late_pipeline(opened) -> None:
    """The build is rejected, and frees what was uploaded; the next one succeeds."""
    context, driver = opened
    _build(context).destroy()
    held = settled_bytes(context)

    def fails(request: PipelineRequest) -> None:
        if request.name.startswith("softmax"):
            raise OutOfDeviceMemory("planted")

    driver.before = fails
    with pytest.raises(Exception, match="out of memory: planted") as caught:
        _build(context)
    assert caught.type.__name__ == "OperationError"
    del caught
    assert returns_to(context, held)
    driver.before = lambda request: None
    _run(context, _build(context))
