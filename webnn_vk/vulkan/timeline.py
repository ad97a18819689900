"""Timeline semaphores: waits with timeouts that leave room for Ctrl-C, signals from the host."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from webnn_vk.vulkan import binding as vk

# The longest time spent inside one foreign call, so that Python handles signals in between.
_SLICE = 0.1


class TimelineSemaphore:
    """A VkSemaphore of timeline type.

    failed: called with a negative VkResult and the call's name; returns the exception to raise.
    retire: called once on `close` or collection.
    """

    def __init__(self, device: Any, failed: Callable[[int, str], Exception],
                 retire: Callable[[TimelineSemaphore], None] | None = None) -> None:
        self._device, self._failed, self._retire = device, failed, retire
        kind = vk.struct("VkSemaphoreTypeCreateInfo", "SEMAPHORE_TYPE_CREATE_INFO",
                         semaphoreType=vk.const("VK_SEMAPHORE_TYPE_TIMELINE"), initialValue=0)
        info = vk.struct("VkSemaphoreCreateInfo", "SEMAPHORE_CREATE_INFO", pNext=kind)
        self.handle = vk.create(vk.lib.vkCreateSemaphore, device, info, "VkSemaphore")
        #: timeline value of the driver's last submission that uses it
        self.last_value = 0
        #: highest value a submission waits for
        self.awaited = 0

    def value(self) -> int:
        """The current value."""
        out = vk.new("uint64_t *")
        self._check(vk.lib.vkGetSemaphoreCounterValue(self._device, self._handle(), out),
                    "vkGetSemaphoreCounterValue")
        return out[0]

    def signal(self, value: int) -> None:
        """Sets a value greater than the current one (ValueError otherwise), from the host."""
        current = self.value()
        if value <= current:
            raise ValueError(f"a timeline only goes up: {value} after {current}")
        info = vk.struct("VkSemaphoreSignalInfo", "SEMAPHORE_SIGNAL_INFO",
                         semaphore=self._handle(), value=value)
        self._check(vk.lib.vkSignalSemaphore(self._device, info), "vkSignalSemaphore")

    def wait(self, value: int, timeout: float | None = None) -> bool:
        """Waits until `value` is reached; False after `timeout` seconds (None: no limit)."""
        handle = vk.new("VkSemaphore *", self._handle())
        wanted = vk.new("uint64_t *", value)
        info = vk.struct("VkSemaphoreWaitInfo", "SEMAPHORE_WAIT_INFO", semaphoreCount=1,
                         pSemaphores=handle, pValues=wanted)
        end = None if timeout is None else time.monotonic() + max(timeout, 0)
        while True:
            left = _SLICE if end is None else min(max(end - time.monotonic(), 0), _SLICE)
            result = vk.lib.vkWaitSemaphores(self._device, info, int(left * 1e9))
            if result != vk.TIMEOUT:
                self._check(result, "vkWaitSemaphores")
                return True
            if end is not None and time.monotonic() >= end:
                return False

    def close(self) -> None:
        """Releases it once no submission uses it any more. Calling it again does nothing."""
        retire, self._retire = self._retire, None
        if retire:
            retire(self)

    def destroy(self) -> None:
        """Destroys the handle at once (the driver calls it)."""
        handle, self.handle = self.handle, None
        if handle is not None:
            vk.lib.vkDestroySemaphore(self._device, handle, vk.NULL)

    def __del__(self) -> None:
        if getattr(self, "handle", None) is not None:
            self.close()

    def _handle(self) -> Any:
        if self.handle is None:
            raise self._failed(0, "using a semaphore of a closed driver")
        return self.handle

    def _check(self, result: int, what: str) -> None:
        if result < 0:
            raise self._failed(result, what)
