"""The process-wide Vulkan instance, the validation layer, and both after a fork."""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from webnn_vk.driver import loading
from webnn_vk.driver.errors import DriverError, ForkedProcess
from webnn_vk.driver.vulkan import quirks
from webnn_vk.driver.vulkan.driver_search import Drivers
from webnn_vk.driver.vulkan.errors import (
    DriversBroken,
    LayerMissing,
    ValidationError,
    VulkanUnavailable,
)
from webnn_vk.support import environment, forks

# How to install a driver, for messages.
_LINUX_DRIVERS = (
    "Debian, Ubuntu, Fedora: apt or dnf install mesa-vulkan-drivers; Arch: pacman -S vulkan-radeon "
    "or vulkan-intel; NVIDIA: its own driver; elsewhere: the GPU vendor's driver")
_DRIVER_HINTS = {"win32": "install the GPU vendor's driver",
                 "darwin": "brew install molten-vk, or install the Vulkan SDK"}
# Appended by the layer's callback, on any thread.
_messages: deque[str] = deque()
#: All messages of the validation layer in this process, raised, drained or not: for tests.
reported: list[str] = []
_lock = threading.Lock()
_instance: Instance | None = None
# Devices that were opened, or are being opened.
_opened = 0
# Drivers are being queried.
_asking = False
_forked = False

#: The extension with which loaders also offer drivers that implement a subset of Vulkan (macOS),
#: and its flag.
_PORTABILITY, _PORTABILITY_FLAG = "VK_KHR_portability_enumeration", 1


class Instance:
    """A VkInstance for API 1.2 or later. `handle`, `api_version`, `validating`, `layer_version` (of
    the validation layer, "" without), `drivers` (which of them it has)."""

    def __init__(self, validate: bool, drivers: Drivers) -> None:
        # The binding raises VulkanUnavailable when the loader is missing.
        from webnn_vk.driver.vulkan import binding as vk

        self.drivers = drivers
        self.validating = validate
        self.api_version = self._loader_version(vk)
        self.layer_version = self._layer_version(vk) if validate else ""
        names = ["VK_EXT_debug_utils"] if validate else []
        name = vk.new("char[]", b"webnn_vk")
        application = vk.struct("VkApplicationInfo", "APPLICATION_INFO", pApplicationName=name,
                                pEngineName=name,
                                apiVersion=vk.packed_version(*self.api_version[:2]))
        layer_chars = [vk.new("char[]", quirks.LAYER.encode())] if validate else []
        layer_array = vk.new("char *[]", layer_chars)
        messenger_info = self._messenger_info(vk) if validate else None
        out = vk.new("VkInstance *")
        # Listing the extensions takes as long as all the rest: the loader loads each driver for it
        # and unloads it again. So the one that may be missing is tried.
        for flags, more in ((_PORTABILITY_FLAG, [_PORTABILITY]), (0, [])):
            name_chars = [vk.new("char[]", name.encode()) for name in (*names, *more)]
            name_array = vk.new("char *[]", name_chars)
            info = vk.struct("VkInstanceCreateInfo", "INSTANCE_CREATE_INFO", flags=flags,
                             pApplicationInfo=application,
                             enabledLayerCount=len(layer_chars), ppEnabledLayerNames=layer_array,
                             enabledExtensionCount=len(name_chars),
                             ppEnabledExtensionNames=name_array)
            if messenger_info:
                info.pNext = messenger_info
            with loading.alone:
                result = vk.lib.vkCreateInstance(info, vk.NULL, out)
            if vk.result_name(result) != "VK_ERROR_EXTENSION_NOT_PRESENT":
                break
        if vk.result_name(result) == "VK_ERROR_INCOMPATIBLE_DRIVER":
            if drivers.verdict.manifests:
                reason = "it doesn't come up (vkCreateInstance); is its device here?"
                raise DriversBroken("", dict.fromkeys(drivers.verdict.manifests, reason))
            hint = _DRIVER_HINTS.get(sys.platform, _LINUX_DRIVERS)
            raise VulkanUnavailable(f"the Vulkan loader found no driver ({hint})")
        vk.check(result, "vkCreateInstance")
        self.handle = out[0]
        try:
            # Now, while `Drivers.asking` guards it: drivers look for their devices at the first
            # call.
            with loading.alone:
                vk.listed(vk.lib.vkEnumeratePhysicalDevices, "VkPhysicalDevice", self.handle)
        except BaseException:
            with loading.alone:
                vk.lib.vkDestroyInstance(self.handle, vk.NULL)
            raise
        if messenger_info:
            create = vk.instance_function(self.handle, "vkCreateDebugUtilsMessengerEXT")
            self._messenger = vk.create(create, self.handle, messenger_info,
                                        "VkDebugUtilsMessengerEXT")

    @staticmethod
    def _layer_version(vk: Any) -> str:
        for layer in vk.listed(vk.lib.vkEnumerateInstanceLayerProperties, "VkLayerProperties"):
            if vk.text(layer.layerName) == quirks.LAYER:
                return ".".join(map(str, vk.version(layer.specVersion)))
        raise LayerMissing(
            f"validation was asked for (WEBNN_VK_VALIDATE) but the layer {quirks.LAYER} is not "
            "installed (Debian/Ubuntu: apt install vulkan-validationlayers)")

    @staticmethod
    def _loader_version(vk: Any) -> tuple[int, int, int]:
        out = vk.new("uint32_t *")
        try:
            vk.check(vk.lib.vkEnumerateInstanceVersion(out), "vkEnumerateInstanceVersion")
        except AttributeError:
            out[0] = vk.packed_version(1, 0)
        version = vk.version(out[0])
        if version < (1, 2):
            raise VulkanUnavailable(f"the Vulkan loader is too old: {version[0]}.{version[1]}, "
                                    "1.2 is needed")
        return min(version, (1, 3, 0))

    def _messenger_info(self, vk: Any) -> Any:
        # Kept on self: the layer calls it for as long as the instance lives.
        self._callback = vk.ffi.callback(
            "VkBool32(VkDebugUtilsMessageSeverityFlagBitsEXT, VkDebugUtilsMessageTypeFlagsEXT, "
            "const VkDebugUtilsMessengerCallbackDataEXT *, void *)", self._collect, error=0)
        bits = {name: vk.const(f"VK_DEBUG_UTILS_MESSAGE_{name}_BIT_EXT") for name in (
            "SEVERITY_WARNING", "SEVERITY_ERROR", "TYPE_GENERAL", "TYPE_VALIDATION",
            "TYPE_PERFORMANCE")}
        self._text, self._general = vk.text, bits["TYPE_GENERAL"]
        return vk.struct(
            "VkDebugUtilsMessengerCreateInfoEXT", "DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT",
            messageSeverity=bits["SEVERITY_WARNING"] | bits["SEVERITY_ERROR"],
            messageType=bits["TYPE_GENERAL"] | bits["TYPE_VALIDATION"] | bits["TYPE_PERFORMANCE"],
            pfnUserCallback=self._callback)

    def _collect(self, severity: int, kinds: int, data: Any, user: Any) -> int:
        # An exception raised here would be lost: store it, raise it at the next driver call.
        with loading.message():
            return self._note(kinds, data)

    def _note(self, kinds: int, data: Any) -> int:
        identifier = self._text(data.pMessageIdName) if data.pMessageIdName else ""
        # The loader reports other drivers of the machine; drivers report results of calls.
        if not kinds & ~self._general and not identifier.startswith(("VUID-", "UNASSIGNED-")):
            return 0
        if identifier != "Loader Message":
            text = self._text(data.pMessage)
            _messages.append(text)
            reported.append(text)
        return 0


