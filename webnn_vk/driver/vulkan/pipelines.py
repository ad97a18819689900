"""Compute pipelines: layouts, specialisation, a cache, parallel compiling."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any
from weakref import KeyedRef

from webnn_vk.driver.checks import check_pipeline
from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.driver.dumping import dump_spirv
from webnn_vk.driver.resources import PipelineRequest
from webnn_vk.driver.vulkan import binding as vk
from webnn_vk.support.parallel_map import spread
from webnn_vk.support.processor import cores

_FULL_SUBGROUPS = "VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT"
#: Unused VkPipelines that a device keeps: 0.3 to 0.8 GB on lavapipe with Mesa 22.3, where
#: one takes 1.2 MB (element-wise) to 3 MB (convolution) and is made again in some 10 ms (0.1 s
#: where Mesa's cache on disk is off).
MAX_IDLE = 256
#: Threads that make pipelines: NVIDIA's driver takes 0.05 to 0.3 s for one, and a model has dozens.
_MOST_THREADS = 16


def binding_kinds(request: PipelineRequest) -> tuple[str, ...]:
    """The kind of each binding of set 0: "storage" or "texel"."""
    texels = dict(request.texels)
    return tuple("texel" if i in texels else "storage" for i in range(request.binding_count))


def descriptor_type(kind: str) -> int:
    """Vulkan's number for a kind of `binding_kinds`."""
    name = {"storage": "STORAGE_BUFFER", "texel": "UNIFORM_TEXEL_BUFFER"}[kind]
    return vk.const(f"VK_DESCRIPTOR_TYPE_{name}")


class VulkanPipeline:
    """A use of a VkPipeline, with its layouts: a reference to the object keeps the VkPipeline.
    `set_layout` is None when it binds nothing."""

    __slots__ = ("__weakref__", "handle", "layout", "request", "set_layout")

    def __init__(self, request: PipelineRequest, handle: Any, layout: Any,
                 set_layout: Any) -> None:
        self.request, self.handle = request, handle
        self.layout, self.set_layout = layout, set_layout

    def __repr__(self) -> str:
        return f"<VulkanPipeline {self.request.name!r}>"


# The parts of a VulkanPipeline, which identify it.
_Parts = tuple[PipelineRequest, Any, Any, Any]
_Key = tuple[Any, ...]


