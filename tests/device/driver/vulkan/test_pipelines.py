"""The pipeline store: duplicates, failures, interruption; unused pipelines are destroyed."""

from __future__ import annotations

import gc
import struct
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.device.driver.vulkan.test_device import download, run, upload
from tests.support import selection
from tests.support.contexts import open_context
from tests.support.discriminating import assert_allclose
from tests.support.drivers import pipeline_of
from webnn_vk import MLGraphBuilder, MLTensorDescriptor
from webnn_vk.codegen.compiler import find_compiler
from webnn_vk.driver import DispatchCommand, Pipeline, PipelineRequest
from webnn_vk.driver.vulkan import binding as vk
from webnn_vk.driver.vulkan import pipelines
from webnn_vk.driver.vulkan.driver import VulkanDriver
from webnn_vk.driver.vulkan.errors import VulkanError

MakePipeline = Callable[..., Pipeline]
Scale = Callable[..., DispatchCommand]


@pytest.fixture
def request_for(spirv: bytes) -> Callable[[int], PipelineRequest]:
    return lambda factor: PipelineRequest(
        spirv, 2, 8, ((0, struct.pack("<I", 64)), (1, struct.pack("<I", factor))), f"x{factor}")


def counting(monkeypatch: pytest.MonkeyPatch,
             action: Callable[[int], None] = lambda count: None) -> list[str]:
    """Counts the pipelines created; `action` runs before each with its number (from 1)."""
    created: list[str] = []
    original = pipelines.PipelineStore._create

    def create(store: object, request: PipelineRequest) -> object:
        created.append(request.name)
        action(len(created))
        return original(store, request)
    monkeypatch.setattr(pipelines.PipelineStore, "_create", create)
    return created


def test_duplicates_are_made_once(own_driver: VulkanDriver, monkeypatch: pytest.MonkeyPatch,
                                  request_for: Callable[[int], PipelineRequest]) -> None:
    created = counting(monkeypatch)
    made = own_driver.pipelines([request_for(factor) for factor in (1, 2, 1, 3, 2)])
    assert [pipeline.request.name for pipeline in made] == ["x1", "x2", "x1", "x3", "x2"]
    assert made[0] is made[2] and made[1] is made[4]
    assert sorted(created) == ["x1", "x2", "x3"]
    assert own_driver.pipelines([request_for(2)]) == [made[1]]
    assert len(created) == 3


def test_duplicates_between_threads(own_driver: VulkanDriver, monkeypatch: pytest.MonkeyPatch,
                                    request_for: Callable[[int], PipelineRequest]) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def hold(count: int) -> None:
        begun.set()
        assert go_on.wait(60)
    created = counting(monkeypatch, hold)
    results: list[object] = []
    threads = [threading.Thread(
        target=lambda: results.extend(own_driver.pipelines([request_for(5)]))) for _ in range(4)]
    for thread in threads:
        thread.start()
    begun.wait(60)
    go_on.set()
    for thread in threads:
        thread.join()
    assert created == ["x5"]
    assert len(results) == 4 and len(set(map(id, results))) == 1


def test_a_failure_is_not_remembered(own_driver: VulkanDriver, monkeypatch: pytest.MonkeyPatch,
                                     request_for: Callable[[int], PipelineRequest]) -> None:
    def fail(count: int) -> None:
        if count == 1:
            raise VulkanError("no room")
    counting(monkeypatch, fail)
    with pytest.raises(VulkanError, match="no room"):
        own_driver.pipelines([request_for(1)])
    assert own_driver.pipelines([request_for(1)])[0].request.name == "x1"


def test_ctrl_c_leaves_nothing_to_wait_for(own_driver: VulkanDriver,
                                           monkeypatch: pytest.MonkeyPatch,
                                           request_for: Callable[[int], PipelineRequest]) -> None:
    def interrupted(*arguments: object) -> None:
        """Ctrl-C before any thread has started."""
        raise KeyboardInterrupt

    monkeypatch.setattr("webnn_vk.driver.vulkan.pipelines.spread", interrupted)
    with pytest.raises(KeyboardInterrupt):
        own_driver.pipelines([request_for(1), request_for(2)])
    monkeypatch.undo()
    assert len(own_driver.pipelines([request_for(1), request_for(2)])) == 2


