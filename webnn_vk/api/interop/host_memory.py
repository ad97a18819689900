"""Constant tensors in place: weights of a memory-mapped file, used without a copy."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np

from webnn_vk.compiler.types.buffers import as_bytes
from webnn_vk.compiler.types.data_types import MLOperandDescriptor
from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.runtime.device import Device
from webnn_vk.runtime.storage import Storage

#: Kernels load vectors of four 32-bit elements.
VECTOR_BYTES = 16


def share(device: Device, descriptor: MLOperandDescriptor, buffer: Any, what: str) -> Storage:
    """The bytes of ``buffer`` as a storage of ``device``, kept alive with it and never written.

    TypeError when the buffer does not fit the descriptor, or does not lie where the device could
    use it; NotSupportedError when the device can't use host memory.
    """
    if isinstance(buffer, np.ndarray) and not buffer.flags.c_contiguous:
        raise TypeError(f"{what}: the buffer is not contiguous, so it can't be used in place")
    data = as_bytes(buffer, descriptor, what, in_place=True)
    data.flags.writeable = False
    profile = device.profile
    # Without the extension it is import_storage that says so.
    if profile is not None and "external_memory_host" in profile.features:
        reason = obstacle(profile, data.ctypes.data, data.nbytes, mapping_around(data))
        if reason is not None:
            raise TypeError(
                f"{what}: {descriptor}: {reason}; create_constant_tensor copies from anywhere"
            )
    return device.import_storage(data)


def obstacle(
    profile: DeviceProfile, address: int, size: int, mapping: tuple[int, int] | None
) -> str | None:
    """Why ``size`` bytes at ``address`` can't be used in place by a device, or None.

    ``mapping``: first and last address of the memory mapping that holds them, when that is known.
    """
    alignment = max(profile.min_storage_buffer_offset_alignment, VECTOR_BYTES)
    if address % alignment:
        return (
            f"the data starts {address % alignment} bytes after a multiple of {alignment}, which "
            f"{profile.name} needs (lay the file out so that its tensors start at such multiples)"
        )
    step = profile.min_imported_host_pointer_alignment
    # A process' memory consists of whole pages: those around the data are always there.
    if step <= mmap.PAGESIZE:
        return None
    first, last = address - address % step, -(-(address + size) // step) * step
    if mapping is None or first < mapping[0] or last > mapping[1]:
        return (
            f"{profile.name} uses host memory in steps of {step} bytes, and those around the data "
            f"({first:#x} … {last:#x}) are not all in one memory mapping; start and end of the "
            f"mapping have to be multiples of {step} bytes or further away"
        )
    return None


def mapping_around(array: np.ndarray) -> tuple[int, int] | None:
    """Start and end, in whole pages, of the ``mmap`` that an array lies in; None for other
    memory."""
    owner: Any = array
    while owner is not None and not isinstance(owner, mmap.mmap):
        owner = owner.obj if isinstance(owner, memoryview) else getattr(owner, "base", None)
    if owner is None:
        return None
    start = np.frombuffer(owner, np.uint8).ctypes.data
    return start, start + -(-len(owner) // mmap.PAGESIZE) * mmap.PAGESIZE
