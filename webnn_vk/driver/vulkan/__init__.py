"""The Vulkan driver: devices, memory, pipelines, command buffers, the timeline.

`devices.list_devices` and `devices.choose` find a device, `driver.open_driver` opens it; everything
above talks to the interface of the package `webnn_vk.driver`. Nothing is loaded until it is asked
for, and without a loader or a driver the first call raises `errors.VulkanUnavailable`.
"""
