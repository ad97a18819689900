"""Timeline semaphores: waits that Ctrl-C can end, and signals from the host."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from operator import call
from typing import Any

from webnn_vk.driver.vulkan import binding as vk
from webnn_vk.driver.vulkan.deferred import Handle, Native
from webnn_vk.support import forks

# Held around each call if waits and signals exclude each other (quirk `signal_deadlocks_wait`).
# Waits then poll at this interval, in seconds.
_turns = threading.Lock()
forks.renew(globals(), _turns=threading.Lock)
_POLL = 0.0003
#: The longest time inside one foreign call, in seconds: Python handles signals in between.
SLICE = 0.1
_OPAQUE_FD = "VK_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD_BIT"


class NativeTimeline(Native):
    """A VkSemaphore of timeline type. Thread-safe, also against its own destruction.

    in_turns: calls for any semaphore of the process exclude each other, none blocks.
    exportable: `export` can hand it to another device.

    failed: makes the exception for a failed call of (VkResult, name); 0: used after destruction.
    """

    def __init__(self, device: Any, failed: Callable[[int, str], Exception], *,
                 in_turns: bool = False, exportable: bool = False) -> None:
        super().__init__()
        self._device, self._failed, self._in_turns = device, failed, in_turns
        self._turn = _turns if in_turns else nullcontext()
        kind = vk.struct("VkSemaphoreTypeCreateInfo", "SEMAPHORE_TYPE_CREATE_INFO",
                         semaphoreType=vk.const("VK_SEMAPHORE_TYPE_TIMELINE"), initialValue=0)
        export = vk.struct("VkExportSemaphoreCreateInfo", "EXPORT_SEMAPHORE_CREATE_INFO",
                           pNext=kind, handleTypes=vk.const(_OPAQUE_FD))
        info = vk.struct("VkSemaphoreCreateInfo", "SEMAPHORE_CREATE_INFO",
                         pNext=export if exportable else kind)
        self.handle = vk.create(vk.lib.vkCreateSemaphore, device, info, "VkSemaphore")
        self._idle = threading.Condition(threading.Lock())
        self._waiters = 0
        #: highest value a submission waits for
        self.awaited = 0
        #: highest value a submission signals
        self.promised = 0

    def value(self) -> int:
        """The current value."""
        out = vk.new("uint64_t *")
        with self._idle, self._turn:
            result = vk.lib.vkGetSemaphoreCounterValue(self._device, self._alive(), out)
        self._check(result, "vkGetSemaphoreCounterValue")
        return out[0]

    def value_without_lock(self) -> int:
        """The current value, in the main thread too, where a signal handler may come between any
        two steps of Python code. The caller sees to it that the semaphore lives."""
        out = vk.new("uint64_t *")
        read = partial(vk.lib.vkGetSemaphoreCounterValue, self._device, self.handle, out)
        # In turns: one call into C.
        result = [*map(call, (_turns.acquire, read, _turns.release))][1] if self._in_turns else (
            read()
        )
        self._check(result, "vkGetSemaphoreCounterValue")
        return out[0]

    def sleep(self, value: int, seconds: float) -> None:
        """Waits for the value for at most that many seconds, as `value_without_lock` reads it."""
        if self._in_turns:
            return time.sleep(min(seconds, _POLL))
        values = vk.new("uint64_t[]", [value])
        handles = vk.new("VkSemaphore[]", [self.handle])
        info = vk.struct("VkSemaphoreWaitInfo", "SEMAPHORE_WAIT_INFO", semaphoreCount=1,
                         pSemaphores=handles, pValues=values)
        self._check(vk.lib.vkWaitSemaphores(self._device, info, int(seconds * 1e9)),
                    "vkWaitSemaphores")

    def signal(self, value: int) -> None:
        """Sets a value greater than the current one (ValueError otherwise), from the host."""
        current = self.value()
        if value <= current:
            raise ValueError(f"a timeline only goes up: {value} after {current}")
        info = vk.struct("VkSemaphoreSignalInfo", "SEMAPHORE_SIGNAL_INFO", value=value)
        with self._idle, self._turn:
            info.semaphore = self._alive()
            result = vk.lib.vkSignalSemaphore(self._device, info)
        self._check(result, "vkSignalSemaphore")

    def wait(self, value: int, timeout: float | None = None) -> bool:
        """Waits until `value` is reached; False after `timeout` seconds (None: no limit)."""
        wanted = vk.new("uint64_t *", value)
        handle = vk.new("VkSemaphore *", self._alive())
        info = vk.struct("VkSemaphoreWaitInfo", "SEMAPHORE_WAIT_INFO", semaphoreCount=1,
                         pSemaphores=handle, pValues=wanted)
        with self._idle:
            handle[0] = self._alive()
            self._waiters += 1
        end = None if timeout is None else time.monotonic() + max(timeout, 0)
        try:
            while True:
                left = SLICE if end is None else min(max(end - time.monotonic(), 0), SLICE)
                if self._in_turns:
                    with self._turn:
                        result = vk.lib.vkWaitSemaphores(self._device, info, 0)
                    if result == vk.TIMEOUT:
                        time.sleep(min(left, _POLL))
                else:
                    result = vk.lib.vkWaitSemaphores(self._device, info, int(left * 1e9))
                if result != vk.TIMEOUT:
                    self._check(result, "vkWaitSemaphores")
                    return True
                if end is not None and time.monotonic() >= end:
                    return False
                self._alive()
        finally:
            with self._idle:
                self._waiters -= 1
                self._idle.notify_all()

    def export(self) -> int:
        """A new file descriptor of a semaphore made exportable."""
        info = vk.struct("VkSemaphoreGetFdInfoKHR", "SEMAPHORE_GET_FD_INFO_KHR",
                         semaphore=self._alive(), handleType=vk.const(_OPAQUE_FD))
        out = vk.new("int *")
        call = vk.device_function(self._device, "vkGetSemaphoreFdKHR")
        self._check(call(self._device, info, out), "vkGetSemaphoreFdKHR")
        return out[0]

    def adopt(self, fd: int) -> None:
        """Imports the semaphore that another device exported. Vulkan then owns the file
        descriptor."""
        info = vk.struct("VkImportSemaphoreFdInfoKHR", "IMPORT_SEMAPHORE_FD_INFO_KHR",
                         semaphore=self._alive(), handleType=vk.const(_OPAQUE_FD), fd=fd)
        call = vk.device_function(self._device, "vkImportSemaphoreFdKHR")
        self._check(call(self._device, info), "vkImportSemaphoreFdKHR")

    def idle(self) -> bool:
        """Whether it has reached what submissions signal: signals of one are not simultaneous, the
        driver's timeline may come first."""
        return self.value() >= self.promised

    def destroy(self) -> None:
        """Destroys it once no thread waits for it."""
        with self._idle:
            handle, self.handle = self.handle, None
            self._idle.wait_for(lambda: not self._waiters)
        if handle is not None:
            vk.lib.vkDestroySemaphore(self._device, handle, vk.NULL)

    def _alive(self) -> Any:
        if self.handle is None:
            raise self._failed(0, "using a semaphore")
        return self.handle

    def _check(self, result: int, what: str) -> None:
        if result < 0:
            raise self._failed(result, what)


