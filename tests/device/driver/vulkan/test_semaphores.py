"""The timeline: waits with timeouts, host signals between submits, threads, and loss."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import numpy as np
import pytest

from webnn_vk.driver import (
    BarrierCommand,
    DeviceLost,
    DispatchCommand,
    DriverClosed,
    FillCommand,
    OutOfHostMemory,
    Pipeline,
)
from webnn_vk.driver.vulkan import binding as vk
from webnn_vk.driver.vulkan import submission
from webnn_vk.driver.vulkan.driver import VulkanDriver, open_driver
from webnn_vk.driver.vulkan.memory import VulkanAllocation
from webnn_vk.driver.vulkan.recording import put_barrier
from webnn_vk.driver.vulkan.snapshot import PhysicalDevice

MakePipeline = Callable[..., Pipeline]
Scale = Callable[..., DispatchCommand]


def words(allocation: VulkanAllocation) -> np.ndarray:
    return np.frombuffer(allocation.mapped, np.uint32)


def test_values_go_up(own_driver: VulkanDriver) -> None:
    empty = own_driver.record([])
    assert own_driver.completed() == own_driver.submitted() == 0
    assert [own_driver.submit([empty]) for _ in range(3)] == [1, 2, 3]
    assert own_driver.submitted() == 3
    assert own_driver.wait(3, 60)
    assert own_driver.completed() == 3
    assert own_driver.wait(0) and own_driver.wait(2, 0)
    with pytest.raises(ValueError, match="value 4 was never submitted; the last is 3"):
        own_driver.wait(4)


def test_submit_waits_for_a_later_signal_of_the_host(own_driver: VulkanDriver) -> None:
    data = own_driver.allocate(1024, host=True)
    words(data)[:] = 0
    gate = own_driver.sharing.semaphore()
    fill = own_driver.record([FillCommand(data, 0, 1024, 7)])
    first = own_driver.submit([fill], wait=[(gate, 5)])
    # The next one waits as well: the queue is in order.
    second = own_driver.submit([own_driver.record([FillCommand(data, 0, 512, 8)])])
    assert own_driver.wait(first, 0.2) is False
    assert own_driver.wait(second, 0) is False
    assert own_driver.completed() == 0
    assert not words(data).any()
    gate.signal(4)
    assert own_driver.wait(first, 0.05) is False
    gate.signal(5)
    assert own_driver.wait(second, 60)
    assert own_driver.completed() == 2
    assert np.array_equal(words(data), [8] * 128 + [7] * 128)


def test_cpu_step_between_two_submits(own_driver: VulkanDriver, pipeline: MakePipeline,
                                      scale: Scale) -> None:
    """GPU, then host, then GPU; everything is submitted before the host has done its part."""
    first, second = (own_driver.allocate(256, host=True) for _ in range(2))
    done_on_gpu, done_on_host = own_driver.sharing.semaphore(), own_driver.sharing.semaphore()
    words(first)[:] = 1
    kernel = pipeline(own_driver, 10)
    own_driver.submit([own_driver.record([scale(kernel, first, second, 64)])],
                      wait=[(done_on_host, 1)], signal=[(done_on_gpu, 1)])
    last = own_driver.submit([own_driver.record([scale(kernel, second, first, 64)])],
                             wait=[(done_on_host, 2)], signal=[(done_on_gpu, 2)])
    done_on_host.signal(1)
    assert done_on_gpu.wait(1, 60)
    words(second)[:] += 5
    assert done_on_gpu.wait(2, 0.05) is False
    done_on_host.signal(2)
    assert own_driver.wait(last, 60)
    assert np.array_equal(words(first), np.full(64, 150))


def test_semaphore_rules(own_driver: VulkanDriver) -> None:
    semaphore = own_driver.sharing.semaphore()
    assert semaphore.value() == 0
    semaphore.signal(3)
    assert semaphore.value() == 3
    for value in (3, 2):
        with pytest.raises(ValueError, match=f"only goes up: {value} after 3"):
            semaphore.signal(value)
    assert semaphore.wait(3) and semaphore.wait(1)
    start = time.monotonic()
    assert semaphore.wait(4, 0.3) is False
    assert time.monotonic() - start >= 0.3
    assert semaphore.wait(4, 0) is False
    semaphore.close()
    semaphore.close()
    with pytest.raises(ValueError, match="closed"):
        semaphore.value()


def test_recording_resubmitted_while_pending(own_driver: VulkanDriver, pipeline: MakePipeline,
                                             scale: Scale) -> None:
    data, other = (own_driver.allocate(256, host=True) for _ in range(2))
    words(data)[:] = 0
    step = own_driver.record([scale(pipeline(own_driver, 1), data, other, 64, 1), BarrierCommand(),
                              scale(pipeline(own_driver, 1), other, data, 64)])
    gate = own_driver.sharing.semaphore()
    own_driver.submit([step], wait=[(gate, 1)])
    values = [own_driver.submit([step]) for _ in range(200)]
    assert own_driver.completed() == 0
    gate.signal(1)
    assert own_driver.wait(values[-1], 60)
    assert np.array_equal(words(data), np.full(64, 201))


def test_released_in_flight(own_driver: VulkanDriver) -> None:
    gate = own_driver.sharing.semaphore()
    data = own_driver.allocate(4096)
    recording = own_driver.record([FillCommand(data, 0, 4096, 1)])
    value = own_driver.submit([recording], wait=[(gate, 1)])
    data.free()
    recording.free()
    assert own_driver.wait(value, 0) is False
    assert own_driver.memory_in_use().allocated == 4096
    gate.signal(1)
    gate.close()
    assert own_driver.wait(value, 60)
    assert own_driver.memory_in_use().allocated == 0


def test_submits_from_many_threads(own_driver: VulkanDriver, pipeline: MakePipeline,
                                   scale: Scale) -> None:
    values: list[int] = []
    wrong: list[object] = []

    def work(number: int) -> None:
        try:
            data, other = (own_driver.allocate(256, host=True) for _ in range(2))
            words(data)[:] = number
            kernel = pipeline(own_driver, 1)
            for _ in range(25):
                mine = own_driver.submit([own_driver.record([
                    scale(kernel, data, other, 64, 1), BarrierCommand(),
                    scale(kernel, other, data, 64, 1)])])
                values.append(mine)
                assert own_driver.wait(mine, 60)
            assert np.array_equal(words(data), np.full(64, number + 50))
        except BaseException as error:
            wrong.append(error)
    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert sorted(values) == list(range(1, 201))


def test_waits_of_many_threads_end_with_the_work(own_driver: VulkanDriver) -> None:
    gate = own_driver.sharing.semaphore()
    value = own_driver.submit([own_driver.record([])], wait=[(gate, 1)])
    results: list[bool] = []
    threads = [threading.Thread(target=lambda: results.append(own_driver.wait(value, 60)))
               for _ in range(6)]
    for thread in threads:
        thread.start()
    gate.signal(1)
    for thread in threads:
        thread.join()
    assert results == [True] * 6


def test_close_with_work_that_waits_for_the_host(physical: PhysicalDevice) -> None:
    driver = open_driver(physical)
    gate = driver.sharing.semaphore()
    driver.submit([driver.record([])], wait=[(gate, 3)])
    driver.submit([driver.record([])], wait=[(gate, 9)])
    driver.close()
    with pytest.raises(DriverClosed):
        driver.completed()


def test_close_while_a_thread_waits_for_a_semaphore(physical: PhysicalDevice) -> None:
    driver = open_driver(physical)
    semaphore = driver.sharing.semaphore()
    raised: list[BaseException] = []
    waiting = threading.Event()

    def work() -> None:
        waiting.set()
        try:
            semaphore.wait(1)
        except DriverClosed as error:
            raised.append(error)
    thread = threading.Thread(target=work)
    thread.start()
    waiting.wait()
    driver.close()
    thread.join(60)
    assert len(raised) == 1


def test_primaries_are_used_again(
    own_driver: VulkanDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as were in flight at once, whatever is submitted later, recorded again only for
    other recordings."""
    gate, data = own_driver.sharing.semaphore(), own_driver.allocate(256, host=True)
    fills = [own_driver.record([FillCommand(data, 0, 256, value)]) for value in range(3)]
    primaries = own_driver._submission._primaries
    recorded = []  # both barriers of each
    monkeypatch.setattr(
        submission, "put_barrier", lambda *arguments: recorded.append(put_barrier(*arguments))
    )
    for _ in range(20):
        own_driver.wait(own_driver.submit(fills))
    assert len(primaries) == 1 and len(recorded) == 2
    for order, value in ((fills[::-1], 0), (fills, 2), (fills[:2], 1), (fills, 2)):
        own_driver.wait(own_driver.submit(order))
        assert np.array_equal(words(data), [value] * 64)
    assert len(primaries) == 1 and len(recorded) == 2 * 5
    own_driver.submit([fills[0]], wait=[(gate, 1)])
    held = [own_driver.submit([fills[i % 3]] * 40) for i in range(6)]
    own_driver.submit([], signal=[(own_driver.sharing.semaphore(), 1)])  # needs none
    assert len(primaries) == 7
    gate.signal(1)
    assert own_driver.wait(held[-1], 60)
    assert np.array_equal(words(data), [2] * 64)
    for fill in (fills[1], fills[0]):
        own_driver.wait(own_driver.submit([fill]))
    assert len(primaries) == 7
    assert np.array_equal(words(data), [0] * 64)


