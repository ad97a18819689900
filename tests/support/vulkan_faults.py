"""Vulkan calls that fail: the binding's library is wrapped so that one call returns an error code,
and so that objects created and not destroyed are known."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

#: Error codes of each call that the library makes, by the specification's pages (1.3). Any call may
#: return VK_ERROR_UNKNOWN too.
_MEMORY = ("OUT_OF_HOST_MEMORY", "OUT_OF_DEVICE_MEMORY")
ERRORS: dict[str, tuple[str, ...]] = {
    "vkCreateDevice": (*_MEMORY, "INITIALIZATION_FAILED", "EXTENSION_NOT_PRESENT",
                       "FEATURE_NOT_PRESENT", "TOO_MANY_OBJECTS", "DEVICE_LOST"),
    "vkCreateBuffer": _MEMORY,
    "vkAllocateMemory": (*_MEMORY, "TOO_MANY_OBJECTS"),
    "vkBindBufferMemory": _MEMORY,
    "vkMapMemory": (*_MEMORY, "MEMORY_MAP_FAILED"),
    "vkFlushMappedMemoryRanges": _MEMORY,
    "vkInvalidateMappedMemoryRanges": _MEMORY,
    "vkCreateSemaphore": _MEMORY,
    "vkGetSemaphoreCounterValue": (*_MEMORY, "DEVICE_LOST"),
    "vkWaitSemaphores": (*_MEMORY, "DEVICE_LOST"),
    "vkSignalSemaphore": _MEMORY,
    "vkCreateCommandPool": _MEMORY,
    "vkResetCommandPool": _MEMORY,
    "vkAllocateCommandBuffers": _MEMORY,
    "vkBeginCommandBuffer": _MEMORY,
    "vkEndCommandBuffer": _MEMORY,
    "vkCreateDescriptorSetLayout": _MEMORY,
    "vkCreatePipelineLayout": _MEMORY,
    "vkCreateDescriptorPool": (*_MEMORY, "FRAGMENTATION"),
    "vkCreateBufferView": _MEMORY,
    "vkAllocateDescriptorSets": (*_MEMORY, "FRAGMENTED_POOL", "OUT_OF_POOL_MEMORY"),
    "vkCreateShaderModule": (*_MEMORY, "INVALID_SHADER_NV"),
    "vkCreateComputePipelines": (*_MEMORY, "INVALID_SHADER_NV"),
    "vkCreateQueryPool": _MEMORY,
    "vkGetQueryPoolResults": (*_MEMORY, "DEVICE_LOST"),
    "vkQueueSubmit": (*_MEMORY, "DEVICE_LOST"),
    "vkDeviceWaitIdle": (*_MEMORY, "DEVICE_LOST"),
}
#: Calls made before there is a device.
INSTANCE_ERRORS: dict[str, tuple[str, ...]] = {
    "vkEnumerateInstanceVersion": ("OUT_OF_HOST_MEMORY",),
    "vkCreateInstance": (*_MEMORY, "INITIALIZATION_FAILED", "LAYER_NOT_PRESENT",
                         "INCOMPATIBLE_DRIVER"),
    "vkEnumeratePhysicalDevices": (*_MEMORY, "INITIALIZATION_FAILED"),
    "vkEnumerateDeviceExtensionProperties": (*_MEMORY, "LAYER_NOT_PRESENT"),
}
#: Calls of extensions, which `FaultyLibrary.device_function` wraps.
EXTENSION_ERRORS: dict[str, tuple[str, ...]] = {
    "vkGetMemoryFdKHR": ("TOO_MANY_OBJECTS", "OUT_OF_HOST_MEMORY"),
    "vkGetMemoryHostPointerPropertiesEXT": ("OUT_OF_HOST_MEMORY", "INVALID_EXTERNAL_HANDLE"),
    "vkGetSemaphoreFdKHR": ("TOO_MANY_OBJECTS", "OUT_OF_HOST_MEMORY"),
    "vkImportSemaphoreFdKHR": ("OUT_OF_HOST_MEMORY", "INVALID_EXTERNAL_HANDLE"),
}


def errors_of(call: str) -> tuple[str, ...]:
    """The names of its error codes, without ``VK_ERROR_``."""
    return (*(INSTANCE_ERRORS | ERRORS | EXTENSION_ERRORS)[call], "UNKNOWN")


class DevicesApart:
    """Makes a device while no other call is made: the validation layer (1.3.239) finds the device
    of each call in a table that ``vkCreateDevice`` and ``vkDestroyDevice`` change without a lock.
    Without the layer such calls may overlap."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._calls = 0

    def __call__(self, name: str, real: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        if name in ("vkCreateDevice", "vkDestroyDevice"):
            with self._changed:
                # An interrupted call may never be counted as over.
                self._changed.wait_for(lambda: not self._calls, 1.0)
                return real(*arguments)
        with self._changed:
            self._calls += 1
        try:
            return real(*arguments)
        finally:
            with self._changed:
                self._calls -= 1
                if not self._calls:
                    self._changed.notify_all()


class FaultyLibrary:
    """Takes the place of ``binding.lib``. ``place`` is the caller's name for its current step: the
    first call of a function there can be made to fail (the number of calls varies, because some
    poll)."""

    def __init__(self, binding: Any, apart: DevicesApart | None = None) -> None:
        self._binding, self._real = binding, binding.lib
        self._apart = apart
        self._lock = threading.Lock()
        self.place = ""
        #: (function, place), in the order of the first calls
        self.called: dict[tuple[str, str], None] = {}
        #: (type, handle) of objects created and not destroyed
        self.alive: set[tuple[str, int]] = set()
        #: whether the armed call was made
        self.injected = False
        self._armed: tuple[str, str] | None = None
        self._code = 0
        # By function: how many calls succeed before one fails, and the code.
        self._counting: dict[str, tuple[int, int]] = {}
        #: how many calls failed, by function, of those that `fail_nth` armed
        self.failed: Counter[str] = Counter()
        self._here = threading.local()
        self._error_of = binding.error_of
        self._device_function = binding.device_function
        self._wrappers: dict[str, Callable[..., Any]] = {}

    def arm(self, call: str, place: str, error: str) -> None:
        """The first call of a function at a place returns an error, and isn't made."""
        self._code = self._code_of(error)
        self.injected = False
        self._armed = call, place

    def fail_nth(self, call: str, nth: int, error: str) -> None:
        """The nth call of a function from now on returns an error, and isn't made. Its exception
        says "injected" (`error_of` replaces the binding's)."""
        with self._lock:
            self._counting[call] = nth, self._code_of(error)

    def error_of(self, result: int, what: str) -> Any:
        """The binding's exception; for one of our codes, with the name of that code."""
        ours, self._here.injected = getattr(self._here, "injected", None) == result, None
        return self._error_of(result, f"injected: {what}" if ours else what)

    def device_function(self, device: Any, name: str) -> Any:
        """The binding's functions, wrapped like the library's."""
        function = self._device_function(device, name)
        return None if function is None else self._wrap(name, function)

    def _code_of(self, error: str) -> int:
        name = f"VK_ERROR_{error}"
        return next(code for code, known in _results(self._binding) if known == name)

    def disarm(self) -> None:
        """No call fails."""
        self._armed = None
        self.called.clear()

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._real, name)
        records = name.startswith("vkCmd")
        if not name.startswith("vk") or (records and self._apart is None):
            return real
        if name not in self._wrappers:
            wrap = self._real_call if records else self._wrap
            self._wrappers[name] = wrap(name, real)
        return self._wrappers[name]

    def _real_call(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        apart = self._apart
        return real if apart is None else lambda *arguments: apart(name, real, arguments)

    def _wrap(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        makes = re.match(r"vk(Create|Allocate)(?!CommandBuffers|DescriptorSets|Instance)", name)
        ends = re.match(r"vk(Destroy|Free)", name)
        made = self._real_call(name, real)

        def call(*arguments: Any) -> Any:
            with self._lock:
                self.called[name, self.place] = None
                if self._armed == (name, self.place):
                    self._armed = None
                    self.injected = True
                    return self._code
                if name in self._counting:
                    left, code = self._counting.pop(name)
                    if left <= 1:
                        self.failed[name] += 1
                        self._here.injected = code
                        return code
                    self._counting[name] = left - 1, code
                if ends:
                    self.alive.discard(self._key(arguments[-2]))
            result = made(*arguments)
            if makes and result == 0:
                with self._lock:
                    self.alive.add(self._key(arguments[-1][0]))
            return result

        return call

    def _key(self, handle: Any) -> tuple[str, int]:
        ffi = self._binding.ffi
        return ffi.typeof(handle).cname, int(ffi.cast("uintptr_t", handle))


def _results(binding: Any) -> list[tuple[int, str]]:
    known = dict(binding.ffi.typeof("VkResult").elements)
    return [*known.items(), (-1000161000, "VK_ERROR_FRAGMENTATION"), (-13, "VK_ERROR_UNKNOWN")]
