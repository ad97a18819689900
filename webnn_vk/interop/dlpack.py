"""DLPack: tensors for other libraries, and other libraries' tensors for a context."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..data_types import ALL_TYPES, MLTensorDescriptor
from ..runtime.mapping import HostMapping, is_host_visible
from .numpy import view

if TYPE_CHECKING:
    from ..context import MLContext
    from ..tensor import MLTensor

#: DLDeviceType of dlpack.h.
KDL_CPU, KDL_VULKAN = 1, 7
# What NumPy can look at: the CPU's memory, and what CUDA and ROCm share with it.
_HOST_TYPES = (KDL_CPU, 3, 11, 13)
# Since 2.1 NumPy exports versioned capsules, with the flags for read-only and copied.
_VERSIONED = tuple(map(int, np.__version__.split(".")[:2])) >= (2, 1)


def device_of(tensor: MLTensor) -> tuple[int, int]:
    """See ``MLTensor.__dlpack_device__``. A Vulkan device's number is that of ``devices()``."""
    storage = tensor._storage_of("__dlpack_device__")
    if is_host_visible(storage):
        return KDL_CPU, 0
    return KDL_VULKAN, tensor._context.device_info.index or 0


def export(
    tensor: MLTensor,
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


def from_dlpack(
    x: Any, context: MLContext, *, readable: bool = True, writable: bool = True
) -> MLTensor:
    """A new tensor of ``context`` with the contents of ``x``: any object with ``__dlpack__`` (or a
    NumPy array) of a WebNN data type, or bool, which becomes uint8.

    Copies once where the host sees the context's memory, else once more to the device; ``x`` is
    free again on return. Memory of another library is not used in place: it could change while a
    dispatch reads it. TypeError for other data types, BufferError for memory that the CPU can't
    see, and what ``create_tensor`` rejects with.
    """
    if not hasattr(context, "create_tensor"):
        raise TypeError(f"from_dlpack: an MLContext is expected, not {type(context).__name__}")
    array = _array_of(x)
    try:
        if array.dtype == np.bool_:
            array = array.view(np.uint8)
        if array.dtype.name not in ALL_TYPES:
            raise TypeError(
                f"from_dlpack: {array.dtype} is not a data type of tensors; one of "
                f"{', '.join(ALL_TYPES)} is expected"
            )
        descriptor = MLTensorDescriptor(
            array.dtype.name, array.shape, readable=readable, writable=writable
        )
        tensor = context.create_tensor(descriptor).result()
        storage = tensor._storage_of("from_dlpack")
        with context._timeline.building():
            mapping = HostMapping(context._device, storage)
            memory = np.frombuffer(mapping.memory(writable=True), descriptor.numpy_dtype)
            memory.reshape(array.shape)[...] = array
            mapping.store(context._timeline)
        return tensor
    finally:
        del array  # an error's traceback must not hold ``x``


class _OnHost:
    """Asks a producer for its data in the CPU's memory (NumPy itself does so since 2.1 only)."""

    def __init__(self, producer: Any) -> None:
        self._producer = producer

    def __dlpack_device__(self) -> tuple[int, int]:
        return KDL_CPU, 0

    def __dlpack__(self, **options: Any) -> Any:
        return self._producer.__dlpack__(**{**options, "dl_device": (KDL_CPU, 0)})


def _array_of(x: Any) -> np.ndarray:
    if isinstance(x, np.ndarray):
        return x
    if not hasattr(x, "__dlpack__"):
        raise TypeError(
            f"from_dlpack: an object with __dlpack__ is expected, not {type(x).__name__}"
        )
    elsewhere = x.__dlpack_device__()[0] not in _HOST_TYPES
    if not elsewhere:
        return np.from_dlpack(x)
    try:
        return np.from_dlpack(_OnHost(x))
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        # A TypeError comes from producers that don't know dl_device.
        raise BufferError(
            f"from_dlpack: {type(x).__name__} on DLPack device {x.__dlpack_device__()}: {error}"
        ) from error
