"""The cost of accessing a tensor's contents: reads and writes, views, and wgpu-py."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import webnn_vk
from webnn_vk.support import packages
from webnn_vk.tools.devices import open_context

from .table import show

MEGABYTES = (0.004, 1, 64)


def main(device: str | None, runs: int) -> None:
    """Median milliseconds per access and size, compared with a plain copy in host memory."""
    with open_context(device) as context:
        print(context.device_info)
        accesses = {**_numpy_accesses(context), **_wgpu_accesses(context)}
        show(
            ["ms", *(f"{size:g} MB" for size in MEGABYTES)],
            [
                [name, *(f"{_median(access, int(size * 250_000), runs):.3f}" for size in MEGABYTES)]
                for name, access in accesses.items()
            ],
        )


def _median(
    access: Callable[[np.ndarray], tuple[Callable, Callable]], size: int, runs: int
) -> float:
    data = np.ones(size, np.float32)
    act, after = access(data)
    times = []
    for _ in range(runs + 2):
        start = time.perf_counter()
        result = act()
        times.append(time.perf_counter() - start)
        after(result)
        del result
    return 1e3 * statistics.median(times[2:])


def _nothing(result: Any) -> None:
    return None


def _tensor(context: Any, data: np.ndarray, *device: Any) -> Any:
    create = context.create_exportable_tensor if device else context.create_tensor
    descriptor = webnn_vk.MLTensorDescriptor(
        "float32", data.shape, readable=True, writable=True
    )
    tensor = create(descriptor, *device).result()
    context.write_tensor(tensor, data)
    return tensor


def _numpy_accesses(context: Any) -> dict[str, Any]:
    def copy(data: np.ndarray) -> Any:
        target = np.empty_like(data)
        return lambda: np.copyto(target, data), _nothing

    def write(data: np.ndarray) -> Any:
        tensor = _tensor(context, data)

        def act() -> None:
            context.write_tensor(tensor, data)
            context.fence().wait()

        return act, _nothing

    def read(data: np.ndarray) -> Any:
        tensor = _tensor(context, data)
        return lambda: context.read_tensor(tensor).result(), _nothing

    def view(data: np.ndarray) -> Any:
        tensor = _tensor(context, data)
        return tensor.to_numpy, lambda array: array.release()

    def dlpack(data: np.ndarray) -> Any:
        tensor = _tensor(context, data)
        return lambda: np.from_dlpack(tensor, device="cpu"), _nothing

    def from_dlpack(data: np.ndarray) -> Any:
        return lambda: webnn_vk.from_dlpack(data, context), _nothing

    return {
        "copy in host memory": copy,
        "write_tensor": write,
        "read_tensor": read,
        "to_numpy": view,
        "numpy.from_dlpack": dlpack,
        "from_dlpack (new tensor)": from_dlpack,
    }


def _wgpu_accesses(context: Any) -> dict[str, Any]:
    missing = packages.problem("wgpu is left out: it needs", "wgpu")
    if missing:
        print(missing)
        return {}
    import wgpu

    adapters = [a for a in wgpu.gpu.enumerate_adapters_sync() if a.info["backend_type"] == "Vulkan"]
    if not adapters:
        print("wgpu finds no Vulkan adapter: left out")
        return {}
    device = adapters[0].request_device_sync()

    def export(data: np.ndarray) -> Any:
        tensor = _tensor(context, data, device)
        return lambda: context.export_to_gpu(tensor), lambda buffer: buffer.destroy()

    def give_back(data: np.ndarray) -> Any:
        tensor = _tensor(context, data, device)
        buffers = [context.export_to_gpu(tensor)]
        return (
            lambda: buffers.pop().destroy(),
            lambda _: buffers.append(context.export_to_gpu(tensor)),
        )

    return {"export_to_gpu (wgpu)": export, "buffer.destroy() (wgpu)": give_back}
