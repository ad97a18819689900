"""The Vulkan driver: devices, memory, pipelines, command buffers, the timeline.

`devices.list_devices` and `devices.choose_device` find a device, `driver.open_driver` opens it. All
higher layers use the interface of the package `webnn_vk.driver`. Nothing is loaded before its first
use; without a loader or a driver the first call raises `errors.VulkanUnavailable`.
"""
