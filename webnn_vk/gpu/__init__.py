"""A Vulkan device as an object: small, typed, named after WebGPU. Imports `runtime/` and the
folders below it.

    adapter = webnn_vk.gpu.request_adapter().result()
    device = adapter.request_device().result()
    module = device.create_shader_module(code=GLSL)
    pipeline = device.create_compute_pipeline(module=module)
    buffer = device.create_buffer_with_data(data=array, usage=GPUBufferUsage.STORAGE | …)
    encoder = device.create_command_encoder()
    with encoder.begin_compute_pass() as compute:
        compute.set_pipeline(pipeline)
        compute.set_bind_group(0, device.create_bind_group(entries=[buffer]))
        compute.dispatch_workgroups(groups)
    device.queue.submit([encoder.finish()])
    data = device.queue.read_buffer(buffer).result().view(array.dtype)

A call that breaks one of WebGPU's rules raises TypeError for a wrong type, ValueError where
WebGPU's validation fails, InvalidStateError for a destroyed object, and OperationError when the
device is out of memory.

Names are loaded on first use (PEP 562), because a context needs only some of these modules. Type
checkers read ``__init__.pyi``, which is generated.
"""

from __future__ import annotations

from typing import Any

from webnn_vk.support import forks
from webnn_vk.support.lazy_names import lazy_names

_MODULE_OF = {
    "GPUAdapter": "adapter",
    "GPUBindGroup": "encoder",
    "GPUBuffer": "buffer",
    "GPUBufferBinding": "encoder",
    "GPUBufferUsage": "flags",
    "GPUCommandBuffer": "encoder",
    "GPUCommandEncoder": "encoder",
    "GPUComputePass": "encoder",
    "GPUComputePassTimestampWrites": "query",
    "GPUComputePipeline": "shader",
    "GPUDevice": "adapter",
    "GPUDeviceLostInfo": "device_state",
    "GPUQuerySet": "query",
    "GPUQueue": "queue",
    "GPUSemaphore": "semaphore",
    "GPUShaderModule": "shader",
    "enumerate_adapters": "adapter",
    "request_adapter": "adapter",
}

__all__ = [*_MODULE_OF]


_load = lazy_names(globals(), _MODULE_OF)


def __getattr__(name: str) -> Any:
    with forks.undisturbed():
        return _load(name)


def __dir__() -> list[str]:
    return sorted({*__all__, *globals()})
