"""DLPack: tensors for other libraries."""

from __future__ import annotations

from typing import Any

import numpy as np

from webnn_vk.runtime.mapping import is_host_visible
from webnn_vk.runtime.tensor_state import TensorState

from .numpy import view

#: DLDeviceType of dlpack.h.
KDL_CPU, KDL_VULKAN = 1, 7
# Since 2.1 NumPy exports versioned capsules, with the flags for read-only and copied.
_VERSIONED = tuple(map(int, np.__version__.split(".")[:2])) >= (2, 1)


def device_of(tensor: TensorState) -> tuple[int, int]:
    """See ``MLTensor.__dlpack_device__``. Vulkan devices are numbered as in ``devices()``."""
    storage = tensor.storage_of("__dlpack_device__")
    if is_host_visible(storage):
        return KDL_CPU, 0
    return KDL_VULKAN, tensor.context.info.index or 0


def export(
    tensor: TensorState,
    stream: Any,
    max_version: tuple[int, int] | None,
    dl_device: tuple[int, int] | None,
    copy: bool | None,
) -> Any:
    """See ``MLTensor.__dlpack__``; NumPy makes the capsule, of the tensor's view."""
    kind, number = device_of(tensor)
    wanted = dl_device if dl_device is not None else (kind, number)
    if wanted[0] != KDL_CPU:
        # DLPack does not say what a pointer to Vulkan memory is: no consumer could use it.
        raise BufferError(
            f"{tensor!r} is on DLPack device {(kind, number)} and can be exported to the CPU only: "
            f"ask for dl_device=({KDL_CPU}, 0), as numpy.from_dlpack(tensor, device='cpu') does"
        )
    if kind != KDL_CPU and copy is False:
        raise BufferError(f"{tensor!r} is in device memory: the CPU can have a copy only")
    array = view(tensor, "__dlpack__")
    try:
        if _VERSIONED:
            capsule = array.__dlpack__(stream=stream, max_version=max_version, copy=copy)
        else:
            capsule = (array.copy() if copy else array).__dlpack__(stream=stream)
    except BaseException:
        array.release()
        raise
    if copy:
        array.release()
    return capsule
