"""The Vulkan driver layer: devices, memory, pipelines, command buffers, the timeline.

`devices.list_devices` and `devices.choose` find a device, `device.open_driver` opens it; everything
above talks to the small interface of `driver.Driver`. Nothing is loaded until it is asked for, and
without a loader or a driver the first call raises `errors.VulkanUnavailable`.
"""
