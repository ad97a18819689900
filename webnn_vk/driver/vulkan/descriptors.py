"""Descriptor sets of a recording, with the buffer views that its texel buffers need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from webnn_vk.driver.commands import DispatchCommand
from webnn_vk.driver.vulkan import binding as vk
from webnn_vk.driver.vulkan.pipelines import descriptor_type
from webnn_vk.driver.vulkan.snapshot import TEXEL_FORMATS


class DescriptorSets:
    """The bindings of a recording's dispatches: one set for each distinct tuple of bindings, one
    view for each distinct range that is read as texels. A recording owns it, and keeps the memory
    longer."""

    __slots__ = ("_device", "_pool", "_views")

    def __init__(self, device: Any) -> None:
        self._device = device
        self._pool: Any = None
        self._views: dict[tuple[Any, ...], Any] = {}

    def destroy(self) -> None:
        """Destroys sets and views; nothing in flight uses them."""
        if self._pool is not None:
            vk.lib.vkDestroyDescriptorPool(self._device, self._pool, vk.NULL)
        for view in self._views.values():
            vk.lib.vkDestroyBufferView(self._device, view, vk.NULL)
        self._pool, self._views = None, {}

    def write(self, dispatches: Sequence[DispatchCommand]) -> list[Any]:
        """Makes the sets; returns each dispatch's, None for one that binds nothing. If it
        raises, `destroy` destroys what it has created."""
        numbers: dict[tuple[Any, ...], int] = {}
        order: list[int | None] = []
        layouts = []
        for command in dispatches:
            if not command.bindings:
                order.append(None)
                continue
            texels = dict(command.pipeline.request.texels)
            # The formats too: sets of other kinds of descriptors are other sets.
            key = tuple(
                (allocation.buffer, allocation.offset + offset, size, texels.get(index))
                for index, (allocation, offset, size) in enumerate(command.bindings))
            number = numbers.get(key)
            if number is None:
                number = numbers[key] = len(numbers)
                layouts.append(command.pipeline.set_layout)
            order.append(number)
        if not numbers:
            return order
        sets = self._allocate(list(numbers), layouts)
        self._update(sets, list(numbers))
        return [None if number is None else sets[number] for number in order]

    def _allocate(self, keys: Sequence[tuple[Any, ...]], layouts: Sequence[Any]) -> Any:
        texels = sum(place[3] is not None for key in keys for place in key)
        counts = {"storage": sum(map(len, keys)) - texels, "texel": texels}
        sizes = vk.new("VkDescriptorPoolSize[]", [
            (descriptor_type(kind), count) for kind, count in counts.items() if count])
        info = vk.struct("VkDescriptorPoolCreateInfo", "DESCRIPTOR_POOL_CREATE_INFO",
                         maxSets=len(keys), poolSizeCount=len(sizes), pPoolSizes=sizes)
        self._pool = vk.create(vk.lib.vkCreateDescriptorPool, self._device, info,
                               "VkDescriptorPool")
        layout_array = vk.new("VkDescriptorSetLayout[]", layouts)
        allocate = vk.struct("VkDescriptorSetAllocateInfo", "DESCRIPTOR_SET_ALLOCATE_INFO",
                             descriptorPool=self._pool, descriptorSetCount=len(keys),
                             pSetLayouts=layout_array)
        sets = vk.new("VkDescriptorSet[]", len(keys))
        vk.check(vk.lib.vkAllocateDescriptorSets(self._device, allocate, sets),
                 "vkAllocateDescriptorSets")
        return sets

    def _update(self, sets: Any, keys: Sequence[tuple[Any, ...]]) -> None:
        places = [place for key in keys for place in key]
        infos = vk.new("VkDescriptorBufferInfo[]", [place[:3] for place in places])
        views = vk.new("VkBufferView[]", [
            vk.NULL if place[3] is None else self._view(*place) for place in places])
        stype = vk.const("VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET")
        storage, texel = descriptor_type("storage"), descriptor_type("texel")
        rows, start = [], 0
        for number, key in enumerate(keys):
            first = 0
            while first < len(key):
                # One write covers consecutive bindings of a kind.
                is_texel = key[first][3] is not None
                end = first + 1
                while end < len(key) and (key[end][3] is not None) == is_texel:
                    end += 1
                at = start + first
                rows.append((stype, vk.NULL, sets[number], first, 0, end - first,
                             texel if is_texel else storage, vk.NULL,
                             vk.NULL if is_texel else infos + at,
                             views + at if is_texel else vk.NULL))
                first = end
            start += len(key)
        writes = vk.new("VkWriteDescriptorSet[]", rows)
        vk.lib.vkUpdateDescriptorSets(self._device, len(rows), writes, 0, vk.NULL)

    def _view(self, buffer: Any, offset: int, size: int, form: str) -> Any:
        key = buffer, offset, size, form
        if key not in self._views:
            info = vk.struct("VkBufferViewCreateInfo", "BUFFER_VIEW_CREATE_INFO", buffer=buffer,
                             format=vk.const(TEXEL_FORMATS[form]), offset=offset, range=size)
            self._views[key] = vk.create(vk.lib.vkCreateBufferView, self._device, info,
                                         "VkBufferView")
        return self._views[key]
