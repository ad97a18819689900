"""Exportable semaphores: work of a context and of a GPUDevice ordered with a foreign device's work.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import webnn_vk
from tests.device.gpu.test_export_fd import opened
from tests.support.bridge import BridgedDriver
from tests.support.contexts import open_over
from tests.support.drivers import require_vulkan
from tests.support.faults import FaultyDriver
from tests.support.open_files import left_open, open_files
from webnn_vk import InvalidStateError, NotSupportedError
from webnn_vk.driver import CopyCommand
from webnn_vk.driver.vulkan.driver import open_driver
from webnn_vk.driver.vulkan.semaphores import shareable

DESCRIPTOR = {"data_type": "float32", "shape": [300], "readable": True, "writable": True}
ONES = np.ones(300, np.float32)


@pytest.fixture
def pair(adapter: Any) -> Iterator[tuple[Any, BridgedDriver]]:
    """A context, and the driver of a foreign device, with shared semaphores."""
    other = BridgedDriver(open_driver(adapter._physical))
    context, _ = open_over(BridgedDriver)
    yield context, other
    context.destroy()
    other.close()


def test_there_and_back_without_a_wait_by_the_host(pair: Any) -> None:
    context, other = pair
    tensor = context.create_tensor(DESCRIPTOR).result(60)
    semaphore = context.create_exportable_semaphore()
    theirs = other.sharing.import_semaphore(semaphore.export_fd())
    context.write_tensor(tensor, ONES)
    before = context.read_tensor(tensor)
    semaphore.enqueue_signal(1)
    semaphore.enqueue_wait(2)
    context.write_tensor(tensor, ONES * 2)
    after = context.read_tensor(tensor)
    assert theirs.wait(1, 60)
    assert np.array_equal(before.result(60), ONES)
    with pytest.raises(TimeoutError):
        after.result(0.1)
    theirs.signal(2)
    assert np.array_equal(after.result(60), ONES * 2)
    assert "last value 2" in repr(semaphore)


def test_memory_and_semaphore_together(adapter: Any, pair: Any) -> None:
    """A foreign submission works on a tensor's memory between two of ours."""
    if "external_memory_fd" not in adapter.features:
        pytest.skip("the device has no external memory")
    context, other = pair
    source, target = (context.create_exportable_tensor(DESCRIPTOR).result(60) for _ in range(2))
    theirs = [opened(other, tensor.export_fd()) for tensor in (source, target)]
    semaphore = context.create_exportable_semaphore()
    turn = other.sharing.import_semaphore(semaphore.export_fd())
    reads = []
    for round in range(8):
        copy = other.record([CopyCommand(theirs[0], 0, theirs[1], 0, 1200)])
        other.submit([copy], wait=[(turn, 2 * round + 1)], signal=[(turn, 2 * round + 2)])
        context.write_tensor(source, ONES * round)
        semaphore.enqueue_signal(2 * round + 1)
        semaphore.enqueue_wait(2 * round + 2)
        reads.append(context.read_tensor(target))
    for round, read in enumerate(reads):
        assert np.array_equal(read.result(60), ONES * round)


def test_the_signal_comes_behind_the_work(pair: Any) -> None:
    context, other = pair
    first, second = (context.create_exportable_semaphore() for _ in range(2))
    theirs = [other.sharing.import_semaphore(made.export_fd()) for made in (first, second)]
    first.enqueue_wait(7)
    second.enqueue_signal(1)
    assert not theirs[1].wait(1, 0.1)
    theirs[0].signal(7)
    assert theirs[1].wait(1, 60)


def test_values_only_grow(pair: Any) -> None:
    context, other = pair
    semaphore = context.create_exportable_semaphore()
    semaphore.enqueue_signal(3)
    for value in (3, 2, 0, -1, 2**63):
        with pytest.raises(ValueError, match="enqueue_signal: "):
            semaphore.enqueue_signal(value)
    for value in (None, "4", 4.0):
        with pytest.raises(TypeError, match="an integer is expected"):
            semaphore.enqueue_wait(value)
    theirs = other.sharing.import_semaphore(semaphore.export_fd())
    assert theirs.wait(3, 60)
    semaphore.enqueue_signal(np.int64(4))
    assert theirs.wait(4, 60)


def test_a_submit_that_fails_holds_nobody_up(adapter: Any) -> None:
    other = BridgedDriver(open_driver(adapter._physical))
    context, driver = open_over(lambda driver: BridgedDriver(FaultyDriver(driver)))
    semaphore = context.create_exportable_semaphore()
    theirs = other.sharing.import_semaphore(semaphore.export_fd())
    driver.driver.fail_submit()
    semaphore.enqueue_signal(1)
    assert theirs.wait(1, 60)
    context.destroy()
    other.close()


def test_the_end_of_context_and_device(pair: Any) -> None:
    context, _ = pair
    semaphore = context.create_exportable_semaphore()
    context.destroy()
    with pytest.raises(InvalidStateError, match="the context is lost"):
        context.create_exportable_semaphore()
    while not context._state.timeline._closed.wait(60):
        pass
    calls: list[Callable[[], Any]] = [
        semaphore.export_fd, lambda: semaphore.enqueue_signal(1), lambda: semaphore.enqueue_wait(1),
    ]
    for call in calls:
        with pytest.raises(InvalidStateError):
            call()


def test_where_there_are_none(adapter: Any, own_device: Any, cpu_context: Any) -> None:
    if "external_semaphore_fd" in adapter.features:
        settings = webnn_vk.Settings(mask=("external_semaphore_fd",))
        device = adapter.request_device(settings=settings).result(60)
    else:
        device = own_device
    with webnn_vk.ml.create_context(device).result(60) as context:
        for made_on in (context, device):
            with pytest.raises(NotSupportedError, match="VK_KHR_external_semaphore_fd"):
                made_on.create_exportable_semaphore()
    with pytest.raises(NotSupportedError, match="the CPU device has no semaphores"):
        cpu_context.create_exportable_semaphore()
    device.destroy()
    with pytest.raises(InvalidStateError, match="the GPUDevice is lost"):
        device.create_exportable_semaphore()


def test_a_real_one(adapter: Any) -> None:
    """On drivers that have the extension: another VkDevice of the same driver imports it."""
    if "external_semaphore_fd" not in adapter.features or not shareable(adapter._physical.handle):
        pytest.skip("the device exports no timeline semaphores")
    require_vulkan()
    other = open_driver(adapter._physical)
    with adapter.request_device().result(60) as device:
        semaphore = device.create_exportable_semaphore()
        files = open_files()
        theirs = other.sharing.import_semaphore(semaphore.export_fd())
        os.close(semaphore.export_fd())
        assert not left_open(files)
        semaphore.enqueue_wait(1)
        semaphore.enqueue_signal(2)
        assert not theirs.wait(2, 0.1)
        theirs.signal(1)
        assert theirs.wait(2, 60)
    other.close()