def instance(
    validate: bool | None = None, meanwhile: Iterable[Callable[[], object]] = ()
) -> Instance:
    """The process's instance, created by the first call.

    validate: whether to load the validation layer; None: as ``WEBNN_VK_VALIDATE`` says.
    meanwhile: functions for the time in which drivers are probed, as for `Drivers`. Raises
    VulkanUnavailable when there is no loader or no suitable driver; LayerMissing when the layer
    is wanted and not installed or an instance without it exists already; ForkedProcess in a forked
    child.
    """
    global _instance
    check_fork()
    with _lock:
        if _instance is None:
            wanted = environment.flag("WEBNN_VK_VALIDATE")
            _instance = _create(wanted if validate is None else validate, meanwhile)
        elif validate and not _instance.validating:
            raise LayerMissing("validation was asked for after Vulkan had been initialised "
                               "without it; set WEBNN_VK_VALIDATE=1 before the first use")
        return _instance


def _create(validate: bool, meanwhile: Iterable[Callable[[], object]]) -> Instance:
    global _asking
    from webnn_vk.driver.vulkan import binding  # noqa: F401 - raises where there is no loader to ask

    drivers = Drivers(meanwhile=meanwhile)
    verdict = drivers.verdict
    if verdict.all_broken:
        raise DriversBroken(verdict.all_broken, {})
    if verdict.broken and not verdict.usable:
        raise DriversBroken("", verdict.broken)
    with drivers.asking():
        _asking = True
        try:
            return Instance(validate, drivers)
        except (VulkanUnavailable, LayerMissing):
            raise
        except DriverError as error:
            drivers.doubt()
            raise VulkanUnavailable(f"the Vulkan drivers don't come up: {error}") from error
        finally:
            _asking = False


def drain_validation_messages() -> list[str]:
    """Takes the validation layer's messages: they are returned once and raised no more."""
    taken = []
    while _messages:
        taken.append(_messages.popleft())
    return taken


def check_validation() -> None:
    """Raises ValidationError with the messages collected since the last call, if any."""
    if _messages:
        raise ValidationError(drain_validation_messages())


@contextmanager
def opening() -> Iterator[None]:
    """Around the opening of a device. From then on a forked child can't use Vulkan: drivers have
    threads, and state that would disturb a new instance in the child."""
    global _opened
    _opened += 1
    forks.prepare_to_leave()
    try:
        yield
    except BaseException:
        _opened -= 1
        raise


def check_fork() -> None:
    """Raises ForkedProcess in a child forked from a process that had opened a Vulkan device."""
    if _forked:
        raise ForkedProcess(
            "this process was forked from one that used Vulkan devices, which don't survive a "
            f"fork: {forks.SPAWN}, or open them in the children only; the CPU device works here"
        )


def is_forked() -> bool:
    """Whether this is a child forked from a process that had opened a Vulkan device."""
    return _forked


def _after_fork(clean: bool) -> None:
    # Without a device, drivers have no threads and no state that would disturb a new instance.
    # The parent's instance is left alone.
    global _asking, _forked, _instance, _opened
    _forked = _forked or _opened > 0 or (_asking and not clean)
    if _forked:
        # Drivers' own exit handlers (Mesa's) join threads that a child doesn't have: it would crash
        # or never end.
        forks.leave_out_exit_handlers()
    else:
        _instance = None
    _opened, _asking = 0, False


forks.renew(globals(), _lock=threading.Lock, _messages=deque, reported=list)
forks.register(_after_fork)