def shareable(physical: Any) -> bool:
    """Whether timeline semaphores of a physical device can be exported and imported."""
    kind = vk.struct("VkSemaphoreTypeCreateInfo", "SEMAPHORE_TYPE_CREATE_INFO",
                     semaphoreType=vk.const("VK_SEMAPHORE_TYPE_TIMELINE"))
    info = vk.struct("VkPhysicalDeviceExternalSemaphoreInfo",
                     "PHYSICAL_DEVICE_EXTERNAL_SEMAPHORE_INFO", pNext=kind,
                     handleType=vk.const(_OPAQUE_FD))
    properties = vk.struct("VkExternalSemaphoreProperties", "EXTERNAL_SEMAPHORE_PROPERTIES")
    vk.lib.vkGetPhysicalDeviceExternalSemaphoreProperties(physical, info, properties)
    needed = (vk.const("VK_EXTERNAL_SEMAPHORE_FEATURE_EXPORTABLE_BIT")
              | vk.const("VK_EXTERNAL_SEMAPHORE_FEATURE_IMPORTABLE_BIT"))
    return properties.externalSemaphoreFeatures & needed == needed


class TimelineSemaphore(Handle[NativeTimeline]):
    """The result of `VulkanSharing.semaphore`: see `driver.resources.Semaphore`."""

    __slots__ = ()

    @property
    def native(self) -> NativeTimeline:
        """The semaphore itself; ValueError after `close`."""
        if self._native is None:
            raise ValueError("the semaphore was closed")
        return self._native

    def value(self) -> int:
        """The current value."""
        return self.native.value()

    def signal(self, value: int) -> None:
        """Sets a value greater than the current one (ValueError otherwise), from the host."""
        self.native.signal(value)

    def wait(self, value: int, timeout: float | None = None) -> bool:
        """Waits until `value` is reached; False after `timeout` seconds (None: no limit)."""
        return self.native.wait(value, timeout)

    close = Handle.free
