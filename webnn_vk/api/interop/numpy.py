"""NumPy views of tensors: ``tensor.to_numpy()``."""

from __future__ import annotations

import threading
import weakref
from typing import Any

import numpy as np

from webnn_vk.runtime.mapping import HostMapping
from webnn_vk.runtime.tensor_state import TensorState
from webnn_vk.support import background


def view(tensor: TensorState, what: str = "to_numpy") -> TensorArray:
    """See ``MLTensor.to_numpy``. ``what`` names the call in messages."""
    if not tensor.descriptor.readable:
        raise TypeError(f"{what}: {tensor!r} was not created with readable=True")
    lease = ViewLease(tensor, what)
    try:
        return lease.open()
    except BaseException:
        lease.close()
        raise


class ViewLease:
    """A tensor's exclusive use through an array.

    ``release`` (of the array, or when the last view is gone) gives the tensor back. The memory and
    the device stay until no array refers to them any more, even if tensor and context are
    destroyed.
    """

    def __init__(self, tensor: TensorState, what: str) -> None:
        self._tensor: TensorState | None = tensor
        self._stream = tensor.context.stream
        # A use of the device besides the context's, which may end first.
        self._timeline = tensor.context.timeline
        self._user = self._timeline.join(lambda message: None)
        self._mapping: HostMapping | None = None
        self._wanted = background.waiting()
        # The innermost array, once there is one.
        self._flat: weakref.ref[np.ndarray] | None = None
        # Guards the release. Never taken in the main thread.
        self._lock = threading.Lock()
        # Other threads see the lease from here on.
        try:
            self._storage = tensor.acquire_lease(self, what)
        except BaseException:
            self._leave()
            raise

    def open(self) -> TensorArray:
        """Wait for the tensor's contents and show them as an array."""
        tensor = self._tensor
        mapping = HostMapping(tensor.context.device, self._storage)
        mapping.fetch(self._stream)
        self._mapping = mapping
        d = tensor.descriptor
        # All views keep this innermost array, not always those between.
        flat = np.frombuffer(mapping.memory(writable=tensor.descriptor.writable), d.numpy_dtype)
        self._flat = weakref.ref(flat)
        background.when_gone(flat, self.close)
        array = flat.reshape(d.shape).view(TensorArray)
        array._lease = self
        return array

    def release(self) -> None:
        """Give the tensor back; work queued from now on sees what was written."""
        with self._lock:
            tensor, self._tensor = self._tensor, None
            if tensor is None:
                return
            try:
                if self._mapping is not None and tensor.descriptor.writable:
                    self._mapping.store(self._stream)
            finally:
                tensor.end_lease(self)

    def expire(self) -> None:
        """Release the tensor if the last array is gone and its finalizer has not run yet, or if an
        interrupt came before the caller had an array."""
        if not self._wanted() or (self._flat is not None and self._flat() is None):
            background.run_on_worker(self.release)

    def close(self) -> None:
        """The last array is gone."""
        try:
            self.release()
        finally:
            self._mapping = None
            self._leave()

    def _leave(self) -> None:
        # The last to leave waits for the device; a destructor should not.
        background.retry(self._timeline.leave, "close", self._user)

    def __repr__(self) -> str:
        return "a NumPy view"


class TensorArray(np.ndarray):
    """An array over a tensor's memory, which holds the tensor until it is released: at the end of
    a ``with`` block, by ``release()``, or when it and all its views are gone.

    Views of it are TensorArrays too. Copies and the results of arithmetic don't hold the tensor.
    """

    _lease: ViewLease | None = None

    def release(self) -> None:
        """Give the tensor back. The arrays must not be used any more: they may show anything that
        the device writes later (but their memory stays, and this one becomes read-only)."""
        if self._lease is not None:
            background.run_on_worker(self._lease.release)
            self.flags.writeable = False

    def __enter__(self) -> TensorArray:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def __array_finalize__(self, source: Any) -> None:
        # The lease goes to views only.
        lease = getattr(source, "_lease", None)
        if lease is not None and np.may_share_memory(self, source):
            self._lease = lease

    def __array_wrap__(
        self, array: np.ndarray, context: Any = None, return_scalar: bool = False
    ) -> Any:
        if array is self:
            return array
        plain = array.view(np.ndarray)
        return plain[()] if plain.ndim == 0 else plain

    def __getitem__(self, key: Any) -> Any:
        part = super().__getitem__(key)
        if isinstance(part, TensorArray) and part._lease is None:
            return part.view(np.ndarray)
        return part
