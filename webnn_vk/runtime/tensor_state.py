"""The shared state of a tensor: its memory, its lease, and pending reads."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from webnn_vk.compiler.types.data_types import MLTensorDescriptor, elements
from webnn_vk.support import background
from webnn_vk.support.errors import DestroyedTensorError, InvalidStateError
from webnn_vk.support.promise import MLPromise, PulledPromise, kind_of

from .context_state import ContextState
from .storage import Storage
from .work import Lend, Read, Return, Run


class ExternalBinding:
    """How one tensor's memory is handed to a GPU device and back. This class has no device: its
    tensor serves ``export_fd`` only."""

    gpu_device: Any = None
    #: Whether the tensor's memory has to be exportable to another opened device.
    exportable = True

    def connect(self, storage: Storage) -> None:
        """The tensor's memory is allocated. Runs on the timeline."""

    def export(self, tensor: TensorState, caller: Owner) -> Export:
        """The tensor's new holder, with the buffer."""
        raise TypeError(f"export_to_gpu: {tensor!r} was created without a GPUDevice")

    def release(self, tensor: TensorState) -> None:
        """The tensor was destroyed: release its memory. An exported buffer keeps it."""


class Owner:
    """A caller that will get an exported buffer; ``gone`` once an exception, including an
    interrupt, came first."""

    gone = False


class Export:
    """The holder of a tensor that is exported to a GPU device: ``buffer``, once there is one.
    ``end`` gives the tensor back; ``name`` is for messages."""

    def __init__(self, caller: Owner, end: Callable[[], Any], name: str = "") -> None:
        self.buffer: Any = None
        #: Whether a caller has the buffer.
        self.seen = False
        self._callers = [caller]
        self._end = end
        self._name = name

    def join(self, caller: Owner) -> None:
        """One more caller will get the buffer."""
        if not self.seen:
            self._callers.append(caller)

    def expire(self) -> None:
        """Give the tensor back if no caller got the buffer, or will get it."""
        if not self.seen and all(caller.gone for caller in self._callers):
            background.run_on_worker(self._end)

    def __repr__(self) -> str:
        return self._name or repr(self.buffer)


