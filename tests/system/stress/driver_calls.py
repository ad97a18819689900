"""Vulkan calls that return errors during everything else: memory, recording, pipelines, submits. A
failing call reports the error and changes nothing else. (Every call, code and step in turn, with
loss: see tests/device/driver/vulkan/failing_calls.txt.)"""

from __future__ import annotations

from typing import Any

from tests.support.vulkan_faults import DevicesApart, FaultyLibrary
from tests.system.stress.kinds import Kind
from tests.system.stress.world import World
from webnn_vk.driver.vulkan import binding
from webnn_vk.support import environment

#: Calls whose failures affect only the work that makes them.
CALLS = (
    "vkCreateBuffer", "vkAllocateMemory", "vkBindBufferMemory", "vkMapMemory",
    "vkCreateCommandPool", "vkAllocateCommandBuffers", "vkBeginCommandBuffer", "vkEndCommandBuffer",
    "vkResetCommandPool", "vkCreateDescriptorSetLayout", "vkCreatePipelineLayout",
    "vkCreateDescriptorPool", "vkAllocateDescriptorSets", "vkCreateShaderModule",
    "vkCreateComputePipelines", "vkQueueSubmit",
)
ERRORS = ("OUT_OF_HOST_MEMORY", "OUT_OF_DEVICE_MEMORY", "UNKNOWN")

# For the whole run: devices keep the functions that they call.
_library = FaultyLibrary(
    binding, DevicesApart() if environment.flag("WEBNN_VK_VALIDATE") else None
)
binding.lib, binding.error_of = _library, _library.error_of


def fail_call(caller: Any, world: World) -> None:
    """One of the next calls of a function fails, on any thread."""
    chance = caller.random
    _library.fail_nth(chance.choice(CALLS), chance.randint(1, 4), chance.choice(ERRORS))


KINDS = (Kind("fail_call", fail_call, share=40, on="vulkan", event=True),)
