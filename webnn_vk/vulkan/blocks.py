"""Blocks of device memory: one VkBuffer on one VkDeviceMemory, mapped for good when visible."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from webnn_vk.vulkan import binding as vk
from webnn_vk.vulkan.instance import is_forked


@dataclass(eq=False)
class NativeBlock:
    """A buffer with its memory. `mapped`: a writable memoryview of it, or None."""

    buffer: Any
    memory: Any
    size: int
    mapped: memoryview | None


class BufferBlocks:
    """The `memory.BlockSource` of a device."""

    def __init__(self, device: Any, owner: Any = None) -> None:
        # The owner lives as long as an allocation does: it is not collected under mapped memory.
        self._device, self._owner = device, owner
        self._usage = (vk.const("VK_BUFFER_USAGE_STORAGE_BUFFER_BIT")
                       | vk.const("VK_BUFFER_USAGE_TRANSFER_SRC_BIT")
                       | vk.const("VK_BUFFER_USAGE_TRANSFER_DST_BIT"))
        probe = self._buffer(256)
        self.memory_type_bits = self._requirements(probe).memoryTypeBits
        vk.lib.vkDestroyBuffer(device, probe, vk.NULL)

    def create_block(self, size: int, memory_type: int, *, visible: bool) -> NativeBlock:
        """A buffer of `size` bytes on its own memory of the given type, mapped when visible."""
        buffer, memory = self._buffer(size), None
        try:
            info = vk.struct("VkMemoryAllocateInfo", "MEMORY_ALLOCATE_INFO",
                             allocationSize=self._requirements(buffer).size,
                             memoryTypeIndex=memory_type)
            memory = vk.create(vk.lib.vkAllocateMemory, self._device, info, "VkDeviceMemory")
            vk.check(vk.lib.vkBindBufferMemory(self._device, buffer, memory, 0),
                     "vkBindBufferMemory")
            mapped = self._map(memory, size) if visible else None
        except BaseException:
            vk.lib.vkDestroyBuffer(self._device, buffer, vk.NULL)
            if memory is not None:
                vk.lib.vkFreeMemory(self._device, memory, vk.NULL)
            raise
        return NativeBlock(buffer, memory, size, mapped)

    def destroy_block(self, native: NativeBlock) -> None:
        """Frees buffer and memory (which unmaps it)."""
        if is_forked():
            return  # it is the parent's
        native.mapped = None
        vk.lib.vkDestroyBuffer(self._device, native.buffer, vk.NULL)
        vk.lib.vkFreeMemory(self._device, native.memory, vk.NULL)

    def synchronise(self, native: NativeBlock, offset: int, size: int, *,
                    to_device: bool) -> None:
        """Flushes or invalidates a mapped range (aligned to nonCoherentAtomSize)."""
        info = vk.struct("VkMappedMemoryRange", "MAPPED_MEMORY_RANGE", memory=native.memory,
                         offset=offset, size=size)
        call = (vk.lib.vkFlushMappedMemoryRanges if to_device
                else vk.lib.vkInvalidateMappedMemoryRanges)
        vk.check(call(self._device, 1, info), "synchronising mapped memory")

    def _buffer(self, size: int) -> Any:
        info = vk.struct("VkBufferCreateInfo", "BUFFER_CREATE_INFO", size=size, usage=self._usage,
                         sharingMode=vk.const("VK_SHARING_MODE_EXCLUSIVE"))
        return vk.create(vk.lib.vkCreateBuffer, self._device, info, "VkBuffer")

    def _requirements(self, buffer: Any) -> Any:
        out = vk.new("VkMemoryRequirements *")
        vk.lib.vkGetBufferMemoryRequirements(self._device, buffer, out)
        return out

    def _map(self, memory: Any, size: int) -> memoryview:
        out = vk.new("void **")
        vk.check(vk.lib.vkMapMemory(self._device, memory, 0, vk.WHOLE_SIZE, 0, out), "vkMapMemory")
        return memoryview(vk.ffi.buffer(out[0], size))