class PipelineStore:
    """All pipelines of one device: those in use, and the `MAX_IDLE` that were in use last.

    Thread-safe. The layouts, few and small, stay until `close`.
    """

    def __init__(self, device: Any, profile: DeviceProfile) -> None:
        self._device, self._profile = device, profile
        self._lock = threading.Lock()
        self._making: dict[_Key, Future[VulkanPipeline]] = {}
        self._used: dict[_Key, tuple[_Parts, KeyedRef[_Key, VulkanPipeline]]] = {}
        self._idle: OrderedDict[_Key, _Parts] = OrderedDict()
        # Uses that ended, added on any thread, under any lock.
        self._ended: deque[KeyedRef[_Key, VulkanPipeline]] = deque()
        self._set_layouts: dict[tuple[str, ...], Any] = {}
        self._layouts: dict[tuple[tuple[str, ...], int], Any] = {}

    def get(self, requests: Sequence[PipelineRequest]) -> list[VulkanPipeline]:
        """The pipelines, compiled in parallel where they don't exist. Raises ValueError for a
        request the device can't serve, DriverError when the driver refuses."""
        pipelines: list[VulkanPipeline | Future[VulkanPipeline]] = []
        jobs = []
        for request in requests:
            check_pipeline(request, self._profile)
            key = (hashlib.sha256(request.spirv).digest(), request.constants,
                   request.binding_count, request.push_size, request.subgroup_size,
                   request.entry_point, request.texels, request.full_subgroups)
            with self._lock:
                there = self._find(key) or self._making.get(key)
                if there is None:
                    there = self._making[key] = Future()
                    jobs.append((key, request, there))
            pipelines.append(there)
        try:
            spread(lambda job: self._run(*job), jobs, min(_MOST_THREADS, cores()))
        finally:
            # After Ctrl-C no thread may wait for work that never began.
            for key, _, future in jobs:
                if future.cancel():
                    with self._lock:
                        self._making.pop(key, None)
        self.trim()
        return [there.result() if isinstance(there, Future) else there for there in pipelines]

    def trim(self, keep: int | None = None) -> None:
        """Destroys the least recently used ones beyond `keep` (`MAX_IDLE`). Never blocks."""
        keep = MAX_IDLE if keep is None else keep
        if not (self._ended or len(self._idle) > keep) or not self._lock.acquire(blocking=False):
            return
        try:
            while self._ended:
                reference = self._ended.popleft()
                parts, latest = self._used.get(reference.key, (None, None))
                if parts and latest is reference:  # else it has a new user
                    del self._used[reference.key]
                    self._idle[reference.key] = parts
            while len(self._idle) > keep:
                self._destroy(self._idle.popitem(last=False)[1])
        finally:
            self._lock.release()

    def close(self) -> None:
        """Destroys everything."""
        with self._lock:
            for parts in [*self._idle.values(), *(parts for parts, _ in self._used.values())]:
                self._destroy(parts)
            for layout in self._layouts.values():
                vk.lib.vkDestroyPipelineLayout(self._device, layout, vk.NULL)
            for layout in self._set_layouts.values():
                vk.lib.vkDestroyDescriptorSetLayout(self._device, layout, vk.NULL)
            self._layouts, self._set_layouts = {}, {}
            self._idle.clear()
            self._used.clear()

    # -- with the lock held -------------------------------------------------------------------
    def _find(self, key: _Key) -> VulkanPipeline | None:
        parts, reference = self._used.get(key, (None, None))
        pipeline = reference() if reference else None
        if pipeline is None:
            # It has no user, whether that was recorded or not.
            parts = parts or self._idle.pop(key, None)
            pipeline = self._use(key, parts) if parts else None
        return pipeline

    def _use(self, key: _Key, parts: _Parts) -> VulkanPipeline:
        pipeline = VulkanPipeline(*parts)
        self._used[key] = parts, KeyedRef(pipeline, self._ended.append, key)
        return pipeline

    def _destroy(self, parts: _Parts) -> None:
        # Not in flight: recordings hold what they use until they are done.
        vk.lib.vkDestroyPipeline(self._device, parts[1], vk.NULL)

    # -- without ------------------------------------------------------------------------------
    def _run(self, key: _Key, request: PipelineRequest, future: Future[VulkanPipeline]) -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            parts = self._create(request)
            try:
                with self._lock:
                    pipeline = self._use(key, parts)
            except BaseException:
                self._destroy(parts)
                raise
            with self._lock:
                del self._making[key]
            future.set_result(pipeline)
        except BaseException as error:
            # Threads that wait for the same pipeline get the error; a later request tries again.
            with self._lock:
                self._making.pop(key, None)
            future.set_exception(error)
            if not isinstance(error, Exception):
                raise

    def _layout(self, kinds: tuple[str, ...], push_size: int) -> tuple[Any, Any]:
        with self._lock:
            set_layout = self._set_layouts.get(kinds)
            if set_layout is None and kinds:
                types = dict(enumerate(map(descriptor_type, kinds)))
                set_layout = self._set_layouts[kinds] = create_set_layout(self._device, types)
            layout = self._layouts.get((kinds, push_size))
            if layout is None:
                layout = self._layouts[kinds, push_size] = create_layout(
                    self._device, [set_layout] if kinds else [], push_size)
            return layout, set_layout

    def _create(self, request: PipelineRequest) -> _Parts:
        dump_spirv(request.spirv)
        layout, set_layout = self._layout(binding_kinds(request), request.push_size)
        full = request.full_subgroups and "subgroup_full" in self._profile.features
        pipeline = create_pipeline(self._device, request, layout, full=full)
        return request, pipeline, layout, set_layout


