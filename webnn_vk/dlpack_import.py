"""DLPack: other libraries' tensors for a context."""

from __future__ import annotations

from typing import Any

import numpy as np

from .context import MLContext
from .context_state import context_state
from .data_types import ALL_TYPES, MLTensorDescriptor
from .interop.dlpack import KDL_CPU
from .runtime.mapping import HostMapping
from .tensor import MLTensor
from .tensor_state import tensor_state

# What NumPy can look at: the CPU's memory, and what CUDA and ROCm share with it.
_HOST_TYPES = (KDL_CPU, 3, 11, 13)


def from_dlpack(
    x: Any, context: MLContext, *, readable: bool = True, writable: bool = True
) -> MLTensor:
    """A new tensor of ``context`` with the contents of ``x``: any object with ``__dlpack__`` (or a
    NumPy array) of a WebNN data type, or bool, which becomes uint8. Waits for the tensor.

    Copies once where the host sees the context's memory, else once more to the device; ``x`` is
    free again on return. Memory of another library is not used in place: it could change while a
    dispatch reads it. TypeError for other data types, BufferError for memory that the CPU can't
    see, and what ``create_tensor`` rejects with.
    """
    if not isinstance(context, MLContext):
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
        storage = tensor_state(tensor).storage_of("from_dlpack")
        state = context_state(context)
        with state.timeline.building():
            mapping = HostMapping(state.device, storage)
            memory = np.frombuffer(mapping.memory(writable=True), descriptor.numpy_dtype)
            memory.reshape(array.shape)[...] = array
            mapping.store(state.lane)
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
