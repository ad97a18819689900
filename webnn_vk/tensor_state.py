"""What has to be agreed on about a tensor: its memory, who holds it, the reads that wait for it."""

from __future__ import annotations

import threading
from typing import Any, Protocol

import numpy as np

from .context_state import ContextState
from .data_types import MLTensorDescriptor
from .errors import DestroyedTensorError, InvalidStateError
from .promise import MLPromise, kind_of
from .runtime import Read, Storage


class Exchange(Protocol):
    """How one tensor's memory goes to a GPU device and back."""

    #: The device, None when there is none (the tensor serves ``export_fd`` only).
    gpu_device: Any
    #: Whether the tensor's memory has to be exportable to another opened device.
    external: bool

    def connect(self, storage: Storage) -> None:
        """The tensor's memory is there. Runs on the timeline."""

    def export(self, tensor: TensorState) -> Any:
        """The buffer that holds the tensor from now on."""

    def release(self, tensor: TensorState) -> None:
        """The tensor was destroyed: let go of its memory. A buffer that is out keeps it."""


class TensorState:
    """The state of one ``MLTensor``; ``storage`` is None once it is destroyed."""

    def __init__(
        self,
        context: ContextState,
        descriptor: MLTensorDescriptor,
        storage: Storage,
        *,
        constant: bool = False,
        exchange: Exchange | None = None,
    ) -> None:
        self.context = context
        self.descriptor = descriptor
        self.storage: Storage | None = storage
        self.constant = constant
        #: How its memory goes to a GPUDevice; None when it is not exportable.
        self.exchange = exchange
        #: What holds the tensor exclusively at present (an exported buffer, a view), if anything.
        self.rental: object | None = None
        self._pending: set[MLPromise] = set()
        self._lock = threading.Lock()

    def use(self, what: str) -> Storage:
        """The tensor's memory; DestroyedTensorError, or TypeError while someone else holds it.
        ``what`` names the call in messages."""
        storage = self.storage
        if storage is None or self.rental is not None:
            self.storage_of(what)
            raise TypeError(
                f"{what}: the tensor {self.descriptor} is held by {self.rental!r}; "
                "release that first"
            )
        return storage

    def storage_of(self, what: str) -> Storage:
        """The tensor's memory, whoever holds it; DestroyedTensorError."""
        storage = self.storage
        if storage is None:
            raise DestroyedTensorError(f"{what}: the tensor {self.descriptor} was destroyed")
        return storage

    def rent(self, holder: object, what: str) -> Storage:
        """The tensor's memory for ``holder`` alone, until ``end_rental``; raises as ``use``."""
        # Behind calls that have found the tensor free and are about to queue their work.
        with self.context.order, self._lock:
            storage = self.use(what)
            self.rental = holder
        return storage

    def end_rental(self, holder: object) -> None:
        """``holder`` gives the tensor back; nothing happens when it no longer has it."""
        # No lock: this may run in a destructor.
        if self.rental is holder:
            self.rental = None

    def begin_read(self, promise: MLPromise, what: str) -> Storage:
        """The memory to read, as ``use``; the tensor's end rejects ``promise`` from now on."""
        with self._lock:
            storage = self.use(what)
            self._pending.add(promise)
        return storage

    def end_read(self, promise: MLPromise) -> bool:
        """Whether the read is still wanted: after the tensor's end nothing may be written to what
        the caller gave."""
        with self._lock:
            wanted = promise in self._pending
            self._pending.discard(promise)
        return wanted

    def check_readable(self, what: str) -> None:
        """TypeError unless it was created readable; raises as ``use``."""
        self.use(what)
        if not self.descriptor.readable:
            raise TypeError(f"{what}: {self!r} was not created with readable=True")

    def read(self, what: str, view: np.ndarray | None = None) -> MLPromise[Any]:
        """The contents once all work before is done: a new array, or None with ``view``, flat
        bytes that are filled on success only. Raises as ``use``."""
        d = self.descriptor
        promise: MLPromise[Any] = MLPromise(
            f"an array {d}" if view is None else "None, once the output is filled"
        )

        def done(data: np.ndarray) -> None:
            # destroy() rejects what it finds pending; after that nothing may be written.
            if not self.end_read(promise):
                return
            if view is None:
                promise.resolve(data.view(d.numpy_dtype)[: d.size].reshape(d.shape))
            else:
                view[...] = data[: d.byte_length]
                promise.resolve(None)

        def failed(error: Exception) -> None:
            self.end_read(promise)
            promise.reject(error)

        with self.context.order:
            storage = self.begin_read(promise, what)
            self.context.lane.enqueue(Read(storage, done, failed))
        return promise

    def export(self) -> Any:
        """The buffer of the tensor's GPUDevice, with its memory (``context.export_to_gpu``).
        TypeError when the tensor is not exportable."""
        self.context.timeline.check_fork()
        if self.exchange is None:
            raise TypeError(f"export_to_gpu: {self!r} was not created by create_exportable_tensor")
        return self.exchange.export(self)

    def destroy(self) -> None:
        """Let go of the memory; reads that wait are rejected with InvalidStateError. Calling it
        again does nothing."""
        self.context.timeline.check_fork()
        with self._lock:
            self.storage = self.rental = None  # a buffer that is out is its owner's alone
            pending, self._pending = self._pending, set()
        if self.exchange is not None:
            self.exchange.release(self)
        for promise in pending:
            promise.reject(InvalidStateError("the tensor was destroyed before it was read"))

    def __repr__(self) -> str:
        descriptor = self.descriptor
        flags = [f for f in ("readable", "writable") if getattr(descriptor, f)]
        flags += ["constant"] * self.constant
        flags += ["exportable"] * (self.exchange is not None)
        flags += ["destroyed"] * (self.storage is None)
        return f"<{' '.join(['MLTensor', str(descriptor), *flags])}>"


class TensorBase:
    """What modules below ``MLTensor`` may know of it."""

    _state: TensorState


def tensor_state(tensor: TensorBase) -> TensorState:
    """The state of a tensor."""
    return tensor._state


def owned(tensor: Any, context: ContextState, what: str) -> TensorState:
    """The state of a tensor of ``context``; TypeError for anything else."""
    if not isinstance(tensor, TensorBase):
        raise TypeError(f"{what}: an MLTensor is expected, not {kind_of(tensor)}")
    if tensor._state.context is not context:
        raise TypeError(f"{what}: {tensor!r} belongs to another context")
    return tensor._state
