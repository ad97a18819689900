"""DLPack: other libraries' tensors for a context."""

from __future__ import annotations

from typing import Any

import numpy as np

from webnn_vk.compiler.types.data_types import ALL_TYPES, MLTensorDescriptor, shown
from webnn_vk.runtime.mapping import HostMapping
from webnn_vk.support import background
from webnn_vk.support.errors import DOMException, reason
from webnn_vk.support.promise import kind_of

from .context import MLContext
from .interop.dlpack import KDL_CPU
from .tensor import MLTensor

# Memory that NumPy can read: the CPU's, and memory that CUDA and ROCm share with it.
_HOST_TYPES = (KDL_CPU, 3, 11, 13)


def from_dlpack(
    x: Any, context: MLContext, *, readable: bool = True, writable: bool = True
) -> MLTensor:
    """A new tensor of ``context`` with the contents of ``x``: a NumPy array or any object with
    ``__dlpack__``, of a WebNN data type or bool, which becomes uint8. Waits for the tensor.

    Values are copied, with any strides and byte order of a NumPy array: once if the host can access
    the context's memory, otherwise once more to the device. ``x`` is not used after the call.
    Memory of another library is not used in place, because it could change while a dispatch reads
    it. Raises TypeError for other data types, BufferError for memory that the CPU can't access, and
    the errors that ``create_tensor`` rejects with.
    """
    if not isinstance(context, MLContext):
        raise TypeError(f"from_dlpack: an MLContext is expected, not {kind_of(context)}")
    array = _array_of(x)
    try:
        if array.dtype == np.bool_:
            array = array.view(np.uint8)
        if array.dtype.name not in ALL_TYPES:
            raise TypeError(
                f"from_dlpack: {array.dtype} is not a data type of tensors; one of "
                f"{', '.join(ALL_TYPES)} is expected"
            )
        try:
            descriptor = MLTensorDescriptor(
                array.dtype.name, array.shape, readable=readable, writable=writable
            )
            tensor = context.create_tensor(descriptor).result()
        except TypeError as error:
            raise TypeError(f"from_dlpack: {error}") from error.__cause__
        storage = tensor._state.storage_of("from_dlpack")
        state = context._state

        def fill(array: np.ndarray) -> None:
            with state.timeline.building():
                mapping = HostMapping(state.device, storage)
                memory = np.frombuffer(mapping.memory(writable=True), descriptor.numpy_dtype)
                memory.reshape(array.shape)[...] = array
                mapping.store(state.stream)

        background.run_on_worker(fill, array)
        return tensor
    finally:
        del array  # the traceback of an error must not keep ``x`` alive


class _OnHost:
    """Asks a producer for its data in CPU memory (NumPy does this itself since 2.1)."""

    def __init__(self, producer: Any) -> None:
        self._producer = producer

    def __dlpack_device__(self) -> tuple[int, int]:
        return KDL_CPU, 0

    def __dlpack__(self, **options: Any) -> Any:
        return self._producer.__dlpack__(**{**options, "dl_device": (KDL_CPU, 0)})


def _array_of(x: Any) -> np.ndarray:
    if isinstance(x, np.ndarray):
        return x
    if not hasattr(type(x), "__dlpack__"):
        raise TypeError(f"from_dlpack: an object with __dlpack__ is expected, not {kind_of(x)}")
    try:
        where = x.__dlpack_device__()
        if where[0] in _HOST_TYPES:
            return np.from_dlpack(x)
    except Exception as error:  # producers may raise anything
        documented = isinstance(error, (BufferError, DOMException))
        kind = type(error) if documented else TypeError
        raise kind(f"from_dlpack: {type(x).__name__}: {reason(error)}") from error
    try:
        return np.from_dlpack(_OnHost(x))
    except DOMException as error:
        raise type(error)(f"from_dlpack: {error}") from error
    except Exception as error:  # a TypeError of producers that don't know dl_device
        raise BufferError(
            f"from_dlpack: {type(x).__name__} on DLPack device {shown(where)}: {reason(error)}"
        ) from error
