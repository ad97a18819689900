"""Mistakes planted on purpose; `test_validation_layer.py` runs each in a pytest of its own.

Not collected by a normal run: the file's name is not that of a test.
"""

from webnn_vk.vulkan import binding as vk
from webnn_vk.vulkan.device import open_driver
from webnn_vk.vulkan.devices import list_devices
from webnn_vk.vulkan.driver import FillCommand


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
    # Submitted behind the driver's back, which would raise here what the test's end has to find.
    device._submission.submit(device._queue, [recording.native], (), (), 1)
    vk.lib.vkDeviceWaitIdle(device.handle)


def test_no_mistake():
    device = driver()
    memory = device.allocate(256)
    device.wait(device.submit([device.record([FillCommand(memory, 0, 256, 1)])]))
