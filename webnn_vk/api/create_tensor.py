"""Creating a context's tensors: in new memory, or in host memory that is imported."""

from __future__ import annotations

from typing import Any

import numpy as np

from webnn_vk.compiler.types.data_types import (
    MLOperandDescriptor,
    MLTensorDescriptor,
    empty_dimensions,
    require_data_type,
    require_dimensions,
    to_descriptor,
)
from webnn_vk.runtime.context_state import ContextState
from webnn_vk.runtime.mapping import fill, staged_write
from webnn_vk.runtime.storage import Storage
from webnn_vk.runtime.tensor_state import ExternalBinding, TensorState
from webnn_vk.runtime.work import Run, Work, Write
from webnn_vk.support.errors import InvalidStateError, UnknownError
from webnn_vk.support.promise import MLPromise

from .interop import host_memory
from .tensor import MLTensor


def checked_descriptor(
    context: ContextState,
    descriptor: Any,
    what: str,
    kind: type[MLOperandDescriptor] = MLOperandDescriptor,
) -> Any:
    """The descriptor as ``kind``. Raises TypeError for an invalid one, and for a tensor larger than
    the device supports."""
    wanted = to_descriptor(descriptor, kind, what)
    require_data_type(wanted.data_type, context.experimental, what)
    with empty_dimensions("dynamic-shapes" in context.experimental):
        require_dimensions(wanted, context.device.max_tensor_byte_length, what)
    return wanted


def create_tensor(
    context: ContextState,
    descriptor: MLTensorDescriptor,
    data: np.ndarray | None = None,
    *,
    external: ExternalBinding | None = None,
) -> MLPromise[MLTensor]:
    """A constant tensor with a copy of ``data``, or a tensor of zeros, resolved when its memory is
    allocated. With data not for the main thread."""
    promise = context.new_promise(f"an MLTensor {descriptor}")
    exportable = external is not None and external.exportable
    storage, allocation = context.new_storage(descriptor.byte_length, exportable)
    works: list[Work] = [*allocation]
    if data is None:
        works.append(Write(storage, None))
    elif allocation or not _filled(context, storage, data):
        works.append(staged_write(context.timeline, storage, data, "create_constant_tensor"))
    constant = data is not None
    state = TensorState(context, descriptor, storage, constant=constant, external=external)
    context.register(state)
    tensor = MLTensor(state)

    def allocated() -> None:
        if storage.error is not None:
            failed(storage.error)
            return
        if external is not None:
            external.connect(storage)
        promise.resolve(tensor)

    def failed(error: Exception) -> None:
        if not isinstance(error, InvalidStateError):
            error = UnknownError(f"{descriptor}: {error}")
        promise.reject(error)

    context.stream.enqueue(*works, Run(allocated, failed))
    return promise


def _filled(context: ContextState, storage: Storage, data: np.ndarray) -> bool:
    """Whether the host could write to the new memory."""
    with context.timeline.building():
        return fill(storage, data)


def import_constant(
    context: ContextState, descriptor: MLOperandDescriptor, buffer: Any, what: str
) -> MLTensor:
    """A constant tensor that is ``buffer`` itself. Raises as ``interop.host_memory.share``, and
    InvalidStateError when the device is lost."""
    with context.noticing_loss(), context.timeline.building():
        storage = host_memory.share(context.device, descriptor, buffer, what)
    plain = to_descriptor(descriptor, MLTensorDescriptor)
    tensor = TensorState(context, plain, storage, constant=True)
    context.register(tensor)
    return MLTensor(tensor)