def failing(*names: str) -> Callable[..., int]:
    """Stands in for `Submission.submit`: returns VkResults instead of submitting."""
    results = [vk.const(name) for name in names]
    return lambda *arguments: results.pop(0)


def test_device_lost(own_driver: VulkanDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    recording = own_driver.record([])
    own_driver.wait(own_driver.submit([recording]))
    monkeypatch.setattr(own_driver._submission, "submit", failing("VK_ERROR_DEVICE_LOST"))
    assert own_driver.lost() is None
    with pytest.raises(DeviceLost, match="vkQueueSubmit: VK_ERROR_DEVICE_LOST"):
        own_driver.submit([recording])
    assert "VK_ERROR_DEVICE_LOST" in own_driver.lost()
    for call in (lambda: own_driver.submit([recording]), lambda: own_driver.allocate(1),
                 lambda: own_driver.record([]), lambda: own_driver.wait(1), own_driver.completed,
                 own_driver.sharing.semaphore):
        with pytest.raises(DeviceLost):
            call()
    # Releasing goes on.
    recording.free()
    assert own_driver.memory_in_use().allocations == 0
    assert [*own_driver._natives] == [own_driver._timeline]


def test_failing_submit_takes_no_value(own_driver: VulkanDriver,
                                       monkeypatch: pytest.MonkeyPatch) -> None:
    recording = own_driver.record([])
    with monkeypatch.context() as patch:
        patch.setattr(own_driver._submission, "submit", failing("VK_ERROR_OUT_OF_HOST_MEMORY"))
        with pytest.raises(OutOfHostMemory, match="vkQueueSubmit"):
            own_driver.submit([recording])
    assert own_driver.submit([recording]) == 1
    assert own_driver.wait(1, 60)
    assert own_driver.lost() is None


def test_loss_of_one_leaves_others(physical: PhysicalDevice, own_driver: VulkanDriver,
                                   monkeypatch: pytest.MonkeyPatch) -> None:
    other = open_driver(physical)
    monkeypatch.setattr(other._submission, "submit", failing("VK_ERROR_DEVICE_LOST"))
    with pytest.raises(DeviceLost):
        other.submit([])
    other.close()
    assert own_driver.wait(own_driver.submit([own_driver.record([])]), 60)