def test_required_subgroup_size(own_driver: VulkanDriver, spirv: bytes) -> None:
    if "subgroup_size_control" not in own_driver.profile.features:
        pytest.skip("the device can't fix the subgroup size")
    size = own_driver.profile.subgroup_size
    pipeline = pipeline_of(own_driver, spirv, binding_count=2, push_size=8, subgroup_size=size)
    assert pipeline.request.subgroup_size == size
    assert pipeline_of(own_driver, spirv, binding_count=2, push_size=8) is not pipeline
    constants = ((0, struct.pack("<I", 2 * size)),)  # x
    full = PipelineRequest(
        spirv, 2, 8, constants, subgroup_size=size, full_subgroups=True)
    (found,) = own_driver.pipelines([full])
    assert found.request.full_subgroups
    (another,) = own_driver.pipelines([replace(full, full_subgroups=False)])
    assert another.request != found.request
    for wrong in (3, 2 * own_driver.profile.max_subgroup_size):
        with pytest.raises(ValueError, match=f"subgroups of {wrong}"):
            pipeline_of(own_driver, spirv, binding_count=2, push_size=8, subgroup_size=wrong)


class CountingLibrary:
    """The Vulkan library; `living` are the VkPipelines made with it by handle, each with its
    factor K."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self.living: dict[int, int] = {}
        self.created: list[int] = []
        self._handles: set[int] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._library, name)

    def vkCreateComputePipelines(self, *arguments: Any) -> int:
        result = self._library.vkCreateComputePipelines(*arguments)
        data = arguments[3].stage.pSpecializationInfo.pData
        factor = vk.ffi.cast("uint32_t *", data)[1]
        self.living[number(arguments[5][0])] = factor
        self._handles.add(number(arguments[5][0]))
        self.created.append(factor)
        return result

    def vkDestroyPipeline(self, device: Any, handle: Any, allocator: Any) -> None:
        if number(handle) in self._handles:  # not another driver's, made earlier
            del self.living[number(handle)]  # KeyError: it was destroyed already
        self._library.vkDestroyPipeline(device, handle, allocator)


def number(handle: Any) -> int:
    return int(vk.ffi.cast("uintptr_t", handle))


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> CountingLibrary:
    """Counts from now on, with only 4 unused pipelines kept."""
    monkeypatch.setattr(pipelines, "MAX_IDLE", 4)
    library = CountingLibrary(vk.lib)
    monkeypatch.setattr(vk, "lib", library)
    return library


@pytest.fixture
def scaled(scale: Scale, pipeline: MakePipeline) -> Callable[[VulkanDriver, int], None]:
    """Makes the pipeline of a factor, checks what it computes, and drops it."""
    def check(driver: VulkanDriver, factor: int) -> None:
        values = np.arange(64, dtype=np.uint32)
        source, target = upload(driver, values), driver.allocate(256)
        run(driver, scale(pipeline(driver, factor), source, target, 64, factor))
        assert np.array_equal(download(driver, target, 64), values * factor + factor)
    return check


def test_unused_ones_are_given_up(library: CountingLibrary, own_driver: VulkanDriver,
                                  scaled: Callable[[VulkanDriver, int], None]) -> None:
    for factor in range(1, 31):
        scaled(own_driver, factor)
        # The one just used may not be counted among the 4 yet.
        assert len(library.living) <= 5
    own_driver.completed()
    assert sorted(library.living.values()) == [27, 28, 29, 30]
    assert library.created == list(range(1, 31))
    scaled(own_driver, 27)  # there, and now the last used
    assert len(library.created) == 30
    scaled(own_driver, 1)  # made again
    own_driver.completed()
    assert library.created[30:] == [1]
    assert sorted(library.living.values()) == [1, 27, 29, 30]
    own_driver.close()
    assert library.living == {}


def test_used_ones_stay(library: CountingLibrary, own_driver: VulkanDriver, scale: Scale,
                        request_for: Callable[[int], PipelineRequest],
                        scaled: Callable[[VulkanDriver, int], None]) -> None:
    held: Any = own_driver.pipelines([request_for(factor) for factor in range(1, 11)])
    for factor in range(20, 30):
        scaled(own_driver, factor)
    own_driver.completed()
    assert sorted(library.living.values()) == [*range(1, 11), 26, 27, 28, 29]
    source, target = upload(own_driver, np.ones(64, np.uint32)), own_driver.allocate(256)
    for factor, pipeline in enumerate(held, 1):
        assert own_driver.pipelines([request_for(factor)]) == [pipeline]
        run(own_driver, scale(pipeline, source, target, 64))
        assert np.array_equal(download(own_driver, target, 64), np.full(64, factor))
    # No build has to follow: any call that checks the device's progress destroys them.
    held.append(held)  # garbage that only the collector finds
    del held, pipeline
    gc.collect()
    assert len(library.living) == 14
    own_driver.completed()
    assert len(library.living) == 4


def test_none_in_flight_is_given_up(library: CountingLibrary, own_driver: VulkanDriver,
                                    pipeline: MakePipeline, scale: Scale,
                                    request_for: Callable[[int], PipelineRequest]) -> None:
    source, target = upload(own_driver, np.ones(64, np.uint32)), own_driver.allocate(256)
    start = own_driver.sharing.semaphore()
    value = own_driver.submit([own_driver.record([scale(pipeline(own_driver, 7), source, target,
                                                        64)])], wait=[(start, 1)])
    for factor in range(20, 30):
        own_driver.pipelines([request_for(factor)])
    own_driver.completed()
    assert sorted(library.living.values()) == [7, 26, 27, 28, 29]
    start.signal(1)
    assert own_driver.wait(value, 60)
    assert np.array_equal(download(own_driver, target, 64), np.full(64, 7))
    own_driver.completed()
    assert sorted(library.living.values()) == [7, 27, 28, 29]
    own_driver.pipelines([request_for(factor) for factor in range(40, 44)])
    own_driver.completed()
    assert sorted(library.living.values()) == [40, 41, 42, 43]


def test_threads_make_and_drop(library: CountingLibrary, own_driver: VulkanDriver,
                               scaled: Callable[[VulkanDriver, int], None],
                               request_for: Callable[[int], PipelineRequest]) -> None:
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        rng = selection.chance("pipelines", seed)
        held: list[Any] = []
        try:
            for _ in range(60):
                held += own_driver.pipelines([request_for(rng.randint(1, 40)) for _ in range(3)])
                scaled(own_driver, rng.randint(1, 40))
                # There is never a second pipeline beside one that is in use, nor a destroyed one.
                for pipeline in held:
                    factor = struct.unpack("<I", pipeline.request.constants[1][1])[0]
                    assert library.living[number(pipeline.handle)] == factor
                    assert list(library.living.copy().values()).count(factor) == 1
                del held[:rng.randint(0, len(held))]
        except BaseException as error:
            failures.append(error)
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert failures == []
    own_driver.completed()
    assert len(library.living) == 4
    # Of 40, this many were destroyed and made again.
    assert len(library.created) > 80


def test_graphs_leave_few_behind(library: CountingLibrary) -> None:
    if find_compiler() is None:
        pytest.skip("no GLSL compiler: chains are not fused into kernels of their own")
    shape = MLTensorDescriptor("float32", (40,), readable=True, writable=True)
    operators = [("abs", np.abs), ("neg", np.negative), ("exp", np.exp)]
    chains = [(a, b, c) for a in operators for b in operators for c in operators]
    data = np.linspace(-1, 1, 40, dtype=np.float32)
    with open_context("vulkan") as context:
        x, y = (context.create_tensor(shape).result() for _ in range(2))
        context.write_tensor(x, data)

        def build_and_run(chain: tuple[Any, ...]) -> None:
            builder = MLGraphBuilder(context)
            value, expected = builder.input("x", shape), data
            for name, function in chain:
                value, expected = getattr(builder, name)(value), function(expected)
            graph = builder.build({"y": value}).result()
            context.dispatch(graph, {"x": x}, {"y": y})
            assert_allclose(context.read_tensor(y).result().reshape(-1), expected,
                            rtol=1e-4)
        for chain in chains:
            build_and_run(chain)
            assert len(library.living) <= 6
        made = len(library.created)
        assert made >= len(chains)
        build_and_run(chains[-1])
        assert len(library.created) == made
        build_and_run(chains[0])
        assert len(library.created) == made + 1
