"""The calls behind the driver's facets (shared memory and semaphores, host pages, timestamps) and
behind memory that isn't coherent return each of their error codes: a DriverError, no leftovers, and
a second attempt works. Calls of contexts are in test_failing_calls.py."""

from __future__ import annotations

import gc
import mmap
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from tests.support.open_files import left_open, open_files
from tests.support.vulkan_faults import ERRORS, EXTENSION_ERRORS, FaultyLibrary, errors_of
from webnn_vk.driver import (
    BarrierCommand,
    DeviceLost,
    DriverClosed,
    DriverError,
    FeatureMissing,
    FillCommand,
    TimestampCommand,
)
from webnn_vk.driver.vulkan import binding
from webnn_vk.driver.vulkan.driver import VulkanDriver, open_driver
from webnn_vk.driver.vulkan.snapshot import PhysicalDevice


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch, physical: PhysicalDevice) -> Iterator[FaultyLibrary]:
    library = FaultyLibrary(binding)
    monkeypatch.setattr(binding, "lib", library)
    monkeypatch.setattr(binding, "device_function", library.device_function)
    yield library
    library.disarm()


def export_memory(driver: VulkanDriver) -> None:
    memory = driver.allocate(4096, exportable=True)
    os.close(driver.sharing.export_memory(memory).fd)


def import_memory(driver: VulkanDriver) -> None:
    memory = driver.allocate(4096, exportable=True)
    exported = driver.sharing.export_memory(memory)
    try:
        driver.sharing.import_memory(exported)
    except BaseException:
        os.close(exported.fd)  # still the caller's
        raise


def import_pages(driver: VulkanDriver) -> None:
    driver.sharing.import_host_memory(mmap.mmap(-1, 1 << 16))


def use_semaphore(driver: VulkanDriver) -> None:
    semaphore = driver.sharing.semaphore()
    semaphore.signal(3)
    assert semaphore.value() == 3 and semaphore.wait(2, 60)


def pass_semaphore_on(driver: VulkanDriver) -> None:
    fd = driver.sharing.export_semaphore(driver.sharing.semaphore(exportable=True))
    try:
        driver.sharing.import_semaphore(fd)
    except BaseException:
        os.close(fd)
        raise


def time_work(driver: VulkanDriver) -> None:
    if driver.timestamps is None:
        raise FeatureMissing("timestamps")
    memory = driver.allocate(4096)
    recording = driver.record([TimestampCommand(0), FillCommand(memory, 0, 4096), BarrierCommand(),
                               TimestampCommand(1)])
    assert driver.wait(driver.submit([recording]), 60)
    assert len(driver.timestamps.read(recording)) == 2


def use_memory_that_is_not_coherent(driver: VulkanDriver) -> None:
    memory = driver.allocate(4096, host=True)
    memory.flush()
    memory.invalidate()


USES: list[Callable[[VulkanDriver], None]] = [
    export_memory, import_memory, import_pages, use_semaphore, pass_semaphore_on, time_work,
    use_memory_that_is_not_coherent,
]


@pytest.mark.parametrize("use", USES)
def test_each_call_fails_with_each_error(
    library: FaultyLibrary, physical: PhysicalDevice, use: Callable[[VulkanDriver], None]
) -> None:
    profile = physical.profile
    if use is use_memory_that_is_not_coherent:
        profile = profile.replace(memory_types=tuple(
            (heap, tuple(name for name in names if name != "host_coherent"))
            for heap, names in profile.memory_types))
    # The first driver of a process opens files that stay (Mesa's).
    open_driver(physical, profile=profile).close()
    gc.collect()
    before, files = library.alive.copy(), open_files()

    def attempt(call: str = "", error: str = "") -> None:
        library.place = "open"
        driver = open_driver(physical, profile=profile)
        library.place = "use"
        if call:
            library.arm(call, "use", error)
            try:
                use(driver)
            except DriverError as failed:
                assert failed.result == f"VK_ERROR_{error}", (call, failed)
                assert isinstance(failed, DeviceLost) == (error == "DEVICE_LOST")
            else:
                # Memory is requested again after finished work has given its memory back.
                assert error.startswith("OUT_OF_"), (call, error)
            assert library.injected, (call, error)
            library.place = "again"
        if not call or driver.lost() is None:
            use(driver)
        else:
            assert error == "DEVICE_LOST"
            with pytest.raises(DeviceLost):
                driver.allocate(1)
        library.place = "close"
        driver.close()

    try:
        attempt()
    except FeatureMissing as missing:
        pytest.skip(str(missing))
    calls = [name for name, place in library.called
             if place == "use" and name in ERRORS | EXTENSION_ERRORS]
    assert calls
    for call in calls:
        for error in errors_of(call):
            attempt(call, error)
            gc.collect()
            assert library.alive == before, (call, error)
            assert not left_open(files), (call, error)


@pytest.mark.parametrize(("call", "owner", "last"), [
    (lambda driver: driver.record([BarrierCommand()]), lambda driver: driver, "_track"),
    (lambda driver: driver.timestamps.queries(2), lambda driver: driver, "_track"),
    (import_memory, lambda driver: driver._memory, "adopt"),
    (import_pages, lambda driver: driver._memory, "adopt"),
], ids=["record", "queries", "import_memory", "import_pages"])
def test_an_object_made_while_the_driver_closes_is_destroyed(
    physical: PhysicalDevice, library: FaultyLibrary, monkeypatch: pytest.MonkeyPatch,
    call: Callable[[VulkanDriver], object], owner: Callable[[VulkanDriver], object], last: str,
) -> None:
    driver = open_driver(physical)
    closer = threading.Thread(target=driver.close)
    keeps = getattr(owner(driver), last)

    def late(*arguments: object) -> object:
        if closer.ident is None:
            closer.start()
            closer.join(0.2)
        return keeps(*arguments)

    monkeypatch.setattr(owner(driver), last, late)
    with suppress(DriverClosed):
        call(driver)
    closer.join(60)
    assert driver._closed and not closer.is_alive()
    assert not library.alive


def test_what_was_released_stays_where_its_use_cannot_be_told(
    physical: PhysicalDevice, library: FaultyLibrary
) -> None:
    """Neither a submit nor a wait fails for it, and nothing is forgotten."""
    driver = open_driver(physical)
    memory = driver.allocate(4096)
    before = set(library.alive)
    for nth in (1, 2):
        recordings = [driver.record([FillCommand(memory, 0, 4096)]) for _ in range(40)]
        value = driver.submit(recordings)
        semaphores = [driver.sharing.semaphore() for _ in range(2)]
        driver.wait(value)
        del recordings, semaphores
        library.fail_nth("vkGetSemaphoreCounterValue", nth, "OUT_OF_HOST_MEMORY")
        assert driver.wait(driver.submit([]))
    assert library.failed["vkGetSemaphoreCounterValue"] == 2
    driver.memory_in_use()
    kinds = {kind for kind, _ in library.alive - before}
    assert "struct VkSemaphore_T *" not in kinds and not driver._retired
    driver.close()
    assert not library.alive
