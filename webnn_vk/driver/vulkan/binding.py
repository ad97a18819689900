"""The thin binding: cffi's `ffi` and the loader library as `lib`, taken from the `vulkan` package.

Only the package's table of C types is loaded (`_vulkancache`), not its Python wrapper, which costs
10 ms, raises without libvulkan, holds referenced structs weakly and lacks some constants. Constants
are taken by name from the C types through `const`. A caller that passes a struct to Vulkan keeps
everything it points to alive in local variables until the call returns.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from webnn_vk.driver.errors import DeviceLost, DriverError, OutOfDeviceMemory, OutOfHostMemory
from webnn_vk.driver.vulkan.errors import VulkanError, VulkanUnavailable

WHOLE_SIZE = 2**64 - 1
_LIBRARIES = {"win32": ("vulkan-1.dll",),
              "darwin": ("libvulkan.dylib", "libvulkan.1.dylib", "libMoltenVK.dylib")}
_LINUX_LOADER = ("Debian, Ubuntu: apt install libvulkan1; Fedora: dnf install vulkan-loader; Arch: "
                 "pacman -S vulkan-icd-loader")
_LOADER_HINTS = {"win32": "it comes with the GPU's driver",
                 "darwin": "the Vulkan SDK, or brew install vulkan-loader molten-vk"}


def _load_types() -> Any:
    package = importlib.util.find_spec("vulkan")
    for folder in (package.submodule_search_locations or ()) if package else ():
        path = Path(folder) / "_vulkancache.py"
        if path.is_file():
            spec = importlib.util.spec_from_file_location("webnn_vk._vulkan_types", path)
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            return module.ffi
    raise VulkanUnavailable("the Python package 'vulkan' is not installed (pip install vulkan)")


def _load_library() -> Any:
    names = _LIBRARIES.get(sys.platform, ("libvulkan.so.1", "libvulkan.so"))
    for name in names:
        try:
            return ffi.dlopen(name)
        except OSError:
            continue
    hint = _LOADER_HINTS.get(sys.platform, _LINUX_LOADER)
    raise VulkanUnavailable(f"the Vulkan loader library ({names[0]}) was not found ({hint})")


ffi = _load_types()
lib = _load_library()
NULL = ffi.NULL
new = ffi.new

_RESULTS: dict[int, str] = dict(ffi.typeof("VkResult").elements)
# How often a list is queried again because it changed meanwhile.
_LISTINGS = 20
NOT_READY, TIMEOUT, INCOMPLETE = 1, 2, 5


def const(name: str) -> int:
    """The value of a Vulkan enumerator, e.g. ``VK_QUEUE_COMPUTE_BIT``."""
    return ffi.integer_const(name)


def struct(ctype: str, stype: str, **fields: Any) -> Any:
    """A new struct with its sType (named without ``VK_STRUCTURE_TYPE_``) and fields set.

    The fields' pointees are not kept alive by it.
    """
    return new(f"{ctype} *", {"sType": const(f"VK_STRUCTURE_TYPE_{stype}"), **fields})


def chain(*structs: Any) -> Any:
    """Links structs through pNext in the given order and returns the first."""
    for first, second in zip(structs, structs[1:], strict=False):
        first.pNext = second
    return structs[0]


def result_name(result: int) -> str:
    """The VkResult's name."""
    return _RESULTS.get(result, f"VkResult {result}")


def error_of(result: int, what: str) -> DriverError:
    """The exception for a failed call `what`."""
    name = result_name(result)
    message = f"{what}: {name}"
    match name:
        case "VK_ERROR_DEVICE_LOST":
            return DeviceLost(message, name)
        case "VK_ERROR_OUT_OF_DEVICE_MEMORY":
            return OutOfDeviceMemory(message, name)
        case "VK_ERROR_OUT_OF_HOST_MEMORY":
            return OutOfHostMemory(message, name)
    return VulkanError(message, name)


def check(result: int, what: str) -> int:
    """Raises for a negative VkResult (DeviceLost, OutOfDeviceMemory, OutOfHostMemory,
    VulkanError); returns the others (VK_SUCCESS, VK_TIMEOUT …)."""
    if result < 0:
        raise error_of(result, what)
    return result


def create(call: Callable[..., int], parent: Any, info: Any, handle: str) -> Any:
    """``vkCreate…(parent, info, NULL, &handle)`` with the result checked; returns the handle."""
    out = new(f"{handle} *")
    check(call(parent, info, NULL, out), f"creating {handle}")
    return out[0]


def listed(call: Callable[..., int | None], ctype: str, *arguments: Any, stype: str | int = "",
           what: str = "") -> Any:
    """The array a Vulkan enumeration gives (count call, then data call). `stype`: of its structs,
    by name or number; `what`: what is enumerated, for messages."""
    number = const(f"VK_STRUCTURE_TYPE_{stype}") if isinstance(stype, str) and stype else stype
    what = f"enumerating {what or ctype}"
    count = new("uint32_t *")
    for _ in range(_LISTINGS):
        check(call(*arguments, count, NULL) or 0, what)
        items = new(ffi.getctype(ctype, "[]"), count[0])
        if number:
            for index in range(len(items)):
                ffi.cast("VkBaseOutStructure *", items + index).sType = number
        result = check(call(*arguments, count, items) or 0, what)
        if result != INCOMPLETE and count[0] == len(items):
            return items
    raise VulkanError(f"{what}: the number changes all the time", "VK_INCOMPLETE")


def device_function(device: Any, name: str) -> Any:
    """An extension's function of a device, or None."""
    pointer = lib.vkGetDeviceProcAddr(device, name.encode())
    return None if pointer == NULL else ffi.cast(f"PFN_{name}", pointer)


def instance_function(instance: Any, name: str) -> Any:
    """An extension's function of an instance, or None."""
    pointer = lib.vkGetInstanceProcAddr(instance, name.encode())
    return None if pointer == NULL else ffi.cast(f"PFN_{name}", pointer)


def text(chars: Any) -> str:
    """A C string (char array or pointer) as str."""
    return ffi.string(chars).decode("utf-8", "replace")


def version(number: int) -> tuple[int, int, int]:
    """A packed Vulkan version as (major, minor, patch)."""
    return (number >> 22 & 0x7F, number >> 12 & 0x3FF, number & 0xFFF)


def packed_version(major: int, minor: int) -> int:
    """VK_MAKE_API_VERSION(0, major, minor, 0)."""
    return major << 22 | minor << 12
