"""Hands a tensor's memory to CUDA and takes it back, without a copy.

Needs an NVIDIA GPU whose Vulkan driver has VK_KHR_external_memory_fd. PyTorch or CuPy works on the
memory when one is installed, plain CUDA otherwise.

    python examples/share_with_cuda.py
"""

from __future__ import annotations

import ctypes
import sys
from importlib import import_module
from typing import Any

import numpy as np

import webnn_vk

COUNT = 1 << 20
OPAQUE_FD, DEDICATED = 1, 1


class Unavailable(Exception):
    """Why the example can't run on this machine."""


class MemoryHandle(ctypes.Structure):
    """CUDA_EXTERNAL_MEMORY_HANDLE_DESC, its union as two pointers of which a fd is the start."""

    _fields_ = [
        ("type", ctypes.c_int), ("fd", ctypes.c_int64), ("name", ctypes.c_void_p),
        ("size", ctypes.c_uint64), ("flags", ctypes.c_uint), ("reserved", ctypes.c_uint * 16),
    ]


class MappedBuffer(ctypes.Structure):
    """CUDA_EXTERNAL_MEMORY_BUFFER_DESC."""

    _fields_ = [
        ("offset", ctypes.c_uint64), ("size", ctypes.c_uint64), ("flags", ctypes.c_uint),
        ("reserved", ctypes.c_uint * 16),
    ]


class Cuda:
    """The few calls of CUDA's driver API that it takes, on the device with a Vulkan UUID."""

    def __init__(self, uuid: bytes) -> None:
        try:
            self._library = ctypes.CDLL("libcuda.so.1")
        except OSError:
            raise Unavailable("no CUDA driver (libcuda.so.1) on this machine") from None
        self.call("cuInit", 0)
        self.device = self._find(uuid)
        self._context = ctypes.c_void_p()
        handle = ctypes.c_int()
        self.call("cuDeviceGet", ctypes.byref(handle), self.device)
        # The one that PyTorch and CuPy use too.
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), handle)
        self.call("cuCtxSetCurrent", self._context)

    def call(self, name: str, *arguments: Any) -> None:
        result = getattr(self._library, name)(*arguments)
        if result:
            raise Unavailable(f"{name} failed with CUDA error {result}")

    def _find(self, uuid: bytes) -> int:
        count = ctypes.c_int()
        self.call("cuDeviceGetCount", ctypes.byref(count))
        for index in range(count.value):
            found = ctypes.create_string_buffer(16)
            self.call("cuDeviceGetUuid", found, index)
            if found.raw == uuid:
                return index
        raise Unavailable(f"none of the {count.value} CUDA devices is the Vulkan device in use")

    def open(self, fd: int, allocation_size: int, offset: int, size: int) -> int:
        """The device pointer of a tensor's memory; CUDA owns the file descriptor then."""
        handle = MemoryHandle(OPAQUE_FD, fd, None, allocation_size, DEDICATED)
        external, pointer = ctypes.c_void_p(), ctypes.c_uint64()
        self.call("cuImportExternalMemory", ctypes.byref(external), ctypes.byref(handle))
        part = MappedBuffer(offset, size)
        self.call(
            "cuExternalMemoryGetMappedBuffer", ctypes.byref(pointer), external, ctypes.byref(part)
        )
        return pointer.value


class CudaArray:
    """What PyTorch and CuPy make arrays of without a copy."""

    def __init__(self, pointer: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (COUNT,), "typestr": "<f4", "data": (pointer, False), "version": 3,
        }


def add_one(cuda: Cuda, pointer: int) -> str:
    """Add 1 to every number in place on the GPU; which library did it."""
    try:
        torch = import_module("torch")
        if torch.cuda.is_available():
            torch.as_tensor(CudaArray(pointer), device=f"cuda:{cuda.device}").add_(1)
            torch.cuda.synchronize(cuda.device)
            return f"PyTorch {torch.__version__}"
    except ImportError:
        pass
    try:
        cupy = import_module("cupy")
        with cupy.cuda.Device(cuda.device):
            array = cupy.asarray(CudaArray(pointer))
            array += 1
            cupy.cuda.Device().synchronize()
        return f"CuPy {cupy.__version__}"
    except ImportError:
        pass
    # No arithmetic without a library: the numbers are all the same, so 1 more is a constant.
    first = ctypes.c_float()
    cuda.call("cuMemcpyDtoH_v2", ctypes.byref(first), ctypes.c_uint64(pointer), ctypes.c_size_t(4))
    bits = int(np.float32(first.value + 1).view(np.uint32))
    cuda.call("cuMemsetD32_v2", ctypes.c_uint64(pointer), bits, ctypes.c_size_t(COUNT))
    cuda.call("cuCtxSynchronize")
    return "plain CUDA"


def main() -> None:
    context = webnn_vk.ml.create_context().result()
    descriptor = webnn_vk.MLTensorDescriptor("float32", (COUNT,), readable=True, writable=True)
    try:
        tensor = context.create_exportable_tensor(descriptor).result()
    except webnn_vk.NotSupportedError as error:
        raise Unavailable(str(error)) from None
    builder = webnn_vk.MLGraphBuilder(context)
    x = builder.input("x", {"data_type": "float32", "shape": [COUNT]})
    graph = builder.build({"y": builder.linear(x, alpha=2.0)}).result()
    result = context.create_tensor(descriptor).result()

    memory = tensor.export_fd()
    try:
        cuda = Cuda(memory.device_uuid)
    except Unavailable:
        memory.close()
        raise
    pointer = cuda.open(memory.fd, memory.allocation_size, memory.offset, memory.size)

    context.write_tensor(tensor, np.full(COUNT, 20, np.float32))
    context.dispatch(graph, {"x": tensor}, {"y": result})
    context.fence().wait()  # our work is done before CUDA's begins
    library = add_one(cuda, pointer)  # and CUDA's before our next
    context.dispatch(graph, {"x": tensor}, {"y": result})
    found = context.read_tensor(result).result()
    assert (found == 42).all(), found
    print(f"{context.device_info}: {library} added 1 to a tensor's own memory; 2 · (20 + 1) = 42")


if __name__ == "__main__":
    try:
        main()
    except Unavailable as error:
        sys.exit(f"share_with_cuda: {error}")
