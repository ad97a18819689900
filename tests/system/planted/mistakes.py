"""Planted mistakes; `test_validation_layer.py` runs each in a separate pytest process.

A normal run does not collect this file, because of its name.
"""

import numpy as np

from tests.support.contexts import open_over
from tests.support.driver_proxy import DriverProxy
from webnn_vk import DOMException, MLGraphBuilder
from webnn_vk.driver import BarrierCommand, FillCommand
from webnn_vk.driver.vulkan import binding as vk
from webnn_vk.driver.vulkan.devices import list_devices
from webnn_vk.driver.vulkan.driver import open_driver


def driver():
    return open_driver(next(device for device in list_devices() if not device.unusable))


def test_buffer_of_no_size():
    device = driver()
    info = vk.struct("VkBufferCreateInfo", "BUFFER_CREATE_INFO", size=0, usage=0x20)
    out = vk.new("VkBuffer *")
    vk.lib.vkCreateBuffer(device.handle, info, vk.NULL, out)


def test_two_writes_without_a_barrier():
    device = driver()
    memory = device.allocate(256)
    recording = device.record([FillCommand(memory, 0, 256, 1), FillCommand(memory, 0, 256, 2)])
    # Submitted without the library's driver, which would raise here; the test's end has to find it.
    device._submission.submit(device._queue, [recording._native], (), (), 1)
    vk.lib.vkDeviceWaitIdle(device.handle)


class WithoutBarriers(DriverProxy):
    """Drops the barriers between the steps of a graph."""

    def record(self, commands):
        return self.driver.record([c for c in commands if not isinstance(c, BarrierCommand)])


class WithoutFirstBarrier(DriverProxy):
    """Submits without the barriers at the start of a submit and of each recording."""

    def __init__(self, driver):
        super().__init__(driver)
        top = vk.const("VK_PIPELINE_STAGE_TOP_OF_PIPE_BIT")
        driver._submission._first = top, top, vk.struct("VkMemoryBarrier", "MEMORY_BARRIER")


def _two_steps(wrap, times):
    """Dispatches a graph of two steps, each dispatch in its own submit; nothing is read."""
    context, _ = open_over(wrap)
    builder = MLGraphBuilder(context)
    x = builder.input("x", {"data_type": "float32", "shape": (64,)})
    graph = builder.build({"y": builder.softmax(builder.reverse(x), 0)}).result()
    descriptor = {"data_type": "float32", "shape": (64,), "readable": True, "writable": True}
    a, b = (context.create_tensor(descriptor).result() for _ in range(2))
    context.write_tensor(a, np.zeros(64, np.float32))
    for _ in range(times):
        try:
            context.dispatch(graph, {"x": a}, {"y": b})
            context.fence().wait()
        except DOMException:
            pass
        a, b = b, a
    context.destroy()
    context._state.timeline._closed.wait(60)


def test_a_hazard_inside_a_command_buffer():
    _two_steps(WithoutBarriers, 1)


def test_a_hazard_across_two_submits():
    _two_steps(WithoutFirstBarrier, 2)


def test_no_hazard():
    _two_steps(DriverProxy, 2)


def test_no_mistake():
    device = driver()
    memory = device.allocate(256)
    device.wait(device.submit([device.record([FillCommand(memory, 0, 256, 1)])]))
