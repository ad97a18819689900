"""Times in slots that recordings share: the driver's side of query sets."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

from webnn_vk.driver import (
    BarrierCommand,
    Command,
    CopyCommand,
    DriverClosed,
    FillCommand,
    ResolveCommand,
    TimestampCommand,
)
from webnn_vk.driver.vulkan import binding as vk
from webnn_vk.driver.vulkan.driver import VulkanDriver
from webnn_vk.driver.vulkan.instance import drain_validation_messages
from webnn_vk.driver.vulkan.queries import NativeQueries


@pytest.fixture(autouse=True)
def timestamps(driver: VulkanDriver) -> None:
    if driver.timestamps is None:
        pytest.skip("the device has no timestamps")


def run(driver: VulkanDriver, *commands: Command) -> None:
    assert driver.wait(driver.submit([driver.record(commands)]), 60)


def resolved(driver: VulkanDriver, queries: object, first: int, count: int, *before: Command,
             offset: int = 0) -> np.ndarray:
    """The contents of a buffer of 64 numbers, all ones before, after the times were copied into it.
    """
    target, staging = driver.allocate(512), driver.allocate(512, host=True)
    run(driver, *before, FillCommand(target, 0, 512, 0xFFFFFFFF), BarrierCommand(),
        ResolveCommand(queries, first, count, target, offset), BarrierCommand(),
        CopyCommand(target, 0, staging, 0, 512))
    staging.invalidate()
    return np.frombuffer(staging.mapped, np.uint64)[:64].copy()


ONES = 2**64 - 1


def test_slots_that_nothing_wrote_are_0(driver: VulkanDriver) -> None:
    queries = driver.timestamps.queries(5)
    assert queries.count == 5
    found = resolved(driver, queries, 0, 5)
    assert found[:5].tolist() == [0] * 5 and (found[5:] == ONES).all()


def test_one_recording_writes_what_another_copies(driver: VulkanDriver) -> None:
    queries = driver.timestamps.queries(4)
    data = driver.allocate(1 << 20)
    write = driver.record([TimestampCommand(0, queries), FillCommand(data, 0, 1 << 20, 1),
                           BarrierCommand(), TimestampCommand(2, queries)])
    driver.submit([write])
    found = resolved(driver, queries, 0, 4, offset=64)
    assert (found[:8] == ONES).all() and (found[12:] == ONES).all()
    first = found[8:12].tolist()
    assert first[1] == first[3] == 0 and 0 < first[0] < first[2]
    # The same recording again: later times in the same slots.
    driver.submit([write])
    second = resolved(driver, queries, 0, 3)[:3].tolist()
    assert first[2] < second[0] < second[2] and second[1] == 0
    # A part of the slots, among commands of the recording that copies them.
    third = resolved(driver, queries, 1, 2, TimestampCommand(1, queries))[:2].tolist()
    assert third[1] == second[2] < third[0]


def test_copies_wait_for_the_slots_that_a_recording_wrote(
    driver: VulkanDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And for no others, which would never come."""
    real, copied = vk.lib, []

    class Library:
        def __getattr__(self, name: str) -> object:
            return getattr(real, name)

        def vkCmdCopyQueryPoolResults(self, *arguments: Any) -> None:
            slot, count, flags = arguments[2], arguments[3], arguments[7]
            copied.append((slot, count, bool(flags & vk.const("VK_QUERY_RESULT_WAIT_BIT"))))
            real.vkCmdCopyQueryPoolResults(*arguments)

    queries = driver.timestamps.queries(8)
    monkeypatch.setattr(vk, "lib", Library())
    target = driver.allocate(64)
    run(driver, TimestampCommand(6, queries), TimestampCommand(2, queries),
        TimestampCommand(6, queries), ResolveCommand(queries, 0, 8, target, 0),
        TimestampCommand(3, queries))
    assert copied == [(2, 1, True), (6, 1, True), (3, 1, True)]
    copied.clear()
    found = resolved(driver, queries, 0, 8)[:8]
    assert copied == [] and np.flatnonzero(found).tolist() == [2, 3, 6]


def test_a_recording_keeps_slots_of_its_own_beside_them(driver: VulkanDriver) -> None:
    queries = driver.timestamps.queries(1)
    recording = driver.record([TimestampCommand(0), TimestampCommand(0, queries),
                               TimestampCommand(1)])
    assert driver.wait(driver.submit([recording]), 60)
    shared = resolved(driver, queries, 0, 1)[0] * driver.profile.timestamp_period
    first, last = driver.timestamps.read(recording)
    assert first <= shared <= last


def test_what_does_not_fit_is_refused(driver: VulkanDriver) -> None:
    queries, target = driver.timestamps.queries(4), driver.allocate(64)
    for command, message in (
        (TimestampCommand(4, queries), "timestamp: 1 slots from 4 on; there are 4"),
        (TimestampCommand(-1, queries), "timestamp: 1 slots from -1 on"),
        (ResolveCommand(queries, 2, 3, target, 0), "resolve: 3 slots from 2 on; there are 4"),
        (ResolveCommand(queries, 0, 0, target, 0), "resolve: 0 slots"),
        (ResolveCommand(queries, 0, 4, target, target.size - 24),
         f"resolve: bytes {target.size - 24} to {target.size + 8} are outside"),
        (ResolveCommand(queries, 0, 1, target, 4), "offset 4 is not a multiple of 8"),
    ):
        with pytest.raises(ValueError, match=message):
            driver.record([command])
    with pytest.raises(ValueError, match="0 slots; at least 1 is needed"):
        driver.timestamps.queries(0)


def test_nothing_is_left(own_driver: VulkanDriver) -> None:
    target = own_driver.allocate(64)
    for _ in range(50):
        queries = own_driver.timestamps.queries(3)
        value = own_driver.submit([own_driver.record([
            TimestampCommand(1, queries), ResolveCommand(queries, 0, 3, target, 0)])])
    kept = own_driver.record([TimestampCommand(0, queries)])
    assert own_driver.wait(value, 60)
    del queries
    gc.collect()
    own_driver.memory_in_use()  # frees released recordings
    own_driver.memory_in_use()
    # Those of the recording that still exists.
    assert [type(native) for native in own_driver._natives].count(NativeQueries) == 1
    # The validation layer reports leftovers at closing.
    facet = own_driver.timestamps
    own_driver.close()
    assert drain_validation_messages() == []
    with pytest.raises(DriverClosed):
        facet.queries(1)
    del kept
