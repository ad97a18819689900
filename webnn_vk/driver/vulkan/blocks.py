"""Blocks of device memory: one VkBuffer on one VkDeviceMemory, mapped permanently if visible.

A block may be exported as a file descriptor, or made over another device's memory or host pages.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import Any

from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.driver.errors import FeatureMissing
from webnn_vk.driver.resources import ALIGNMENT, ExternalMemory
from webnn_vk.driver.vulkan import binding as vk
from webnn_vk.driver.vulkan.instance import is_forked
from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.integers import round_up

_LARGE_PAGE = 1 << 21


@dataclass(eq=False)
class NativeBlock:
    """A buffer with its memory. `mapped`: a writable memoryview of it, or None."""

    buffer: Any
    memory: Any
    #: bytes of the memory, which may be more than the buffer's
    size: int
    memory_type: int
    mapped: memoryview | None
    exportable: bool = False
    #: the owner of imported host pages
    keep: Any = None


class BufferBlocks:
    """The source of `memory.Allocator`'s blocks."""

    def __init__(self, device: Any, profile: DeviceProfile, owner: Any = None,
                 physical: Any = None) -> None:
        # The owner lives as long as an allocation does: it is not collected under mapped memory.
        self._device, self._profile, self._owner = device, profile, owner
        self._physical = physical
        self._usage = (vk.const("VK_BUFFER_USAGE_STORAGE_BUFFER_BIT")
                       | vk.const("VK_BUFFER_USAGE_TRANSFER_SRC_BIT")
                       | vk.const("VK_BUFFER_USAGE_TRANSFER_DST_BIT"))
        if "texel_buffers" in profile.features:
            self._usage |= vk.const("VK_BUFFER_USAGE_UNIFORM_TEXEL_BUFFER_BIT")
        self._fd = vk.const("VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT")
        self._host = vk.const("VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT")
        probe = self._buffer(256)
        self.memory_type_bits = self._requirements(probe).memoryTypeBits
        vk.lib.vkDestroyBuffer(device, probe, vk.NULL)

    def create_block(self, size: int, memory_type: int, *, visible: bool,
                     exportable: bool) -> NativeBlock:
        """A buffer of `size` bytes on its own memory of the given type, mapped when visible.

        Raises FeatureMissing when it can't be exportable.
        """
        if not exportable:
            return self._bound(self._buffer(size), size, memory_type, visible=visible)
        self._need("external_memory_fd", "VK_KHR_external_memory_fd")
        buffer = self._buffer(size, self._fd)
        dedicated = vk.struct("VkMemoryDedicatedAllocateInfo", "MEMORY_DEDICATED_ALLOCATE_INFO",
                              buffer=buffer)
        export = vk.struct("VkExportMemoryAllocateInfo", "EXPORT_MEMORY_ALLOCATE_INFO",
                           handleTypes=self._fd, pNext=dedicated)
        block = self._bound(buffer, size, memory_type, visible=visible, extra=export)
        block.exportable = True
        return block

    def budget(self, heap: int) -> tuple[int, int] | None:
        """Bytes of a heap that this process uses, and that it may use while other processes use
        what they do now; None where the driver doesn't say it."""
        if "memory_budget" not in self._profile.features or self._physical is None:
            return None
        found = vk.struct("VkPhysicalDeviceMemoryBudgetPropertiesEXT",
                          "PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT")
        properties = vk.struct("VkPhysicalDeviceMemoryProperties2",
                               "PHYSICAL_DEVICE_MEMORY_PROPERTIES_2", pNext=found)
        vk.lib.vkGetPhysicalDeviceMemoryProperties2(self._physical, properties)
        return found.heapUsage[heap], found.heapBudget[heap]

    def destroy_block(self, native: NativeBlock) -> None:
        """Frees buffer and memory (which unmaps it)."""
        if is_forked():
            return  # it is the parent's
        native.mapped = None
        vk.lib.vkDestroyBuffer(self._device, native.buffer, vk.NULL)
        vk.lib.vkFreeMemory(self._device, native.memory, vk.NULL)
        native.keep = None

    def synchronise(self, native: NativeBlock, offset: int, size: int, *,
                    to_device: bool) -> None:
        """Flushes or invalidates a mapped range (aligned to nonCoherentAtomSize)."""
        info = vk.struct("VkMappedMemoryRange", "MAPPED_MEMORY_RANGE", memory=native.memory,
                         offset=offset, size=size)
        call = (vk.lib.vkFlushMappedMemoryRanges if to_device
                else vk.lib.vkInvalidateMappedMemoryRanges)
        vk.check(call(self._device, 1, info), "synchronising mapped memory")

    # -- sharing ------------------------------------------------------------------------------
    def export(self, native: NativeBlock) -> int:
        """A new file descriptor of an exportable block; ValueError for another."""
        if not native.exportable:
            raise ValueError("the memory was not allocated exportable")
        info = vk.struct("VkMemoryGetFdInfoKHR", "MEMORY_GET_FD_INFO_KHR", memory=native.memory,
                         handleType=self._fd)
        out = vk.new("int *")
        call = vk.device_function(self._device, "vkGetMemoryFdKHR")
        vk.check(call(self._device, info, out), "vkGetMemoryFdKHR")
        return out[0]

    def import_fd(self, external: ExternalMemory, size: int, *, visible: bool) -> NativeBlock:
        """A block over exported memory. Once this succeeds the file descriptor is Vulkan's."""
        self._need("external_memory_fd", "VK_KHR_external_memory_fd")
        if external.uuid != self._profile.uuid:
            raise ValueError(f"the memory is of another device ({external.uuid}) than "
                             f"{self._profile.name} ({self._profile.uuid})")
        # A copy: Vulkan owns it once memory is allocated, even if a later call fails.
        copy = os.dup(external.fd)
        try:
            buffer = self._buffer(size, self._fd)
        except BaseException:
            os.close(copy)
            raise
        dedicated = vk.struct("VkMemoryDedicatedAllocateInfo", "MEMORY_DEDICATED_ALLOCATE_INFO",
                              buffer=buffer)
        info = vk.struct("VkImportMemoryFdInfoKHR", "IMPORT_MEMORY_FD_INFO_KHR",
                         handleType=self._fd, fd=copy, pNext=dedicated)
        block = self._bound(buffer, size, external.memory_type, visible=visible, extra=info,
                            memory_size=external.block_size, taken=copy)
        os.close(external.fd)
        return block

    def import_pages(self, address: int, size: int, allowed: int, keep: Any) -> NativeBlock:
        """A block over `size` bytes of host pages, both aligned as the device asks. `allowed`: bits
        of the memory types that may be used."""
        pointer = vk.ffi.cast("void *", address)
        host_pointer = vk.struct("VkMemoryHostPointerPropertiesEXT",
                          "MEMORY_HOST_POINTER_PROPERTIES_EXT")
        call = vk.device_function(self._device, "vkGetMemoryHostPointerPropertiesEXT")
        vk.check(call(self._device, self._host, pointer, host_pointer),
                 "vkGetMemoryHostPointerPropertiesEXT")
        buffer = self._buffer(size, self._host)
        bits = host_pointer.memoryTypeBits & allowed & self._requirements(buffer).memoryTypeBits
        if not bits:
            vk.lib.vkDestroyBuffer(self._device, buffer, vk.NULL)
            raise FeatureMissing(f"{self._profile.name} has no memory type for these host pages")
        info = vk.struct("VkImportMemoryHostPointerInfoEXT",
                         "IMPORT_MEMORY_HOST_POINTER_INFO_EXT", handleType=self._host,
                         pHostPointer=pointer)
        block = self._bound(buffer, size, bits.bit_length() - 1, visible=False, extra=info,
                            memory_size=size)
        block.keep = keep
        return block

    def _need(self, feature: str, extension: str) -> None:
        if feature not in self._profile.features:
            raise FeatureMissing(f"{self._profile.name} has no {extension}")

    # -- making -------------------------------------------------------------------------------
    def _bound(self, buffer: Any, size: int, memory_type: int, *, visible: bool, extra: Any = None,
               memory_size: int = 0, taken: int | None = None) -> NativeBlock:
        """`taken`: a file descriptor that Vulkan owns once the memory is allocated."""
        memory = None
        memory_size = memory_size or self._requirements(buffer).size
        try:
            info = vk.struct("VkMemoryAllocateInfo", "MEMORY_ALLOCATE_INFO",
                             allocationSize=memory_size, memoryTypeIndex=memory_type,
                             pNext=vk.NULL if extra is None else extra)
            memory = vk.create(vk.lib.vkAllocateMemory, self._device, info, "VkDeviceMemory")
            vk.check(vk.lib.vkBindBufferMemory(self._device, buffer, memory, 0),
                     "vkBindBufferMemory")
            mapped = self._map(memory, size) if visible else None
            if mapped is not None and extra is None and self._profile.device_type == "cpu":
                _ask_for_large_pages(mapped)
        except BaseException:
            vk.lib.vkDestroyBuffer(self._device, buffer, vk.NULL)
            if memory is not None:
                vk.lib.vkFreeMemory(self._device, memory, vk.NULL)
            elif taken is not None:
                os.close(taken)
            raise
        return NativeBlock(buffer, memory, memory_size, memory_type, mapped)

    def _buffer(self, size: int, external: int = 0) -> Any:
        shared = vk.struct("VkExternalMemoryBufferCreateInfo",
                           "EXTERNAL_MEMORY_BUFFER_CREATE_INFO", handleTypes=external)
        most = min(self._profile.max_buffer_size, self._profile.max_memory_allocation_size)
        alike = self._profile.compiles_by_size and size & (size - 1) == 0
        if alike and not external and size + ALIGNMENT <= most:
            # Such a driver must not see a power of two. The rest is unused.
            size += ALIGNMENT
        info = vk.struct("VkBufferCreateInfo", "BUFFER_CREATE_INFO", size=size, usage=self._usage,
                         sharingMode=vk.const("VK_SHARING_MODE_EXCLUSIVE"),
                         pNext=shared if external else vk.NULL)
        return vk.create(vk.lib.vkCreateBuffer, self._device, info, "VkBuffer")

    def _requirements(self, buffer: Any) -> Any:
        out = vk.new("VkMemoryRequirements *")
        vk.lib.vkGetBufferMemoryRequirements(self._device, buffer, out)
        return out

    def _map(self, memory: Any, size: int) -> memoryview:
        out = vk.new("void **")
        vk.check(vk.lib.vkMapMemory(self._device, memory, 0, vk.WHOLE_SIZE, 0, out), "vkMapMemory")
        return memoryview(vk.ffi.buffer(out[0], size))


def _ask_for_large_pages(mapped: memoryview) -> None:
    """Memory of a processor on pages of 2 MB, where Linux gives these: the processor finds more
    addresses without a walk through tables, and fetches further ahead. A token of a decoder with
    500 MB of weights takes a tenth less processor time."""
    advice = getattr(mmap, "MADV_HUGEPAGE", None)
    address = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
    start = round_up(address, _LARGE_PAGE)
    size = (address + len(mapped)) // _LARGE_PAGE * _LARGE_PAGE - start
    if advice is not None and size > 0:
        # Without such pages the call fails, and nothing changes.
        ctypes.CDLL(None).madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), advice)