class TensorState:
    """The state of one ``MLTensor``; ``storage`` is None once it is destroyed."""

    def __init__(
        self,
        context: ContextState,
        descriptor: MLTensorDescriptor,
        storage: Storage,
        *,
        constant: bool = False,
        external: ExternalBinding | None = None,
    ) -> None:
        self.context = context
        self.descriptor = descriptor
        self.storage: Storage | None = storage
        self.constant = constant
        #: How its memory is handed to a GPUDevice; None if it is not exportable.
        self.external = external
        #: The current exclusive holder of the tensor (an exported buffer, a view), if any.
        self.lease: object | None = None
        # Pending reads, by weak references; the thread that removes one settles its promise.
        self._pending: set[weakref.ref[MLPromise]] = set()
        # Guards ``lease``. Never acquired in the main thread.
        self._lock = threading.Lock()

    def use(self, what: str) -> Storage:
        """The tensor's memory; raises as ``storage_of``, and TypeError while it is leased."""
        storage = self.storage
        if storage is None or self.lease is not None:
            storage = self.storage_of(what)
            while (holder := self.lease) is not None:
                expire = getattr(holder, "expire", None)
                if expire is not None:
                    expire()
                if self.lease is holder:
                    raise TypeError(
                        f"{what}: the tensor {self.descriptor} is held by {holder!r}; "
                        "release that first"
                    )
        return storage

    def storage_of(self, what: str) -> Storage:
        """The tensor's memory, also while it is lent. Once it is destroyed, DestroyedTensorError;
        InvalidStateError if the context is lost. ``what`` names the call in messages."""
        storage = self.storage
        if storage is None:
            raise self.context.loss() or DestroyedTensorError(
                f"{what}: the tensor {self.descriptor} was destroyed"
            )
        return storage

    def acquire_lease(self, holder: object, what: str) -> Storage:
        """Lease the tensor's memory to ``holder`` alone, until ``end_lease``; raises as ``use``. If
        the current holder has a method ``expire``, that ends its lease if possible."""
        while True:
            # Without the lock: this may end an expired lease, and wait for its holder.
            storage = self.use(what)
            with self._lock:
                if self.lease is None:
                    self.lease = holder
                    break
        # Calls that found the tensor free and queue their work only now fail.
        self.context.stream.enqueue(Lend(storage))
        return storage

    def end_lease(self, holder: object) -> None:
        """``holder`` gives the tensor back; nothing happens if it no longer has it."""
        # No lock: this may run in a destructor.
        storage = self.storage
        if self.lease is holder:
            if storage is not None:
                self.context.stream.enqueue(Return(storage))
            self.lease = None

    def _end_read(self, pending: weakref.ref[MLPromise]) -> bool:
        """Whether the read is still wanted: after the tensor's end nothing may be written to the
        caller's memory."""
        try:
            self._pending.remove(pending)
        except KeyError:
            return False
        return True

    def check_readable(self, what: str) -> None:
        """TypeError unless it was created readable; raises as ``use``."""
        self.use(what)
        if not self.descriptor.readable:
            raise TypeError(f"{what}: {self!r} was not created with readable=True")

    def read(self, what: str, view: np.ndarray | None = None) -> MLPromise[Any]:
        """The contents once all earlier work is done: a new array, or None with ``view``, flat
        bytes that are filled. Raises as ``use``."""
        d = self.descriptor
        if view is None and (found := self._read_directly(what)) is not None:
            return found
        promise: MLPromise[Any] = MLPromise(
            f"an array {d}" if view is None else "None, once the output is filled"
        )

        def into() -> np.ndarray | None:
            # destroy() rejects what it finds pending; after that nothing may be written.
            if not self._end_read(pending):
                return None
            if self.storage is None or self.context.loss() is not None:
                # destroy() is about to settle it.
                promise.reject(self._destroyed())
                return None
            return np.empty(d.byte_length, np.uint8) if view is None else view

        def done(data: np.ndarray) -> None:
            promise.resolve(elements(data, d) if view is None else None)

        def failed(error: Exception) -> None:
            self._end_read(pending)
            promise.reject(error)

        # The tensor's end rejects the promise from here on.
        pending = weakref.ref(promise, self._pending.discard)
        self._pending.add(pending)
        self.context.stream.enqueue(Read(self.use(what), done, failed, into=into))
        return promise

    def _read_directly(self, what: str) -> MLPromise[Any] | None:
        """The contents as a new array, if the caller can read them itself (``runtime.direct``)."""
        d, stream, timeline = self.descriptor, self.context.stream, self.context.timeline
        begun = stream.read(self.use(what))
        if begun is None:
            return None
        value, collect = begun
        def pull(timeout: float | None) -> tuple[np.ndarray] | None:
            call = timeline.call()
            if timeline.ended or self.storage is None:
                raise self._destroyed()
            over = not value or timeline.direct.wait(value, timeout)
            data = collect() if over else None
            del call
            return None if data is None else (elements(data, d),)

        promise = PulledPromise(
            f"an array {d}", pull, lambda then, failed: stream.enqueue(Run(then, failed))
        )
        # The tensor's end rejects it from here on.
        self._pending.add(weakref.ref(promise, self._pending.discard))
        return promise

    def export(self, caller: Owner) -> Export:
        """The buffer of the tensor's GPUDevice, with its memory (``context.export_to_gpu``).
        TypeError if the tensor is not exportable."""
        self.context.timeline.check_fork()
        if self.external is None:
            raise TypeError(f"export_to_gpu: {self!r} was not created by create_exportable_tensor")
        return background.run_on_worker(self.external.export, self, caller)

    def destroy(self) -> None:
        """Release the memory; pending reads are rejected with InvalidStateError. Calling it again
        does nothing."""
        self.context.timeline.check_fork()
        storage, holder = self.storage, self.lease
        self.storage = self.lease = None  # an exported buffer belongs to its owner alone
        if holder is not None and storage is not None:
            self.context.stream.enqueue(Return(storage))
        if self._pending or self.external is not None:
            background.run_on_worker(self._end)

    def _end(self) -> None:
        if self.external is not None:
            self.external.release(self)
        while self._pending:
            try:
                promise = self._pending.pop()()
            except KeyError:
                return
            if promise is not None:
                promise.reject(self._destroyed())

    def _destroyed(self) -> InvalidStateError:
        message = "the tensor was destroyed before it was read"
        return self.context.loss() or InvalidStateError(message)

    def __repr__(self) -> str:
        descriptor = self.descriptor
        flags = [f for f in ("readable", "writable") if getattr(descriptor, f)]
        flags += ["constant"] * self.constant
        flags += ["exportable"] * (self.external is not None)
        flags += ["destroyed"] * (self.storage is None)
        return f"<{' '.join(['MLTensor', str(descriptor), *flags])}>"


class TensorBase:
    """The part of ``MLTensor`` that lower modules may use."""

    _state: TensorState


def owned(tensor: Any, context: ContextState | None, what: str) -> TensorState:
    """The state of a tensor of ``context`` (None: of any); TypeError for any other object."""
    if not isinstance(tensor, TensorBase):
        raise TypeError(f"{what}: an MLTensor is expected, not {kind_of(tensor)}")
    if context is not None and tensor._state.context is not context:
        raise TypeError(f"{what}: {tensor!r} belongs to another context")
    return tensor._state