def create_set_layout(device: Any, types: Mapping[int, int]) -> Any:
    """A VkDescriptorSetLayout with a descriptor of the given type for each binding."""
    compute = vk.const("VK_SHADER_STAGE_COMPUTE_BIT")
    bindings = vk.new("VkDescriptorSetLayoutBinding[]", [
        {"binding": index, "descriptorType": kind, "descriptorCount": 1, "stageFlags": compute}
        for index, kind in types.items()])
    info = vk.struct("VkDescriptorSetLayoutCreateInfo", "DESCRIPTOR_SET_LAYOUT_CREATE_INFO",
                     bindingCount=len(types), pBindings=bindings)
    return vk.create(vk.lib.vkCreateDescriptorSetLayout, device, info, "VkDescriptorSetLayout")


def create_layout(device: Any, set_layouts: Sequence[Any], push_size: int) -> Any:
    """A VkPipelineLayout."""
    sets = vk.new("VkDescriptorSetLayout[]", list(set_layouts))
    ranges = vk.new("VkPushConstantRange[]", [
        {"stageFlags": vk.const("VK_SHADER_STAGE_COMPUTE_BIT"), "offset": 0,
         "size": push_size}] if push_size else [])
    info = vk.struct("VkPipelineLayoutCreateInfo", "PIPELINE_LAYOUT_CREATE_INFO",
                     setLayoutCount=len(sets), pSetLayouts=sets,
                     pushConstantRangeCount=len(ranges), pPushConstantRanges=ranges)
    return vk.create(vk.lib.vkCreatePipelineLayout, device, info, "VkPipelineLayout")


def create_pipeline(
    device: Any, request: PipelineRequest, layout: Any, *, flags: int = 0, full: bool = False
) -> Any:
    """A VkPipeline. ``flags``: VkPipelineCreateFlags; ``full``: whether its subgroups are full."""
    code = vk.ffi.from_buffer("uint32_t[]", request.spirv)
    module_info = vk.struct("VkShaderModuleCreateInfo", "SHADER_MODULE_CREATE_INFO",
                            codeSize=len(request.spirv), pCode=code)
    data = b"".join(value for _, value in request.constants)
    entries = vk.new("VkSpecializationMapEntry[]", [
        (identifier, index * 4, 4) for index, (identifier, _) in enumerate(request.constants)])
    data_chars = vk.ffi.from_buffer(data)
    special = vk.new("VkSpecializationInfo *", (len(entries), entries, len(data), data_chars))
    entry_point = vk.new("char[]", request.entry_point.encode())
    required = vk.struct(
        "VkPipelineShaderStageRequiredSubgroupSizeCreateInfo",
        "PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO",
        requiredSubgroupSize=request.subgroup_size)
    module = vk.create(vk.lib.vkCreateShaderModule, device, module_info, "VkShaderModule")
    try:
        stage = {"sType": vk.const("VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO"),
                 "stage": vk.const("VK_SHADER_STAGE_COMPUTE_BIT"), "module": module,
                 "flags": vk.const(_FULL_SUBGROUPS) if full else 0,
                 "pName": entry_point, "pSpecializationInfo": special,
                 "pNext": required if request.subgroup_size else vk.NULL}
        info = vk.struct("VkComputePipelineCreateInfo", "COMPUTE_PIPELINE_CREATE_INFO",
                         flags=flags, stage=stage, layout=layout)
        out = vk.new("VkPipeline *")
        vk.check(vk.lib.vkCreateComputePipelines(device, vk.NULL, 1, info, vk.NULL, out),
                 f"creating pipeline {request.name!r}")
    finally:
        vk.lib.vkDestroyShaderModule(device, module, vk.NULL)
    return out[0]
